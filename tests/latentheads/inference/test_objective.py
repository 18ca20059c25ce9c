"""Head_ELBO: Trace_ELBO's gradients without its host syncs, and the weighted objectives."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any
from unittest import mock

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO, TraceMeanField_ELBO
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.distributions import HeadContext
from latentheads.families import CholeskyFactor, Correlated, Family, Gaussian, HeadScale, Identity
from latentheads.guides import GUIDES, Cascaded, Guide, Tied
from latentheads.inference.bound import terms
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.gates.hard_gates import Gating
from latentheads.models import Translation
from latentheads.names import Block
from tests.crossing import in_turn, pairwise
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.tiny import (
    FORMS,
    KINDS,
    SOURCE_TYPES,
    TARGET_TYPES,
    NoiseTape,
    attach,
    bernoulli_gate,
    build,
    counting,
    jiggle,
    rows,
    sizes,
    small_batch,
)


def loss_and_gradients(elbo: Any, model: Any, guide: Any, batch: Batch) -> tuple[Tensor, list[Any]]:
    module = elbo(model, guide)
    module.zero_grad()
    torch.manual_seed(5)
    loss = module(batch)
    loss.backward()
    return loss.detach(), [p.grad for p in module.parameters()]


@pairwise(form=FORMS, kind=KINDS, validation=[True, False])
def test_gradients_are_those_of_trace_elbo_bit_for_bit(
    form: str, kind: str, validation: bool, batch: Batch
) -> None:
    model = build(kind, dropout=0.3, label_smoothing=0.1)
    guide = attach(form, model)
    loss, expected = loss_and_gradients(Trace_ELBO(), model, guide, batch)
    with pyro.validation_enabled(validation):
        ours, gradients = loss_and_gradients(Head_ELBO(), model, guide, batch)
    assert torch.allclose(ours, loss, rtol=1e-12)
    for gradient, reference in zip(gradients, expected, strict=True):
        assert gradient is not None
        assert torch.equal(gradient, reference)


@in_turn(form=FORMS, kind=KINDS)
def test_analytic_gradients_are_those_of_trace_mean_field_elbo(
    form: str, kind: str, batch: Batch
) -> None:
    model = build(kind, dropout=0.3)
    guide = attach(form, model)
    loss, expected = loss_and_gradients(TraceMeanField_ELBO(), model, guide, batch)
    ours, gradients = loss_and_gradients(Head_ELBO(analytic=True), model, guide, batch)
    assert torch.allclose(ours, loss, rtol=1e-12)
    for gradient, reference in zip(gradients, expected, strict=True):
        assert torch.allclose(gradient, reference, atol=1e-9)


@in_turn(form=FORMS, kind=KINDS)
def test_nothing_is_copied_to_the_host(
    form: str, kind: str, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(kind)
    elbo = Head_ELBO()(model, attach(form, model))

    def sync(*_: Any, **__: Any) -> None:
        raise AssertionError("a tensor was copied to the host")

    for name in ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "numpy", "cpu"):
        monkeypatch.setattr(Tensor, name, sync)
    with pyro.validation_enabled(False):
        elbo(batch).backward()


class Backward(Cascaded):
    """Looks back at a distribution in its trace."""

    def posterior(self, block: Block, context: HeadContext) -> Any:
        if block.name == "encoder.1.self":
            _ = self.trace.nodes["encoder.0.self.logits"]["fn"].location
        return super().posterior(block, context)


def test_a_guide_that_looks_back_is_told_how(batch: Batch) -> None:
    guide = Backward(build()).double()
    loss = Head_ELBO(analytic=True)(guide.model, guide)
    with pyro.validation_enabled(False):
        with pytest.raises(AttributeError, match="set needs_trace = True in a guide that uses"):
            loss(batch)
        guide.needs_trace = True
        assert loss(batch).isfinite()


def split(model: Any, guide: Any, batch: Batch, tape: NoiseTape) -> tuple[Tensor, list[Tensor]]:
    tape.rewind()
    bound_terms = terms(model.eval(), guide, batch)
    tape.rewind()
    return bound_terms.log_likelihood.sum(), [kl.sum() for kl in bound_terms.kl.values()]


@in_turn(weight=[0.0, 0.25, 2.0, 1.0], form=["cascaded", "cholesky", "mean-field"])
def test_weight_multiplies_every_divergence(
    weight: float, form: str, batch: Batch, tape: NoiseTape
) -> None:
    model = build()
    guide = attach(form, model)
    likelihood, kl = split(model, guide, batch, tape)
    loss = Head_ELBO(kl_weight=weight, analytic=True)(model, guide)(batch)
    assert torch.allclose(loss, weight * sum(kl) - likelihood)


def test_sampled_weighted_objective_weighs_the_log_ratio(batch: Batch, tape: NoiseTape) -> None:
    model = build()
    guide = attach("cascaded", model)
    bound_terms = terms(model.eval(), guide, batch)
    tape.rewind()
    loss = Head_ELBO(kl_weight=0.3)(model, guide)(batch)
    assert torch.allclose(loss, -(bound_terms.log_likelihood + 0.3 * bound_terms.log_ratio).sum())


def test_free_bits_floor_each_site_at_nats_a_token(batch: Batch, tape: NoiseTape) -> None:
    model = build()
    guide = attach("cascaded", model)
    likelihood, kl = split(model, guide, batch, tape)
    tokens = batch.target_valid.sum()
    bits = torch.stack(kl).median() / tokens
    assert min(kl) < bits * tokens < max(kl)
    loss = Head_ELBO(free_bits=bits.item(), analytic=True)(model, guide)(batch)
    assert torch.allclose(loss, sum(k.clamp(min=bits * tokens) for k in kl) - likelihood)


@pytest.mark.parametrize("options", [{}, {"analytic": True}, {"free_bits": 0.5}])
def test_plate_scales_the_loss_by_corpus_over_batch(
    options: dict[str, Any], tape: NoiseTape
) -> None:
    model = build()
    guide = attach("cascaded", model)
    elbo = Head_ELBO(**options)(model, guide)
    plain = elbo(small_batch())
    tape.rewind()
    scaled = elbo(small_batch(index=[7, 0, 3], corpus_size=30))
    assert torch.allclose(scaled, 10 * plain, rtol=1e-12)


@in_turn(form=FORMS, validation=[True, False], options=[{}, {"kl_weight": 0.5}, {"free_bits": 9.0}])
def test_vectorised_particles_are_the_mean_of_looped_ones(
    form: str, validation: bool, options: dict[str, Any], batch: Batch, tape: NoiseTape
) -> None:
    model = build()
    guide = attach(form, model)
    single = Head_ELBO(**options)(model, guide)
    losses = []
    for particle in range(3):
        tape.rewind(particle=particle)
        losses.append(single(batch))
    tape.rewind()
    together = Head_ELBO(num_particles=3, vectorize_particles=True, max_plate_nesting=1, **options)(
        model, guide
    )
    with pyro.validation_enabled(validation):
        assert torch.allclose(together(batch), torch.stack(losses).mean(), rtol=1e-9)


class Narrower(Guide):
    """Around the very scores of the prior, with scales of its own."""

    def family(self, block: Block) -> Family:
        return Gaussian(Identity(), HeadScale(block.heads, 0.6, learned=True))


class Tilted(Guide):
    """The same, with a full matrix over the heads."""

    def family(self, block: Block) -> Family:
        return Correlated(Identity(), CholeskyFactor(block.heads, 0.6))


@in_turn(
    guide=[*FORMS, Narrower, Tilted],
    case=product(
        ["independent", "cascaded"], [TraceMeanField_ELBO, partial(Head_ELBO, analytic=True)]
    ),
)
def test_closed_forms_of_vectorised_particles_are_the_mean_of_looped_ones(
    guide: Any, case: tuple[str, Any], batch: Batch, tape: NoiseTape
) -> None:
    prior, objective = case
    model = build("language-model", prior, options={"scale": 0.9})
    chosen = attach(guide, model) if isinstance(guide, str) else jiggle(guide(model).double(), 0.2)
    losses = []
    for particle in range(3):
        tape.rewind(particle=particle)
        losses.append(objective()(model, chosen)(batch))
    tape.rewind()
    together = objective(num_particles=3, vectorize_particles=True, max_plate_nesting=1)
    assert torch.allclose(together(model, chosen)(batch), torch.stack(losses).mean(), rtol=1e-9)


@pairwise(
    shape=list(SHAPES),
    guide=["tied", "cascaded", "exact"],
    objective=["bound", "marginal"],
    sentences=[[0], [0, 0, 0]],
)
def test_alignments_of_vectorised_particles_are_summed_as_those_of_looped_ones(
    shape: str, guide: str, objective: str, sentences: list[int], batch: Batch, tape: NoiseTape
) -> None:
    """As many particles as sentences, or words, let a sum over the wrong ones pass unnoticed."""
    few = rows(batch, sentences)
    model = aligned(SHAPES[shape], prior="independent", blocks="all")
    chosen = jiggle(GUIDES[guide](model).double(), 0.2)
    options = {"analytic": True, "objective": objective}
    together = {"num_particles": 3, "vectorize_particles": True, "max_plate_nesting": 1}
    losses = []
    for particle in range(3):
        tape.rewind(particle=particle)
        losses.append(Head_ELBO(**options)(model, chosen)(few))
    tape.rewind()
    head_elbo = Head_ELBO(**together, **options)(model, chosen)(few)
    assert torch.allclose(head_elbo, torch.stack(losses).mean(), rtol=1e-9)


@pytest.mark.parametrize("objective", ["bound", "marginal", "sampled", "iwae", "rws"])
def test_plate_scales_alignments_too(objective: str) -> None:
    model = aligned(SHAPES["two blocks"])
    elbo = Head_ELBO(objective=objective)(model, jiggle(Cascaded(model).double(), 0.2))
    losses = []
    for given in (small_batch(), small_batch(index=[7, 0, 3], corpus_size=30)):
        torch.manual_seed(3)
        losses.append(elbo(given))
    assert torch.allclose(losses[1], 10 * losses[0], rtol=1e-12)


@pytest.mark.parametrize("objective", ["bound", "marginal"])
def test_alignments_of_a_masked_sentence_do_not_count(objective: str, batch: Batch) -> None:
    model = aligned(SHAPES["two blocks"])
    elbo = Head_ELBO(objective=objective)(model, jiggle(Cascaded(model).double(), 0.2))
    with poutine.mask(mask=torch.tensor([True, False, True])):
        masked = elbo(batch)
    assert torch.allclose(masked, elbo(rows(batch, [0, 2])), rtol=1e-12)


def test_alignments_that_a_function_leaves_out_keep_their_prior(batch: Batch) -> None:
    model = aligned(SHAPES["two blocks"])
    with pyro.validation_enabled(False):
        loss = Head_ELBO().differentiable_loss(model, lambda batch: None, batch)
    assert torch.equal(loss, Head_ELBO()(model, Tied(model))(batch))


@pairwise(form=FORMS, validation=[True, False], particles=[1, 3])
def test_vectorised_bound_costs_no_more_passes(
    form: str, validation: bool, particles: int, batch: Batch
) -> None:
    model = build("language-model")
    guide = attach(form, model)
    elbo = Head_ELBO(num_particles=particles, vectorize_particles=True, max_plate_nesting=1)
    with pyro.validation_enabled(validation), counting(model) as ran:
        elbo(model, guide)(batch)
    assert len(ran) == guide.passes * 2


@pytest.mark.parametrize(("free_bits", "analytic"), [(9.0, False), (0.0, True)])
def test_a_masked_sentence_counts_in_no_floor_and_no_kl(
    free_bits: float, analytic: bool, batch: Batch, tape: NoiseTape
) -> None:
    model = build("language-model")
    guide = jiggle(attach("cascaded", model), 0.1)
    elbo = Head_ELBO(free_bits=free_bits, analytic=analytic)(model, guide)
    with pyro.validation_enabled(False), poutine.mask(mask=torch.tensor([True, False, True])):
        masked = elbo(batch)
    tape.rewind([0, 2])
    assert torch.allclose(masked, elbo(rows(batch, [0, 2])), rtol=1e-12)


def test_looped_particles_are_averaged(batch: Batch) -> None:
    model = build()
    guide = attach("cascaded", model)
    torch.manual_seed(3)
    twice = Head_ELBO(num_particles=2)(model, guide)(batch)
    torch.manual_seed(3)
    once = Head_ELBO()(model, guide)
    assert torch.allclose(twice, (once(batch) + once(batch)) / 2)


def test_loss_is_a_number_and_loss_and_grads_a_tensor(batch: Batch, tape: NoiseTape) -> None:
    model = build()
    guide = attach("cascaded", model)
    loss = Head_ELBO().loss(model, guide, batch)
    assert isinstance(loss, float)
    tape.rewind()
    with_gradients = Head_ELBO().loss_and_grads(model, guide, batch)
    assert with_gradients.item() == pytest.approx(loss)
    assert not with_gradients.requires_grad
    assert all(p.grad is not None for p in model.parameters())


def test_the_graph_is_kept_where_that_is_asked_for(batch: Batch) -> None:
    model = build("language-model")
    for kept in (True, False):
        with mock.patch.object(Tensor, "backward") as seen:
            Head_ELBO(retain_graph=kept).loss_and_grads(model, Tied(model), batch)
        seen.assert_called_once_with(retain_graph=kept)


def test_what_all_sentences_share_has_no_floor(batch: Batch) -> None:
    model: Any = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=[Gating(3)])
    guide = jiggle(Tied(model.double().eval()).double(), 0.3)
    losses = []
    for free_bits in (0.0, 99.0):
        torch.manual_seed(5)
        elbo = Head_ELBO(free_bits=free_bits, analytic=True)
        with pyro.validation_enabled(False):
            losses.append(elbo.differentiable_loss(model, guide, batch))
    assert losses[0] == losses[1]


class Proposed(Tied):
    def get_posterior(self, name: str, prior: Any) -> Any:
        if name.endswith("gate"):
            return (
                dist.Bernoulli(torch.tensor(0.4, requires_grad=True))
                .expand(prior.shape())
                .to_event(1)
            )
        return prior


@pytest.mark.parametrize("analytic", [False, True])
def test_a_learned_site_that_is_not_reparameterised_is_refused_in_one_line(
    analytic: bool, batch: Batch
) -> None:
    model = build("language-model", gate=bernoulli_gate())
    with pytest.raises(
        ValueError, match=r"^site 'decoder.0.self.gate' is learned but not reparam[^\n]*$"
    ):
        Head_ELBO(analytic=analytic)(model, Proposed(model))(batch)
    assert Trace_ELBO()(model, Proposed(model))(batch).isfinite()


class LearnedGate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.3, -0.4, 0.1]))

    def forward(self, context: HeadContext) -> Any:
        shape = context.scores.shape[:-2]
        return dist.Bernoulli(logits=self.logits).expand(shape).to_event(1)


def test_a_learned_tied_gate_is_refused_or_gets_its_gradient(batch: Batch) -> None:
    """Its log-ratio is 0, but its score-function gradient is not."""
    model = build("language-model", gate=LearnedGate())
    _, expected = loss_and_gradients(Trace_ELBO(), model, Tied(model), batch)
    try:
        _, actual = loss_and_gradients(Head_ELBO(), model, Tied(model), batch)
    except ValueError as refusal:
        assert "not reparameterised" in str(refusal)  # noqa: PT017
        return
    for gradient, reference in zip(actual, expected, strict=True):
        assert torch.equal(gradient, reference)


class Fixed(Tied):
    def get_posterior(self, name: str, prior: Any) -> Any:
        if not name.endswith("gate"):
            return prior
        return dist.Bernoulli(torch.tensor(0.4)).expand(prior.shape()).to_event(1)


def test_a_learned_prior_of_gates_has_its_gradient_under_a_guide_that_is_not_learned(
    batch: Batch,
) -> None:
    model = build("language-model", gate=LearnedGate())
    _, expected = loss_and_gradients(Trace_ELBO(), model, Fixed(model), batch)
    _, actual = loss_and_gradients(Head_ELBO(), model, Fixed(model), batch)
    for gradient, reference in zip(actual, expected, strict=True):
        assert torch.equal(gradient, reference)
