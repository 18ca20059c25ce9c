"""Aligning texts in one call, and the aligner that is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy import ndarray

import latentheads as lh
from latentheads.contrib.align import spelling
from latentheads.contrib.align.aligner import WordAligner
from latentheads.contrib.align.api import AlignedText, TokenizedText, align
from latentheads.contrib.align.dictionary import read_dictionary, write_dictionary
from latentheads.contrib.align.kept import load_aligner, save_aligner
from latentheads.contrib.align.symmetrization import SYMMETRIZATIONS, LinkPosterior, select_links
from latentheads.contrib.align.tokenization import join_tokens, tokenize_line
from latentheads.contrib.align.training import AlignerOptions
from latentheads.training import checkpoints
from tests.latentheads.contrib.align.tiny_chains import paths
from tests.typechecking import unchecked

SOURCE = ["The house", "the book", "", "a book", "a red house"]
TARGET = ["Das Haus", "das Buch", "ein", "ein Buch", "ein rotes Haus"]


@pytest.fixture(scope="module")
def aligned() -> AlignedText:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return align(SOURCE, TARGET)
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(scope="module")
def aligner(aligned: AlignedText) -> WordAligner:
    assert aligned.aligner is not None
    return aligned.aligner


def test_the_public_name_is_the_function() -> None:
    assert lh.align is align


def assert_unknown(posterior: LinkPosterior) -> None:
    """A line that is not aligned has no probabilities."""
    assert all(map(math.isnan, posterior.log_probs))
    for values in (posterior.product, posterior.null_source, posterior.null_target):
        assert np.isnan(values).all()
    assert all(not select_links(posterior, name, 0) for name in SYMMETRIZATIONS)


def test_lines_keep_their_order_and_an_empty_one_has_no_links(
    aligned: AlignedText, aligner: WordAligner
) -> None:
    assert aligned.links == [
        [(0, 0), (1, 1)],
        [(0, 0), (1, 1)],
        [],
        [(0, 0), (1, 1)],
        [(0, 0), (1, 1), (2, 2)],
    ]
    assert [p.forward.shape for p in aligned.posteriors][2:] == [(0, 1), (2, 2), (3, 3)]
    assert aligned.skipped == {}
    assert_unknown(aligned.posteriors[2])
    assert repr(aligned) == "AlignedText(5 lines, 9 links)"
    assert repr(aligner) == "WordAligner(vocabularies of 6 and 6, 8 word pairs, spaces)"


def test_probabilities_are_exact_posteriors(aligned: AlignedText) -> None:
    for posterior in (aligned.posteriors[index] for index in (0, 1, 3, 4)):
        sums = posterior.forward.sum(0) + posterior.null_target
        np.testing.assert_allclose(sums, np.ones(len(sums)))
        assert ((posterior.product >= 0) & (posterior.product <= 1)).all()
    assert all(value < 0 for value in aligned.posteriors[0].log_probs)


EMPTY = [("nouveau the", ""), ("", "neuf das"), ("", " "), ("thé", "")]


@pytest.mark.parametrize("split", ["spaces", "punctuation"])
def test_pairs_with_an_empty_side_move_no_other_line(split: str, aligner: WordAligner) -> None:
    pairs = list(zip(["it's", *SOURCE], ["ist's", *TARGET], strict=True))
    pairs = [pair for pair in pairs if all(pair)]
    mixed = [EMPTY[0], *pairs[:2], EMPTY[1], *pairs[2:], *EMPTY[2:]]
    trained = [align(*zip(*text, strict=True), split=split) for text in (pairs, mixed)]
    again = [align(*zip(*t, strict=True), aligner=aligner) for t in (pairs, mixed)]
    for alone, among in (trained, again):
        expected = [p for p, pair in zip(among.posteriors, mixed, strict=True) if pair in pairs]
        for one, other in zip(alone.posteriors, expected, strict=True):
            np.testing.assert_array_equal(one.forward, other.forward)
            np.testing.assert_array_equal(one.backward, other.backward)
            np.testing.assert_array_equal(one.null_source, other.null_source)
            np.testing.assert_array_equal(one.null_target, other.null_target)
            assert one.log_probs == other.log_probs
        assert alone.links == [
            links for links, pair in zip(among.links, mixed, strict=True) if pair in pairs
        ]


def test_most_words_that_are_not_known_are_warned_of(aligner: WordAligner) -> None:
    swapped = (
        r"^the aligner does not know 100% of the words of source and 100% of the words of target: "
        r"source and target seem to be swapped$"
    )
    for options in ({"aligner": aligner}, {"start": aligner}):
        with pytest.warns(UserWarning, match=swapped):
            align(TARGET[:2], SOURCE[:2], **options)
    french = ["une maison"] * 10
    with pytest.warns(UserWarning, match="^the aligner does not know 100% of the words of source$"):
        align(french, ["das haus"] * 10, aligner=aligner)
    align(french[:1], ["das haus"], aligner=aligner)  # a few new words are no other language


def test_lines_of_a_column_are_in_their_order_whatever_its_labels(aligner: WordAligner) -> None:
    columns = (pd.Series(lines)[::-1] for lines in (SOURCE, TARGET))
    posteriors = align(*columns, aligner=aligner).posteriors
    assert [p.forward.shape for p in posteriors] == [(3, 3), (2, 2), (0, 1), (2, 2), (2, 2)]


def test_an_aligner_aligns_its_own_lines_as_before_if_none_is_left_out() -> None:
    first = align(SOURCE, TARGET, options=AlignerOptions(leave_one_out=0))
    again = align(SOURCE, TARGET, aligner=first.aligner)
    # all but the counts of improbable links, which are not kept
    for old, new in zip(first.posteriors, again.posteriors, strict=True):
        np.testing.assert_allclose(old.forward, new.forward, atol=1e-5)
        np.testing.assert_allclose(old.backward, new.backward, atol=1e-5)
        np.testing.assert_allclose(old.log_probs, new.log_probs, rtol=1e-4)


def test_a_line_is_aligned_alone_as_it_is_among_others(aligner: WordAligner) -> None:
    source, target = [*SOURCE, "a neues haus"], [*TARGET, "ein neuf hausboot"]
    among = align(source, target, aligner=aligner).posteriors
    for index in (4, 5):
        line = source[index:][:1], target[index:][:1]
        alone = align(*line, aligner=aligner).posteriors[0]
        np.testing.assert_allclose(alone.forward, among[index].forward, atol=1e-12)
        np.testing.assert_allclose(alone.backward, among[index].backward, atol=1e-12)


def test_new_words_are_aligned_by_their_first_letters_and_spelling(aligner: WordAligner) -> None:
    (links,) = align(["books ottawa"], ["bücher ottawa"], aligner=aligner).links
    assert (1, 1) in links
    text = align(["the houses"], ["das hausboot"], aligner=aligner)
    assert text.posteriors[0].forward[1, 1] > text.posteriors[0].forward[0, 1]


def test_a_kept_aligner_is_the_same(aligner: WordAligner, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    save_aligner(replace(aligner, split="punctuation"), path)
    kept = load_aligner(path)
    assert (kept.source, kept.target) == (aligner.source, aligner.target)
    assert (kept.options, kept.split) == (aligner.options, "punctuation")
    new = align(["the red book"], ["das rote buch"], aligner=replace(kept, split="spaces"))
    old = align(["the red book"], ["das rote buch"], aligner=aligner)
    np.testing.assert_array_equal(new.posteriors[0].forward, old.posteriors[0].forward)
    np.testing.assert_array_equal(new.posteriors[0].backward, old.posteriors[0].backward)


def test_a_kept_aligner_that_a_dictionary_began_with_is_the_same(tmp_path: Path) -> None:
    lexicon, path = tmp_path / "lexicon", tmp_path / "kept"
    lexicon.write_text("house haus 53\nhouse haus 2.5\n", encoding="utf-8")
    start = read_dictionary(lexicon)
    trained = align(SOURCE, TARGET, start=start).aligner
    assert trained is not None
    for aligner in (start, trained):
        save_aligner(aligner, path)
        kept = load_aligner(path)
        assert torch.equal(kept.forward.counts, aligner.forward.counts)
        assert kept.forward.counts.max() >= 55.5
    for count in ("1e39", "0"):
        lexicon.write_text(f"house haus {count}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"line 1: a count must be above 0, at most 1e\+09, "):
            read_dictionary(lexicon)


def test_a_dictionary_is_written_and_read_with_words_that_have_spaces(tmp_path: Path) -> None:
    path = tmp_path / "lexicon"
    trained = align([["New York", "is"]] * 3, [["Nueva York", "es"]] * 3).aligner
    assert trained is not None
    write_dictionary(trained, path)
    again = read_dictionary(path)
    assert set(again.source.words) == {"new york", "is"}
    assert set(again.target.words) == {"nueva york", "es"}
    path.write_text("house\tHaus\nthe\t\tdas\n a \t ein \t 2 \n", encoding="utf-8")
    assert read_dictionary(path).source.words == ("house", "the", "a")


def test_a_dictionary_begins_a_training_by_any_split(tmp_path: Path) -> None:
    (path := tmp_path / "lexicon").write_text("a y 50\nb x 50\n", encoding="utf-8")
    aligned = align(["a b."], ["x y."], start=read_dictionary(path), split="punctuation")
    assert aligned.links == [[(0, 1), (1, 0)]]
    assert aligned.aligner is not None
    assert aligned.aligner.split == "punctuation"
    with pytest.raises(ValueError, match=r"^the aligner was trained with split 'punctuation', "):
        align(["a b"], ["x y"], start=aligned.aligner, split="spaces")


def test_an_aligner_is_written_to_a_path_and_not_the_other_way_round(aligner: WordAligner) -> None:
    with pytest.raises(ValueError, match=r"^save_aligner takes \(aligner, path\), got 'kept' as"):
        unchecked(save_aligner)("kept", aligner)


def test_an_aligner_without_finite_probabilities_aligns_nothing(aligner: WordAligner) -> None:
    forward = aligner.forward
    broken = replace(forward, counts=torch.full_like(forward.counts, torch.inf))
    with pytest.raises(FloatingPointError, match="line 2 has no finite probability"):
        align(["", "a"], ["", "b"], aligner=replace(aligner, forward=broken))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "other"}, "is not of a word aligner of this version"),
        ({"alike": [0.1]}, "is not complete: "),
        ({"options": {"iterations": 0}}, "iterations must be at least 1"),
        ({"options": {"steps": 3}}, "steps"),
    ],
)
def test_a_kept_aligner_with_other_facts_is_one_line(
    change: dict[str, Any], message: str, aligner: WordAligner, tmp_path: Path
) -> None:
    path = tmp_path / "kept"
    save_aligner(aligner, path)
    tensors, facts = checkpoints.load(path)
    checkpoints.save(path, tensors, facts | change)
    with pytest.raises(ValueError, match=message) as error:
        load_aligner(path)
    assert "\n" not in str(error.value)


def test_a_long_line_has_no_links_and_is_named() -> None:
    long = r"^1 of 6 lines have no links, the first is source\[5\]: 4 words, more than max_words 3$"
    with pytest.warns(UserWarning, match=long):
        aligned = align([*SOURCE, "a b c d"], [*TARGET, "a"], max_words=3)
    assert aligned.skipped == {5: "4 words, more than max_words 3"}
    assert aligned.links[5] == []
    assert aligned.posteriors[5].forward.shape == (4, 1)
    assert_unknown(aligned.posteriors[5])
    assert aligned.links[0] == [(0, 0), (1, 1)]


def test_punctuation_is_aligned_apart_and_joined_again() -> None:
    source, target = [f"{line}." for line in SOURCE], [f"{line} ." for line in TARGET]
    aligned = align(source, target, split="punctuation")
    assert aligned.links[0] == [(0, 0), (1, 1)]
    assert aligned.posteriors[0].forward.shape == (2, 3)
    line = tokenize_line("Don't go! ...", "punctuation")
    assert line.tokens == ("don", "'", "t", "go", "!", ".", ".", ".")
    assert (line.words, line.length) == ((0, None, 0, 1, None, 2, 2, 2), 3)


def test_a_letter_that_is_two_in_lower_case_stays_one() -> None:
    assert tokenize_line("İki Λ", "characters").tokens == ("i\u0307", "k", "i", "λ")
    assert tokenize_line(["İki\n", "a Λ"], "characters") == tokenize_line("İki a Λ", "characters")


def test_combining_marks_and_joiners_do_not_split_a_word() -> None:
    line = tokenize_line("हिन्दी, cafe\u0301. می\u200cکنم \u200fa_é! ❤\ufe0f", "punctuation")
    words = "हिन्दी", ",", "cafe\u0301", ".", "می\u200cکنم", "\u200fa_é", "!", "❤\ufe0f"
    assert line.tokens == words
    assert line.words == (0, None, 1, None, 2, 3, None, 4)
    for mark in "\u0301\u0903\u20dd\u200d":
        assert tokenize_line(f"a!{mark}", "punctuation").tokens == ("a", f"!{mark}")


def counted(states: Sequence[int], tokens: Sequence[int], linked: Sequence[int]) -> bool:
    """Whether one of some tokens is linked to one of others; states are positions from 1."""
    return any(states[token] - 1 in linked for token in tokens)


def test_words_of_several_tokens_have_no_link_with_the_probability_of_all_their_tokens() -> None:
    source, target = ["x-y", "v u", "y-x", "u x"], ["u v", "y-x", "u-v.", "x' v"]
    aligner = align(source, target, split="punctuation").aligner
    assert aligner is not None
    aligned = align(source, target, aligner=aligner)
    lines = [[tokenize_line(line, "punctuation") for line in side] for side in (source, target)]
    new = aligner.read([(a.tokens, b.tokens) for a, b in zip(*lines, strict=True)])
    several = 0
    for batch in new.batches:
        models = aligner.models(new, batch)
        for model, side, one in zip(models, (0, 1), ("target", "source"), strict=True):
            chain = model.posterior(batch.reverse() if side else batch)
            for row, index in enumerate(batch.indices):
                if index == 2 and side == 0:
                    continue  # its paths are too many
                generating, generated = lines[side][index], lines[1 - side][index]
                tokens = [t for word in generating.tokens_by_word for t in word]
                states = list(paths(chain, row))
                total = sum(weight for _, weight in states)
                expected = [
                    sum(weight for path, weight in states if not counted(path, word, tokens))
                    for word in generated.tokens_by_word
                ]
                nulls = getattr(aligned.posteriors[index], f"null_{one}")
                np.testing.assert_allclose(nulls * total, expected, rtol=1e-9)
                several += sum(len(word) > 1 for word in generated.tokens_by_word)
    assert several == 3


def test_last_words_are_not_linked_by_their_full_stops() -> None:
    """The last words translate each other in no pair; both end with a full stop."""
    source = ["the house.", "house the.", "the book.", "book the."] * 5
    target = ["Haus das.", "das Haus.", "Buch das.", "das Buch."] * 5
    aligned = align(source, target, split="punctuation")
    assert aligned.links == [[(0, 1), (1, 0)]] * 20
    apart = align([line.replace(".", " .") for line in source], target, split="punctuation")
    assert apart.links == aligned.links
    spaced = [line.replace(".", " .") for line in target]
    both = align([line.replace(".", " .") for line in source], spaced)
    assert both.links == [[(0, 1), (1, 0), (2, 2)]] * 20


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        (["a"], ["b", "c"], {}, "lines of source must be as many as those of target, 2, got 1"),
        ([], [], {}, "lines must be at least one, got none"),
        (["", " "], ["b", ""], {}, "no line has 1 to 200 words on both sides"),
        ("text", ["b"], {}, "source must be a list of lines"),
        (["a b"], ["c"], {"max_words": 1}, "no line has 1 to 1 words on both sides"),
        (["a"], ["b"], {"guide": "best"}, "guide must be one of "),
        (["a"], ["b"], {"max_words": 0}, "max_words must be at least 1"),
        (["a"], ["b"], {"split": "letters"}, "split must be one of "),
        (["a"], ["b"], {"aligner": "m"}, r"^aligner must be a WordAligner, .* got 'm'$"),
        (["a"], {"a": "b"}, {}, r"^target must be a list of lines, got dict$"),
        (pd.DataFrame({"en": ["a"]}), ["b"], {}, "^source must be a list of lines, got DataFrame$"),
        (iter(["a"]), ["b"], {}, r"^source must be a list of lines, got list_iterator$"),
    ],
)
def test_wrong_texts_and_options_are_one_line(
    source: Any, target: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        unchecked(align)(source, target, **options)


@pytest.mark.parametrize("split", ["spaces", "punctuation"])
def test_a_line_may_be_a_list_of_its_words(split: str) -> None:
    words = [line.split() for line in SOURCE], [tuple(line.split()) for line in TARGET]
    lines, lists = align(SOURCE, TARGET, split=split), align(*words, split=split)
    assert lists.links == lines.links
    for one, other in zip(lists.posteriors, lines.posteriors, strict=True):
        np.testing.assert_array_equal(one.product, other.product)
    (mixed,) = align([["a book"]], ["ein Buch"], aligner=lists.aligner).posteriors
    assert mixed.forward.shape == (1, 2)


@pytest.mark.parametrize("line", [3, None, b"a", ["a", 3], ["a", " "], ["a", "\n"], [["a"]], {"a"}])
def test_a_line_of_another_kind_is_named(line: Any) -> None:
    message = r"^target\[1\] must be a line of text or a list of its words, got "
    with pytest.raises(ValueError, match=message):
        unchecked(align)(["a", "b"], ["c", line])


def test_an_aligner_splits_lines_as_it_was_trained_to(
    aligned: AlignedText, aligner: WordAligner
) -> None:
    again = align(SOURCE, TARGET, aligner=aligner, split="spaces")
    assert again.links == aligned.links
    message = r"^the aligner was trained with split 'spaces', got 'punctuation'$"
    with pytest.raises(ValueError, match=message):
        align(SOURCE, TARGET, aligner=aligner, split="punctuation")


SURE = [" ".join(f"{letter}{number}" for number in range(7)) for letter in "abcdefgh"]
"""Lines whose links are so sure that sums in single precision exceed 1."""

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_links_are_found_whatever_the_default_type_of_numbers(
    dtype: torch.dtype, aligned: AlignedText, aligner: WordAligner
) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        trained = align(SOURCE, TARGET)
        again = align(SOURCE, TARGET, aligner=aligner)
        sure = align(SURE, SURE)
    finally:
        torch.set_default_dtype(before)
    precision = "float64" if dtype == torch.float64 else "float32"
    assert trained.posteriors[0].forward.dtype == precision
    assert trained.links == aligned.links
    assert max(posterior.forward.max() for posterior in sure.posteriors) <= 1
    assert again.posteriors[0].forward.dtype == "float64"
    in_doubles = align(SOURCE, TARGET, aligner=aligner).posteriors
    for old, same in zip(in_doubles, again.posteriors, strict=True):
        np.testing.assert_allclose(old.product, same.product, atol=1e-12)
    for old, new in zip(aligned.posteriors, trained.posteriors, strict=True):
        np.testing.assert_allclose(old.product, new.product, atol=1e-5)


def test_options_of_training_are_not_for_a_trained_aligner(aligner: WordAligner) -> None:
    with pytest.raises(ValueError, match="options are of training"):
        align(["a"], ["b"], aligner=aligner, options=lh.contrib.align.AlignerOptions())
    with pytest.raises(ValueError, match=r"^options must be AlignerOptions, got \{'iterations'"):
        unchecked(align)(["a"], ["b"], options={"iterations": 2})


def test_the_last_words_are_linked_after_a_long_jump() -> None:
    words = [f"w{n}" for n in range(8)]
    source = [" ".join([*words[n:], "."]) for n in range(4)]
    moved = [" ".join([*words[n + 1 :], words[n], "."]) for n in range(4)]
    last = align(source, moved).posteriors[0].forward[-1]
    assert len(last) == 9
    assert last[-1] > 0.95
    assert last[:-1].max() < 0.05


@pytest.mark.parametrize("guide", ["filtered", "lexical", "viterbi", "tied"])
def test_links_by_other_guides(guide: str, aligned: AlignedText) -> None:
    other = align(SOURCE, TARGET, aligner=aligned.aligner, guide=guide)
    exact = aligned.posteriors[4].forward
    assert not np.allclose(other.posteriors[4].forward, exact)
    known = align(SOURCE, TARGET, aligner=aligned.aligner).posteriors[4]
    assert other.posteriors[4].log_probs == known.log_probs  # the model's, whatever the guide
    # a text with which words say more than positions
    aligner = align(SOURCE * 4, TARGET * 4).aligner
    turned, straight = (
        align(["the book"], [line], aligner=aligner, guide=guide).posteriors[0].forward
        for line in ("buch das", "das buch")
    )
    is_same = np.allclose(turned, straight)
    assert (guide == "tied") == is_same


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_links_are_selected_by_a_probability(aligned: AlignedText, threshold: float) -> None:
    with pytest.raises(ValueError, match=r"^threshold must lie in 0 \.\.\. 1, got "):
        aligned.select(threshold=threshold)


def test_a_link_of_words_is_the_likeliest_of_their_tokens() -> None:
    source, target = (tokenize_line(line, "punctuation") for line in ("don't", "nicht"))
    joined = join_tokens(np.array([[0.5], [0.9], [0.3]]), source, target)
    assert joined.tolist() == [[0.5]]  # the apostrophe's link is none of the word


def test_a_line_is_too_long_by_its_longer_side() -> None:
    text = TokenizedText(["a", "a b", "a b c"], ["x y z", "x", "x"], "spaces", 2)
    assert [len(left.tokens) for left, _ in text] == [0, 2, 0]
    assert list(text.skipped) == [0, 2]


def test_training_on_counts_old_and_new_lines(aligner: WordAligner) -> None:
    source, target = ["the car", "a car", "the red car"], ["das auto", "ein auto", "das rote auto"]
    alone = align(source, target)
    more = align(source, target, start=aligner)
    assert more.links[2] == [(0, 0), (1, 1), (2, 2)]
    assert more.aligner is not None
    assert alone.aligner is not None
    assert more.aligner.source.words[: len(aligner.source)] == aligner.source.words
    for name in ("forward", "backward"):
        old, new, both = (
            getattr(trained, name) for trained in (aligner, alone.aligner, more.aligner)
        )
        assert both.frequencies.sum() == old.frequencies.sum() + new.frequencies.sum()
        assert torch.equal(both.jumps.weights[0], old.jumps.weights[0])
    (links,) = align(["a red house"], ["ein rotes haus"], aligner=more.aligner).links
    assert links == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("leave_one_out", [0, 1])
def test_both_directions_count_new_lines_if_they_agree_from_now_on(leave_one_out: int) -> None:
    options = AlignerOptions(iterations=2, leave_one_out=leave_one_out)
    start = align(SOURCE, TARGET, options=replace(options, agreement=0.5)).aligner
    more = align(SOURCE, TARGET, start=start, options=options).aligner
    assert start is not None
    assert more is not None
    new = [
        getattr(more, name).counts.sum() - getattr(start, name).counts.sum()
        for name in ("forward", "backward")
    ]
    assert float(new[0]) > 5
    assert float(new[0]) == pytest.approx(float(new[1]), rel=1e-2)


def test_an_aligner_that_is_trained_on_keeps_the_options_of_its_jumps(tmp_path: Path) -> None:
    start = align(SOURCE, TARGET, options=AlignerOptions(null_probability=0.07)).aligner
    more = align(SOURCE, TARGET, start=start, options=AlignerOptions(iterations=3)).aligner
    assert more is not None
    save_aligner(more, tmp_path / "kept")
    kept = load_aligner(tmp_path / "kept")
    assert kept.options == AlignerOptions(iterations=3, null_probability=0.07)
    assert kept.forward.jumps.null_probability == more.forward.jumps.null_probability == 0.07


@pytest.mark.filterwarnings("ignore:the aligner does not know")
def test_words_of_one_line_alone_are_compared(
    aligner: WordAligner, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0

    def count(left: object, right: object, first: ndarray, second: ndarray) -> ndarray:
        nonlocal compared
        compared += len(first)
        return np.zeros(len(first), bool)

    align(["the"], ["das"], aligner=aligner)
    monkeypatch.setattr(spelling, "_compare", count)
    align([f"w{n}" for n in range(97)], [f"w{n}" for n in range(97)], aligner=aligner)
    assert 97 < compared <= 4 * 97


def test_an_aligner_is_either_trained_on_or_not(aligner: WordAligner) -> None:
    with pytest.raises(ValueError, match=r"^aligner aligns without training, start is trained on"):
        align(SOURCE, TARGET, aligner=aligner, start=aligner)
