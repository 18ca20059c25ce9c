"""Gates of a model: one sample for all sentences, L0 penalty in training, removal of the closed."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pyro
import pytest
import torch

from latentheads.batch import Batch
from latentheads.decoding.beam_search import beam_search
from latentheads.families import Family, Identity, Point, RunningSum
from latentheads.handlers import PlugIn
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import evaluate, plug_in_log_likelihood
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.gates.hard_gates import GateController, Gating
from latentheads.latents.handlers import WithSelection
from latentheads.latents.logits.latent import Logits
from latentheads.latents.logits.priors import Prior
from latentheads.models import LanguageModel, Translation, make_prior
from latentheads.names import ATTENTION_TYPES, Block
from latentheads.noise import fixed_noise
from latentheads.pruning import all_heads, fold_selection
from tests.tiny import FORMS, HEADS, attach, attentions_of, jiggle, sizes

CHAIN = {"translation": ATTENTION_TYPES, "language-model": ("decoder-self",)}


def gated(kind: str = "translation", prior: str = "independent", **options: Any) -> Any:
    gating = Gating(HEADS, CHAIN[kind], **options)
    logit_prior = make_prior(prior)
    if kind == "translation":
        model: Any = Translation(11, 13, sizes(), latents=[Logits(logit_prior), gating])
    else:
        model = LanguageModel(13, sizes(), latents=[Logits(logit_prior), gating])
    return jiggle(model, 0.1).double().eval()


def spread(model: Any, form: str = "tied") -> Any:
    """A guide some of whose gates are closed, some open and some in between."""
    guide = FORMS[form](model).double().eval()
    with torch.no_grad():
        for index, family in enumerate(guide.selections.values()):
            values = torch.tensor([[-4.0, 0.9, 4.0]]).roll(index, -1)
            family.weight.copy_(values / Gating.gain)
    return guide


def test_gates_start_open_and_cost_their_prior_once() -> None:
    model = gated()
    guide = FORMS["tied"](model).double()
    posteriors = [family() for family in guide.selections.values()]
    assert all((posterior.mode == 1).all() for posterior in posteriors)
    assert all((posterior.open > 0.95).all() for posterior in posteriors)
    assert len(posteriors) == 6


def test_gates_have_a_temperature_of_their_own() -> None:
    gating, like = Gating(HEADS, gate_temperature=0.7), torch.zeros(1)
    both = gating.prior("encoder-self", like), gating.posterior("encoder-self", like)()
    assert [distribution.temperature for distribution in both] == [0.7, 0.7]


def test_a_block_has_as_many_gates_as_heads_and_the_penalty_of_all() -> None:
    gating = Gating(HEADS)
    other = gating.for_heads(HEADS + 2)
    assert other.prior("encoder-self", torch.zeros(1)).event_shape == (HEADS + 2,)
    assert other.penalty is gating.penalty


def test_a_network_in_half_precision_has_gates_in_float32(batch: Batch) -> None:
    model = gated().bfloat16()
    guide = FORMS["tied"](model).eval()
    assert {parameter.dtype for parameter in guide.parameters()} == {torch.float32}
    rounded = guide.bfloat16().double()
    expected = terms(model.double(), rounded, batch).shared_kl
    kls = terms(model.bfloat16(), guide.bfloat16(), batch).shared_kl
    for name, kl in kls.items():
        torch.testing.assert_close(kl, expected[name], rtol=1e-5, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_one_draw_serves_all_sentences_and_its_divergence_is_exact(form: str, batch: Batch) -> None:
    model = gated()
    guide = spread(model, form)
    bound_terms = terms(model, guide, batch)
    shared = {name for name in bound_terms.shared_kl if name.endswith("selection")}
    assert shared == {f"{name}.selection" for name in all_heads(model)}
    for name in shared:
        distribution = guide.selections[name.removesuffix(".selection").replace(".", "_")]()
        expected = (
            distribution.open * (2 * distribution.open).log()
            + (1 - distribution.open) * (2 - 2 * distribution.open).log()
        ).sum()
        assert float(bound_terms.shared_kl[name]) == pytest.approx(float(expected.detach()))
        assert bound_terms.how[name] == "analytic"
    report = evaluate(model, guide, [batch], num_samples=2)
    assert report.elbo < report.log_likelihood


def test_what_the_gates_cost_is_shared_by_all_sentences_before_a_leak_is_found(
    batch: Batch,
) -> None:
    model = gated()
    guide = spread(model)
    with fixed_noise(5, torch.device("cpu")), torch.no_grad():
        bound_terms = terms(model, guide, batch)
    bound = bound_terms.elbo - sum(kl.sum() for kl in bound_terms.shared_kl.values()) / len(batch)
    honest, leaking = (
        evaluate(model, guide, [batch], seed=5, truth=(bound + nats).tolist())
        for nats in (1e-3, -1e-3)
    )
    assert honest.leak is None
    assert leaking.leak is not None
    assert leaking.leak.startswith("the mean bound lies 0.0010 nats per sentence above")


@pytest.mark.parametrize("draws", [0, 3])
def test_draws_of_gates_serve_all_tasks(draws: int, batch: Batch) -> None:
    model = gated()
    guide = spread(model)
    tasks = {"source_task": torch.tensor([0, 1, 0]), "target_task": torch.tensor([1, 0, 1])}
    hypotheses = []
    for given in (batch, replace(batch, **tasks)):
        torch.manual_seed(0)
        with PlugIn(), WithSelection(guide, draws):
            hypotheses.append(
                beam_search(model, given, num_beams=2, max_new_tokens=5, num_samples=draws)
            )
    assert hypotheses[0] == hypotheses[1]


class OnlyAbove(Prior):
    """Scores in the first block of a chain, running sums above."""

    deterministic = True

    def __call__(self, block: Block) -> Family:
        return Point(Identity() if block.is_lowest else RunningSum())


def test_closed_heads_that_a_block_above_looks_at_are_computed(batch: Batch) -> None:
    model = LanguageModel(
        13, sizes(layers=2), latents=[Logits(OnlyAbove()), Gating(HEADS, CHAIN["language-model"])]
    )
    model = jiggle(model, 0.3).double().eval()
    guide = spread(model)
    with torch.no_grad():
        whole = plug_in_log_likelihood(model, batch, guide)
        fold_selection(model, guide)
        folded = plug_in_log_likelihood(model, batch, guide)
    assert torch.allclose(whole, folded, rtol=0, atol=1e-12)


def test_a_gate_multiplies_what_its_head_says(batch: Batch) -> None:
    model = gated(prior="delta")
    guide = spread(model)
    reference = copy.deepcopy(model)
    with torch.no_grad():
        for module in attentions_of(reference):
            value = guide.selections[module.block.key]().mode[0]
            module.attention.out.weight *= value.repeat_interleave(module.attention.size)
            module.selector = None
    with PlugIn(), WithSelection(guide):
        states = model.states(batch)
    with PlugIn():
        assert torch.allclose(reference.states(batch), states, rtol=0, atol=1e-12)


def test_every_gate_learns_and_only_in_training_is_there_a_penalty(batch: Batch) -> None:
    model = gated()
    guide = FORMS["tied"](model).double()
    model.l0_penalty.value.fill_(50.0)
    gradients = {}
    for training in (True, False):
        model.train(training)
        guide.zero_grad()
        torch.manual_seed(0)
        with pyro.validation_enabled(False):
            Head_ELBO(analytic=True).loss_and_grads(model, guide, batch)
        gradients[training] = torch.stack([f.weight.grad for f in guide.selections.values()])
    opened = torch.stack([family().open for family in guide.selections.values()])
    slope = Gating.gain * 50.0 * opened * (1 - opened)
    assert torch.allclose(gradients[True] - gradients[False], slope, atol=1e-9)


def test_the_lagrangian_closes_as_many_as_it_is_told() -> None:
    model = gated("language-model").train()
    guide = FORMS["tied"](model).double()
    closing = GateController(model, guide, gate_heads=2, steps=300, gate_rate=0.02, tokens=10)
    worth = torch.tensor([0.1, 3.0, 0.3, 2.0, 0.2, 0.4]).view(2, 1, 3)
    optimiser = torch.optim.Adam(guide.parameters(), 0.02)
    assert closing.target_heads(0) == 6
    for step in range(300):
        optimiser.zero_grad()
        loss = torch.zeros(())
        for value, (key, family) in zip(worth, guide.selections.items(), strict=True):
            chain = "decoder-self"
            prior = model.selector.prior(chain, family.logits.detach())
            loss = loss + torch.distributions.kl_divergence(family(), prior).sum()
            loss = loss - 20 * (value * family().open).sum()
            assert key.startswith("decoder")
        loss.backward()
        optimiser.step()
        closing.on_step_end(step + 1)
    assert closing.target_heads(200) == closing.target_heads(300) == 2
    kept = torch.stack([family().open[0] for family in guide.selections.values()]) > 0.5
    assert kept.tolist() == [[False, True, False], [True, False, False]]
    assert float(closing.expected_heads()) == pytest.approx(2, abs=0.3)
    assert model.l0_penalty.value > 0


def test_the_penalty_moves_by_the_heads_too_many_and_never_below_zero() -> None:
    model = gated("language-model")
    closing = GateController(model, spread(model), gate_heads=2, steps=10, gate_rate=0.5, tokens=7)
    closing.on_step_end(0)  # all six are wanted, and fewer are open
    assert float(model.l0_penalty.value) == 0
    closing.on_step_end(10)
    closing.on_step_end(10)
    opened = float(closing.expected_heads())
    assert float(model.l0_penalty.value) == pytest.approx(2 * 0.5 * 7 * (opened - 2))
    closing.on_step_end(0)
    assert float(model.l0_penalty.value) == pytest.approx(0.5 * 7 * (3 * opened - 10))


def test_the_penalty_is_kept_with_the_model() -> None:
    model = gated()
    model.l0_penalty.value.fill_(7.0)
    other = gated()
    other.load_state_dict(model.state_dict())
    assert float(other.l0_penalty.value) == 7
    assert float(other.selector.l0_penalty.value) == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gate_open": 1.0}, "gate_open must be above 0 and below 1, got 1.0"),
        ({"gate_temperature": 0.0}, "gate_temperature must be positive and finite, got 0.0"),
        ({"gate_start": float("nan")}, "gate_start must be finite, got nan"),
    ],
)
def test_gates_that_cannot_be_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Gating(3, **options)


@pytest.mark.parametrize("number", [0, 18])
def test_a_target_that_is_none_is_refused(number: int) -> None:
    model = gated()
    with pytest.raises(ValueError, match=rf"^gate_heads must lie in 1 \.\.\. 17, got {number}"):
        GateController(model, FORMS["tied"](model), number, 10, 0.1, 10)


@pytest.mark.parametrize(("wanted", "noted"), [(2, True), (4, False)])
def test_a_number_of_heads_that_is_missed_is_noted(
    wanted: int, noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Translation(11, 13, sizes(layers=1), latents=[Gating(HEADS)])
    guide = attach("tied", model)
    families = list(guide.selections.values())
    for family in families:
        family.weight.data.fill_(-9.0)
    families[0].weight.data.fill_(9.0)
    families[1].weight.data[..., 0] = 9.0
    closing = GateController(model, guide, wanted, 3, 0.1, 17)
    closing.on_step_end(2)
    assert capsys.readouterr().err == ""
    closing.on_step_end(3)
    message = f"note: 4 of 9 gated heads stay open, not {wanted}: "
    assert capsys.readouterr().err.startswith(message) is noted
