"""Objectives of drawn alignments: the mean over all draws is the sum that they stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from torch import Tensor

from latentheads.batch import Batch
from latentheads.handlers import SharedSamples
from latentheads.inference.bound import terms, traces
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.alignments import pass_samples
from latentheads.latents.alignments.pass_samples import (
    kl_enumeration,
    sample_alignments,
    soft_log_prob,
)
from latentheads.latents.sampled import (
    AlignmentSamples,
    importance_bound,
    score_bound,
    wake_objective,
)
from tests import crossing
from tests.guides.attached import LEARNED, SUMMED, attach
from tests.latentheads.latents.alignments.models import SHAPES, SOFT, aligned, telling
from tests.latentheads.latents.draws import expectation
from tests.tiny import jiggle

SOURCE, TARGET = (4, 5, 2), (6, 7)
SENTENCES = [(SOURCE, TARGET), ((9, 4), (8, 2)), ((7, 7, 2), (5, 3))]
READS = ("source", "prefix", "target")
CASES = [
    *((shape, "cascaded") for shape in SHAPES),
    ("two heads", "autoregressive"),
    ("two blocks", "mean-field"),
    ("one head", "tied"),
    ("two blocks", "tied"),
    ("chain", "tied"),
    ("chain", "exact"),
    ("chain", "mean-field"),
]
every_case = pytest.mark.parametrize(("shape", "name"), CASES)


class Everything:
    """A model and its guide, a sentence, and all its alignments.

    One sentence of two words with one head, or of one word with two, if no other is said.
    """

    def __init__(
        self,
        shape: str,
        name: str,
        condition_on: str = "target",
        source: Sequence[int] = SOURCE,
        target: Sequence[int] = (),
    ) -> None:
        self.model = jiggle(telling(shape), 0.1).requires_grad_(True)
        self.guide = attach(name, self.model, condition_on)
        heads = SHAPES[shape].total_heads
        self.source, self.target = source, target or TARGET[: 2 // heads]
        self.batch = self.copies(1)
        size = heads * len(self.target)
        places = torch.tensor(list(product(range(len(source)), repeat=size)))
        self.places = places.view(-1, len(self.target), heads)
        self.each = SHAPES[shape].heads
        self.sites = [block.site("choice") for block in self.model.alignments.addresses]
        learned = [*self.model.named_parameters(), *self.guide.named_parameters()]
        self.names, self.parameters = zip(*learned, strict=True)

    def copies(self, number: int) -> Batch:
        pair = self.target, self.source
        target, source = (torch.tensor(item).expand(number, -1) for item in pair)
        return Batch(target, source)

    def go_through(self) -> tuple[Any, Any]:
        """The traces of one pass, in which every copy of the sentence has another alignment."""
        batch = self.copies(len(self.places))
        values = dict(zip(self.sites, self.places.split(self.each, -1), strict=True))
        with SharedSamples(values):
            return traces(self.model, self.guide, batch)

    def gradients(self, value: Tensor) -> list[Tensor]:
        """Those of all parameters of model and guide."""
        computed_gradients = torch.autograd.grad(
            value, self.parameters, allow_unused=True, retain_graph=True
        )
        pairs = zip(computed_gradients, self.parameters, strict=True)
        return [torch.zeros_like(p) if item is None else item for item, p in pairs]

    def alike(self, one: Tensor, other: Tensor) -> None:
        """Asserts that two values have the same gradients, and that there are some."""
        actual, expected = self.gradients(one), self.gradients(other)
        assert any(tensor.abs().max() > 1e-3 for tensor in expected)
        for name, a, b in zip(self.names, actual, expected, strict=True):
            assert torch.allclose(a, b, rtol=1e-8, atol=1e-10), name


@every_case
def test_one_draw_has_the_gradient_of_the_guides_bound_on_average(shape: str, name: str) -> None:
    here = Everything(shape, name)
    pair = here.go_through()
    drawn = sample_alignments(*pair)
    actual = score_bound(drawn, soft_log_prob(pair[0])) - sum(kl_enumeration(*pair).kl().values())
    chance = drawn.log_guide.sum(-1)[0].exp().detach()
    assert chance.sum().item() == pytest.approx(1, rel=1e-12)
    bound = -Head_ELBO(analytic=True).differentiable_loss(here.model, here.guide, here.batch)
    assert (chance * actual).sum().item() == pytest.approx(bound.item(), rel=1e-10)
    here.alike((chance * actual).sum(), bound)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_one_draw_is_measured_against_soft_attention(
    smoothing: float, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model whose heads add a mean, with the same weights, and labels as smooth."""
    model, soft = aligned(SHAPES["one head"]), aligned(SOFT["soft"])
    soft.load_state_dict(model.state_dict())
    for item in (model, soft):
        item.training, item.label_smoothing = True, smoothing
    seen: list[Tensor] = []

    def note(drawn: AlignmentSamples, baseline: Tensor) -> Tensor:
        seen.append(baseline)
        return score_bound(drawn, baseline)

    monkeypatch.setattr("latentheads.latents.alignments.loss_terms.score_bound", note)
    elbo = Head_ELBO(objective="sampled")
    elbo.differentiable_loss(model, attach("cascaded", model), batch)
    (baseline,) = seen
    assert torch.allclose(baseline, soft.token_distribution(batch).token_log_prob(batch.scored))


def two_of_each(
    here: Everything, monkeypatch: pytest.MonkeyPatch
) -> tuple[AlignmentSamples, Tensor, AlignmentSamples]:
    """All pairs of draws, the probability of each, and single draws."""
    single = sample_alignments(*here.go_through())
    number = len(here.places)
    first, second = torch.cartesian_prod(*[torch.arange(number)] * 2).unbind(1)
    here.places = here.places[first]  # the pass has as many copies of the sentence as pairs
    both = torch.stack(
        [
            here.places,
            here.places.view(number, number, *here.places.shape[1:]).transpose(0, 1).flatten(0, 1),
        ]
    )
    monkeypatch.setattr(pass_samples, "sample_blocks", lambda distributions, valid, count: both)
    drawn = sample_alignments(*here.go_through(), 2)
    chance = single.log_guide.sum(-1)[0].exp().detach()
    return drawn, chance[first] * chance[second], single


def exact_bound(single: AlignmentSamples, log_guide: Tensor) -> Tensor:
    """The mean bound of two draws, written down."""
    weights = single.by_unit(single.log_likelihood + single.log_prior - log_guide)[0]
    both = torch.logaddexp(weights[:, None], weights) - math.log(2)
    chance = log_guide.sum(-1)[0].exp()
    return (chance[:, None, None] * chance[:, None] * both).sum()


@every_case
def test_two_draws_have_the_gradient_of_their_mean_bound(
    shape: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Everything(shape, name)
    drawn, chance, single = two_of_each(here, monkeypatch)
    total, exact = (chance * importance_bound(drawn)).sum(), exact_bound(single, single.log_guide)
    assert total.item() == pytest.approx(exact.item(), rel=1e-10)
    here.alike(total, exact)


def test_draws_that_weigh_alike_give_no_credit() -> None:
    """Each is measured against the geometric mean of the others, which then is its own weight."""
    log_guide = torch.zeros(3, 2, 5, requires_grad=True)
    alike = torch.randn(2, 5).expand(3, -1, -1)
    importance_bound(AlignmentSamples(alike, torch.zeros(3, 2, 5), log_guide)).sum().backward()
    torch.testing.assert_close(log_guide.grad, torch.full((3, 2, 5), -1 / 3))


@crossing.pairwise(shape=SHAPES, name=SUMMED, condition_on=READS)
@torch.no_grad()
def test_two_draws_bound_more_than_one_and_no_more_than_log_p(
    shape: str, name: str, condition_on: str
) -> None:
    """Means over all pairs of alignments: of a whole sentence of two words, and of words apart."""
    sentences = SENTENCES if condition_on == "target" else SENTENCES[:1]
    for source, target in sentences:
        here = Everything(shape, name, condition_on, source, target)
        single = sample_alignments(*here.go_through())
        whole = replace(single, chained=True)  # one weight a sentence, as a report has it
        pairs = [exact_bound(item, item.log_guide).item() for item in (whole, single)]
        joint = whole.log_weights + whole.log_guide.sum(-1, keepdim=True)
        bound_terms = terms(here.model, here.guide, here.batch)
        assert bound_terms.enumeration is not None
        exact = bound_terms.enumeration.log_evidence.item()
        assert joint.logsumexp(1).item() == pytest.approx(exact, rel=1e-12)
        rises = [
            after - before for before, after in pairwise([bound_terms.elbo.item(), *pairs, exact])
        ]
        assert min(rises) > -1e-10
        assert (max(rises) < 1e-10) == (name == "exact")
        assert (rises[0] > 1e-3) == (name != "exact")


@every_case
def test_wake_fits_the_model_to_that_bound_and_the_guide_to_weighted_draws(
    shape: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Everything(shape, name)
    drawn, chance, single = two_of_each(here, monkeypatch)
    total, exact = (
        (chance * wake_objective(drawn)).sum(),
        exact_bound(single, single.log_guide.detach()),
    )
    assert total.item() == pytest.approx(exact.item(), rel=1e-10)
    if name in LEARNED:
        guide = single.by_unit(single.log_guide)[0]
        weights = single.log_weights[0].detach()
        share = (weights[:, None] - torch.logaddexp(weights[:, None], weights)).exp()
        probabilities = single.log_guide.sum(-1)[0].exp().detach()
        pairs = probabilities[:, None, None] * probabilities[:, None] * share
        exact = exact + 2 * (pairs * guide[:, None]).sum()
    here.alike(total, exact)


def relative_bias(here: Everything, number: int, part: str) -> float:
    """How far the mean gradient of wake is from the exact one, in lengths of that.

    The exact one is that of log p in the model, and of -KL(posterior || guide) in the guide.
    """
    single = sample_alignments(*here.go_through())
    log_joint = (single.log_likelihood + single.log_prior).sum(-1)[0]
    exact = log_joint.logsumexp(0)
    if part == "guide":
        exact = (log_joint.softmax(0).detach() * single.log_guide.sum(-1)[0]).sum()
    size = len(list(here.model.parameters()))
    own = slice(size) if part == "model" else slice(size, None)
    mean, target = (
        torch.cat([gradient.flatten() for gradient in here.gradients(value)[own]])
        for value in (expectation(wake_objective, single, number), exact)
    )
    return ((mean - target).norm() / target.norm()).item()


@every_case
def test_wake_is_biased_but_with_the_exact_posterior(shape: str, name: str) -> None:
    """With a chain and guide exact all weights are equal; the page has the size of the bias."""
    here = Everything(shape, name)
    for part in ("model", "guide") if name in LEARNED else ("model",):
        bias = relative_bias(here, 2, part)
        assert bias < 1e-9 if name == "exact" else bias > 0.01


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "all"}, "must be one of bound, marginal, sampled, iwae, rws, relaxed"),
        ({"objective": "iwae", "num_samples": 1}, "num_samples must be at least 2, got 1"),
        ({"num_particles": 0}, "num_particles must be at least 1, got 0"),
    ],
)
def test_what_is_no_objective_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Head_ELBO(**options)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_vectorised_particle_has_draws_of_its_own(
    shape: str, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the loss is the mean over particles of the bounds that their weights give."""
    seen: list[AlignmentSamples] = []

    def note(drawn: AlignmentSamples) -> Tensor:
        seen.append(drawn)
        return importance_bound(drawn)

    monkeypatch.setattr("latentheads.latents.alignments.loss_terms.importance_bound", note)
    model = aligned(SHAPES[shape])
    guide = attach("cascaded", model)
    elbo = Head_ELBO(
        objective="iwae",
        num_samples=5,
        num_particles=3,
        vectorize_particles=True,
        max_plate_nesting=1,
    )
    loss = elbo.differentiable_loss(model, guide, batch)
    (drawn,) = seen
    words = batch.target.shape[1]
    assert drawn.log_likelihood.shape == drawn.log_guide.shape == (5, 3, len(batch), words)
    weights = drawn.log_weights.detach()
    bounds = (weights.exp().mean(0).log()).sum((-1, -2))
    assert len(bounds.unique()) == 3
    assert loss.item() == pytest.approx(-bounds.mean().item(), rel=1e-10)
