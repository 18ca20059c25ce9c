"""Gradients of a selection without a relaxation, against sums over every choice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

from latentheads.batch import Batch
from latentheads.guides import Tied
from latentheads.handlers import PlugIn, SharedSamples
from latentheads.inference.bound import closed_form
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.logits.latent import Logits
from latentheads.latents.selection.bernoulli import Bernoullis
from latentheads.latents.selection.objectives import Enumerated_ELBO, ScoreFunction_ELBO
from latentheads.latents.selection.strategies import Strategy, make_selector
from latentheads.models import Translation, make_prior
from latentheads.training.fit import fit
from tests.tiny import SOURCE_TYPES, SOURCES, TARGET_TYPES, TARGETS, attach, jiggle, sizes

SITE = "encoder.0.self.selection"
TASKS = torch.tensor([0, 1, 0])
every_law = pytest.mark.parametrize("strategy", ["bernoulli", "subset", "group"])


def pair(
    strategy: Strategy, prior: str = "delta", form: str = "", **changes: Any
) -> tuple[Any, Any]:
    """A network of one block that selects, for two tasks, and its guide."""
    torch.manual_seed(3)
    selector = make_selector(strategy, 2, 4 if strategy == "group" else 3, ("encoder-self",), 2, 1)
    network = replace(sizes(heads=2, layers=1), **changes)
    model: Any = Translation(
        SOURCE_TYPES, TARGET_TYPES, network, latents=[Logits(make_prior(prior)), selector]
    )
    model = jiggle(model, 0.7).double().eval()
    guide = attach(form, model, 0.05) if form else Tied(model).double()
    for family in guide.selections.values():
        torch.nn.init.normal_(family.weight, std=0.1)
    return model, guide


def two_tasks(size: int = 0) -> Batch:
    return replace(Batch.of(TARGETS, SOURCES), source_task=TASKS, corpus_size=size)


def joint(model: Any, guide: Any, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Log-likelihoods of every pair of choices, their log q a task, and the KL of the selection."""
    distribution = guide.selections["encoder_0_self"]()
    every = distribution.enumerate_support()[:, 0]
    values, log_q = [], []
    for chosen in product(every, repeat=2):
        drawn = torch.stack(chosen)
        with PlugIn(), SharedSamples({SITE: drawn}):
            likelihood = model.likelihood(model.states(batch), batch)
        values.append(likelihood.log_prob(batch.scored))
        log_q.append(distribution.log_prob(drawn))
    (module,) = model.selecting_blocks
    kl = closed_form(distribution, module.selector.prior("encoder-self", distribution.logits))
    assert kl is not None
    return torch.stack(values), torch.stack(log_q), kl.sum()


def gradients(guide: Any, model: Any, loss: Tensor) -> list[Tensor]:
    block = model.selecting_blocks[0].attention.in_weight
    weight = guide.selections["encoder_0_self"].weight
    return list(
        torch.autograd.grad(loss, [weight, block], retain_graph=True, materialize_grads=True)
    )


@every_law
def test_going_through_all_choices_is_the_exact_mean(strategy: Strategy) -> None:
    model, guide = pair(strategy)
    batch = two_tasks(30)
    values, log_q, kl = joint(model, guide, batch)
    exact = kl - 10 * (log_q.sum(-1).exp() * values.sum(-1)).sum()
    loss_value = Enumerated_ELBO(analytic=True).differentiable_loss(model, guide, batch)
    torch.testing.assert_close(loss_value, exact)
    for actual, wanted in zip(
        gradients(guide, model, loss_value), gradients(guide, model, exact), strict=True
    ):
        assert actual.abs().max() > 1e-3
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("objective", [Enumerated_ELBO, ScoreFunction_ELBO])
def test_handlers_act_on_all_terms(objective: Any) -> None:
    model, guide = pair("subset")
    batch = two_tasks(30)

    def loss(handler: Any) -> Tensor:
        torch.manual_seed(5)
        with handler:
            return objective(analytic=True).differentiable_loss(model, guide, batch)

    torch.testing.assert_close(loss(poutine.scale(scale=0.5)), 0.5 * loss(nullcontext()))
    chosen = guide.selections["encoder_0_self"]().enumerate_support()[1]
    with SharedSamples({SITE: chosen}):
        trace = poutine.trace(model).get_trace(batch)
    observed = loss(poutine.condition(data={SITE: chosen}))
    torch.testing.assert_close(observed, -trace.log_prob_sum())


@every_law
def test_scores_of_two_draws_have_the_exact_gradient_on_average(strategy: Strategy) -> None:
    """The mean over every pair of draws, each of which chooses for both tasks."""
    model, guide = pair(strategy)
    values, log_q, kl = joint(model, guide, two_tasks())
    exact = kl - (log_q.sum(-1).exp() * values.sum(-1)).sum()
    q = log_q.sum(-1).exp().detach()
    elbo = ScoreFunction_ELBO(analytic=True)
    mean = torch.zeros(())
    for one, other in product(range(len(q)), repeat=2):
        both = [one, other]
        of_sentences = log_q[both][:, TASKS]
        mean = mean + q[one] * q[other] * elbo._mean(values[both], of_sentences)
    for actual, wanted in zip(
        gradients(guide, model, kl - mean), gradients(guide, model, exact), strict=True
    ):
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("objective", [Enumerated_ELBO, ScoreFunction_ELBO])
def test_a_further_latent_of_all_sentences_is_paid_for_once(objective: Any) -> None:
    model, _ = pair("group")
    draw_heads = model.select_heads

    def choose(*given: Any) -> Any:
        pyro.sample("mood", dist.Normal(torch.zeros(()).double(), 1.0))
        return draw_heads(*given)

    class Moody(Tied):
        mean = torch.tensor(0.0).double()

        def get_posterior(self, name: str, prior: Any) -> Any:
            return dist.Normal(self.mean, 1.0) if name == "mood" else prior

    model.select_heads = choose
    guide = Moody(model).double()

    def loss(mean: float) -> Tensor:
        guide.mean = torch.tensor(mean).double()
        torch.manual_seed(5)
        return objective(analytic=True).differentiable_loss(model, guide, two_tasks(30))

    torch.testing.assert_close(loss(1.5) - loss(0.0), torch.tensor(1.5**2 / 2).double())


def test_real_draws_agree_with_all_choices() -> None:
    model, guide = pair("group")
    batch = two_tasks()
    exact = gradients(guide, model, Enumerated_ELBO().differentiable_loss(model, guide, batch))
    torch.manual_seed(0)
    draws = [
        gradients(
            guide, model, ScoreFunction_ELBO(num_samples=3).differentiable_loss(model, guide, batch)
        )[0]
        for _ in range(50)
    ]
    all_draws = torch.stack(draws)
    error = all_draws.std(0) / len(draws) ** 0.5
    assert ((all_draws.mean(0) - exact[0]).abs() < 4.5 * error).all()


@pytest.mark.parametrize("analytic", [True, False])
@pytest.mark.parametrize("form", ["cascaded", "inverse"])
def test_latent_logits_are_drawn_alike_for_every_choice(form: str, analytic: bool) -> None:
    model, guide = pair("subset", "independent", form)
    batch = Batch.of(TARGETS, SOURCES, corpus_size=30)
    options: dict[str, Any] = {"analytic": analytic, "kl_weight": 0.5}
    distribution = guide.selections["encoder_0_self"]()
    prior = model.selecting_blocks[0].selector.prior("encoder-self", distribution.logits)
    kl = closed_form(distribution, prior)
    assert kl is not None
    expected = 0.5 * kl.sum()
    with pyro.validation_enabled(False):
        for chosen in distribution.enumerate_support():
            torch.manual_seed(7)
            with SharedSamples({SITE: chosen}):
                loss = Head_ELBO(**options).differentiable_loss(model, guide, batch)
            ratio = kl if analytic else distribution.log_prob(chosen) - prior.log_prob(chosen)
            expected = expected + distribution.log_prob(chosen)[0].exp() * (
                loss - 0.5 * ratio.sum()
            )
        torch.manual_seed(7)
        loss_value = Enumerated_ELBO(**options).differentiable_loss(model, guide, batch)
    torch.testing.assert_close(loss_value, expected)
    for actual, wanted in zip(
        gradients(guide, model, loss_value), gradients(guide, model, expected), strict=True
    ):
        torch.testing.assert_close(actual, wanted)


def test_dropout_is_the_same_for_all_alternatives() -> None:
    """Where every draw is the same choice, there is nothing to tell apart."""
    model, guide = pair("group", dropout=0.3)
    model.train()
    with torch.no_grad():
        weight = guide.selections["encoder_0_self"].weight
        weight.copy_(5.0 * torch.tensor([[1.0, -1, -1, 1], [1, 1, -1, -1]]))
    batch = two_tasks()
    with pyro.validation_enabled(False):
        loss = ScoreFunction_ELBO(analytic=True).differentiable_loss(model, guide, batch)
    distribution = guide.selections["encoder_0_self"]()
    prior = model.selector.prior("encoder-self", distribution.logits)
    kl = closed_form(distribution, prior)
    assert kl is not None
    torch.testing.assert_close(
        gradients(guide, model, loss)[0], torch.autograd.grad(kl.sum(), weight)[0]
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScoreFunction_ELBO(num_samples=1), "num_samples must be at least 2, got 1"),
        (
            lambda: ScoreFunction_ELBO(free_bits=0.1),
            "free_bits needs selection.strategy.gradient straight-through",
        ),
        (
            lambda: ScoreFunction_ELBO(num_particles=2, vectorize_particles=True),
            "vectorize_particles needs selection.strategy.gradient straight-through",
        ),
    ],
)
def test_a_wrong_option_is_named(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_particles_are_averaged() -> None:
    model, guide = pair("group", "independent", "cascaded")
    batch = two_tasks(30)
    with pyro.validation_enabled(False):
        torch.manual_seed(7)
        one = Enumerated_ELBO()
        loss_values = [one.differentiable_loss(model, guide, batch) for _ in range(3)]
        assert len({loss.item() for loss in loss_values}) == 3
        torch.manual_seed(7)
        loss_value = Enumerated_ELBO(num_particles=3).differentiable_loss(model, guide, batch)
    torch.testing.assert_close(loss_value, sum(loss_values) / 3)


@pytest.mark.parametrize("make", [Enumerated_ELBO, ScoreFunction_ELBO])
def test_a_fixed_choice_is_no_draw(make: Callable[[], Any]) -> None:
    network, selector = sizes(heads=2, layers=1), make_selector("static", 2, sources=2)
    model: Any = Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=[selector])
    model, batch = jiggle(model, 0.7).double().eval(), two_tasks(30)
    guide = Tied(model).double()
    loss_value = make().differentiable_loss(model, guide, batch)
    with PlugIn():
        likelihood = model.likelihood(model.states(batch), batch)
    torch.testing.assert_close(loss_value, -10 * likelihood.log_prob(batch.scored).sum())


def gated() -> Any:
    network, gates = sizes(heads=2, layers=1), Gating(2)
    return Translation(SOURCE_TYPES, TARGET_TYPES, network, latents=[gates])


@pytest.mark.parametrize("make", [Enumerated_ELBO, ScoreFunction_ELBO])
def test_gates_are_told_what_learns_them(make: Callable[[], Any]) -> None:
    model = gated()
    with pytest.raises(ValueError, match=r"gates are learned by Head_ELBO\(analytic=True\)"):
        make().differentiable_loss(model, Tied(model), Batch.of(TARGETS, SOURCES))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (Enumerated_ELBO(), r"gates are learned by Head_ELBO\(analytic=True\), not by Enumerated"),
        (ScoreFunction_ELBO(), r"gates are learned by Head_ELBO\(analytic=True\), not by ScoreFu"),
        ({"kl_weight": 0.5}, "gates need a KL of weight 1, .*: drop loss.kl_weight$"),
        ({"kl_warmup": 5}, "gates need a KL of weight 1, .*: drop loss.kl_warmup$"),
    ],
)
def test_a_training_of_gates_is_refused_in_one_line(loss: Any, message: str) -> None:
    model = gated()
    with pytest.raises(ValueError, match=f"^{message}"):
        fit(model, Tied(model), [Batch.of(TARGETS, SOURCES)], steps=1, quiet=True, loss=loss)


def test_too_many_choices_are_told_in_one_line() -> None:
    selector = make_selector("bernoulli", 3, 7, ("encoder-self",))
    model: Any = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(layers=1), latents=[selector])
    guide = Tied(model)
    with pytest.raises(ValueError, match="at most 64, not 128; score takes any number"):
        Enumerated_ELBO().differentiable_loss(model, guide, Batch.of(TARGETS, SOURCES))


@pytest.mark.parametrize("kind", [ScoreFunction_ELBO, Enumerated_ELBO])
def test_alignments_that_are_drawn_are_refused(kind: Any) -> None:
    selector = make_selector("subset", 2, 3, ("encoder-self",), 2, 1)
    types, network = (SOURCE_TYPES, TARGET_TYPES), sizes(heads=2, layers=1)
    losses = []
    for prior in ("independent", "soft"):
        options = AlignmentOptions(1, prior=prior, width=5)
        model: Any = Translation(*types, network, latents=[selector, options])
        losses.append(partial(kind().differentiable_loss, model, Tied(model), two_tasks()))
    with pytest.raises(ValueError, match=f"{kind.__name__} weighs .* use Head_ELBO"):
        losses[0]()
    assert losses[1]().isfinite()


def test_as_many_choices_as_the_limit_are_gone_through() -> None:
    objective, blocks = Enumerated_ELBO(), [Bernoullis(torch.zeros(n)) for n in (2, 4, 5)]
    objective.check(blocks[:2])
    with pytest.raises(ValueError, match="at most 64, not 128"):
        objective.check([blocks[0], blocks[2]])
