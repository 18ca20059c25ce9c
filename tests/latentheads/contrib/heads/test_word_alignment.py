"""Lines and their translations, word by word, by the exact posterior."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from latentheads.batch import SPECIALS, Batch
from latentheads.contrib.heads import (
    AlignmentDistributions,
    alignment_distributions,
    likeliest_links,
    word_alignment,
)
from latentheads.contrib.heads.word_alignment import align, split_word_ids
from latentheads.corpora import Processor, Vocabulary, Words
from latentheads.corpora.characters import Characters
from latentheads.corpora.from_grammar import sample_pairs
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.text import split_punctuation
from latentheads.corpora.vocabulary import Tagged
from latentheads.data import Data, Grammar, Pairs, RunningText
from latentheads.errors import UnfinishedError
from latentheads.guides import GUIDES
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.copy.options import CopyOptions
from latentheads.latents.logits.latent import Logits
from latentheads.models import LanguageModel, Translation
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings
from tests.latentheads.latents.alignments.models import SHAPES, SOFT
from tests.tiny import jiggle, sizes
from tests.typechecking import unchecked

CORPUS = sample_pairs(sentences=40, held_out=5)
LINES = list(CORPUS.test.references)


def run_of(
    options: AlignmentOptions | None,
    source: Vocabulary,
    target: Vocabulary,
    data: Data = Grammar(),  # noqa: B008
) -> Run:
    network = sizes(width=6, layers=1)
    latents = [options] if options else []
    model: Any = Translation(
        len(source), len(target), network, latents=[Logits(attention_types=()), *latents]
    )
    model = jiggle(model, 0.7).double().eval()
    if options is not None:
        model.alignments.blocks[0].lexicon.weight.data.mul_(3)  # so that words tell where they are
    guide = GUIDES["tied"](model)
    return Run(
        Path("runs/mine"), Settings(data=data), data.processor(target, source), model, guide, step=3
    )


@pytest.fixture(scope="module")
def words() -> Run:
    torch.manual_seed(0)
    assert CORPUS.source is not None
    return run_of(SHAPES["one head"], CORPUS.source, CORPUS.target)


def english(number: int) -> list[str]:
    assert CORPUS.source is not None
    return [CORPUS.source.decode(row.tolist()) for row in CORPUS.test.sources or ()][:number]


def test_every_word_of_a_translation_is_linked_to_one_of_its_line(words: Run) -> None:
    lines, translations = english(3), LINES[:3]
    computed_links = align(words, ["", *lines, "  "], ["la", *translations, ""])
    assert [computed_links[0], computed_links[-1]] == [[], []]
    for line, translation, links in zip(lines, translations, computed_links[1:-1], strict=True):
        assert sorted(target for _, target in links) == list(range(len(translation.split())))
        assert {source for source, _ in links} <= set(range(len(line.split())))
    assert (
        computed_links[2] == align(words, [lines[1]], [translations[1]])[0]
    )  # whatever stands around


def pointing(*places: int) -> Any:
    """Has every token point, by each of the heads, at one position."""

    def at(model: Any, guide: Any, batch: Any) -> AlignmentDistributions:
        weights = torch.zeros(1, len(places), batch.target.shape[1], batch.source.shape[1])
        for head, index in enumerate(places):
            weights[:, head, :, index] = 1
        return AlignmentDistributions(("a", "b")[: len(places)], weights, weights, weights)

    return mock.patch.object(word_alignment, "alignment_distributions", at)


def test_subwords_are_joined_to_words() -> None:
    """Every token points at the last token of the source, by the other head at one of its first."""
    raw = Subwords.train(LINES * 3, 300)
    line, translation = "an unseen line", LINES[0]
    places = raw.word_ids(raw.encode(line))
    assert len(places) > len(line.split())
    with pointing(-2, places.index(0)):
        (links,) = align(run_of(SHAPES["two heads"], raw, raw), [line], [translation])
    size = len(translation.split())
    assert links == sorted((index, word) for word in range(size) for index in (0, 2))


def test_words_are_linked_without_their_punctuation() -> None:
    """Every token points at that of the question mark, which is part of "me?" or a word."""
    raw = Subwords.train(["kennt sie me? ."] * 3, 300)
    run = run_of(SHAPES["one head"], raw, raw)
    with pointing(raw.encode("sie me?").index(raw.encode("me?")[-2])):
        assert align(run, ["sie me?"], ["me, sie"]) == [[(1, 0), (1, 1)]]
        split = align(run, ["", "sie me?"], ["me", "me, sie"], split_punctuation=True)
    assert split == [[], [(2, 0), (2, 1), (2, 2)]]


def test_who_points_at_a_space_means_the_word_behind_it() -> None:
    raw = Subwords.train(LINES * 3, 300)
    line = "la \N{SNOWMAN}"
    space = raw.word_ids(raw.encode(line)).index(None)
    assert space > 0
    with pointing(space):
        assert align(run_of(SHAPES["one head"], raw, raw), [line], ["la"]) == [[(1, 0)]]


def test_links_are_those_of_the_posterior(words: Run) -> None:
    lines, before = english(5), 0
    assert words.source is not None
    for line, translation in zip(lines, LINES, strict=True):
        pair = Batch.of([words.target.encode(translation)], [words.source.encode(line)])
        distributions = alignment_distributions(words.model, words.guide, pair)
        (link,) = align(words, [line], [translation])
        assert link == sorted(likeliest_links(distributions.posterior, pair)[0][0])
        before += link == sorted(likeliest_links(distributions.prior, pair)[0][0])
    assert before < len(lines)


def copy_run(vocabulary: Vocabulary) -> Run:
    """A run with a copy head whose source and target have one vocabulary."""
    torch.manual_seed(0)
    size = len(vocabulary)
    model: Any = Translation(
        size, size, sizes(), latents=[Logits(attention_types=()), CopyOptions(width=5)]
    )
    model = model.double().eval()
    guide = GUIDES["exact"](model)
    return Run(
        Path("runs/mine"), Settings(), Processor(vocabulary, vocabulary), model, guide, step=3
    )


@pytest.mark.parametrize(("bias", "links"), [(0.0, [(1, 1), (2, 0)]), (40.0, [])])
def test_copied_words_are_linked_to_where_they_stand(
    bias: float, links: list[tuple[int, int]]
) -> None:
    run = copy_run(Words(["la", "the", "cat", "sees"]))
    run.model.latents["copy"].bias.data.fill_(bias)
    assert align(run, ["the cat sees", ""], ["sees cat", "la"]) == [links, []]


@pytest.mark.parametrize(
    ("copied_from", "links"),
    [((3, 4, 5), [(1, 0)]), ((3, None, 5), []), ((3, 4, 1), []), ((None,) * 3, [])],
)
def test_a_word_is_copied_if_all_of_its_tokens_are_from_one_word(
    copied_from: tuple[int | None, ...], links: list[tuple[int, int]]
) -> None:
    """Letters of "cab", copied from those of the source "b cab", or generated."""
    run = copy_run(Subwords.train(["b cab"], 260))
    assert run.target.word_ids(run.target.encode("b cab")) == [None, 0, None, 1, 1, 1]

    def copied(model: Any, guide: Any, batch: Any) -> AlignmentDistributions:
        weights = torch.zeros(1, 1, batch.target.shape[1], 1 + batch.source.shape[1])
        for token, position in enumerate(copied_from, 1):
            weights[..., token, 0 if position is None else 1 + position] = 1
        return AlignmentDistributions(("a",), weights, weights, weights, first_position=1)

    with mock.patch.object(word_alignment, "alignment_distributions", copied):
        assert align(run, ["b cab"], ["cab"]) == [links]


def language_model(latent: CopyOptions | AlignmentOptions, data: Data) -> Run:
    """A run of a language model whose heads point at earlier words."""
    torch.manual_seed(0)
    raw = Words(["la", "the", "cat", "sees"])
    model: Any = LanguageModel(len(raw), sizes(), latents=[Logits(attention_types=()), latent])
    model = model.double().eval()
    guide = GUIDES["exact"](model)
    return Run(Path("lm"), Settings(data=data), data.processor(raw), model, guide, step=3)


@pytest.mark.parametrize("block", [0, 5])
def test_copied_words_of_a_text_are_linked_to_earlier_words(block: int) -> None:
    data = RunningText("here", block_size=block) if block else RunningText("here", max_line=9)
    run = language_model(CopyOptions(width=5), data)
    run.model.latents["copy"].bias.data.fill_(0)
    text = "the cat sees the cat"
    assert align(run, [text, "", "cat la"]) == [[(0, 3), (1, 4)], [], []]
    assert align(run, ["the cat? the, cat"], split_punctuation=True) == [[(1, 3)]]  # unknown words
    long = " ".join([text] * 2)
    if block:
        assert len(align(run, [long])[0]) == 7
    else:
        with pytest.raises(UnfinishedError, match="11 tokens, more than max_line 9"):
            align(run, [long])
    run.model.latents["copy"].bias.data.fill_(40)
    assert align(run, [text]) == [[]]


def test_words_of_a_text_are_aligned_with_earlier_words() -> None:
    """Each word with the earlier one that the posterior prefers, unless it prefers null."""
    run = language_model(SHAPES["one head"], Grammar())
    jiggle(run.model.alignments, 0.7)
    line = "the cat sees the cat la the sees"
    batch = run.read_sentence(line)
    posterior = alignment_distributions(run.model, run.guide, batch).posterior[0, 0]
    expected = []
    for word, (null, _, *earlier) in enumerate(posterior[:8].tolist()):  # after null and BOS
        if null <= 0.5 and word:
            expected.append((earlier.index(max(earlier[:word])), word))
    assert expected
    assert align(run, [line]) == [sorted(expected)]


def test_a_line_that_is_too_long_is_lost() -> None:
    assert CORPUS.source is not None
    run = run_of(SHAPES["one head"], CORPUS.source, CORPUS.target, Pairs("here", max_line=4))
    lines, lost = ["the cat", "the cat sees the dog", "the dog"], list[int]()
    two = ["la la"] * 3
    actual = word_alignment.align_lines(run, lines, two, None, lambda index, _: lost.append(index))
    assert [bool(links) for links in actual] == [True, False, True]
    assert lost == [1]
    with pytest.raises(UnfinishedError, match="line 2: 6 tokens, more than max_line 4"):
        align(run, lines, two)


def test_what_cannot_be_aligned_is_refused(words: Run) -> None:
    assert CORPUS.source is not None
    both = CORPUS.source, CORPUS.target
    for name, pair in (("sentences", ("ab", ["a", "b"])), ("translations", (["a", "b"], "ab"))):
        with pytest.raises(ValueError, match=rf"^{name} must be a list, got "):
            align(words, *pair)
    with pytest.raises(ValueError, match=r"^run must be a run, or its folder, got 3"):
        unchecked(align)(3, ["a"], ["b"])
    with pytest.raises(ValueError, match=r"^runs/x is not a run folder"):
        align("runs/x", ["a"], ["b"])
    with pytest.raises(ValueError, match="translations must be as many as sentences, 1, got 2"):
        align(words, ["a"], ["b", "c"])
    with pytest.raises(ValueError, match="runs/mine has no alignments: there is no posterior"):
        align(run_of(None, *both), ["a"], ["b"])
    with pytest.raises(ValueError, match="runs/mine has no latent alignments"):
        align(run_of(SOFT["soft"], *both), ["a"], ["b"])
    model = LanguageModel(len(CORPUS.target), sizes(layers=1), latents=[Logits(attention_types=())])
    alone = Run(
        Path("lm"), Settings(), Processor(CORPUS.target), model, GUIDES["tied"](model), step=1
    )
    with pytest.raises(ValueError, match="lm is a language model: it has no source"):
        align(alone, ["a"], ["b"])
    with pytest.raises(ValueError, match="lm has no alignments"):
        align(alone, ["a"])
    with pytest.raises(ValueError, match="runs/mine translates: give a translation of each"):
        align(words, ["a"])
    with pytest.raises(ValueError, match="direction is of translations: give"):
        align(alone, ["a"], direction="en-de")


LINE = 'He said: "Don\'t you know me?" (€5)'
WORDS = ["He", "said", ":", '"', "Don't", "you", "know", "me", '?"', "(€", "5", ")"]

VOCABULARIES = {
    "bytes": Subwords.train([LINE] * 3, 270),
    "tokenised": Subwords.train([LINE] * 3, len({*LINE}) + len(SPECIALS), tokenised=True),
    "characters": Characters.count([LINE] * 3),
}


def test_punctuation_is_split_off_the_ends_of_words() -> None:
    assert split_punctuation(LINE) == WORDS
    assert split_punctuation(" -- a,b  नमस्ते। ") == ["--", "a,b", "नमस्ते", "।"]
    assert split_punctuation("") == []


@pytest.mark.parametrize("name", VOCABULARIES)
def test_tokens_of_a_word_are_its_text(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    ids = vocabulary.encode(LINE)
    words = split_word_ids(vocabulary, ids, LINE)
    assert len(words) == len(ids) - 1
    assert sorted({word for word in words if word is not None}) == list(range(len(WORDS)))
    for number, text in enumerate(WORDS):
        tokens = [token for token, word in zip(ids, words) if word == number]
        assert vocabulary.decode(tokens).strip() == text


def test_a_token_of_a_word_and_its_punctuation_is_the_word() -> None:
    vocabulary = Words(['"me?"', "a"])
    ids = vocabulary.encode('a "me?" "new!" ?! a')
    assert split_word_ids(vocabulary, ids, 'a "me?" "new!" ?! a') == [0, 2, 5, 7, 8]


def test_unknown_characters_and_tags_move_no_word() -> None:
    plain: Vocabulary = Characters.count(["abc? "] * 3)
    assert split_word_ids(plain, plain.encode("xa? b"), "xa? b") == [0, 0, 1, None, 2]
    words = VOCABULARIES["tokenised"]  # decodes an unknown character as five: the word stays whole
    assert split_word_ids(words, words.encode("m§? me?"), "m§? me?") == [
        *(None, 0, 0, 0),
        *(None, 2, 2, 3),
    ]
    tagged = Tagged(plain, ["<2de>"])
    ids = [tagged.tag("<2de>"), *tagged.encode("a? b")]
    assert split_word_ids(tagged, ids, "a? b") == [None, 0, 1, None, 2]
