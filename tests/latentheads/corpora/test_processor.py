"""What encodes text after training: it is kept as JSON, and encodes as the corpus was encoded."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import latentheads as lh
from latentheads.batch import BOS, EOS
from latentheads.corpora import Processor, Words
from latentheads.corpora.tasks import Mixture, Task
from latentheads.corpora.vocabulary import Tagged

WORDS = Words(["a", "b", "c"])
MIXTURE = Mixture((Task("x", "y", "news"), Task("x", "z", "talk")), "domain", 5.0, True)


@pytest.mark.parametrize(
    "processor",
    [
        Processor(WORDS),
        Processor(WORDS, WORDS, whitespace="normalise", max_line=7, max_source=5, direction="in"),
        Processor(WORDS, block_size=5, context=2),
        Processor(WORDS, WORDS, mixture=MIXTURE, default_source=None, max_seconds=3.5),
    ],
)
def test_its_json_restores_it(processor: Processor) -> None:
    value = json.loads(json.dumps(processor.to_json()))
    restored = Processor.from_json(value, processor.target, processor.source)
    assert restored == processor
    assert type(restored.mixture) is type(processor.mixture)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_line", "many", r"^processor\.max_line must be a whole number, got 'many'$"),
        ("whitespace", "drop", r"^processor\.whitespace must be one of normalise, keep; got"),
        ("mixture", {"tasks": [["x"]]}, r"^processor\.mixture"),
    ],
)
def test_what_it_cannot_be_is_named(name: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Processor.from_json({**Processor(WORDS).to_json(), name: value}, WORDS, None)


def test_a_source_is_cut_and_begins_with_the_tag_of_its_task() -> None:
    source = Tagged(WORDS, ["<2y>", "<2z>"])
    processor = Processor(WORDS, source, mixture=MIXTURE, max_source=3)
    part = processor.encode(["a b c", "c"], task=1)
    assert part.sources is not None
    tag = source.tag("<2z>")
    expected = [[tag, *WORDS.encode("a b")[:2], 2], [tag, *WORDS.encode("c")]]
    assert [row.tolist() for row in part.sources] == expected
    assert part.task is not None
    assert part.task.tolist() == [1, 1]
    alone = replace(processor, source=None).encode(["a b c"])
    assert alone.sources is None
    assert [row.tolist() for row in alone.targets] == [WORDS.encode("a b c")]


def test_pairs_are_encoded_on_both_sides_as_many_on_each() -> None:
    processor = Processor(WORDS, WORDS)
    part = processor.encode(["a b", "c"], ["c", "b a"])
    assert [row.tolist() for row in part.targets] == [WORDS.encode("c"), WORDS.encode("b a")]
    assert part.sources is not None
    assert [row.tolist() for row in part.sources] == [WORDS.encode("a b"), WORDS.encode("c")]
    with pytest.raises(ValueError, match=r"^targets must be as many as inputs, 2, got 1$"):
        processor.encode(["a", "b"], ["c"])
    with pytest.raises(ValueError, match=r"^inputs must be a list, got 'a b'$"):
        processor.encode("a b")
    with pytest.raises(ValueError, match=r"^inputs must be texts, got None$"):
        processor.encode(["a", None])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"^targets of a language model are its inputs"):
        Processor(WORDS).encode(["a"], ["b"])


def test_of_several_tasks_one_is_named() -> None:
    source = Tagged(WORDS, ["<2y>", "<2z>"])
    processor = Processor(WORDS, source, mixture=MIXTURE, whitespace="normalise")
    by_name, by_index = (processor.encode(["a  b"], [" c"], task=task) for task in ("talk:x-z", 1))
    for part in (by_name, by_index):
        assert part.sources is not None
        assert part.sources[0].tolist() == [source.tag("<2z>"), *WORDS.encode("a b")]
        assert part.targets[0].tolist() == WORDS.encode("c")
    for task in (None, -1, 2):
        with pytest.raises(
            ValueError, match=r"^task must be one of news:x-y, talk:x-z, or its index; got"
        ):
            processor.encode(["a"], task=task)
    with pytest.raises(ValueError, match=r"^task is for a corpus of several, got 0$"):
        Processor(WORDS, WORDS).encode(["a"], task=0)
    with pytest.raises(ValueError, match=r"^a language model has no tasks, got task 'x-y'$"):
        Processor(WORDS).encode(["a"], task="x-y")


def test_a_corpus_has_that_which_encoded_it() -> None:
    data = lh.data.Grammar(sentences=20, held_out=3)
    corpus = data.load()
    assert corpus.source is not None
    assert corpus.processor == data.processor(corpus.target, corpus.source)
    texts = corpus.source_texts(corpus.test)
    again = corpus.processor.encode(texts).sources
    assert again is not None
    assert corpus.test.sources is not None
    assert again.tokens.tolist() == corpus.test.sources.tokens.tolist()
    pairs = [("ein Haus", "a house")] * 3
    own = lh.data.Corpus.from_pairs(pairs, pairs, pairs, vocab_size=300, max_line=40)
    assert own.processor.max_line == 40
    mixed = own.with_mixture(MIXTURE)
    assert mixed.processor.mixture == mixed.train.mixture == MIXTURE


@pytest.mark.parametrize(("block_size", "first"), [(0, BOS), (5, EOS)])
def test_a_line_of_running_text_follows_the_end_of_another(block_size: int, first: int) -> None:
    part = Processor(WORDS, block_size=block_size).encode(["a", "b a"]).take([1, 0])
    for batch in lh.data.batches(part):
        assert batch.decoder_input[:, 0].tolist() == [first] * 2
