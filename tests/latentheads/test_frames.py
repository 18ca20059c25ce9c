"""Results with rows are data frames of pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from latentheads.contrib.align.api import AlignedText
from latentheads.contrib.align.symmetrization import LinkPosterior
from latentheads.contrib.circuits import CircuitPosterior, Decisions, Importances, SampledSubsets
from latentheads.contrib.heads import (
    AlignmentDistributions,
    BoundaryTimes,
    Divergence,
    Heads,
    LinkScore,
    Measures,
)
from latentheads.contrib.heads.relevance import Relevance
from latentheads.contrib.uncertainty import Bins
from latentheads.inference import Report
from latentheads.latents import HeadPosterior
from latentheads.metrics.alignment import LinkCounts
from latentheads.names import Block
from latentheads.training.fit import Fitted

TWO = torch.tensor([0.25, 0.5], dtype=torch.bfloat16)
THREE = torch.tensor([0.25, 0.5, 0.75], requires_grad=True)
PAIRS = torch.tensor([[0.0, 0.5], [0.5, 0.0]])
BLOCKS = [Block("decoder-self", 0, 1), Block("decoder-self", 1, 1)]
LIKELIHOODS = torch.tensor([[0.0, 1.0, 2.0, 4.0]]).double()
POSTERIOR = HeadPosterior(BLOCKS, LIKELIHOODS, torch.ones(1).double())
CIRCUIT = CircuitPosterior(
    BLOCKS, LIKELIHOODS, torch.ones(1).double(), chosen=POSTERIOR.heads, labels=["L0H0", "L1H0"]
)
HEADS = {"block": ["decoder.0.self", "decoder.1.self"], "head": [0, 0]}
ODDS = {"inclusion": POSTERIOR.inclusion.tolist(), "log_odds": POSTERIOR.log_odds.tolist()}
LINKS = np.array([[0.81, 0.25], [0.0, 0.49]])
REPORT = Report(-1.0, -0.5, 0.5, -1.0, 1, -1.0, 9, 1.0, None, None)


@pytest.mark.parametrize(
    ("result", "columns"),
    [
        (
            BoundaryTimes(THREE, THREE - 0.25, THREE + 0.25),
            {"median": [0.25, 0.5, 0.75], "low": [0.0, 0.25, 0.5], "high": [0.5, 0.75, 1.0]},
        ),
        (POSTERIOR, HEADS | ODDS),
        (CIRCUIT, HEADS | ODDS | {"label": ["L0H0", "L1H0"]}),
        (
            AlignedText(
                [LinkPosterior.unknown(1, 2), LinkPosterior(LINKS, LINKS, (0, 0))], None, {}
            ),
            {"line": [1, 1], "source": [0, 1], "target": [0, 1], "probability": [0.81, 0.49]},
        ),
        (AlignedText([], None, {}), {"line": [], "source": [], "target": [], "probability": []}),
        (
            AlignmentDistributions(("a", "b"), *[torch.tensor([[[TWO.tolist()], [[1, 0]]]])] * 3),
            {
                "sentence": [0] * 4,
                "target": [0] * 4,
                "key": [0, 1] * 2,
                "head": ["a", "a", "b", "b"],
                **{name: [0.25, 0.5, 1.0, 0.0] for name in ("prior", "guide", "posterior")},
            },
        ),
        (
            Measures({"b": TWO}, {"b": TWO}, {"b": PAIRS, "n-grams": PAIRS}),
            {"block": ["b"] * 2, "head": [0, 1], "entropy": [0.25, 0.5], "confidence": [0.25, 0.5]},
        ),
        (
            Relevance({"b": TWO}, {"b": 2 * TWO}, 1.0, 1.0, 3),
            {"block": ["b"] * 2, "head": [0, 1], "shares": [0.25, 0.5], "raw": [0.5, 1.0]},
        ),
        (
            Divergence({"b": PAIRS}, {"b": PAIRS / 2}),
            {"block": ["b"], "head": [0], "other": [1], "summed": [0.5], "normalised": [0.25]},
        ),
        (
            Decisions(torch.zeros(2), torch.ones(2)),
            {"log_odds": [0.0, 0.0], "probability": [0.5, 0.5], "needed": [1.0, 1.0]},
        ),
        (SampledSubsets(PAIRS * 2, TWO), {"weight": [0.25, 0.5], 0: [0.0, 1.0], 1: [1.0, 0.0]}),
        (
            Importances(2, 1, 4, {(0, 0): 0.5, (1, 0): 2.0}, frozenset({(1, 0)})),
            {"layer": [0, 1], "head": [0, 0], "score": [0.5, 2.0], "circuit": [False, True]},
        ),
        (
            Bins(*(np.array([1.0, 2.0]),) * 3),
            {name: [1.0, 2.0] for name in ("count", "confidence", "accuracy")},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_result_with_rows_is_a_frame(result: Any, columns: dict[Any, list[Any]]) -> None:
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert {*frame} == {*columns}
    for name, values in columns.items():
        assert frame[name].tolist() == pytest.approx(values) if values else not len(frame)


def test_links_of_a_frame_are_those_that_are_selected() -> None:
    text = AlignedText([LinkPosterior(LINKS, LINKS, (0, 0))], None, {})
    assert text.to_frame(threshold=0.6)[["source", "target"]].values.tolist() == [[0, 0]]
    assert text.to_frame("forward").probability.tolist() == pytest.approx([0.81, 0.49])
    assert [kind.kind for kind in AlignedText([], None, {}).to_frame().dtypes] == [*"iiif"]


def test_a_block_that_a_quantity_lacks_is_not_a_number() -> None:
    frame = Measures({"a": TWO, "b": TWO}, {"a": TWO}, {}).to_frame()
    assert frame.block.tolist() == ["a", "a", "b", "b"]
    assert frame.confidence.isna().tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (
            Measures({"encoder.0.self": TWO}, {}, {"encoder.0.self": PAIRS}),
            "Measures(entropy={'encoder.0.self': [2]}, confidence={}, "
            "cosine={'encoder.0.self': [2, 2]})",
        ),
        (
            Heads(BLOCKS[0], torch.zeros(2, 3, 4), (torch.zeros(2, 1, 3, 3), torch.zeros(3, 3))),
            f"Heads(block={BLOCKS[0]!r}, joined=[2, 3, 4], "
            "logits_and_bias=[[2, 1, 3, 3], [3, 3]], active_mask=None)",
        ),
        (
            LinkPosterior(LINKS, LINKS, (-1.0, -2.0)),
            "LinkPosterior(forward=[2, 2], backward=[2, 2], log_probs=[-1.0, -2.0], nulls=None)",
        ),
        (
            LinkScore("prior", "all heads", LinkCounts(1, 1, 1, 1), (LinkCounts(1, 1, 1, 1),) * 9),
            "LinkScore(distribution='prior', head='all heads', "
            "counts=LinkCounts(found=1, sure=1, found_sure=1, found_possible=1))",
        ),
        (
            Fitted(REPORT, 3, [{"step": 3}]),
            f"Fitted(report={REPORT!r}, step=3, is_of_training=False)",
        ),
    ],
)
def test_a_result_is_shown_in_one_line(result: Any, line: str) -> None:
    assert repr(result) == line
