r"""Simulation-based calibration of guides of alignments, by going through all cases.

Draw alignments from the prior and a target from the model: an exact posterior ranks the drawn
alignments evenly among its own draws, by any statistic (Talts et al. 2018,
https://arxiv.org/abs/1804.06788). Targets of one or two words and their alignments are few, so the
distribution of the rank is a sum, and a test of it has no noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from latentheads.batch import Batch
from latentheads.guides import GUIDES
from latentheads.handlers import SharedSamples
from latentheads.inference.bound import traces
from latentheads.names import TARGET
from tests.guides.attached import LEARNED, attach
from tests.latentheads.latents.alignments.models import SHAPES, telling
from tests.tiny import TARGET_TYPES

SOURCE = (4, 5, 2)
every_shape = pytest.mark.parametrize("shape", SHAPES)


class Cases(NamedTuple):
    """All targets, each with all alignments.

    Attributes:
        places: Where every head of every word points.
        log_prior: Log p(z | x).
        log_likelihood: Log p(y | z, x).
        log_guide: Log q(z | x, y).
        missing: Probability of the targets that are left out: of padding.
    """

    places: Tensor
    log_prior: Tensor
    log_likelihood: Tensor
    log_guide: Tensor
    missing: float

    @property
    def share(self) -> Tensor:
        """Of every case, among those that are drawn."""
        return (self.log_prior + self.log_likelihood).flatten().softmax(0).view_as(self.log_prior)

    @property
    def gap(self) -> float:
        """What the guide is from the exact posterior, a mean over targets."""
        joint = self.log_prior + self.log_likelihood
        apart = self.log_guide - joint.log_softmax(-1)
        return ((self.log_guide.exp() * apart).sum(-1) * self.share.sum(-1)).sum().item()

    def law_of_rank(self, statistic: Tensor) -> tuple[float, float]:
        """How far the rank of a drawn case is from a uniform one, and its mean.

        Args:
            statistic: Of every case; ties are broken by chance.
        """
        own, other = statistic[:, :, None], statistic[:, None]
        guide = self.log_guide.exp()[:, None]
        ties = (guide * ((own - other).abs() < 1e-9)).sum(-1)
        below = (guide * (other < own - 1e-9)).sum(-1)
        even = torch.linspace(0, 1, 101)[:, None, None]
        total = (self.share * ((even - below) / ties).clamp(0, 1)).sum((-1, -2))
        mean = (self.share * (below + ties / 2)).sum().item()
        return (total - even.flatten()).abs().max().item(), mean


STATISTICS: dict[str, Callable[[Cases], Tensor]] = {
    "position": lambda cases: cases.places[..., 0].double(),
    "likelihood": lambda cases: cases.log_likelihood,
}


def targets(shape: str) -> Tensor:
    """All targets of one word, or in a chain of two; padding is not a word."""
    words = 2 if shape == "chain" else 1
    return torch.tensor(list(product(range(1, TARGET_TYPES), repeat=words)))


def batch_of(rows: Tensor) -> Batch:
    return Batch(rows, torch.tensor(SOURCE).expand(len(rows), -1))


@torch.no_grad()
def go_through(shape: str, model: Any, guide: Any) -> Cases:
    """One pass over all cases: every target stands there with every alignment."""
    rows, heads = targets(shape), SHAPES[shape].total_heads
    all_places = product(range(len(SOURCE)), repeat=rows.shape[1] * heads)
    places = torch.tensor(list(all_places)).view(-1, rows.shape[1], heads)
    number = len(rows), len(places)
    batch = batch_of(rows.repeat_interleave(len(places), 0))
    value = places.repeat(len(rows), 1, 1)
    one_heads = SHAPES[shape].heads
    sites = [block.site("choice") for block in model.alignments.addresses]
    with SharedSamples(dict(zip(sites, value.split(one_heads, -1), strict=True))):
        of_model, of_guide = traces(model, guide, batch)
    log_prior, log_guide = (
        sum(trace.nodes[s]["fn"].log_prob(trace.nodes[s]["value"]) for s in sites).view(number)
        for trace in (of_model, of_guide)
    )
    target = of_model.nodes[TARGET]
    log_likelihood = target["fn"].log_prob(target["value"]).view(number)
    missing = 1 - (log_prior + log_likelihood).flatten().logsumexp(0).exp().item()
    flat = places.flatten(1).expand(*number, -1)
    return Cases(flat, log_prior, log_likelihood, log_guide, missing)


@every_shape
@pytest.mark.parametrize("statistic", STATISTICS)
def test_bayes_ranks_what_was_drawn_evenly(shape: str, statistic: str) -> None:
    model = telling(shape)
    cases = go_through(shape, model, attach("exact", model))
    apart, mean = cases.law_of_rank(STATISTICS[statistic](cases))
    assert apart < 1e-12
    assert mean == pytest.approx(0.5, abs=1e-12)


@every_shape
def test_the_prior_is_told_from_the_posterior_by_what_reads_the_target_alone(shape: str) -> None:
    """Averaged over targets posteriors are the prior: no statistic of alignments sees it."""
    model = telling(shape)
    cases = go_through(shape, model, attach("tied", model))
    blind, _ = cases.law_of_rank(STATISTICS["position"](cases))
    assert blind <= cases.missing / (1 - cases.missing)
    apart, mean = cases.law_of_rank(STATISTICS["likelihood"](cases))
    assert mean > 0.6, "what was drawn explains its target better than other draws of the prior"
    assert apart > 0.2


@every_shape
@pytest.mark.parametrize("name", ["tied", *LEARNED])
def test_ranks_are_no_more_uneven_than_the_gap_lets_them(shape: str, name: str) -> None:
    """Pinsker: where the KL is d, no event's probability differs by more than the root of d / 2."""
    model = telling(shape)
    cases = go_through(shape, model, attach(name, model))
    actual = [cases.law_of_rank(read(cases))[0] for read in STATISTICS.values()]
    assert 0.05 < max(actual) <= math.sqrt(cases.gap / 2)


def test_a_guide_that_reads_the_word_is_more_even_than_one_that_does_not() -> None:
    model, apart = telling("one head"), []
    guide = GUIDES["mean-field"](model).double()
    for share in (0.0, 1.0):  # of what a position says of the word: Bayes' rule but for normalisers
        with torch.no_grad():
            guide.alignments.lexical.fill_(share)
        cases = go_through("one head", model, guide)
        apart.append(cases.law_of_rank(cases.log_likelihood)[0])
    assert apart[1] < 0.6 * apart[0]
