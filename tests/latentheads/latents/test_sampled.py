"""Expected gradients of objectives of a few samples, against those of what they estimate.

The exact objectives are written down here, as sums over all alignments of a sentence of two words.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from latentheads.latents.sampled import (
    AlignmentSamples,
    importance_bound,
    score_bound,
    wake_objective,
)
from tests.docs.pages import ROOT
from tests.latentheads.latents.draws import expectation

POSITIONS = 3
FIRST, SECOND = torch.tensor([*product(range(POSITIONS), repeat=2)]).T
"""The positions of both words, of every alignment."""

chained_or_not = pytest.mark.parametrize("chained", [False, True])


@dataclass(frozen=True)
class Tables:
    """Logits of prior and guide, and log-likelihoods: word, position before, position."""

    likelihood: Tensor
    prior: Tensor
    guide: Tensor
    chained: bool

    def samples(self) -> AlignmentSamples:
        """Every alignment once; the guide is the prior if their tables are one tensor."""
        log_guide = self.pick(self.guide.log_softmax(-1))
        return AlignmentSamples(
            self.pick(self.likelihood),
            self.pick(self.prior.log_softmax(-1)),
            log_guide,
            self.chained,
            log_guide if self.guide is self.prior else 0.0,
        )

    def pick(self, table: Tensor) -> Tensor:
        """The entries of every alignment; without a chain those of the first row alone."""
        before = FIRST if self.chained else torch.zeros_like(FIRST)
        return torch.stack([table[0, 0, FIRST], table[1, before, SECOND]], -1)[None]

    def gradients(self, value: Tensor) -> dict[str, Tensor]:
        """Those of the model's two tables together, and of the guide's."""
        likelihood, prior, guide = torch.autograd.grad(
            value, [self.likelihood, self.prior, self.guide], allow_unused=True, retain_graph=True
        )
        model = [torch.zeros_like(self.prior) if g is None else g for g in (likelihood, prior)]
        return {
            "model": torch.stack(model),
            "guide": torch.zeros_like(self.guide) if guide is None else guide,
        }


def tables(chained: bool, tied: bool = False) -> Tables:
    generator = torch.Generator().manual_seed(3)
    shape = 3, 2, POSITIONS, POSITIONS
    drawn = 1.5 * torch.randn(shape, dtype=torch.float64, generator=generator)
    likelihood, prior, guide = (table.requires_grad_(True) for table in drawn.unbind())
    return Tables(likelihood, prior, prior if tied else guide, chained)


def log_mean_weight(single: AlignmentSamples, number: int) -> Tensor:
    """The mean bound of some draws: the sum over all of them, in their order."""
    weights, log_guide = single.log_weights[0], single.log_guide[0]
    draws = torch.tensor([*product(range(len(log_guide)), repeat=number)]).T
    chance = log_guide.sum(-1)[draws].sum(0).exp()
    bounds = weights[draws].logsumexp(0) - math.log(number)
    return (chance * bounds.sum(-1)).sum()


def log_evidence(single: AlignmentSamples) -> Tensor:
    return (single.log_likelihood + single.log_prior).sum(-1).logsumexp(-1).sum()


def fit_of_the_guide(single: AlignmentSamples) -> Tensor:
    """Minus KL(posterior || guide), up to what the guide does not change."""
    log_joint = (single.log_likelihood + single.log_prior).sum(-1)
    return (log_joint.softmax(-1).detach() * single.log_guide.sum(-1)).sum()


def check_same(own: Tables, one: Tensor, other: Tensor, *parts: str) -> None:
    for part in parts or ("model", "guide"):
        mean, exact = own.gradients(one)[part], own.gradients(other)[part]
        assert exact.norm() > 1e-2
        torch.testing.assert_close(mean, exact, rtol=1e-9, atol=1e-9)


def relative_bias(own: Tables, number: int, part: str) -> float:
    """How far the mean gradient of the wake phases is from the exact one, in lengths of that."""
    single = own.samples()
    exact = log_evidence(single) if part == "model" else fit_of_the_guide(single)
    target = own.gradients(exact)[part]
    mean = own.gradients(expectation(wake_objective, single, number))[part]
    return ((mean - target).norm() / target.norm()).item()


@chained_or_not
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_the_score_function_is_unbiased(chained: bool, tied: bool, number: int) -> None:
    own = tables(chained, tied)
    single = own.samples()
    baseline = torch.tensor([0.3, -0.7]).double()

    def estimator(samples: AlignmentSamples) -> Tensor:
        return score_bound(samples, baseline.expand(samples.log_guide.shape[1:]))

    mean = expectation(estimator, single, number)
    chance = single.log_guide.sum(-1).exp()
    check_same(own, mean, (chance * single.log_likelihood.sum(-1)).sum())


@chained_or_not
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("number", [2, 3])
def test_the_importance_weighted_gradient_is_that_of_its_bound(
    chained: bool, tied: bool, number: int
) -> None:
    own = tables(chained, tied)
    single = own.samples()
    mean, exact = expectation(importance_bound, single, number), log_mean_weight(single, number)
    assert mean.item() == pytest.approx(exact.item(), rel=1e-10)
    check_same(own, mean, exact)
    assert exact < log_evidence(single)
    if not tied:  # wake trains the guide by another objective
        mean = expectation(wake_objective, single, number)
        assert mean.item() == pytest.approx(exact.item(), rel=1e-10)
        check_same(own, mean, exact, "model")


@chained_or_not
@pytest.mark.parametrize(("tied", "part"), [(False, "guide"), (False, "model"), (True, "model")])
def test_wake_is_biased_and_less_so_with_more_samples(chained: bool, tied: bool, part: str) -> None:
    """Self-normalised weights favour the guide: its own sample is in the sum that divides it."""
    own = tables(chained, tied)
    biases = [relative_bias(own, number, part) for number in (1, 2, 4, 8)]
    assert biases[-1] > 0.02
    assert all(more < less for less, more in pairwise(biases))


def test_one_sample_teaches_the_guide_of_wake_nothing() -> None:
    own = tables(chained=True)
    mean = expectation(wake_objective, own.samples(), 1)
    assert own.gradients(mean)["guide"].abs().max() < 1e-12
    assert relative_bias(own, 1, "guide") == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize(
    ("message", "tied", "part"),
    [
        ("In the tiny example of the test it is off by", False, "guide"),
        ("gradient is not that of log p: it is off by", True, "model"),
    ],
)
def test_the_bias_of_wake_is_that_of_the_page(message: str, tied: bool, part: str) -> None:
    text = " ".join((ROOT / "docs" / "alignments.md").read_text(encoding="utf-8").split())
    (figures,) = re.findall(rf"{message} (\.\d+), (\.\d+) and (\.\d+) of", text)
    for figure, number in zip(figures, (2, 5, 10), strict=True):
        bias = relative_bias(tables(chained=False, tied=tied), number, part)
        assert float(figure) == round(bias, 3)
