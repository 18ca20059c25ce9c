"""What links are measured by: error rates, calibration of probabilities, gaps of guides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch.distributions import kl_divergence

from latentheads.contrib.align.aligner import WordAligner
from latentheads.contrib.align.model import GUIDES
from latentheads.contrib.align.symmetrization import (
    THRESHOLD,
    LinkPosterior,
    grow_diag_final_and,
    select_links,
)
from latentheads.contrib.align.vocabulary import Words
from latentheads.contrib.uncertainty.calibration import Bins, equal_width_edges, sum_bins
from latentheads.corpora.text import read_lines
from latentheads.metrics import alignment
from latentheads.metrics.alignment import Links, count_by_sentence, count_links
from latentheads.metrics.resampling import Counts, Resamples, resample_counts

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of links that are kept, the most probable ones."""

LEAST = 0.01
"""Least probability of a link in the bins of calibration."""

CLIP = 1e-4
"""Least distance of a probability from 0 and 1 before it is scaled."""


@dataclass(frozen=True)
class Gold:
    """Manual links.

    Attributes:
        sure: The sure links of each line.
        possible: Its possible ones, with the sure ones.
    """

    sure: Sequence[Links]
    possible: Sequence[Links]


def read_gold(path: Path) -> Gold:
    """Reads links, as 0-0 if they are sure and 0?0 if they are possible."""
    lines = [alignment.read_gold(line) for line in read_lines(path)]
    return Gold([sure for sure, _ in lines], [sure | possible for sure, possible in lines])


def measure_links(links: Sequence[Links], gold: Gold) -> dict[str, float]:
    """AER, precision, recall and F1."""
    counts = count_links(links, gold.sure, gold.possible)
    names = ("aer", "precision", "recall", "f1")
    return {name: round(float(getattr(counts, name)), 5) for name in names}


def measure_posteriors(
    posteriors: Sequence[LinkPosterior], gold: Gold, thresholds: Sequence[float]
) -> dict[str, dict[str, float]]:
    """The scores of every symmetrization, of product with each threshold."""
    names = ("forward", "backward", "intersection", "grow-diag-final-and", "grow")
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


def compare(counts: Counts, first: Counts, indices: Resamples) -> dict[str, Any]:
    """The error rate by the counts of each line, and its difference to another's, in %.

    Args:
        counts: The counts of each line.
        first: Those of the aligner that it is compared with.
        indices: The lines of every resample.
    """
    value, resampled = resample_counts(counts, _aer, indices)
    other, resampled_other = resample_counts(first, _aer, indices)
    low, high = np.quantile(resampled - resampled_other, (0.025, 0.975))
    difference = [round(100 * float(x), 2) for x in (value - other, low, high)]
    return {"aer": round(100 * value, 2), "difference": difference}


def count_lines(links: Sequence[Links], gold: Gold) -> Counts:
    """Links that are sure and possible, and links that are written and sure, of each line."""
    lines = count_by_sentence(links, gold.sure, gold.possible)
    return np.array([(c.found_sure + c.found_possible, c.found + c.sure) for c in lines], float)


def _aer(counts: Float[ndarray, " count"]) -> float:
    return 1 - float(counts[0] / counts[1])


def calibrate(
    posteriors: Sequence[LinkPosterior],
    gold: Gold,
    scale: tuple[float, float] = (1.0, 0.0),
) -> dict[str, Any]:
    """Calibration of link probabilities.

    Args:
        posteriors: The posterior of each line.
        gold: Its manual links.
        scale: Slope and intercept of a map of log odds, which is applied to links of .01 or more.

    Returns:
        The expected calibration error of links of a probability of .4 or more, against possible and
        against sure links, with the bins of all links of .01 or more; the Brier scores of all pairs
        of words, whether they are possible links, and of those that are sure or not possible,
        whether they are sure; and the precision of the most probable links of .4 or more by the
        share kept.
    """
    probability, line, possible, sure = flatten_links(posteriors, gold)
    scaled = np.where(probability >= LEAST, _scale(probability, *scale), probability)
    measured: dict[str, Any] = {}
    for name, correct in (("possible", possible), ("sure", sure)):
        shown = probability >= LEAST
        bins = _bin(scaled[shown], correct[shown], line[shown])
        written = probability >= THRESHOLD
        error = _bin(scaled[written], correct[written], line[written])
        measured[name] = {
            "bins": _as_lists(bins),
            "ece": round(error.error, 5),
            "overconfidence": round(error.overconfidence, 5),
        }
    certain = sure | ~possible
    return measured | {
        "brier_of_possible_links": _brier(scaled, possible),
        "brier_of_sure_links": _brier(scaled[certain], sure[certain]),
        "precision_by_share": _precision_by_share(probability, possible),
    }


def fit_scale(posteriors: Sequence[LinkPosterior], gold: Gold) -> tuple[float, float]:
    """The map of log odds that makes possible links likeliest (Platt 1999)."""
    probability, _, possible, _ = flatten_links(posteriors, gold)
    shown = probability >= LEAST
    odds, correct = (torch.tensor(x[shown]).double() for x in (_log_odds(probability), possible))
    scale = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([scale], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        logits = scale[0] * odds + scale[1]
        value = torch.nn.functional.binary_cross_entropy_with_logits(logits, correct)
        value.backward()
        return value

    optimizer.step(loss)
    slope, intercept = (round(value, 5) for value in scale.tolist())
    return slope, intercept


def flatten_links(
    posteriors: Sequence[LinkPosterior], gold: Gold
) -> tuple[
    Float[ndarray, " link"], Int[ndarray, " link"], Bool[ndarray, " link"], Bool[ndarray, " link"]
]:
    """The probability of every pair of words, its line, and whether it is possible and sure."""
    lines = list(zip(posteriors, gold.possible, gold.sure, strict=True))
    return (
        np.concatenate([p.product.flatten() for p, _, _ in lines]).astype(float),
        np.repeat(np.arange(len(lines)), [p.forward.size for p, _, _ in lines]),
        np.concatenate([_matrix(p, possible).flatten() for p, possible, _ in lines]),
        np.concatenate([_matrix(p, sure).flatten() for p, _, sure in lines]),
    )


def _log_odds(probability: Float[ndarray, " link"]) -> Float[ndarray, " link"]:
    clipped = probability.clip(CLIP, 1 - CLIP)
    return np.log(clipped) - np.log1p(-clipped)


def _scale(
    probability: Float[ndarray, " link"], slope: float, intercept: float
) -> Float[ndarray, " link"]:
    if (slope, intercept) == (1.0, 0.0):
        return probability
    return 1 / (1 + np.exp(-slope * _log_odds(probability) - intercept))


def _brier(probability: Float[ndarray, " link"], correct: Bool[ndarray, " link"]) -> float:
    """The mean squared distance of probabilities from what is right."""
    return round(float(((probability - correct) ** 2).mean()), 5)


def _bin(
    probability: Float[ndarray, " link"],
    correct: Bool[ndarray, " link"],
    line: Int[ndarray, " link"],
) -> Bins:
    lines = int(line.max()) + 1 if len(line) else 1
    return sum_bins(probability, correct, line, lines, equal_width_edges(10)).bins()


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
    order = np.argsort(-probability, kind="stable")[: int((probability >= THRESHOLD).sum())]
    kept = {share: order[: max(1, round(share * len(order)))] for share in SHARES}
    return {str(share): round(float(correct[links].mean()), 5) for share, links in kept.items()}


@torch.no_grad()
def guide_gaps(aligner: WordAligner, pairs: Sequence[tuple[Words, Words]]) -> dict[str, float]:
    """KL(guide ‖ posterior) of every guide, in nats per target word, over both directions."""
    gaps = dict.fromkeys(GUIDES, 0.0)
    words = 0
    lines = aligner.read(pairs)
    for batch in lines.batches:
        both = batch, batch.reverse()
        for model, side in zip(aligner.models(lines, batch), both, strict=True):
            words += int(side.target_mask.sum())
            posterior = model.posterior(side)
            for name, guide in GUIDES.items():
                gaps[name] += float(kl_divergence(guide(model, side), posterior).double().sum())
    return {name: round(gap / words, 5) for name, gap in gaps.items()}
