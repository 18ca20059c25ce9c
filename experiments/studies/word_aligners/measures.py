"""What links are measured by: error rates, calibration of probabilities, gaps of guides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch.distributions import kl_divergence

from latentheads.corpora.text import read_lines
from latentheads.metrics.alignment import Link, Links, count_links
from latentheads.uncertainty.calibration import Bins, equal_width_edges, sum_bins
from latentheads.word_alignment.bitext import Bitext
from latentheads.word_alignment.model import GUIDES, LinkModel
from latentheads.word_alignment.symmetrization import (
    LinkPosterior,
    grow_diag_final_and,
    select_links,
)

__all__ = [
    "Gold",
    "calibrate",
    "guide_gaps",
    "measure_links",
    "measure_posteriors",
    "measure_rival",
    "read_gold",
]

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of links that are kept, the most probable ones."""

LEAST = 0.01
"""Least probability of a link whose calibration is measured."""

FLOOR = 1e-4
"""Least probability of a sure link in the negative log-likelihood."""


@dataclass(frozen=True)
class Gold:
    """Links made by people.

    Attributes:
        sure: The sure links of each line.
        possible: Its possible ones, with the sure ones.
    """

    sure: Sequence[Links]
    possible: Sequence[Links]


def read_gold(path: Path) -> Gold:
    """Reads links, as 0-0 if they are sure and 0?0 if they are possible."""
    lines = [line.split() for line in read_lines(path)]
    sure = [frozenset(_link(word, "-") for word in line if "-" in word) for line in lines]
    possible = [frozenset(_link(word, "?") for word in line if "?" in word) for line in lines]
    return Gold(sure, [both | only for both, only in zip(possible, sure, strict=True)])


def _link(word: str, mark: str) -> Link:
    source, target = word.split(mark)
    return int(source), int(target)


def measure_links(links: Sequence[Links], gold: Gold) -> dict[str, float]:
    """AER, precision, recall and F1."""
    counts = count_links(links, gold.sure, gold.possible)
    names = ("aer", "precision", "recall", "f1")
    return {name: round(float(getattr(counts, name)), 5) for name in names}


def measure_posteriors(
    posteriors: Sequence[LinkPosterior], gold: Gold, thresholds: Sequence[float]
) -> dict[str, dict[str, float]]:
    """The scores of every symmetrization, of product with each threshold."""
    names = ("forward", "backward", "intersection", "grow-diag-final-and")
    scores = {
        name: measure_links([select_links(p, name) for p in posteriors], gold) for name in names
    }
    for threshold in thresholds:
        links = [select_links(p, "product", threshold) for p in posteriors]
        scores[f"product {threshold}"] = measure_links(links, gold)
    return scores


def measure_rival(
    forward: Sequence[Links], backward: Sequence[Links], gold: Gold
) -> dict[str, dict[str, float]]:
    """The scores of the directions of another aligner, and of both joined."""
    pairs = list(zip(forward, backward, strict=True))
    return {
        "forward": measure_links(forward, gold),
        "backward": measure_links(backward, gold),
        "intersection": measure_links([ahead & back for ahead, back in pairs], gold),
        "grow-diag-final-and": measure_links([grow_diag_final_and(*pair) for pair in pairs], gold),
    }


def calibrate(posteriors: Sequence[LinkPosterior], gold: Gold) -> dict[str, Any]:
    """Calibration of link probabilities: a link is correct if it is possible.

    Returns:
        The bins of a reliability diagram and the expected calibration error of all links of a
        probability of .01 or more, the mean -log p of sure links in nats, and the precision of
        the most probable links by the share of links that are kept, of those of .4 or more.
    """
    lines = list(enumerate(zip(posteriors, gold.possible, gold.sure, strict=True)))
    probability = np.concatenate([p.product.flatten() for _, (p, _, _) in lines]).astype(float)
    line = np.concatenate([np.full(p.product.size, index) for index, (p, _, _) in lines])
    correct = np.concatenate([_matrix(p, possible).flatten() for _, (p, possible, _) in lines])
    sure = np.concatenate([_matrix(p, sure).flatten() for _, (p, _, sure) in lines])
    shown = probability >= LEAST
    parts = probability[shown], correct[shown], line[shown]
    bins = sum_bins(*parts, len(posteriors), equal_width_edges(10)).bins()
    return {
        "bins": _as_lists(bins),
        "ece": round(bins.error, 5),
        "overconfidence": round(bins.overconfidence, 5),
        "nll_of_sure_links": round(float(-np.log(probability[sure].clip(FLOOR)).mean()), 5),
        "precision_by_share": _precision_by_share(probability, correct),
    }


def _matrix(posterior: LinkPosterior, links: Links) -> Bool[ndarray, "source target"]:
    matrix = np.zeros(posterior.forward.shape, dtype=bool)
    for link in links:
        matrix[link] = True
    return matrix


def _as_lists(bins: Bins) -> dict[str, list[float]]:
    names = ("count", "confidence", "accuracy")
    return {name: np.nan_to_num(getattr(bins, name)).round(5).tolist() for name in names}


def _precision_by_share(
    probability: Float[ndarray, " link"], correct: Bool[ndarray, " link"]
) -> dict[str, float]:
    order = np.argsort(-probability, kind="stable")[: int((probability >= 0.4).sum())]
    kept = {share: order[: max(1, round(share * len(order)))] for share in SHARES}
    return {str(share): round(float(correct[links].mean()), 5) for share, links in kept.items()}


@torch.no_grad()
def guide_gaps(models: Sequence[LinkModel], bitext: Bitext) -> dict[str, float]:
    """KL(guide ‖ posterior) of every guide, in nats per target word, over both directions."""
    gaps = dict.fromkeys(GUIDES, 0.0)
    words = 0
    for batch in bitext.batches:
        for model, side in zip(models, (batch, batch.reverse()), strict=True):
            words += int(side.target_mask.sum())
            posterior = model.posterior(side)
            for name, guide in GUIDES.items():
                gaps[name] += float(kl_divergence(guide(model, side), posterior).double().sum())
    return {name: round(gap / words, 5) for name, gap in gaps.items()}
