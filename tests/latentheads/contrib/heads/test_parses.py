"""Sentences whose dependencies are known, as a run reads them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from latentheads.batch import EOS, UNK
from latentheads.contrib.heads import ParsedSentence
from latentheads.contrib.heads.parses import grammar_parses, parsed_part
from latentheads.corpora import Processor, Words
from latentheads.data import Grammar, Tasks
from tests.typechecking import unchecked


def test_a_parsed_sentence_that_is_too_long_is_refused() -> None:
    sentences = [ParsedSentence(("the",) * number, (), (False,) * number) for number in (4, 5)]
    for most, refused in ((4, 1), (5, 2), (6, 0), (0, 0)):
        processor = Processor(Words([]), Words(["the"]), max_line=most)
        trained: Any = SimpleNamespace(
            source=processor.source, target=processor.target, processor=processor
        )
        if not refused:
            assert len(unchecked(parsed_part)(sentences, trained, "some.conllu").part) == 2
            continue
        message = (
            f"some.conllu, sentence {refused}: {4 + refused} tokens, more than max_line {most}"
        )
        with pytest.raises(ValueError, match=f"^{message}$"):
            unchecked(parsed_part)(sentences, trained, "some.conllu")


def test_parsed_words_are_read_as_the_run_reads_its_own() -> None:
    sentences = [ParsedSentence(("Dogs", "Sleep"), (), (False, True))]
    words = Words(["dogs", "sleep"], lowercase=True)
    processor = Processor(words, words, max_line=0)
    trained: Any = SimpleNamespace(source=words, target=words, processor=processor)
    actual = unchecked(parsed_part)(sentences, trained, "file")
    assert actual.part.sources is not None
    assert actual.part.sources[0].tolist() == [4, 5, EOS]
    assert actual.part.targets[0].tolist() == [EOS]
    trained.source, trained.target = None, Words(["dogs"], lowercase=True)
    trained.processor = Processor(trained.target, block_size=5)
    part = unchecked(parsed_part)(sentences, trained, "file").part
    assert part.targets[0].tolist() == [4, UNK, EOS]
    assert part.tags.tolist() == [EOS]
    sentences = [ParsedSentence(("a", "\u3000"), (), (False, False))]
    with pytest.raises(ValueError, match="file, sentence 1: the vocabulary does not split it"):
        unchecked(parsed_part)(sentences, trained, "file")


def test_heads_are_read_on_sentences_of_every_task() -> None:
    tasks = Tasks("velu,velu-tamir", sizes=(60, 60))
    corpus = Grammar(held_out=9, tasks=tasks).load()
    part = corpus.test.first(6)
    assert part.task.tolist() == [0, 0, 0, 1, 1, 1]
    parses = grammar_parses(corpus.train, corpus)
    assert set(parses.part.task.tolist()) == {0}
    plain = Grammar(held_out=9, tasks=Tasks("velu", sizes=(60,))).load()
    alone = grammar_parses(plain.train, plain)
    for mine, other in zip(parses.arcs, alone.arcs, strict=True):
        assert [(a.head - 1, a.dependent - 1) for a in mine] == [
            (a.head, a.dependent) for a in other
        ]
