"""Training on batches of one's own: the engine's loop, in memory, and the best weights stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import pyro
import pytest
import torch
from pyro.nn import PyroModule, PyroParam
from torch import Tensor, nn
from torch.distributions import constraints

import latentheads as lh
from latentheads.batch import Batch
from latentheads.distributions import HeadContext, NormalHeads
from latentheads.families import Family, Identity, Point
from latentheads.guide import ModelGuide
from latentheads.guides import Guide, Tied
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.gates.hard_gates import Gating
from latentheads.models import LanguageModel
from latentheads.names import Block
from latentheads.options import UnusedOptionError
from latentheads.training.callbacks import Callback
from latentheads.training.engine import Engine
from latentheads.training.options import Training
from tests.latentheads.training.engines import outcome, part, same
from tests.latentheads.training.hooks import AfterStep
from tests.second_device import NAME, second_device
from tests.tiny import HEADS, attach, build, sizes

PLAN = {"steps": 3, "warmup_steps": 1, "report_every": 1, "learning_rate": 1e-3}


def pair(guide: str = "cascaded", **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = build(**options)
    return model, attach(guide, model)


def some(number: int = 3) -> list[Batch]:
    return list(lh.data.batches(part(), 29, shuffle=False))[:number]


def test_it_is_the_loop_of_the_engine() -> None:
    plan = {**PLAN, "report_every": 3, "tokens": 29}
    model, guide = pair()
    engine = Engine(model, guide, part(), Training(**plan), seed=5)
    engine.run(lambda progress: None)
    mine, own = pair()
    fitted = lh.fit(mine, own, part(), seed=5, quiet=True, **plan)
    assert same(outcome(engine), [*mine.parameters(), *own.parameters()])
    assert not mine.training
    assert not own.training
    assert fitted.report == lh.evaluate(mine, own, part(), seed=5)
    title = f"the weights after {fitted.step} steps, on the batches that they were trained on"
    assert str(fitted).splitlines()[0] == title


def test_a_guide_is_trained_where_its_model_is() -> None:
    model, guide = pair()
    with second_device():
        lh.fit(model.to(NAME), guide, some(1), quiet=True, **PLAN)
        assert {parameter.device.type for parameter in guide.parameters()} == {NAME}


def test_the_best_weights_stay_and_every_look_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    model, guide = pair()
    guide.register_buffer("step", torch.zeros(()))

    def spoil(step: int) -> None:
        guide.step.fill_(step)
        if step == 3:
            with torch.no_grad():
                model.output.table.weight.mul_(100)

    fitted = lh.fit(
        model, guide, some(), some(2), seed=3, callbacks=[AfterStep(spoil)], num_samples=2, **PLAN
    )
    bounds = [record["valid"]["elbo"] for record in fitted.history]
    assert [record["step"] for record in fitted.history] == [1, 2, 3]
    assert (fitted.step, bounds.index(max(bounds))) == (2, 1)
    assert guide.step == 2
    assert lh.evaluate(model, guide, some(2), seed=3).elbo == pytest.approx(bounds[1])
    assert fitted.report == lh.evaluate(model, guide, some(2), num_samples=2, seed=3)
    assert "the weights after 2 steps" in fitted._repr_html_()
    title, head, bound, *_ = str(fitted).splitlines()
    assert (title, head.split()[0]) == ("the weights after 2 steps", "nats")
    assert f"{fitted.report.elbo:.4f}" in bound
    assert "bound" in capsys.readouterr().err


def test_what_is_broken_off_leaves_the_best_weights_in_evaluation_mode() -> None:
    model, guide = pair()
    best = model.output.table.weight.detach().clone()

    def stop(step: int) -> None:
        if step == 3:
            raise KeyboardInterrupt
        best.copy_(model.output.table.weight.detach())

    with pytest.raises(KeyboardInterrupt):
        lh.fit(model, guide, some(), some(2), quiet=True, callbacks=[AfterStep(stop)], **PLAN)
    assert not any(module.training for module in (model, guide))
    torch.testing.assert_close(model.output.table.weight, best, rtol=0, atol=0)


def test_another_thread_waits_until_the_best_weights_are_back() -> None:
    model, guide = pair()
    threads, looks = ThreadPoolExecutor(1), list[Future[Any]]()

    class Looking(Callback):
        def on_train_end(self) -> None:
            looks.append(threads.submit(lh.evaluate, model, guide, some(2), seed=3))
            wait(looks, timeout=0.2)

    with threads:
        plan = {**PLAN, "learning_rate": 9.0, "steps": 4}
        fitted = lh.fit(
            model, guide, some(), some(2), seed=3, callbacks=[Looking()], quiet=True, **plan
        )
    assert fitted.step < 4, "the last weights are not the best"
    assert looks[0].result().elbo == fitted.report.elbo
    assert not model.training


def test_what_is_broken_off_before_an_evaluation_leaves_the_last_weights() -> None:
    model, guide = pair()
    last: list[Tensor] = []

    def stop(step: int) -> None:
        if step == 2:
            last.extend(outcome_of(model))
            raise KeyboardInterrupt

    options = {**PLAN, "report_every": 3}
    with pytest.raises(KeyboardInterrupt):
        lh.fit(model, guide, some(), quiet=True, callbacks=[AfterStep(stop)], **options)
    assert same(last, outcome_of(model))


def test_the_metric_says_which_weights_are_best() -> None:
    model, guide = pair()

    def spoil(step: int) -> None:
        with torch.no_grad():
            for parameter in guide.parameters() if step == 2 else ():
                parameter.add_(9)
            model.output.table.weight.mul_(100 if step == 3 else 1)

    how = {**PLAN, "metric": "plug-in", "quiet": True}
    fitted = lh.fit(model, guide, some(), some(2), callbacks=[AfterStep(spoil)], **how)
    bounds, plugged = (
        [look["valid"][name] for look in fitted.history] for name in ("elbo", "plug_in")
    )
    assert bounds.index(max(bounds)) == 0
    assert (fitted.step, plugged.index(max(plugged))) == (2, 1)


def test_it_stops_where_nothing_is_better() -> None:
    model, guide = pair("tied", prior="delta")
    plan = {**PLAN, "steps": 9, "learning_rate": 1e-30, "patience": 2}
    assert len(lh.fit(model, guide, some(), quiet=True, **plan).history) == 3


def test_a_function_makes_the_batches_of_each_epoch() -> None:
    asked: list[int] = []

    def make(epoch: int) -> Iterator[Batch]:
        asked.append(epoch)
        yield from some(2)

    lh.fit(*pair(), make, some(1), quiet=True, **PLAN)
    assert asked == [0, 1]


def test_batches_of_a_function_say_their_corpus_where_gates_are_drawn() -> None:
    gating = Gating(HEADS, ("decoder-self",))
    model = LanguageModel(13, sizes(), latents=[gating]).double()
    guide, message = Tied(model).double(), "batches of a function must say corpus_size"
    one = Batch.of([[5, 6, 2], [7, 2]])
    changed = replace(one, corpus_size=5)
    refuse(message, model, guide, lambda epoch: [changed, one], [one], accumulate=2)
    lh.fit(model, guide, lambda epoch: [changed], [one], quiet=True, **PLAN)


def test_with_a_penalty_a_later_network_is_a_smaller_one() -> None:
    gating, one = Gating(HEADS, ("decoder-self",)), Batch.of([[5, 6, 2], [7, 2]], corpus_size=2)
    model = LanguageModel(13, sizes(), latents=[gating]).double()

    def spoil(step: int) -> None:
        model.output.table.weight.data.mul_(100 if step == 3 else 1)

    fitted = lh.fit(
        model, Tied(model).double(), [one], quiet=True, callbacks=[AfterStep(spoil)], **PLAN
    )
    bounds = [look["valid"]["elbo"] for look in fitted.history]
    assert (fitted.step, bounds.index(min(bounds))) == (3, 2)


def batches_seen(given: Any, seed: int, **how: Any) -> list[Any]:
    """The targets of all batches that a training learns from."""
    (model, guide), seen = pair("tied", prior="delta", layers=1), []

    def note(_: Any, args: tuple[Batch]) -> None:
        if torch.is_grad_enabled():
            seen.append(args[0].target.tolist())

    model.register_forward_pre_hook(note)
    lh.fit(model, guide, given, some(1), seed=seed, accumulate=2, quiet=True, **PLAN, **how)
    return seen


def test_order_and_updates_are_those_of_the_seed_and_of_accumulation() -> None:
    for given, how in ((some(9), {}), (part(), {"tokens": 29})):
        one, same_again, other = (batches_seen(given, seed, **how) for seed in (1, 1, 2))
        assert one == same_again != other
        assert len(one) == 2 * PLAN["steps"]


class OfFewerHeads(Family):
    """A posterior of the first head alone."""

    def forward(self, context: HeadContext) -> NormalHeads:
        return NormalHeads(context.scores[:, :1], context)


class Mistaken(Guide):
    """A guide without a bound: each block has this family."""

    def __init__(self, model: Any, made: Family) -> None:
        super().__init__(model)
        self.made = made

    def family(self, block: Block) -> Family:
        return self.made


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (Point(Identity()), "a point posterior under a NormalHeads prior has no bound"),
        (OfFewerHeads(), "of heads, queries and keys of shape "),
    ],
)
def test_a_guide_without_a_bound_is_refused_before_training(family: Family, message: str) -> None:
    model, _ = pair(layers=1)
    asked: list[int] = []
    guide, callbacks = Mistaken(model, family), [AfterStep(asked.append)]
    refuse(f"^site '.*.logits': .*{message}", model, guide, some(), callbacks=callbacks)
    assert asked == []


def test_what_is_frozen_stays_and_gradients_that_were_left_behind_move_nothing() -> None:
    (model, guide), (mine, own) = pair(), pair()
    before, start = outcome_of(model), outcome_of(guide)
    model.requires_grad_(False)
    mine.requires_grad_(False)
    for parameter in [*mine.parameters(), *own.parameters()]:
        parameter.grad = torch.ones_like(parameter)
    for item in ((model, guide), (mine, own)):
        lh.fit(*item, some(), quiet=True, **PLAN)
    assert same(before, outcome_of(model))
    assert same(before, outcome_of(mine))
    assert not same(start, outcome_of(guide))
    assert same(outcome_of(guide), outcome_of(own))


@pytest.mark.parametrize("frozen_first", [True, False])
def test_the_best_weights_stay_whatever_is_frozen_on_the_way(frozen_first: bool) -> None:
    model, guide = pair()
    best: list[torch.Tensor] = []

    def change(step: int) -> None:
        if step == 1:
            best.extend(outcome_of(model))
            model.requires_grad_(frozen_first)
        if step == 2:
            model.requires_grad_(not frozen_first)
            for parameter in guide.parameters():
                parameter.data.add_(9)
            model.output.table.weight.data.mul_(100 if frozen_first else 1)

    model.requires_grad_(not frozen_first)
    fitted = lh.fit(model, guide, some(), quiet=True, callbacks=[AfterStep(change)], **PLAN)
    assert fitted.step == 1
    assert same(best, outcome_of(model))


def test_the_best_weights_stay_if_a_later_evaluation_frees_others() -> None:
    model, guide = pair()
    before = outcome_of(model)

    class Unfreezing(Callback):
        def on_step_end(self, step: int) -> None:
            for parameter in guide.parameters():
                parameter.data.add_(9 if step == 2 else 0)

        def on_evaluate(self, record: Mapping[str, Any], is_best: bool) -> None:
            model.requires_grad_(not is_best)

    model.requires_grad_(False)
    fitted = lh.fit(model, guide, some(), quiet=True, callbacks=[Unfreezing()], **PLAN)
    assert fitted.step == 1
    assert same(before, outcome_of(model))


def outcome_of(module: Any) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def refuse(message: str, *given: Any, **options: Any) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        lh.fit(*given, **{**PLAN, "quiet": True, **options})
    assert "\n" not in str(refused.value)


def test_what_cannot_be_fitted_is_refused_in_a_line() -> None:
    model, guide = pair()
    refuse("stepz is not an option: did you mean steps", model, guide, some(), stepz=3)
    refuse("average is of a run folder: train with lh.Trainer", model, guide, some(), average=2)
    refuse("tokens cuts a part of a corpus", model, guide, some(), tokens=99)
    refuse("it belongs to another", pair()[0], guide, some())
    refuse("batches must be a list", model, guide, iter(some()), some())
    refuse("valid must be a list of batches or a part", model, guide, lambda epoch: some())
    refuse("batches must return those of epoch 0, got None", model, guide, lambda _: None, some())
    refuse("valid must be a list of .*, got none$", model, guide, some(), [])
    refuse("batches must be at least one", model, guide, [])
    refuse(
        "batches must be made of Batch, got dict: make one by model.batch",
        model,
        guide,
        [{}],
    )
    refuse(
        "valid must be made of Batch, got dict: make one by model.batch",
        model,
        guide,
        some(),
        [{}],
    )
    refuse("num_samples must be at least 1, got 0", model, guide, some(), num_samples=0)
    refuse("batches has none in epoch 0", model, guide, lambda epoch: [], some())
    refuse(
        "made of Batch, got dict: make one by model.batch",
        model,
        guide,
        lambda epoch: [{}],
        some(),
    )
    empty = Batch(torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 2, dtype=torch.long))
    refuse("batch 1 of epoch 0 has nothing to predict", model, guide, [empty], some())
    refuse("valid has nothing to predict", model, guide, some(), [empty])
    model.requires_grad_(False)
    refuse("there is nothing to train", model, Tied(model), some())


class Stored(ModelGuide):
    """A guide with a parameter in Pyro's store."""

    def get_posterior(self, name: str, prior: Any) -> Any:
        pyro.param("trust", torch.ones(()), constraint=constraints.positive)
        return prior


class Late(ModelGuide):
    """A guide that makes a parameter when it first runs."""

    def get_posterior(self, name: str, prior: Any) -> Any:
        if not hasattr(self, "trust"):
            self.trust = nn.Parameter(torch.ones(()))
        return prior


class Degree(PyroModule[nn.Module]):
    """A degree above 0, and a shift."""

    def __init__(self) -> None:
        super().__init__()
        self.degree = PyroParam(torch.ones(()), constraint=constraints.positive)
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, scores: Tensor) -> Tensor:
        return scores * self.degree + self.shift


class Kept(ModelGuide):
    """A guide with parameters of a module of Pyro."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.trust = Degree()

    def get_posterior(self, name: str, prior: Any) -> Any:
        return NormalHeads(self.trust(prior.context.scores), prior.context)


@pytest.mark.parametrize(("kind", "name"), [(Stored, "trust"), (Late, "trust")])
def test_a_parameter_that_no_optimiser_finds_is_refused(kind: Any, name: str) -> None:
    model = build()
    with pytest.raises(ValueError, match=rf"^parameter '{name}' is made in a pass, where no"):
        lh.fit(model, kind(model), some(), quiet=True, **PLAN)


class PlainTensor(Kept):
    """A guide that keeps a tensor that needs a gradient, and is no parameter."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.trust.power = torch.ones((), requires_grad=True)


def test_a_tensor_that_is_no_parameter_is_refused() -> None:
    model = build()
    line = r"^guide\.trust\.power is a tensor that needs a gradient, .*: make it an nn.Parameter$"
    with pytest.raises(ValueError, match=line):
        lh.fit(model, PlainTensor(model), some(), quiet=True, **PLAN)


def test_parameters_of_a_module_of_pyro_are_trained_in_each_of_two_guides() -> None:
    """Pyro's store, where both have the same names, has no say."""
    guides = [Kept(build()) for _ in range(2)]
    for guide in guides:
        lh.fit(guide.model, guide, some(), quiet=True, **PLAN)
    one, other = ([p.item() for p in guide.trust.parameters()] for guide in guides)
    assert all(moved != 0 for moved in (*one, *other))  # they began at log 1 and at 0
    assert len({*one, *other}) == 4


@pytest.mark.parametrize(
    ("form", "prior", "loss", "message"),
    [
        ("tied", "independent", {"kl_weight": 0.5}, r"^loss.kl_weight acts on a KL, and the loss"),
        ("tied", "independent", {"kl": "sampled"}, r"^loss.kl acts on a KL that may be sampled"),
        ("cascaded", "delta", {"free_bits": 0.1}, r"^loss.free_bits acts on a KL of each sentence"),
        ("tied", "delta", {"kl_warmup": {"steps": 2}}, r"^loss.kl_warmup acts on a KL, and the"),
    ],
)
def test_an_option_of_a_kl_that_acts_on_none_is_refused(
    form: str, prior: str, loss: dict[str, Any], message: str
) -> None:
    model, guide = pair(form, prior=prior, layers=1)
    before = [parameter.clone() for parameter in (*model.parameters(), *guide.parameters())]
    with pytest.raises(UnusedOptionError, match=message):
        lh.fit(model, guide, some(), quiet=True, loss={"class": "Head_ELBO", **loss}, **PLAN)
    assert same(before, [*model.parameters(), *guide.parameters()])


def test_a_kl_that_a_gradient_of_a_selection_computes_is_not_sampled() -> None:
    corpus = lh.data.Grammar(sentences=20, held_out=3).load()
    selection = lh.latents.SelectionOptions({"class": "bernoulli", "gradient": "score"})
    model = lh.models.Translation.of(corpus, latents=[selection], width=8, heads=2, layers=1)
    with pytest.raises(UnusedOptionError, match=r"^loss.kl acts on a KL that may be sampled"):
        lh.fit(model, Tied(model), corpus.train, loss={"class": "Head_ELBO", "kl": "sampled"})


def test_options_of_a_kl_act_where_there_is_one() -> None:
    for loss in ({"kl_weight": 0.5}, {"kl": "sampled"}, {"free_bits": 0.1}):
        options = {"class": "Head_ELBO", **loss}
        fitted = lh.fit(*pair("cascaded", layers=1), some(), quiet=True, loss=options, **PLAN)
        assert fitted.report.kl > 0


def test_a_loss_that_was_made_is_not_asked_for_what_it_says_by_default() -> None:
    lh.fit(*pair("tied", prior="delta", layers=1), some(), quiet=True, loss=Head_ELBO(), **PLAN)


def test_an_option_of_several_guides_need_not_act_on_each() -> None:
    corpus = lh.data.Grammar(sentences=20, held_out=3).load()
    latents = [lh.latents.LogitsOptions()]
    model = lh.models.Translation.of(corpus, latents=latents, width=8, heads=2, layers=1)
    guides = {"cascaded": lh.guides.Cascaded(model), "tied": Tied(model)}
    options = {"loss": {"class": "Head_ELBO", "kl_weight": 0.5}, "num_samples": 2, "train": "all"}
    comparison = lh.compare(model, guides, corpus, steps=1, warmup_steps=1, **options)
    assert list(comparison.reports) == ["cascaded", "tied"]
