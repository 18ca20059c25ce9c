"""Any ELBO of Pyro's trains a pair, to the weights that Pyro's own SVI comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import (
    SVI,
    RenyiELBO,
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceGraph_ELBO,
    TraceMeanField_ELBO,
)
from torch import Tensor, nn
from torch.nn import functional as F

import latentheads as lh
from latentheads.attention.latent import LatentAttention
from latentheads.corpora import Corpus, PartLoader
from latentheads.guide import ModelGuide
from latentheads.guides import Cascaded
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.logits.options import LogitsOptions
from latentheads.latents.selection.objectives import ScoreFunction_ELBO
from latentheads.latents.selection.subset import SubsetSelector
from latentheads.models import Translation
from latentheads.noise import NoiseStream
from latentheads.options import OptionError, Text, from_dict, to_dict
from latentheads.runs.settings import Settings
from latentheads.training.engine import check_compatible
from latentheads.training.loss_modules import make_loss_module
from latentheads.training.losses import HeadELBOLoss, KLWarmup, Loss, OwnLoss, describe_elbo
from latentheads.training.options import Training, make_training
from tests.experiments.breaks import stopped_in
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.latentheads.training.engines import same
from tests.tiny import attach, attentions_of, build, jiggle, sizes, small_batch
from tests.typechecking import unchecked

RATE, STEPS, TOKENS, SEED = 0.01, 4, 64, 3
SIZES: dict[str, Any] = {"width": 8, "feed_forward": 8, "heads": 2, "layers": 1, "dropout": 0.1}
PLAN: dict[str, Any] = {
    **{"steps": STEPS, "report_every": STEPS, "tokens": TOKENS, "learning_rate": RATE},
    **{"optimizer": "adamw", "quiet": True, "seed": SEED, "warmup_steps": 0, "clip": 0.0},
    "schedule": {"class": "cosine", "min_rate": RATE},
}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return lh.data.Grammar(sentences=60, held_out=12).load()


def pair(corpus: Corpus) -> tuple[Any, Any]:
    """A model of logits with noise and a guide, in float64 and the same each time."""
    torch.manual_seed(0)
    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES).double()
    return model, jiggle(Cascaded(model).double(), 0.1)


class Choosing(ModelGuide):
    """A posterior of the one head of a sentence that speaks."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)  # type: ignore[arg-type]
        self.logits = nn.Parameter(torch.tensor([0.3, -0.2]))

    def get_posterior(self, name: str, prior: Any) -> Any:
        if name.endswith("choice"):
            return dist.Categorical(logits=self.logits).expand(prior.batch_shape)
        return prior


def add_choice(module: LatentAttention) -> None:
    """Has a block draw the one head that speaks, for every sentence, marked for enumeration."""
    draw_heads, drawn = module._sample_heads, []

    def draw(reference: Any) -> Tensor:
        categorical = dist.Categorical(torch.ones(reference.scores.shape[:-2]) / module.block.heads)
        site, marked = module.block.site("choice"), {"enumerate": "parallel"}
        drawn.append(pyro.sample(site, categorical, infer=marked))
        return draw_heads(reference)

    def close(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        heads = inputs[0].unflatten(-1, (module.block.heads, -1))
        speaks = F.one_hot(drawn.pop(), module.block.heads)
        return (heads * speaks[..., None, :, None]).flatten(-2)

    module._sample_heads = draw  # type: ignore[method-assign]
    module.projection.register_forward_pre_hook(close)


def choosing_pair(corpus: Corpus) -> tuple[Any, Any]:
    """A model whose uppermost block of attention draws which head speaks, and a guide."""
    torch.manual_seed(0)
    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES).double()
    add_choice(attentions_of(model)[-1])
    return model, Choosing(model).double()


def by_trainer(make: Any, corpus: Corpus, out: Path, **options: Any) -> list[Tensor]:
    """The weights of a pair that the library has trained."""
    model, guide = make(corpus)
    trainer = lh.Trainer(model, guide, corpus, out=out, device="cpu", **{**PLAN, **options})
    trainer.train(quiet=True)
    return [*model.parameters(), *guide.parameters()]


def by_svi(
    make: Any, corpus: Corpus, loss: Any, as_given: Callable[[Any], Any] = lambda guide: guide
) -> list[Tensor]:
    """The weights of a pair that Pyro's SVI has trained, with gradients in nats a token."""
    model, guide = make(corpus)
    trained, tokens = [*model.parameters(), *guide.parameters()], [0]

    def loss_and_grads(*given: Any) -> Any:
        loss_value = loss.loss_and_grads(*given)
        for parameter in trained:
            if parameter.grad is not None:
                parameter.grad /= tokens[0]
        return loss_value

    adam = {"lr": RATE, "betas": (0.9, 0.98), "weight_decay": 0.0}
    svi = SVI(model, as_given(guide), pyro.optim.AdamW(adam), loss.loss, loss_and_grads)
    updates = PartLoader(corpus.train, TOKENS, SEED).steps()
    with NoiseStream(model.device, SEED).active():
        for update in islice(updates, STEPS):
            ((batch, _),), tokens[0] = update.micro_batches, update.tokens
            svi.step(replace(batch, index=None, corpus_size=0))
    return trained


def close(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.allclose(*both, rtol=0, atol=1e-9) for both in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("loss", "kl"),
    [
        (Trace_ELBO(), "sampled"),
        (TraceMeanField_ELBO(), "analytic"),
        (TraceGraph_ELBO(), None),
        (RenyiELBO(alpha=0.5, num_particles=3), None),
        (Trace_ELBO(num_particles=2, vectorize_particles=True, max_plate_nesting=1), None),
    ],
    ids=lambda given: str(describe_elbo(given)) if isinstance(given, pyro.infer.ELBO) else given,
)
def test_a_loss_trains_as_in_svi_and_as_head_elbo_where_they_are_one(
    loss: Any, kl: str | None, corpus: Corpus, tmp_path: Path
) -> None:
    mine = by_trainer(pair, corpus, tmp_path / "mine", loss=loss)
    assert close(mine, by_svi(pair, corpus, loss))
    start = pair(corpus)
    assert not close(mine, [*start[0].parameters(), *start[1].parameters()])
    other = describe_elbo(loss) if kl is None else {"kl": kl}
    assert close(mine, by_trainer(pair, corpus, tmp_path / "other", loss=other))


def test_head_elbo_given_is_that_of_its_options(corpus: Corpus, tmp_path: Path) -> None:
    mine = by_trainer(pair, corpus, tmp_path / "mine", loss=lh.Head_ELBO(analytic=True))
    assert same(mine, by_trainer(pair, corpus, tmp_path / "named"))


def test_an_instance_says_nothing_of_kls_where_there_are_none_to_sample(
    corpus: Corpus, tmp_path: Path
) -> None:
    model = Translation.of(corpus, latents=[lh.latents.AlignmentOptions(1)], **SIZES)
    make = partial(lh.Trainer, model, Cascaded(model), corpus, out=tmp_path, quiet=True)
    assert make(loss=lh.Head_ELBO()).settings.train.loss == HeadELBOLoss()
    for options in ({"kl": "sampled"}, HeadELBOLoss(kl="sampled")):
        with pytest.raises(OptionError, match=r"^train.loss.kl acts on a KL that may be sampled, "):
            make(loss=options)
    with pytest.raises(OptionError, match=r"^train.loss.kl_weight acts on a KL, and the loss marg"):
        make(loss=lh.Head_ELBO(0.5, objective="marginal"))


def test_trace_enum_elbo_enumerates_what_is_marked_as_in_svi(
    corpus: Corpus, tmp_path: Path
) -> None:
    mine = by_trainer(choosing_pair, corpus, tmp_path, loss="TraceEnum_ELBO")

    def as_function(guide: Any) -> Any:
        return lambda batch: poutine.block(guide, hide=["target"])(batch)

    enumerated = TraceEnum_ELBO(max_plate_nesting=1)
    assert close(mine, by_svi(choosing_pair, corpus, enumerated, as_function))


@pytest.mark.parametrize("loss", ["TraceGraph_ELBO", "RenyiELBO"])
def test_gradients_that_a_loss_takes_itself_accumulate(loss: str, corpus: Corpus) -> None:
    """Two batches of an update, and what stood in a gradient before, add up."""
    model, guide = pair(corpus)
    batch = next(lh.data.batches(corpus.train, TOKENS, shuffle=False))
    module = make_loss_module(make_training({"loss": loss}).loss.make(), model, guide)
    for _ in range(2):
        torch.manual_seed(5)
        module(batch).backward()
    accumulated = [
        parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None
    ]
    module.zero_grad()
    torch.manual_seed(5)
    (2 * module(batch)).backward()
    twice = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    assert len(twice) == len(list(module.parameters()))
    assert close(accumulated, twice)


class Tilted(Trace_ELBO):
    """A loss of the reader's own."""

    def __init__(self, tilt: float = 0.0, **options: Any) -> None:
        super().__init__(**options)
        self.tilt = tilt


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (Trace_ELBO(), "Trace_ELBO"),
        (Trace_ELBO(vectorize_particles=True), "Trace_ELBO"),
        (
            TraceGraph_ELBO(2, vectorize_particles=True, max_plate_nesting=3),
            "TraceGraph_ELBO(num_particles=2, vectorize_particles=True)",
        ),
        (RenyiELBO(alpha=-1.5, num_particles=4), "RenyiELBO(num_particles=4, alpha=-1.5)"),
        (TraceEnum_ELBO(), "TraceEnum_ELBO"),
        (TraceMeanField_ELBO(), "TraceMeanField_ELBO"),
        (lh.Head_ELBO(0.5), "Head_ELBO(kl='sampled', kl_weight=0.5)"),
        (lh.Head_ELBO(analytic=True), "Head_ELBO"),
        (
            lh.Head_ELBO(0.5, 0.1, True, "iwae", 7, num_particles=3),
            "iwae(num_particles=3, kl_weight=0.5, free_bits=0.1, num_samples=7)",
        ),
        *((lh.Head_ELBO(analytic=True, objective=name), name) for name in ("marginal", "sampled")),
        *((lh.Head_ELBO(analytic=True, objective=name), name) for name in ("rws", "relaxed")),
        (Tilted(), f"{__name__}:Tilted"),
        (Tilted(0.25, num_particles=2), f"{__name__}:Tilted(tilt=0.25, num_particles=2)"),
        (
            ScoreFunction_ELBO(3),
            f"{ScoreFunction_ELBO.__module__}:ScoreFunction_ELBO(num_samples=3)",
        ),
    ],
)
def test_an_instance_stands_for_its_class_and_its_arguments(loss: Any, name: str) -> None:
    described = make_training({"loss": loss}).loss
    assert str(described) == name
    assert from_dict(Training, to_dict(Training(loss=described))).loss == described
    if isinstance(described, OwnLoss):
        with pytest.raises(ValueError, match=r"is of a class of your own: give an instance to lh"):
            described.make()
        return
    again = described.make()
    assert type(again) is type(loss)
    assert describe_elbo(again) == described


def overriding(base: Any, *names: str) -> Any:
    """An instance of a class of one's own that overrides methods."""
    return type("Mine", (base,), {name: lambda *_: None for name in names})()


@pytest.mark.parametrize(
    ("base", "names", "wanted"),
    [
        (Trace_ELBO, ["loss_and_grads"], "differentiable_loss"),
        (Trace_ELBO, ["loss"], "differentiable_loss"),
        (TraceMeanField_ELBO, ["loss", "loss_and_grads"], "differentiable_loss"),
        (lh.Head_ELBO, ["loss_and_grads"], "differentiable_loss"),
        (RenyiELBO, ["loss"], "loss_and_grads"),
    ],
)
def test_a_class_of_which_training_calls_nothing_is_refused(
    base: Any, names: list[str], wanted: str
) -> None:
    with pytest.raises(ValueError, match=rf"^loss Mine overrides loss.*: override {wanted}$"):
        make_training({"loss": overriding(base, *names)})
    assert make_training({"loss": overriding(base, *names, wanted)})


def test_a_class_without_what_training_calls_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^loss Mine must define differentiable_loss, which"):
        make_training({"loss": overriding(pyro.infer.ELBO, "_get_trace", "loss")})


@pytest.mark.parametrize("name", ["JitTrace_ELBO", "JitTraceGraph_ELBO", "TraceTailAdaptive_ELBO"])
def test_a_loss_of_pyro_that_trains_no_model_here_is_refused(name: str) -> None:
    elbo = getattr(pyro.infer, name)
    with pytest.raises(ValueError, match=rf"^loss {name} trains no model here: choose from Head_"):
        make_training({"loss": elbo()})
    assert make_training({"loss": overriding(elbo, "differentiable_loss")})


@pytest.mark.parametrize("name", Loss.choices())
def test_a_loss_is_made_by_its_name(name: str) -> None:
    options = make_training({"loss": name}).loss
    assert (options.name, str(options)) == (name, name)
    made: Any = options.make()
    if isinstance(options, HeadELBOLoss):
        assert (type(made), made.analytic) == (lh.Head_ELBO, True)
        assert made.objective == {"Head_ELBO": "bound"}.get(name, name)
    else:
        assert type(made).__name__ == name


def test_a_command_line_names_no_loss_of_ones_own() -> None:
    for loss in (Text("mine:ELBO"), {"class": "mine:ELBO", "weight": {"of": Text("3")}}):
        with pytest.raises(ValueError, match=r"^loss mine:ELBO is of a class of your own: give an"):
            from_dict(Training, {"loss": loss})
    assert (
        from_dict(Training, {"loss": {"class": "mine:ELBO", "weight": 3}}).loss.name == "mine:ELBO"
    )


ONE_OF = rf"loss must be one of {', '.join(Loss.choices())}; got"


@pytest.mark.parametrize(
    ("loss", "line"),
    [
        ("trace", f"{ONE_OF} 'trace'"),
        (3, f"{ONE_OF} 3"),
        (Trace_ELBO, r"loss must be an instance, Trace_ELBO\(\), not its class"),
        ({"class": "RenyiELBO", "alpha": 1}, "loss.alpha must not be 1: that is loss Trace_ELBO"),
        ({"class": "Trace_ELBO", "num_particles": 0}, "loss.num_particles must be at least 1, got"),
        (Trace_ELBO(num_particles=0), "loss.num_particles must be at least 1, got 0"),
        ({"class": "RenyiELBO", "alpha": 1e999}, "loss.alpha must be a finite number, got inf"),
        (
            {"class": "Trace_ELBO", "vectorize_particles": True},
            "loss.vectorize_particles needs num_particles of 2 or more",
        ),
        ({"kl_warmup": 0}, "loss.kl_warmup.steps must be at least 1, got 0"),
        ({"free_bits": -0.5}, "loss.free_bits must be at least 0"),
        ({"class": "rws", "num_samples": 1}, "loss.num_samples must be at least 2, got 1"),
        (
            {"class": "relaxed", "least_temperature": 2},
            "loss.least_temperature must be at most the temperature, 1.0, got 2",
        ),
    ],
)
def test_what_is_no_loss_is_refused_in_one_line(loss: Any, line: str) -> None:
    model = build()
    with pytest.raises(ValueError, match=f"^{line}[^\n]*$"):
        unchecked(lh.fit)(model, attach("cascaded", model), [small_batch()], loss=loss, quiet=True)


def test_the_weight_of_the_kl_grows_linearly_between_its_ends() -> None:
    loss = HeadELBOLoss(kl_warmup=KLWarmup(4, 0.2))
    weights = [loss.kl_weight_at(step) for step in range(6)]
    assert weights == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert [HeadELBOLoss(kl_weight=0.5).kl_weight_at(step) for step in (0, 9)] == [0.5, 0.5]
    assert HeadELBOLoss(kl_weight=0.5, kl_warmup=KLWarmup(2)).kl_weight_at(1) == 0.25


def logits() -> tuple[Any, Any]:
    model = build()
    return model, attach("cascaded", model)


def alignments() -> tuple[Any, Any]:
    model = aligned(SHAPES["two blocks"])
    return model, attach("cascaded", model)


def selection(selector: Any) -> tuple[Any, Any]:
    network = sizes(layers=1)
    model = Translation(11, 13, network, latents=[selector]).double()
    return model, attach("tied", model)


subset, gates = partial(selection, SubsetSelector(3, candidates=6)), partial(selection, Gating(3))


@pytest.mark.parametrize(
    ("make", "loss", "line"),
    [
        (logits, "TraceEnum_ELBO", "TraceEnum_ELBO cannot train this pair: no latent is marked"),
        (alignments, "TraceEnum_ELBO", "TraceEnum_ELBO cannot train this pair: no latent is mark"),
        (alignments, "TraceMeanField_ELBO", "TraceMeanField_ELBO cannot train this pair: All dist"),
        (alignments, "relaxed", "loss relaxed needs gates between 0 and 1, such as bernoulli-h"),
        (logits, "relaxed", "loss relaxed needs gates between 0 and 1, such as bernoulli-heads"),
        (alignments, "RenyiELBO", "RenyiELBO cannot train this pair: site 'decoder.0.alignment.c"),
        (subset, "TraceMeanField_ELBO", "TraceMeanField_ELBO cannot train this pair: All distri"),
        (subset, "RenyiELBO", "RenyiELBO cannot train this pair: site '[a-z0-9.]+' is shared by"),
        (gates, "Trace_ELBO", "gates are learned by the closed form of their KL: use loss Head"),
    ],
)
def test_a_loss_that_cannot_take_a_pair_says_so_before_anything_is_trained(
    make: Any, loss: str, line: str
) -> None:
    model, guide = make()
    before = [parameter.clone() for parameter in model.parameters()]
    batch = small_batch(index=[0, 1, 2], corpus_size=9)
    with pytest.raises(ValueError, match=rf"^{line}[^\n]*$"):
        lh.fit(model, guide, [batch], loss=loss, steps=2, warmup_steps=1, quiet=True)
    assert same(before, list(model.parameters()))


@pytest.mark.parametrize(
    ("make", "loss"),
    [
        (alignments, "Trace_ELBO"),
        (alignments, "TraceGraph_ELBO"),
        (alignments, RenyiELBO(alpha=0.5)),
        (subset, "Trace_ELBO"),
        (subset, "TraceGraph_ELBO"),
    ],
)
def test_pyro_trains_what_is_discrete_by_its_scores(make: Any, loss: Any) -> None:
    model, guide = make()
    before = [parameter.clone() for parameter in guide.parameters()]
    batch = small_batch(index=[0, 1, 2], corpus_size=9)
    options = {"steps": 3, "warmup_steps": 1, "quiet": True}
    lh.fit(model, guide, [batch], loss=loss, **options)
    assert not any(same([one], [two]) for one, two in zip(before, guide.parameters(), strict=True))
    assert all(family.temperature is None for family in guide.shared_posteriors.values())


def test_a_guide_is_compared_under_a_loss(corpus: Corpus) -> None:
    model, guide = pair(corpus)
    options: Any = {"steps": 2, "warmup_steps": 1, "num_samples": 2}
    before = [parameter.clone() for parameter in guide.parameters()]
    lh.compare(model, [guide], corpus, loss=Trace_ELBO(num_particles=2), **options)
    assert not same(before, list(guide.parameters()))
    with pytest.raises(ValueError, match=r"^loss has no effect here: train is none$"):
        lh.compare(model, [guide], corpus, loss="Trace_ELBO", train="none")


def test_half_precision_of_a_loss_without_a_derivative_is_refused() -> None:
    model = build().float().to("meta")
    training = make_training({"loss": "RenyiELBO", "precision": "fp16"})
    check_compatible(replace(training, precision="bf16"), model, RenyiELBO())
    with pytest.raises(ValueError, match=r"^precision fp16 scales a loss before .* RenyiELBO"):
        check_compatible(training, model, RenyiELBO())


@pytest.mark.parametrize(
    "loss", ["RenyiELBO", Trace_ELBO(num_particles=2, vectorize_particles=True)]
)
def test_a_run_goes_on_to_the_same_weights(loss: Any, corpus: Corpus, tmp_path: Path) -> None:
    whole = by_trainer(pair, corpus, tmp_path / "whole", loss=loss)
    plan: dict[str, Any] = {**PLAN, "loss": loss, "checkpoint_every": 2, "device": "cpu"}
    first = lh.Trainer(*pair(corpus), corpus, out=tmp_path / "parts", **plan)
    with stopped_in(3), pytest.raises(KeyboardInterrupt):
        first.train(quiet=True)
    first.folder.release()
    model, guide = pair(corpus)
    second = lh.Trainer(model, guide, corpus, out=tmp_path / "parts", **plan)
    assert second.engine.step == 2
    second.train(quiet=True)
    assert same(whole, [*model.parameters(), *guide.parameters()])


def test_a_folder_names_a_loss_of_ones_own_and_needs_it_to_go_on(
    corpus: Corpus, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = Translation.of(corpus, latents=[LogitsOptions()], **SIZES)
    options: dict[str, Any] = {**PLAN, "steps": 2, "report_every": 1, "num_samples": 1}
    loss = Tilted(0.25, num_particles=2)
    lh.Trainer(model, Cascaded(model), corpus, out=tmp_path, loss=loss, **options).fit()
    name = f"{__name__}:Tilted"
    lines = f"  loss:\n    class: {name}\n    tilt: 0.25\n    num_particles: 2\n"
    assert lines in (tmp_path / "config.yaml").read_text("utf-8")
    assert lh.load_run(tmp_path, device="cpu").settings.train.loss == describe_elbo(loss)
    settings = Settings.read(tmp_path / "config.yaml")
    again = partial(lh.Trainer.of, settings, corpus, out=tmp_path, quiet=True)
    line = rf"^loss {name} is of a class of your own: give an instance to lh.Trainer or lh.fit"
    with pytest.raises(ValueError, match=line):
        again()
    with pytest.raises(ValueError, match=rf"^loss must be {name}.*, got Trace_ELBO$"):
        again(loss=Trace_ELBO())
    with pytest.raises(ValueError, match=rf"^loss must be .*, got {name}\(num_particles=2\)$"):
        again(loss=Tilted(num_particles=2))
    more = again(loss=loss)
    more.fit(steps=4)
    assert more.engine.step == 4
