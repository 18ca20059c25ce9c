"""The engine: reports, resuming at any step, accumulation, and the guard that names the site."""

from __future__ import annotations

import re
import warnings
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pyro.infer import Trace_ELBO
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn

from latentheads.corpora import Part
from latentheads.distributions import CholeskyHeads, HeadContext, NormalHeads
from latentheads.families import Family, HeadScale
from latentheads.guide import ModelGuide
from latentheads.guides import GUIDES, Guide
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.bernoulli_heads.options import BernoulliHeadsOptions
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.selection.objectives import Enumerated_ELBO, ScoreFunction_ELBO
from latentheads.latents.selection.options import SelectionOptions
from latentheads.models import Translation
from latentheads.names import Block
from latentheads.training import checkpoints
from latentheads.training.engine import Engine, Progress, check_compatible, make_loss
from latentheads.training.losses import HeadELBOLoss, RelaxedLoss
from latentheads.training.options import (
    AdamWOptimizer,
    NAGOptimizer,
    Optimizer,
    Training,
    make_training,
)
from tests.latentheads.training.engines import outcome, part, same
from tests.latentheads.training.hooks import AfterStep, OnSave
from tests.tiny import FORMS, HEADS, attach, build, sizes


def make(
    prior: str = "independent", dropout: float = 0.3, layers: int = 1, **options: Any
) -> Engine:
    torch.manual_seed(0)
    model = build(prior=prior, layers=layers, dropout=dropout)
    guide = attach("cascaded" if prior == "independent" else "tied", model)
    if options.get("precision") == "bf16":
        model, guide = model.float(), guide.float()
    plan = {"steps": 7, "report_every": 3, "warmup_steps": 2, "tokens": 29, **options}
    return Engine(model, guide, part(), make_training(plan), seed=5)


def run(**options: Any) -> tuple[list[Progress], list[Tensor]]:
    engine, seen = make(**options), []
    engine.run(seen.append)
    return seen, outcome(engine)


@pytest.mark.parametrize("loss", ["marginal", "sampled", "iwae", "rws"])
def test_a_loss_of_alignments_needs_some_that_are_drawn(loss: Any) -> None:
    with pytest.raises(ValueError, match=f"loss {loss} needs a latent that is summed out"):
        make(loss=loss)


GRADIENTS: dict[str, type[Head_ELBO]] = {
    "straight-through": Head_ELBO,
    "score": ScoreFunction_ELBO,
    "enumerate": Enumerated_ELBO,
}


def selecting(gradient: Any) -> Translation:
    options = SelectionOptions({"class": "subset", "candidates": 6, "gradient": gradient})
    network = sizes(layers=1)
    return Translation(11, 13, network, latents=[options]).double()


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_the_objective_takes_its_options(gradient: Any) -> None:
    free_bits = 0.1 if gradient == "straight-through" else 0.0
    for kl in ("analytic", "sampled"):
        training = make_training({"loss": {"free_bits": free_bits, "kl": kl}})
        made: Any = make_loss(training, selecting(gradient))
        assert type(made) is GRADIENTS[gradient]
        assert (made.free_bits, made.analytic) == (free_bits, kl == "analytic")


@pytest.mark.parametrize(
    ("gradient", "loss"),
    [
        ("score", Trace_ELBO()),
        ("enumerate", Head_ELBO(analytic=True)),
        ({"class": "straight-through", "temperature": 2.0}, Trace_ELBO()),
        ({"class": "straight-through", "temperature": 2.0}, ScoreFunction_ELBO()),
    ],
)
def test_a_gradient_of_a_selection_is_refused_where_the_loss_takes_its_own(
    gradient: Any, loss: Any
) -> None:
    model, line = (
        selecting(gradient),
        f"^selection.strategy.gradient .* {type(loss).__name__} takes its own",
    )
    with pytest.raises(ValueError, match=line):
        check_compatible(make_training({"loss": loss}), model, loss)
    check_compatible(make_training({"loss": loss}), selecting("straight-through"), loss)


@pytest.mark.parametrize("gradient", ["score", "enumerate"])
def test_selections_are_compared_where_no_latent_is_summed_out(gradient: str) -> None:
    selection = selecting(gradient).selector
    loss = GRADIENTS[gradient]()
    assert selection is not None
    selection.gradient.check_loss(loss, is_summed_out=False)
    with pytest.raises(ValueError, match=rf"gradient {gradient} weighs selections by sampled sent"):
        selection.gradient.check_loss(loss, is_summed_out=True)
    selecting("straight-through").selector.gradient.check_loss(Head_ELBO(), is_summed_out=True)


def test_the_temperature_of_a_selection_falls_in_training() -> None:
    gradient = {"class": "straight-through", "temperature": 4.0, "least_temperature": 1.0}
    model = selecting(gradient)
    guide = attach("tied", model)
    engine = Engine(model, guide, part(), make_training({"steps": 4, "report_every": 2}))
    seen: list[Any] = []
    engine.run(lambda _: seen.append(guide.selections.encoder_0_self.temperature))
    assert seen == pytest.approx([4.0 * 0.25**0.25, 4.0 * 0.25**0.75])


def test_the_weight_in_an_instance_is_its_owners() -> None:
    model = build()
    loss = Head_ELBO(0.5, analytic=True)
    options = make_training({"steps": 2, "report_every": 1, "loss": loss})
    engine = Engine(model, attach("cascaded", model), part(), options, loss=loss)
    weights: list[float] = []

    def report(progress: Progress) -> None:
        weights.append(progress.kl_weight)
        loss.kl_weight = 0.25

    engine.run(report)
    assert weights == [0.5, 0.25]


def test_reports_come_in_stretches_and_at_the_end() -> None:
    seen, _ = run(steps=37, report_every=15)
    assert [progress.step for progress in seen] == [15, 30, 37]
    assert seen[-1].objective > seen[0].objective
    assert seen[-1].epoch > 0
    assert all(progress.tokens_per_second > 0 for progress in seen)


def test_checkpoints_come_in_stretches_of_their_own_and_at_the_end() -> None:
    engine, saved = make(checkpoint_every=5), []
    engine.run(lambda progress: None, [OnSave(lambda: saved.append(engine.step))])
    assert saved == [5, 7]


class Clock:
    """A clock that others move on."""

    def __init__(self) -> None:
        self.now = 5.0

    def perf_counter(self) -> float:
        return self.now


@pytest.mark.parametrize("stop", [0, 2])
def test_speed_counts_neither_evaluation_nor_checkpoints(
    stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update takes a second, a report a hundred and a checkpoint a thousand."""
    clock = Clock()
    monkeypatch.setattr("latentheads.training.engine.time", clock)
    engine, seen = make(checkpoint_every=2), []
    updates = engine.loader.steps()
    tokens = [next(updates).tokens for _ in range(7)]

    def spend(seconds: float) -> None:
        clock.now += seconds

    def report(progress: Progress) -> None:
        seen.append(progress.tokens_per_second)
        spend(100)

    class KilledError(Exception):
        pass

    saved: list[Any] = []

    def checkpoint() -> None:
        saved[:] = engine.state()
        spend(1000)
        if engine.step == stop:
            raise KilledError

    def train() -> None:
        engine.run(report, [AfterStep(lambda step: spend(1)), OnSave(checkpoint)])

    if stop:
        with pytest.raises(KilledError):
            train()
        engine = make(checkpoint_every=2)
        engine.restore(*saved)
    train()
    assert seen == [sum(tokens[:3]) / 3, sum(tokens[3:6]) / 3, tokens[6]]


def test_the_same_seed_gives_the_same_weights_and_another_seed_another_order() -> None:
    assert same(run()[1], run()[1])
    own, first = make(), []
    for seed in (1, 2):
        engine = Engine(own.model, own.guide, part(), own.training, seed)
        ((batch, _),) = next(engine.loader.steps()).micro_batches
        first.append(batch.sentences.tolist())
    assert first[0] != first[1]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_was_evaluated_is_trained_in_its_mode_and_precision(precision: Any) -> None:
    engine, seen = make(steps=2, precision=precision), set()
    engine.model.eval()
    engine.guide.eval()

    def note(*_: Any) -> None:
        modes = engine.model.training, engine.guide.training
        seen.add((*modes, torch.is_autocast_enabled("cpu")))

    engine.model.register_forward_pre_hook(note)
    engine.run(lambda progress: None)
    assert seen == {(True, True, precision == "bf16")}


@pytest.mark.parametrize(
    "optimizer", [AdamWOptimizer(weight_decay=0.03), NAGOptimizer(0.03, momentum=0.7)]
)
def test_every_update_is_the_optimizers_own_at_the_rate_of_its_step(optimizer: Optimizer) -> None:
    how = {"optimizer": optimizer, "clip": 0.1}
    engine, own = (make("delta", 0.0, steps=4, learning_rate=0.01, **how) for _ in "12")
    engine.run(lambda progress: None)
    learned, updates = list(own.objective.parameters()), own.loader.steps()
    if isinstance(optimizer, AdamWOptimizer):
        in_memory: Any = torch.optim.AdamW(learned, betas=(0.9, 0.98), weight_decay=0.03)
    else:
        in_memory = torch.optim.SGD(learned, momentum=0.7, nesterov=True)
    for rate in (0.005, 0.01, 0.01, 0.005):
        update = next(updates)
        ((batch, _),) = update.micro_batches
        likelihood = own.model.likelihood(own.model.states(batch), batch)
        (-likelihood.log_prob(batch.scored).sum() / update.tokens).backward()
        assert nn.utils.clip_grad_norm_(learned, 0.1) > 0.2
        in_memory.param_groups[0]["lr"] = rate
        if isinstance(optimizer, NAGOptimizer):  # its decay is decoupled, as that of AdamW
            torch._foreach_mul_([p.data for p in learned], 1 - rate * 0.03)
        in_memory.step()
        in_memory.zero_grad()
    for mine, its in zip(outcome(engine), learned, strict=True):
        assert torch.allclose(mine, its, rtol=0, atol=1e-9)


def test_pyro_checks_the_first_pass_beside_training() -> None:
    engine = make(steps=2)
    checked: list[tuple[bool, bool]] = []
    noise: list[Tensor] = []

    def note(*_: Any) -> None:
        checked.append((is_validation_enabled(), torch.is_grad_enabled()))
        noise.append(torch.get_rng_state())

    engine.model.register_forward_pre_hook(note)
    engine.run(lambda progress: None)
    assert checked == [(True, False), (False, True), (False, True)]
    assert torch.equal(noise[0], noise[1])


class PriorOnly(ModelGuide):
    """A guide with a parameter that no posterior uses."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.trust = nn.Parameter(torch.zeros(()))

    def get_posterior(self, name: str, prior: Any) -> Any:
        return prior


@pytest.mark.parametrize(("loss", "rank"), [("Head_ELBO", 0), ("RenyiELBO", 0), ("Head_ELBO", 1)])
def test_a_guide_without_a_gradient_is_warned_of_once(loss: str, rank: int) -> None:
    model, plan = build(), make_training({"steps": 3, "loss": loss})
    accelerator = Second() if rank else None
    engine = Engine(model, PriorOnly(model), part(), plan, accelerator=accelerator)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine.run(lambda progress: None)
    messages = [str(warning.message) for warning in caught]
    warned = [line for line in messages if line.startswith("guide PriorOnly is not trained: none")]
    assert len(warned) == 1 - rank


@pytest.mark.parametrize("form", ["tied", "cascaded"])
def test_no_warning_of_a_tied_guide_or_of_a_frozen_one(form: str) -> None:
    model = build()
    guide = FORMS[form](model).double().requires_grad_(False)
    Engine(model, guide, part(), make_training({"steps": 1})).run(lambda progress: None)


def test_a_pair_that_has_nothing_to_learn_is_reported_and_saved_once() -> None:
    model, seen = build().requires_grad_(False), list[Any]()
    plan = make_training({"steps": 3})
    engine = Engine(model, FORMS["tied"](model), part(), plan, may_be_fixed=True)
    for _ in range(2):
        engine.run(lambda progress: seen.append(progress), [OnSave(lambda: seen.append("saved"))])
    progress, *saved = seen
    assert (progress.step, progress.kl_weight, saved, engine.step) == (3, 1.0, ["saved"], 3)


def test_the_weight_of_the_kl_and_the_rate_are_those_of_the_last_step() -> None:
    seen, _ = run(loss={"kl_warmup": 4}, warmup_steps=4, learning_rate=0.12)
    assert [progress.kl_weight for progress in seen] == pytest.approx([0.5, 1.0, 1.0])
    assert [progress.learning_rate for progress in seen] == pytest.approx([0.09, 0.08, 0.04])


def test_relaxed_gates_have_the_temperature_of_the_step() -> None:
    gates = [BernoulliHeadsOptions("decoder.0.cross")]
    model = Translation(11, 13, sizes(layers=1), latents=gates).double()
    plan = Training(steps=2, loss=RelaxedLoss(temperature=4.0, least_temperature=1.0))
    engine = Engine(model, GUIDES["mean-field"](model).double(), part(), plan)
    engine.run(lambda progress: None)
    assert model.latents["bernoulli-heads"].temperature == 2.0


def test_what_cannot_be_learned_by_scores_is_refused_before_a_step() -> None:
    gates = Gating(HEADS)
    model = Translation(11, 13, sizes(layers=1), latents=[gates]).double()
    guide, loss = FORMS["tied"](model).double(), ScoreFunction_ELBO()
    with pytest.raises(ValueError, match=r"^gates are learned by Head_ELBO\(analytic=True\), not"):
        Engine(model, guide, part(), Training(), loss=loss)
    for options, name in (({"kl_weight": 0.5}, "kl_weight"), ({"kl_warmup": 5}, "kl_warmup")):
        training, line = make_training({"loss": options}), f"^gates need a .*: drop loss.{name}$"
        with pytest.raises(ValueError, match=line):
            Engine(model, guide, part(), training)


@dataclass(frozen=True)
class AdagradOptimizer(Optimizer):
    """An optimizer of another state and of two groups, as a contributor would add it."""

    def make(self, module: nn.Module, learning_rate: float) -> list[torch.optim.Optimizer]:
        parameters = list(module.parameters())
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]
        return [torch.optim.Adagrad(groups, learning_rate)]


TOGETHER = {"num_particles": 2, "vectorize_particles": True}
"""Samples in one pass, for which Pyro guesses the nesting of plates in a pass of its own."""


@pytest.mark.parametrize(
    ("stop", "options"),
    [
        *[(1, {"optimizer": "nag"}), (6, {"optimizer": "adamw"}), (4, {"optimizer": "muon"})],
        (5, {"optimizer": "adagrad"}),
        (3, {"optimizer": {"class": "nag", "momentum": 0.0}}),
        (4, {"loss": TOGETHER}),
    ],
)
def test_training_goes_on_from_any_step_as_if_never_stopped(
    stop: int, options: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = {**Optimizer.choices(), "adagrad": AdagradOptimizer}
    monkeypatch.setattr(Optimizer, "choices", lambda: choices)
    options = {"accumulate": 2, "steps": 7, "checkpoint_every": 1, **options}
    whole: list[Progress] = []
    engine = make(**options)
    engine.run(whole.append)
    path = tmp_path / "last.safetensors"

    class KilledError(Exception):
        pass

    killed, before = make(**options), []

    def checkpoint() -> None:
        checkpoints.save(path, *killed.state())
        if killed.step == stop:
            raise KilledError

    with pytest.raises(KilledError):
        killed.run(before.append, [OnSave(checkpoint)])
    resumed, after = make(**options), []
    tensors, facts = checkpoints.load(path)
    resumed.check(tensors, facts)
    checkpoints.restore(path, tensors, model=resumed.model, guide=resumed.guide)
    resumed.restore(tensors, facts)
    torch.randn(17)
    resumed.restore(tensors, facts)
    resumed.run(after.append)
    assert same(outcome(engine), outcome(resumed))
    messages = [(p.step, p.epoch, p.objective, p.kl_weight) for p in (*before, *after)]
    assert messages == [(p.step, p.epoch, p.objective, p.kl_weight) for p in whole]


class Second:
    """What accelerate is to the second of two processes; the first one's noise is another."""

    num_processes, process_index = 2, 1

    def prepare_model(self, module: nn.Module) -> nn.Module:
        return module

    def gather(self, noise: Tensor) -> Tensor:
        return torch.cat([torch.Generator().manual_seed(99).get_state()[None], noise])

    def reduce(self, value: Tensor, how: str) -> Tensor:
        assert how == "sum"
        return value


def test_no_process_of_a_seed_has_the_noise_of_another_seed() -> None:
    own, actual = make(), []
    for seed in (0, 1, 2**63 - 1):
        for rank in (0, 1):
            accelerator = Second()
            accelerator.process_index = rank
            engine = Engine(own.model, own.guide, part(), own.training, seed, accelerator)
            actual.append(engine.noise.states["cpu"].numpy().tobytes())
    assert len(set(actual)) == 6
    assert stands_at(Engine(own.model, own.guide, part(), own.training, 5), 5)


def test_a_process_stops_where_the_first_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    own = make()
    engine = Engine(own.model, own.guide, part(), own.training, 5, Second())
    monkeypatch.setattr(Second, "reduce", lambda self, value, how: value + 1)
    engine.run(lambda progress: None)
    assert (engine.step, engine.stopped) == (3, True)


def stands_at(engine: Engine, seed: int) -> bool:
    """Whether the noise of an engine is at the beginning of that of a seed."""
    return torch.equal(engine.noise.states["cpu"], torch.Generator().manual_seed(seed).get_state())


def test_noise_is_the_engines_own_whatever_else_is_drawn() -> None:
    alone = make(steps=3)
    alone.run(lambda progress: None)
    engine, before = make(steps=3), torch.get_rng_state()
    Engine(alone.model, alone.guide, part(), alone.training, seed=7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    before = torch.get_rng_state()
    engine.run(lambda progress: None)
    assert torch.equal(torch.get_rng_state(), before)
    assert same(outcome(alone), outcome(engine))
    assert torch.equal(alone.noise.states["cpu"], engine.noise.states["cpu"])


def test_a_process_of_several_goes_on_with_its_own_noise() -> None:
    def second() -> Engine:
        own = make(steps=5, checkpoint_every=2)
        engine = Engine(own.model, own.guide, part(), own.training, 5, Second())
        assert engine.rank == 1
        return engine

    whole, kept = second(), []
    whole.run(lambda progress: None, [OnSave(lambda: kept.append(deepcopy(whole.state())))])
    tensors, facts = kept[0]
    assert (facts["step"], facts["processes"], len(tensors["noise.cpu"])) == (2, 2, 2)
    resumed = second()
    resumed.check(tensors, facts)
    checkpoints.restore(Path(), tensors, model=resumed.model, guide=resumed.guide)
    resumed.restore(tensors, facts)
    assert tensors["loss"] != 0
    assert resumed.state()[0]["loss"] == 0, "the first process goes on with the sum over all"
    resumed.run(lambda progress: None)
    assert same(outcome(whole), outcome(resumed))
    alone = make(steps=5)
    alone.run(lambda progress: None)
    assert not same(outcome(whole), outcome(alone))
    other = make(steps=5)
    other.restore(tensors, facts)
    assert stands_at(other, 5 + 2), "neither the noise of two processes nor that of a start"


def test_the_gradient_of_an_update_is_a_sum_over_processes_that_is_taken_as_a_mean() -> None:
    optimizer = NAGOptimizer(momentum=0.0)
    how = {"optimizer": optimizer, "clip": 0.0, "learning_rate": 1.0}
    own = make("delta", 0.0, steps=1, warmup_steps=1, **how)
    engine = Engine(own.model, own.guide, part(), own.training, 5, Second())
    update, learned = next(engine.loader.steps()), list(own.model.parameters())
    ((batch, _),) = update.micro_batches
    likelihood = own.model.likelihood(own.model.states(batch), batch)
    loss = -2 * likelihood.log_prob(batch.scored).sum() / update.tokens
    gradients = torch.autograd.grad(loss, learned)
    expected = [p.detach() - g for p, g in zip(learned, gradients, strict=True)]
    engine.run(lambda progress: None)
    for actual, wanted in zip(learned, expected, strict=True):
        assert torch.allclose(actual, wanted)


def test_a_process_without_a_sentence_moves_no_weight() -> None:
    how = {"optimizer": NAGOptimizer(momentum=0.0), "learning_rate": 1.0}
    own = make("delta", 0.0, steps=1, warmup_steps=1, **how)
    engine = Engine(own.model, own.guide, part(1), own.training, 5, Second())
    before = outcome(engine)
    engine.run(lambda progress: None)
    assert same(before, outcome(engine))


@pytest.mark.parametrize("checkpoint_every", [0, 5])
def test_a_stopped_run_stays_stopped(checkpoint_every: int, tmp_path: Any) -> None:
    engine, seen = make(steps=20, checkpoint_every=checkpoint_every), []

    def report(progress: Progress) -> bool:
        seen.append(progress.step)
        return progress.step == 6

    path = tmp_path / "last.safetensors"
    engine.run(report, [OnSave(lambda: checkpoints.save(path, *engine.state()))])
    assert seen == [3, 6]
    again = make(steps=20)
    again.restore(*checkpoints.load(path))
    again.run(report)
    assert seen == [3, 6]


def test_two_batches_of_an_update_weigh_like_one_by_their_tokens() -> None:
    """One update of two batches is one update of the batch that holds both."""
    small = make("delta", dropout=0.0, accumulate=2, steps=1, warmup_steps=1)
    update = next(small.loader.steps())
    places = [
        sentence for batch, _ in update.micro_batches for sentence in batch.sentences.tolist()
    ]
    large = make("delta", dropout=0.0, tokens=1000, steps=1, warmup_steps=1)
    chosen = large.loader.part
    large.loader.part = Part(chosen.targets.take(places), chosen.sources.take(places))
    seen: list[Progress] = []
    for engine in (small, large):
        engine.run(seen.append)
    assert seen[0].objective == pytest.approx(seen[1].objective, abs=1e-12)
    for one, other in zip(outcome(small), outcome(large), strict=True):
        assert torch.allclose(one, other, atol=1e-9)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("source_embedding.table.weight", "step 1: the model's parameter .* is not finite"),
        ("decoder.layers.0.cross.attention.in_weight", r"parameter decoder\.layers\.0\.cross"),
    ],
)
@pytest.mark.filterwarnings("ignore:Encountered NaN")
def test_a_broken_objective_stops_training_and_names_the_parameter(
    where: str, message: str
) -> None:
    engine = make()
    with torch.no_grad():
        dict(engine.model.named_parameters())[where][-1] = torch.nan
    with pytest.raises(FloatingPointError, match=message):
        engine.run(lambda progress: None)


@pytest.mark.filterwarnings("ignore:Encountered NaN")
def test_a_broken_objective_names_the_site() -> None:
    engine = make(dropout=0.0, layers=2)
    block = engine.model.decoder.layers[1].cross

    def spoil(module: Any, inputs: Any, outputs: Tensor) -> Tensor:
        return outputs * torch.nan

    block.prior.location.register_forward_hook(spoil)
    engine.guide.families[block.block.key].location.fusion.register_forward_hook(spoil)
    with pytest.raises(FloatingPointError, match=r"step 1: site decoder\.1\.cross\.logits: "):
        engine.run(lambda progress: None)
    assert all(torch.isfinite(weight).all() for weight in outcome(engine))


def gradients_times(engine: Engine, factor: float) -> str:
    """Multiplies the gradient of the guide's last parameter in the third update; its name."""
    calls: list[Tensor] = []

    def spoil(gradient: Tensor) -> Tensor:
        calls.append(gradient)
        return gradient * factor if len(calls) == 3 else gradient

    *_, (name, parameter) = engine.guide.named_parameters()
    parameter.register_hook(spoil)
    return name


@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("factor", [torch.inf, torch.nan])
def test_a_broken_gradient_moves_no_weight(factor: float, clip: float) -> None:
    engine = make(dropout=0.0, clip=clip)
    name = re.escape(gradients_times(engine, factor))
    broken = f"^step 3: the gradient of the guide's parameter {name} is not finite$"
    with pytest.raises(FloatingPointError, match=broken):
        engine.run(lambda progress: None)
    assert all(torch.isfinite(weight).all() for weight in outcome(engine))


def test_a_gradient_that_is_only_too_long_to_be_measured_is_shortened() -> None:
    engine = make(dropout=0.0)
    gradients_times(engine, 1e160)  # its square is not a number
    engine.run(lambda progress: None)
    assert all(torch.isfinite(weight).all() for weight in outcome(engine))


class Scaled(Family):
    """Around the scores, with a scale that nobody keeps positive."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((heads, 1, 1), -0.3))

    def forward(self, context: HeadContext) -> NormalHeads:
        return NormalHeads(context.scores, context, self.scale)


class Tilted(Scaled):
    """The same, with a matrix over heads."""

    def forward(self, context: HeadContext) -> CholeskyHeads:  # type: ignore[override]
        return CholeskyHeads(context.scores, context, self.scale.flatten().diag())


@pytest.mark.filterwarnings("ignore:Encountered NaN")
@pytest.mark.parametrize("family", [Scaled, Tilted])
@pytest.mark.parametrize("kl", ["analytic", "sampled"])
@pytest.mark.parametrize("of", ["guide", "prior"])
def test_a_scale_that_is_not_positive_is_blamed(family: type[Family], kl: Any, of: str) -> None:
    model = build()
    guide = attach("cascaded", model)
    if of == "guide":
        guide.families["decoder_1_cross"] = family(HEADS)  # type: ignore[call-arg]
    else:
        model.decoder.layers[1].cross.prior = family(HEADS)  # type: ignore[call-arg]
    engine = Engine(model, guide, part(), Training(steps=1, loss=HeadELBOLoss(kl=kl)))
    whose = "posterior" if of == "guide" else "prior"
    error: type[Exception] = FloatingPointError
    expected = rf"^step 1: site decoder\.1\.cross\.logits: the {whose}'s scale is not positive$"
    if of == "guide" and family is Scaled:  # Pyro's validation before the first step finds it
        error, expected = ValueError, r"^site 'decoder\.1\.cross\.logits': the scale .* of Cascaded"
    with pytest.raises(error, match=expected):
        engine.run(lambda progress: None)


class Loud(Family):
    """A family with a noise of its own."""

    def forward(self, context: HeadContext) -> NormalHeads:
        return NormalHeads(context.scores, context)


class LoudGuide(Guide):
    def family(self, block: Block) -> Family:
        return Loud()


def test_noise_that_would_not_grow_with_the_others_is_refused() -> None:
    model = build()
    plan = Training(steps=3, noise_warmup_steps=2)
    with pytest.raises(ValueError, match=r"^noise_warmup_steps acts on .*: Loud has none$"):
        Engine(model, LoudGuide(model), part(), plan)
    assert Engine(model, LoudGuide(model), part(), replace(plan, noise_warmup_steps=0))
    with pytest.raises(
        ValueError, match=r"^noise_warmup_steps acts on noise, and neither model nor"
    ):
        make("delta", noise_warmup_steps=2)


def test_noise_grows_to_its_scale_and_is_whole_between_updates() -> None:
    engine, seen = make(steps=4, noise_warmup_steps=3), []
    scales = [module for module in engine.objective.modules() if isinstance(module, HeadScale)]

    def note(*_: Any) -> None:
        seen.append({scale.noise_factor for scale in scales})

    engine.model.register_forward_pre_hook(note)
    engine.run(lambda progress: None, [AfterStep(note)])
    first = [{1 / 3}, {1 / 3}, {1.0}]  # that Pyro checks, that is learned from, and behind it
    assert seen == [*first, {2 / 3}, {1.0}, {1.0}, {1.0}, {1.0}, {1.0}]


def test_noise_is_as_large_as_ever_after_a_training_is_broken_off() -> None:
    model = build("language-model", layers=1)
    plan = Training(steps=9, noise_warmup_steps=1000)
    engine = Engine(model, FORMS["cascaded"](model).double(), Part(part().targets, None), plan)

    def stop(*_: object) -> None:
        if engine.step == 2:
            raise KeyboardInterrupt

    model.decoder.register_forward_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        engine.run(lambda progress: None)
    scales = [module for module in engine.objective.modules() if isinstance(module, HeadScale)]
    assert scales
    assert {scale.noise_factor for scale in scales} == {1.0}


@pytest.mark.parametrize("form", FORMS)
def test_the_objective_of_a_first_step_in_little_noise_is_no_other_than_later(form: str) -> None:
    torch.manual_seed(0)
    model = build("language-model", layers=1)
    own = Part(part().targets, None)
    plan = Training(steps=1, noise_warmup_steps=1000, loss=HeadELBOLoss(kl="sampled"))
    engine, seen = Engine(model, FORMS[form](model).double(), own, plan), []
    engine.run(seen.append)
    assert abs(seen[0].objective) < 9


def test_a_precision_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="precision fp16 needs a GPU: use bf16 or fp32"):
        make(precision="fp16")
    engine = make()
    engine.model.output.float()
    with pytest.raises(ValueError, match="precision bf16 is of a network in float32, and this one"):
        Engine(engine.model, engine.guide, part(), Training(precision="bf16"))


@pytest.mark.filterwarnings("ignore:Encountered NaN")
def test_a_broken_sum_of_losses_names_the_last_update_that_it_holds() -> None:
    """As a GPU is looked at: some updates later, all of them done."""
    engine = make()
    engine.step = 3
    with pytest.raises(FloatingPointError, match=r"^step 3: the objective is not finite$"):
        engine._check(torch.tensor(torch.nan), [])
