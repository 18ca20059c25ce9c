"""Spans that are carried to the other language, and their probability by enumeration."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from latentheads.contrib.align.api import align, project
from latentheads.contrib.align.chain import LinkChain
from latentheads.contrib.align.projection import (
    ProjectedSpan,
    Span,
    characters_of_spans,
    spans_of_characters,
    spans_of_tags,
    tags_of_spans,
)
from tests.latentheads.contrib.align.tiny_chains import paths
from tests.typechecking import unchecked

SOURCE = ["the red house", "the house", "a red book", "the book"]
TARGET = ["das rote haus", "das haus", "ein rotes buch", "das buch"]


def test_the_probability_of_a_span_is_the_share_of_links_that_stay_in_it() -> None:
    aligner = align(SOURCE, TARGET).aligner
    assert aligner is not None
    spans = [[Span(1, 3, "THING")], [Span(0, 1), Span(1, 2)], [], []]
    carried = project(SOURCE, TARGET, spans, aligner=aligner)
    assert [len(line) for line in carried] == [1, 2, 0, 0]
    new = aligner.read([(s.split(), t.split()) for s, t in zip(SOURCE, TARGET, strict=True)])
    checked = 0
    for batch in new.batches:
        models = aligner.models(new, batch)
        chains = models[0].posterior(batch), models[1].posterior(batch.reverse())
        for row, index in enumerate(batch.indices):
            for span, other in zip(spans[index], carried[index], strict=True):
                assert other is not None
                forward = share(chains[0], row, span, other, ends=True)
                backward = share(chains[1], row, span, other, ends=False)
                assert other.probability == pytest.approx((forward * backward) ** 0.5, abs=1e-12)
                checked += 1
    assert checked == 3
    assert [(s.start, s.end, s.label) for s in carried[0] if s] == [(1, 3, "THING")]


def test_rounding_makes_no_probability_of_a_span_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    aligner = align(SOURCE, TARGET).aligner
    values = iter([0.25, 0.25 + 1e-9, 1.0])  # of all, of all without the end; of the other one
    monkeypatch.setattr(LinkChain, "constrained_probability", lambda *_: next(values))
    (carried,) = project(SOURCE[:1], TARGET[:1], [[Span(1, 2)]], aligner=aligner)[0]
    assert carried is not None
    assert carried.probability == 0


def share(chain: LinkChain, row: int, span: Span, carried: Span, ends: bool) -> float:
    """The share of all links that lead from a span to where it is carried.

    Args:
        chain: The links of a batch.
        row: The line.
        span: The span.
        carried: Where it is carried.
        ends: Whether the chain generates the target: its words that are linked into the span begin
            and end as it is carried. Else no word of the span is linked elsewhere.
    """
    total = right = 0.0
    for states, weight in paths(chain, row):
        total += weight
        links = [state - 1 if state < chain.positions else None for state in states]
        if ends:
            linked = [w for w, link in enumerate(links) if link in range(span.start, span.end)]
            is_right = bool(linked) and (linked[0], linked[-1]) == (carried.start, carried.end - 1)
        else:
            inside = {None, *range(carried.start, carried.end)}
            is_right = {*links[span.start : span.end]} <= inside
        right += weight * is_right
    return right / total


def test_a_word_that_is_linked_to_punctuation_alone_is_not_linked_into_a_span() -> None:
    source, target = ["house,", "a house"], ["haus,", "ein haus"]
    aligner = align(source, target, split="punctuation").aligner
    assert aligner is not None
    carried = project(source[:1], target[:1], [[Span(0, 1)]], aligner=aligner)[0][0]
    assert carried is not None
    new = aligner.read([(["house", ","], ["haus", ","])])
    (batch,) = new.batches
    shares: list[float] = []
    models, sides = aligner.models(new, batch), (batch, batch.reverse())
    linked: tuple[set[int | None], set[int | None]] = {1}, {1, 2, None}
    may_end = False, True  # the end of the target may not be linked into the span
    for model, side, right, is_free in zip(models, sides, linked, may_end, strict=True):
        total = inside = 0.0
        for states, weight in paths(model.posterior(side), 0):
            word, _, end = (state if state < 4 else None for state in states)
            total += weight
            inside += weight * (word in right and (is_free or end != 1))
        shares.append(inside / total)
    assert carried.probability == pytest.approx((shares[0] * shares[1]) ** 0.5, abs=1e-12)


def test_spans_are_of_the_letters_that_are_linked_where_words_have_no_spaces() -> None:
    source, target = ["ab", "ac", "bc"] * 4, ["xy", "xz", "yz"] * 4
    spans = [[Span(1, 2)], *([[]] * 11)]
    carried = project(source, target, spans, split="characters")[0][0]
    assert carried is not None
    assert (carried.start, carried.end) == (1, 2)


def test_a_span_that_no_link_leads_from_is_none_and_a_wrong_one_is_named() -> None:
    source, target = [*SOURCE, "house"], [*TARGET, ""]
    assert project(source, target, [[]] * 4 + [[Span(0, 1)]]) == [[]] * 4 + [[None]]
    with pytest.raises(ValueError, match=r"^line 1 has 3 words, and no Span\(start=1, end=4"):
        project(SOURCE, TARGET, [[Span(1, 4)], [], [], []])
    with pytest.raises(ValueError, match=r"^lists of spans must be as many as lines, 4, got 1"):
        project(SOURCE, TARGET, [[]])
    with pytest.raises(ValueError, match=r"^spans must be a list, got 5$"):
        project(SOURCE, TARGET, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^spans\[1\] must be a list, got None$"):
        project(SOURCE, TARGET, [[], None, [], []])  # type: ignore[list-item]
    for wrong in ((0,), (0.0, 1), (0, 1, 2), (0, True), "0-1"):
        with pytest.raises(ValueError, match=r"^spans\[0\]: a span is Span\(0, 2, 'LABEL'\) or \("):
            project(SOURCE, TARGET, [[wrong], [], [], []])  # type: ignore[list-item]


def test_tuples_are_spans() -> None:
    tuples = [[(1, 3, "THING"), (0, 1)], [], [], []]
    spans = [[Span(1, 3, "THING"), Span(0, 1)], [], [], []]
    carried = project(SOURCE, TARGET, spans)
    assert [len(line) for line in carried] == [2, 0, 0, 0]
    assert project(SOURCE, TARGET, tuples) == carried
    assert unchecked(project)(SOURCE, TARGET, map(iter, tuples)) == carried  # are read once
    assert spans_of_characters("the red house", [(4, 13, "THING")]) == [Span(1, 3, "THING")]
    assert characters_of_spans("the red house", [(1, 3, "THING")]) == [Span(4, 13, "THING")]
    assert tags_of_spans([(1, 3, "LOC")], 3) == ["O", "B-LOC", "I-LOC"]


def test_spans_of_a_column_are_in_their_order_whatever_its_labels() -> None:
    columns = [pd.Series(lines)[::-1] for lines in (SOURCE, TARGET, [[Span(0, 1)], [], [], []])]
    assert [len(line) for line in project(*columns)] == [0, 0, 0, 1]
    with pytest.raises(ValueError, match=r"^line 4 has 3 words, and no Span\(start=1, end=4"):
        project(*columns[:2], columns[2].map(lambda line: [Span(1, 4)] * len(line)))


def test_tags_are_spans_and_spans_are_tags() -> None:
    tags = ["O", "B-LOC", "I-LOC", "B-LOC", "I-PER", "O", "I-PER"]
    spans = [Span(1, 3, "LOC"), Span(3, 4, "LOC"), Span(4, 5, "PER"), Span(6, 7, "PER")]
    assert spans_of_tags(tags) == spans
    assert tags_of_spans(spans, 7) == ["O", "B-LOC", "I-LOC", "B-LOC", "B-PER", "O", "B-PER"]
    overlapping = [(0, 2, "LOC"), (1, 4, "LOC"), (3, 5, "LOC")]
    assert tags_of_spans(overlapping, 5) == ["B-LOC", "I-LOC", "B-LOC", "I-LOC", "B-LOC"]
    with pytest.raises(ValueError, match=r"^a tag must be O, B-LABEL or I-LABEL, got 'X-LOC'"):
        spans_of_tags(["X-LOC"])
    for start, end in ((-1, 1), (2, 4), (2, 2)):
        with pytest.raises(ValueError, match=rf"^a line has 3 words, and no Span\(start={start}, "):
            tags_of_spans([(start, end, "LOC")], 3)


def test_spans_of_characters_are_spans_of_words_and_back() -> None:
    line = "  Mr Bo  lives in\u3000New York."
    names = [Span(6, 7, "PER"), Span(18, 26, "LOC")]
    words = spans_of_characters(line, names)
    assert words == [Span(1, 2, "PER"), Span(4, 6, "LOC")]
    carried = [ProjectedSpan(4, 6, "LOC", 0.5)]
    assert characters_of_spans(line, carried) == [ProjectedSpan(18, 27, "LOC", 0.5)]
    assert line[18:27] == "New York."
    with pytest.raises(ValueError, match=r"^Span\(start=0, end=2, label=''\) holds no word of"):
        spans_of_characters(line, [Span(0, 2)])
    for empty in (Span(19, 19), Span(24, 19)):
        with pytest.raises(ValueError, match=r" holds no word of"):
            spans_of_characters(line, [empty])
    with pytest.raises(ValueError, match=r"^a line has 6 words, and no Span\(start=5, end=7"):
        characters_of_spans(line, [Span(5, 7)])


def test_what_may_be_linked_to_anything_is_certain() -> None:
    aligner = align(SOURCE, TARGET).aligner
    assert aligner is not None
    new = aligner.read([(SOURCE[0].split(), TARGET[0].split())])
    (batch,) = new.batches
    chain = aligner.models(new, batch)[0].posterior(batch)
    everything = torch.ones(batch.target.shape[1], batch.source.shape[1], dtype=torch.bool)
    assert chain.constrained_probability(0, everything) == pytest.approx(1)
    nothing = chain.constrained_probability(0, ~everything)
    assert nothing == pytest.approx(chain.unlinked_probability(0, range(4), range(1, 5)), abs=1e-12)
