"""A training step of every recipe is captured once and replayed, as a CUDA graph on a GPU."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyro
import pytest
import torch
from pyro.infer import Trace_ELBO
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.batch import Batch
from latentheads.contrib.hf.batch import EncodedBatch
from latentheads.corpora.loader import StepLoader
from latentheads.guides import GUIDES, RECIPES
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.copy.options import CopyOptions
from latentheads.latents.selection.static import StaticSelector
from latentheads.models import Translation
from latentheads.pruning import remove_heads
from latentheads.training import checkpoints, graphs
from latentheads.training.engine import check_compatible
from latentheads.training.engine import make_loss as make_engine_loss
from latentheads.training.graphs import Inputs, StepGraphs, Work, kind_of
from latentheads.training.options import make_training
from tests.capture import Capture, capture_operations
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.latentheads.latents.bernoulli_heads.models import build as gated
from tests.latentheads.training.engines import make_engine, part, update
from tests.second_device import NAME, READ, There, home, near, second_device
from tests.tiny import (
    ADAPTIVE,
    SOURCE_TYPES,
    TARGET_TYPES,
    attach,
    build,
    jiggle,
    sizes,
    small_batch,
)

OTHER = Batch.of([[5, 2], [8, 9, 4, 2], [10, 2]], [[6, 2], [7, 2], [9, 8, 9, 4, 2]], None, 29)
"""As many sentences, words at most, and other lengths, than those of the captured batch."""


def of_recipe(name: str) -> tuple[Any, Any]:
    prior, guide = RECIPES[name]
    model = build("language-model", prior, dropout=0.1, attention_dropout=0.1)
    return model, attach("cholesky" if guide == "autoregressive" else guide, model)


def sliced() -> Any:
    """Heads with slices of their own, of which one was removed."""
    model = build(mixers="ngram", windows="2", layers=1, ngram_slices=True)
    remove_heads(model, {"encoder.0.self": [2, 0]})
    return model


def selecting() -> Any:
    latents = [StaticSelector(2, ("decoder-self",), 2, 3, target_sets=(0, 1, 1))]
    return jiggle(Translation(SOURCE_TYPES, TARGET_TYPES, sizes(heads=2), latents), 0.1).double()


def with_guide(model: Any, guide: str = "cascaded") -> tuple[Any, Any]:
    return model, jiggle(GUIDES[guide](model).double(), 0.2)


def copying() -> Any:
    latents = [CopyOptions()]
    return jiggle(Translation(SOURCE_TYPES, TARGET_TYPES, sizes(layers=1), latents), 0.4).double()


PAIRS: dict[str, tuple[Callable[[], tuple[Any, Any]], str]] = {
    **{name: (lambda name=name: of_recipe(name), "bound") for name in RECIPES},
    "slices": (lambda: with_guide(sliced()), "bound"),
    "static selection": (lambda: with_guide(selecting()), "bound"),
    "copy": (lambda: with_guide(copying()), "bound"),
    "alignments": (lambda: with_guide(aligned(SHAPES["two blocks"])), "bound"),
    "marginal alignments": (lambda: with_guide(aligned(SHAPES["chain"])), "marginal"),
    "exact alignments": (lambda: with_guide(aligned(SHAPES["two heads"]), "exact"), "bound"),
    "reweighted alignments": (lambda: with_guide(aligned(SHAPES["one head"])), "rws"),
    "sampled alignments": (lambda: with_guide(aligned(SHAPES["two blocks"])), "sampled"),
    "weighed alignments": (lambda: with_guide(aligned(SHAPES["chain"])), "iwae"),
    "bernoulli-heads": (lambda: with_guide(gated("decoder.1.cross")), "bound"),
    "sampled gates": (lambda: with_guide(gated(prior="independent"), "autoregressive"), "sampled"),
}

SEEN = 1
"""Batches of a kind that run before one is captured, in these tests."""

GUARDED = ("alignments", "marginal alignments", "exact alignments")
"""Those with tables of all positions."""


@pytest.fixture(autouse=True)
def recorder(there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second device captures in its own way, and kinds are captured early."""
    monkeypatch.setattr(graphs, "SEEN", SEEN)
    if there is second_device:
        monkeypatch.setattr(graphs, "record", capture_operations)


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    """As in training: Pyro's checks read what they check."""
    with pyro.validation_enabled(False):
        yield


def make_work(loss: nn.Module) -> Work:
    """Forward and backward pass, as of the engine."""

    def work(batch: Batch, factor: Tensor | float) -> Tensor:
        nats: Tensor = loss(batch)
        (nats * factor).backward()
        return nats.detach()

    return work


def take(loss: nn.Module, seed: int, run: Callable[[], Tensor]) -> list[Tensor]:
    """The loss of one sample, and the gradients of the parameters that have a part in it."""
    torch.manual_seed(seed)
    loss.zero_grad(set_to_none=True)
    value = run()
    return [value.clone(), *(p.grad.clone() for p in loss.parameters() if p.grad is not None)]


def assert_same(
    device: Any, actual: list[Tensor], expected: list[Tensor], on_gpu: float = 1e-9
) -> None:
    """To the last digit; a GPU adds in any order."""
    bound = 0.0 if device.name == NAME else on_gpu
    torch.testing.assert_close(home(actual), home(expected), rtol=bound, atol=bound)


def descend(loss: nn.Module) -> None:
    """Changes the weights."""
    with torch.no_grad():
        for parameter in loss.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=1e-3)


def make_loss(name: str) -> Any:
    make, objective = PAIRS[name]
    model, guide = make()
    elbo = Head_ELBO(analytic=True, objective=objective, num_samples=2)
    return elbo(model.train(), guide.train())


@pytest.mark.device
@pytest.mark.parametrize("name", PAIRS)
def test_a_replayed_step_is_the_step_itself(
    name: str, there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other sentences, other weights, other noise and another factor."""
    monkeypatch.setattr(graphs, "SEEN", 0)
    loss = make_loss(name)
    work = make_work(loss)
    with there(own_noise=True) as device:
        loss.to(device.name)
        parameters = list(loss.parameters())
        captured = StepGraphs(parameters, parameters[0].device)
        for number, batch in enumerate((small_batch(corpus_size=29), OTHER)):
            factor = 0.3 + number
            expected = take(loss, number, partial(work, batch.to(device.name), factor))
            device.forget()
            actual = take(loss, number, partial(captured.run, work, batch, factor, ()))
            if captured.replays > 1:
                device.assert_waited([READ] * (name in GUARDED))
            assert_same(device, actual, expected)
            descend(loss)
        assert captured.replays == 2


def gradient_node(parameter: Tensor) -> Any:
    """The node that adds to the gradient of a parameter, as long as a graph has it."""
    view = parameter.view_as(parameter).grad_fn
    assert view is not None
    return view.next_functions[0][0]


@pytest.mark.parametrize("name", PAIRS)
def test_no_pass_shares_nodes_with_the_one_before(name: str) -> None:
    """Nodes stay on their stream: one of a step that is not captured would end a capture."""
    loss = make_loss(name)
    trained = {name: p for name, p in loss.named_parameters() if p.requires_grad}
    value = loss(small_batch(corpus_size=29))
    for parameter in trained.values():
        gradient_node(parameter).metadata["first"] = True
    value.backward()
    del value
    loss(OTHER).backward()
    assert not [name for name, p in trained.items() if "first" in gradient_node(p).metadata]


def test_a_capture_that_fails_says_why_and_leaves_gradients_and_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loss = make_loss("alignments")
    work = make_work(loss)
    batch = small_batch(corpus_size=29)

    def record(work: Callable[[], Any], *_: Any) -> Any:
        work()
        try:
            raise RuntimeError("operation not permitted\nmore")
        finally:
            raise RuntimeError("operation failed due to a previous error")  # as of the capture

    monkeypatch.setattr(graphs, "record", record)
    with second_device() as device:
        loss.to(device.name)
        parameters = list(loss.parameters())
        captured = StepGraphs(parameters, parameters[0].device)
        expected = take(loss, 3, lambda: work(batch.to(device.name), 1.0))
        for _ in range(SEEN):
            take(loss, 3, lambda: captured.run(work, batch, 1.0, ()))
        gradients, noise = [p.grad for p in parameters], torch.get_rng_state()
        line = "^graph could not capture a step, drop graph: operation not permitted$"
        with pytest.raises(ValueError, match=line):
            captured.run(work, batch, 1.0, ())
        assert torch.equal(torch.get_rng_state(), noise)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            assert (parameter.grad is None) == (gradient is None)
        kept = [p.grad for p in parameters if p.grad is not None]
        assert_same(device, kept, expected[1:])
        device.forget()
        take(loss, 3, lambda: work(batch.to(device.name), 1.0))
        device.assert_waited([READ])  # no guard is open


def test_a_capture_without_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(*_: Any) -> Any:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        finally:
            raise RuntimeError("operation failed due to a previous error")

    monkeypatch.setattr(graphs, "record", record)
    monkeypatch.setattr(graphs, "SEEN", 0)
    captured = StepGraphs([], torch.device("cpu"))
    with pytest.raises(torch.OutOfMemoryError):
        captured.run(lambda batch, factor: torch.ones(()), OTHER, 1.0, ())


def test_inputs_are_held_and_nothing_else() -> None:
    table, weight = torch.ones(7, 3), torch.ones(3, 3)
    with Inputs() as inputs:
        (table[2:5] + 1) @ weight
    assert [id(tensor) for tensor in inputs.held.values()] == [id(table), id(weight)]


def test_a_graph_holds_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "record", lambda work, *_: (work(), lambda: None))
    captured, tables = StepGraphs([], torch.device("cpu")), [torch.ones(3)]
    reference = weakref.ref(tables[0])
    for _ in range(SEEN + 1):
        captured.run(lambda batch, factor: (tables[0] + 1).sum(), OTHER, 1.0, ())
    tables.clear()
    assert reference() is not None


def test_a_parameter_without_a_part_in_a_kind_keeps_its_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as of another micro-batch of the step, and none where there was none."""
    monkeypatch.setattr(graphs, "record", capture_operations)
    with second_device() as device:
        always, rare = (nn.Parameter(torch.ones(2, device=device.name)) for _ in range(2))
        captured = StepGraphs([always, rare], always.device)

        def work(batch: Batch, factor: Tensor | float) -> Tensor:
            value = (always * factor).sum()
            value.backward()
            return value.detach()

        for gradient in (rare.detach().clone(), None):
            for _ in range(SEEN + 2):
                always.grad, rare.grad = None, gradient
                captured.run(work, OTHER, 3.0, ())
                assert_same(device, [always.grad], [torch.full((2,), 3.0)])
                assert rare.grad is gradient or torch.equal(near(rare.grad), torch.ones(2))
                assert (rare.grad is None) == (gradient is None)
        assert captured.replays == 2 + SEEN + 2


FEW = part(11)
"""Two batches of 97 tokens."""

OPTIONS: list[dict[str, Any]] = [
    {"optimizer": "muon", "tokens": 97},
    {"noise_warmup_steps": 3, "optimizer": "adamw", "tokens": 97},
    {"accumulate": 2, "optimizer": "nag", "clip": 0.0, "tokens": 97},
]


@pytest.mark.device
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_training_is_the_same_with_graphs(
    options: dict[str, Any], there: There, tmp_path: Path
) -> None:
    """Also where it goes on from a checkpoint, and captures anew."""
    path = tmp_path / "last.safetensors"
    with there(own_noise=True) as device:
        expected = update(make_engine(device.name, FEW, **options), 10)
        engine = make_engine(device.name, FEW, graph=True, **options)
        update(engine, 5)
        checkpoints.save(path, *engine.state())
        actual = [update(engine, 5)]
        again = make_engine(device.name, FEW, graph=True, **options)
        tensors, facts = checkpoints.load(path)
        checkpoints.restore(path, tensors, model=again.model, guide=again.guide)
        again.restore(tensors, facts)
        actual.append(update(again, 5))
        for trained in (engine, again):
            assert trained.graphs is not None
            assert trained.graphs.replays > 1
        for weights in actual:
            assert_same(device, weights, expected, 1e-3)  # Muon rounds to bfloat16


@pytest.mark.parametrize("first", [True, False])
def test_parameters_may_be_frozen_and_freed(first: bool) -> None:
    weights = []
    with second_device() as device:
        for graph in (False, True):
            engine = make_engine(device.name, FEW, graph=graph, tokens=97)
            if graph and not first:
                engine.model.output.requires_grad_(False)
                engine.graphs = StepGraphs(engine.objective.parameters(), engine.device)
            for trains in (first, not first, first):
                engine.model.output.requires_grad_(trains)
                weights.append(update(engine, 4))
        assert engine.graphs is not None
        assert engine.graphs.replays > 1
        for actual, expected in zip(weights[3:], weights[:3], strict=True):
            assert_same(device, actual, expected)


class Weighed(StepLoader):
    """One batch, which counts fully every third time."""

    def epoch(self, number: int, skip: int) -> Iterator[tuple[Batch, float, int]]:
        yield small_batch(corpus_size=29), 1.0 if number % 3 else 0.25, 9


def test_a_batch_of_another_weight_is_captured_anew() -> None:
    with second_device() as device:
        expected = update(make_engine(device.name, Weighed()), 6)
        engine = make_engine(device.name, Weighed(), graph=True)
        actual = update(engine, 6)
        assert engine.graphs is not None
        assert engine.graphs.replays > 0
        assert_same(device, actual, expected)


def test_numbers_of_latents_and_of_their_posteriors_are_those_of_a_kind() -> None:
    engine = make_engine("cpu")
    _, guide = with_guide(gated("decoder.1.cross"))
    engine.guide.latent_posteriors |= guide.latent_posteriors
    kinds = []
    for changed in (*guide.posteriors.values(), *engine.model.latents.values(), engine.elbo):
        kinds.append((*engine._numbers(),))
        changed.own = 0.4  # as its method set_progress may
    kinds.append((*engine._numbers(),))
    assert len(kinds) > 3
    assert all(before != after for before, after in pairwise(kinds))


def test_a_batch_of_a_pretrained_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^graph captures no step on EncodedBatch: drop graph$"):
        kind_of(EncodedBatch(OTHER.target))


def underflowing(model: Any) -> None:
    """Words that states and positions prefer differ: their products underflow."""
    with torch.no_grad():
        model.output.weight.mul_(300.0)


@pytest.mark.device
def test_a_replay_whose_guard_fails_is_undone(there: There) -> None:
    loss = make_loss("alignments")
    work = make_work(loss)
    first, second = small_batch(corpus_size=29), OTHER
    with there(own_noise=True) as device:
        loss.to(device.name)
        parameters = list(loss.parameters())
        captured = StepGraphs(parameters, parameters[0].device)
        for _ in range(SEEN + 1):
            captured.run(work, first, 1.0, ())
        underflowing(loss.model)

        def both(run: Callable[[Batch], Tensor]) -> Tensor:
            return run(first) + run(second)

        expected = take(loss, 3, partial(both, lambda batch: work(batch.to(device.name), 0.5)))
        noise = torch.rand(2, device=device.name)
        actual = take(loss, 3, partial(both, lambda batch: captured.run(work, batch, 0.5, ())))
        assert captured.replays == 1
        assert_same(device, [torch.rand(2, device=device.name), *actual], [noise, *expected])


@pytest.mark.device
def test_other_numbers_and_other_shapes_are_captured_anew(
    there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = make_loss("coda")
    work, batch = make_work(loss), small_batch(corpus_size=29)
    monkeypatch.setattr(graphs, "MOST", 3)
    wider = replace(batch, target=F.pad(batch.target, (0, 1)))
    kinds = [(batch, 1.0), (batch, 0.5), (wider, 0.5), (replace(batch, corpus_size=31), 0.5)]
    with there(own_noise=True) as device:
        loss.to(device.name)
        parameters = list(loss.parameters())
        captured = StepGraphs(parameters, parameters[0].device)
        replays = []
        for one, number in [*kinds, kinds[0]]:
            for _ in range(SEEN + 2):
                captured.run(work, one, 1.0, number)
            replays.append(captured.replays)
    # of the fourth kind none is captured, and the first has its graph still
    assert replays == [2, 4, 6, 6, 6 + SEEN + 2]


def test_numbers_that_never_come_again_are_forgotten() -> None:
    captured = StepGraphs([], torch.device("cpu"))
    for number in range(7):
        captured.run(lambda batch, factor: torch.ones(()), OTHER, 1.0, number)
    assert len(captured._seen) == 1


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "precision": (
        lambda: build().float(),
        {"precision": "fp16"},
        "does not go with precision fp16",
    ),
    "loss": (build, {"loss": Trace_ELBO()}, "needs loss Head_ELBO, got Trace_ELBO"),
    "output": (
        lambda: build("language-model", **ADAPTIVE),
        {},
        "no step with AdaptiveTable, which waits",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_that_cannot_be_captured_is_refused(name: str) -> None:
    make, options, line = REFUSED[name]
    with second_device() as device:
        model = make().to(device.name)
        training = make_training({"graph": True, **options})
        with pytest.raises(ValueError, match=f"^graph .*{line}"):
            check_compatible(training, model, make_engine_loss(training, model))


def test_graphs_need_a_gpu_and_one_process() -> None:
    with pytest.raises(ValueError, match="graph captures steps of a GPU, and this network is on"):
        make_engine("cpu", graph=True)


def test_a_training_without_a_replay_says_so() -> None:
    with second_device() as device:
        engine = make_engine(device.name, graph=True, steps=2, report_every=1)
        with pytest.warns(UserWarning, match="graph replayed no step: no kind of batch came more"):
            engine.run(lambda progress: None)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            engine.run(lambda progress: None)  # no step is left


def test_a_captured_step_reads_no_memory_of_the_cpu() -> None:
    numbers = torch.ones(3)
    with (
        second_device(),
        Capture(),
        pytest.raises(RuntimeError, match=r"aten\._to_copy.* reads memory of the CPU"),
    ):
        numbers.to(NAME, non_blocking=True)
