"""Everything that a training step computes, on a device of its own: same numbers, and no waits.

A step that waits for a GPU keeps it idle while Python prepares what comes next. On a GPU:
``pytest --device cuda -m device``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyro
import pytest
import torch
from torch import Tensor, nn

from latentheads.attention.disagreement import KINDS as COMPARED
from latentheads.attention.disagreement import Disagreement
from latentheads.batch import Batch
from latentheads.contrib.speech.ctc import CTC
from latentheads.decoding.beam_search import beam_search
from latentheads.decoding.sampling import sample_text
from latentheads.guide import ModelGuide
from latentheads.guides import GUIDES, RECIPES, Cascaded
from latentheads.inference.evaluation import evaluate
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.copy.options import CopyOptions
from latentheads.latents.gates.hard_gates import GateController, Gating
from latentheads.latents.logits.latent import Logits
from latentheads.latents.selection.objectives import Enumerated_ELBO, ScoreFunction_ELBO
from latentheads.latents.selection.strategies import STRATEGIES, Strategy, make_selector
from latentheads.models import LanguageModel, Translation, make_prior
from latentheads.models.adapters import Adapters
from latentheads.pruning import remove_heads
from latentheads.training import checkpoints
from tests.crossing import in_turn, pairwise
from tests.latentheads.latents.alignments.models import SHAPES, SOFT, WINDOWED, aligned
from tests.latentheads.latents.bernoulli_heads.models import build as gated
from tests.latentheads.latents.bernoulli_heads.models import language_model as gated_text
from tests.latentheads.training.engines import make_engine, update
from tests.second_device import NAME, READ, There, home, second_device
from tests.tiny import (
    FORMS,
    KINDS,
    SOURCE_TYPES,
    TARGET_TYPES,
    attach,
    build,
    jiggle,
    sizes,
    small_batch,
)

pytestmark = pytest.mark.device

NETWORKS: dict[str, dict[str, Any]] = {
    "local": {"mixers": "local", "windows": "2", "layers": 1},
    "mixed": {"mixers": "ngram,local,attention", "windows": "3,2,5", "layers": 3},
    "n-grams": {
        **{"mixers": "ngram", "windows": "2", "layers": 1},
        **{"ngram_noise": 0.3, "ngram_context": True},
    },
    "slices": {"mixers": "ngram", "windows": "2", "layers": 1, "ngram_slices": True},
    "smoothed": {"label_smoothing": 0.1, "layers": 1},
}

GRADIENTS: dict[str, Callable[..., Any]] = {
    "straight-through": Head_ELBO,
    "score": ScoreFunction_ELBO,
    "enumerate": Enumerated_ELBO,
}


@pytest.fixture(autouse=True)
def unchecked() -> Any:
    """As in training: Pyro's checks read what they check."""
    with pyro.validation_enabled(False):
        yield


def gradients(loss: nn.Module, batch: Batch) -> tuple[Tensor, list[Tensor]]:
    """The loss of one draw, and its gradients; None where a parameter has no part in it."""
    torch.manual_seed(1)
    loss.zero_grad(set_to_none=True)
    value = loss(batch)
    value.backward()
    nn.utils.clip_grad_norm_(loss.parameters(), 1e9)
    # moving a module moves its gradients in place
    return value.detach(), [p.grad.clone() for p in loss.parameters() if p.grad is not None]


def tensors_of(batch: Batch) -> list[Tensor]:
    """All that a batch holds."""
    return [value for value in vars(batch).values() if isinstance(value, Tensor)]


close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


def assert_same_there(
    there: There, elbo: Any, model: Any, guide: Any, batch: Batch, waits: Sequence[str]
) -> None:
    """A step on the second device has the numbers of one on the CPU, and waits for nothing else."""
    loss = elbo(model.train(), guide.train())
    here, slopes = gradients(loss, batch)
    with there() as device:
        model.to(device.name)
        guide.to(device.name)
        moved = batch.to(device.name)
        device.forget()
        value, actual = gradients(loss, moved)
        device.assert_waited(waits)
        close(home([value, *actual]), [here, *slopes])


@in_turn(recipe=RECIPES, kind=KINDS)
def test_no_recipe_waits(recipe: str, kind: str, there: There) -> None:
    prior, guide = RECIPES[recipe]
    model = build(kind, prior=prior)
    form = "cholesky" if guide == "autoregressive" else guide
    assert_same_there(
        there, Head_ELBO(), model, attach(form, model), small_batch(corpus_size=29), []
    )


@pytest.mark.parametrize("form", FORMS)
def test_no_guide_waits(form: str, batch: Batch, there: There) -> None:
    model = build("language-model", "autoregressive", options={"scale": 0.7})
    elbo = Head_ELBO(0.5, 0.3, analytic=True)
    assert_same_there(there, elbo, model, attach(form, model), batch, [])


def test_no_pruned_head_waits(batch: Batch, there: There) -> None:
    model = build(prior="cascaded")
    remove_heads(model, {"encoder.0.self": [0, 2], "decoder.1.cross": [1], "decoder.0.self": []})
    assert_same_there(there, Head_ELBO(), model, attach("tied", model), batch, [])


@pytest.mark.parametrize("choice", NETWORKS)
def test_no_mixer_waits(choice: str, batch: Batch, there: There) -> None:
    model = build(**NETWORKS[choice])
    model.disagreement = Disagreement(("output",) if "ngram" in str(NETWORKS[choice]) else COMPARED)
    assert_same_there(there, Head_ELBO(), model, attach("cascaded", model), batch, [])


def test_bands_of_types_are_counted(batch: Batch, there: There) -> None:
    """Two of the input, and one of the output."""
    model = build("language-model", adaptive={"cutoffs": (4,), "div_value": 2})
    assert_same_there(there, Head_ELBO(), model, attach("cascaded", model), batch, ["nonzero"] * 3)


@pytest.mark.parametrize(
    ("shape", "guide", "objective"),
    [
        ("one head", "exact", "bound"),
        ("one head", "cascaded", "sampled"),
        ("two heads", "autoregressive", "marginal"),
        ("two blocks", "mean-field", "rws"),
        ("two blocks", "cascaded", "bound"),
        ("chain", "exact", "sampled"),
        ("chain", "cascaded", "iwae"),
    ],
)
def test_alignments_are_waited_for_once(
    shape: str, guide: str, objective: str, batch: Batch, there: There
) -> None:
    """Where all of them are summed; drawn ones are not waited for."""
    model = aligned(SHAPES[shape])
    elbo = Head_ELBO(analytic=True, objective=objective, num_samples=2)
    summed = guide == "exact" or objective in ("bound", "marginal")
    own = jiggle(GUIDES[guide](model).double(), 0.1)
    assert_same_there(there, elbo, model, own, batch, [READ] * summed)


@pytest.mark.parametrize("objective", ["bound", "marginal"])
def test_bands_are_waited_for_beside_their_alignments(
    objective: str, batch: Batch, there: There
) -> None:
    """The input's three bands and the guide's two, then a length and a table for each, and one."""
    model = aligned(SHAPES["one head"], kind="adaptive")
    guide = jiggle(Cascaded(model).double(), 0.1)
    waits = ["nonzero"] * 5 + [READ, READ] * 2 + [READ]
    elbo = Head_ELBO(analytic=True, objective=objective)
    assert_same_there(there, elbo, model, guide, batch, waits)


@pytest.mark.parametrize("shape", [*SOFT, *WINDOWED])
def test_windows_of_alignments_are_waited_for_one_by_one(
    shape: str, batch: Batch, there: There
) -> None:
    """Of four words, two or one at a time; where one head points the table is made at once."""
    options = {**SOFT, **WINDOWED}[shape]
    tables = {"window of two heads": 2, "window of two blocks": 4, "window of a chain": 1}
    model = aligned(options, kind="language-model" if shape in WINDOWED else "translation")
    guide = jiggle(Cascaded(model).double(), 0.1)
    waits = [READ] * tables.get(shape, 0)
    assert_same_there(there, Head_ELBO(analytic=True), model, guide, batch, waits)


def test_lengths_of_ctc_are_waited_for(batch: Batch, there: There) -> None:
    ctc, memory = CTC(6, TARGET_TYPES, 0.3).double(), torch.randn(3, 9, 6)
    inputs = memory, torch.ones(3, 9, dtype=torch.bool), batch.target
    here = ctc(*inputs).detach()
    with there() as device:
        ctc.to(device.name)
        moved = [value.to(device.name) for value in inputs]
        device.forget()
        nats = ctc(*moved)
        device.assert_waited(["_ctc_loss"])
        close(home([nats]), [here])


def selecting(selector: Any) -> Any:
    logit_prior, network = make_prior("independent"), sizes(heads=2, layers=1)
    model = Translation(
        SOURCE_TYPES, TARGET_TYPES, network, latents=[Logits(logit_prior), selector]
    )
    return jiggle(model, 0.4).double()


def of_tasks(batch: Batch, one: bool) -> Batch:
    """The same sentences, of several tasks or all of one."""
    source, target = ([2] * 3, [1] * 3) if one else ([0, 1, 0], [2, 0, 1])
    ids = {"source_task": torch.tensor(source), "target_task": torch.tensor(target)}
    return replace(batch, **ids, one_task=one)


@pairwise(strategy=STRATEGIES, gradient=GRADIENTS, one=[False, True])
def test_no_selection_waits(
    strategy: Strategy, gradient: str, one: bool, batch: Batch, there: There
) -> None:
    how: dict[str, Any] = {"target_sets": (0, 1, 1)} if strategy == "static" else {}
    number = {"static": 0, "group": 4}.get(strategy, 3)
    model = selecting(make_selector(strategy, 2, number, ("decoder-self",), 2, 3, **how))
    guide = attach("cascaded", model, 0.1)
    for family in guide.posteriors.values():
        family.temperature = 1.0 if gradient == "straight-through" else None
    elbo = GRADIENTS[gradient](analytic=True)
    assert_same_there(there, elbo, model, guide, of_tasks(batch, one), [])


class Own(ModelGuide):
    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.layer = nn.Linear(2, 2)

    def get_posterior(self, name: str, prior: Any) -> Any:
        return prior


@pytest.mark.parametrize("make", [*FORMS.values(), Own], ids=[*FORMS, "own"])
def test_a_guide_is_made_where_its_model_is(
    make: Callable[[Any], Any], batch: Batch, there: There
) -> None:
    """Of the CPU's noise, so that a seed has the same start."""
    model = selecting(make_selector("bernoulli", 2, 3, ("decoder-self",), 2, 3)).float()
    torch.manual_seed(1)
    here = [*make(model).parameters()]
    with there() as device:
        torch.manual_seed(1)
        guide = make(model.to(device.name))
        assert {parameter.device.type for parameter in guide.parameters()} == {device.name}
        close(home([*guide.parameters()]), home(here), rtol=0, atol=0)
        evaluate(model, guide, [of_tasks(batch, False)])


def test_no_adapter_waits(batch: Batch, there: There) -> None:
    logit_prior, network = make_prior("cascaded"), sizes(layers=2)
    model = Translation(
        SOURCE_TYPES,
        TARGET_TYPES,
        network,
        latents=[Logits(logit_prior)],
        adapters=Adapters(5, 3, 3),
    )
    guide = attach("cascaded", jiggle(model, 0.4).double(), 0.1)
    assert_same_there(there, Head_ELBO(), model, guide, of_tasks(batch, False), [])


def test_no_gate_waits(batch: Batch, there: There) -> None:
    model = selecting(Gating(2))
    guide = attach("cascaded", model, 0.1)
    closing = GateController(model, guide, 3, 8, 0.1, 17)
    assert_same_there(there, Head_ELBO(analytic=True), model, guide, batch, [])
    with there() as device:
        closing.on_step_end(5)
        device.assert_waited([])
        assert float(model.l0_penalty.value) > 0


@pytest.mark.parametrize(
    "options",
    [
        {"loss": {"kl": "sampled"}, "accumulate": 2, "optimizer": "nag"},
        {"optimizer": "muon"},
        {"precision": "fp16"},
    ],
    ids=str,
)
def test_an_update_waits_for_nothing(options: dict[str, Any], tmp_path: Path, there: There) -> None:
    """But the first, which Pyro checks; and training goes on from a checkpoint as if it had not."""
    path = tmp_path / "last.safetensors"
    with there(own_noise=True) as device:
        engine = make_engine(device.name, **options)
        update(engine, 1)
        device.forget()
        update(engine, 2)
        device.assert_waited([])
        checkpoints.save(path, *engine.state())
        weights = home(update(engine, 2))
        again = make_engine(device.name, **options)
        tensors, facts = checkpoints.load(path)
        again.check(tensors, facts)
        checkpoints.restore(path, tensors, model=again.model, guide=again.guide)
        again.restore(tensors, facts)
        gone_on = home(update(again, 2))
        close(gone_on, weights)
    if device.name == NAME:  # a GPU adds in any order, and has noise of its own
        assert all(map(torch.equal, gone_on, weights))
        if "precision" not in options:  # a CPU makes the gradient beside the value
            close(update(make_engine("cpu", **options), 5), weights)


def test_a_report_is_the_same_there(batch: Batch, there: There) -> None:
    model = build(prior="cascaded")
    guide = attach("tied", model)
    parts = [replace(batch, index=torch.arange(3), corpus_size=3)]
    truth = [-20.0, math.nan, -20.0]
    here = evaluate(model, guide, parts, num_samples=2, truth=truth)
    with there() as device:
        model.to(device.name)
        guide.to(device.name)
        for own in (parts, [one_part.to(device.name) for one_part in parts]):
            report = evaluate(model, guide, own, num_samples=2, truth=truth)
            assert report.kl_by_site == pytest.approx(here.kl_by_site, abs=1e-9)
            assert dict(report.scores()) == pytest.approx(dict(here.scores()), abs=1e-9)


def test_a_batch_that_comes_back_is_waited_for(batch: Batch, there: There) -> None:
    """One that leaves is not; what is read before it has arrived is anything."""
    with there() as device:
        device.forget()
        moved = batch.to(device.name)
        device.assert_waited([])
        back = moved.to("cpu")
        device.assert_waited(["copy"] * len(tensors_of(batch)))
        close(tensors_of(back), tensors_of(batch), rtol=0, atol=0)


def writers(latent: str) -> tuple[Any, Any]:
    """A translation model and a language model."""
    if latent == "bernoulli-heads":
        return gated("decoder.1.cross"), gated_text()
    if latent == "copy":
        models = (
            Translation(SOURCE_TYPES, TARGET_TYPES, sizes(layers=1), [CopyOptions()]),
            LanguageModel(TARGET_TYPES, sizes(layers=1), [CopyOptions()]),
        )
        return jiggle(models[0], 0.4).double().eval(), jiggle(models[1], 0.4).double().eval()
    options = SHAPES.get(latent)
    return aligned(options), aligned(options, kind="language-model")


@pytest.mark.parametrize("latent", ["none", "two heads", "chain", "copy", "bernoulli-heads"])
def test_words_are_the_same_there(latent: str, batch: Batch, there: There) -> None:
    """Of a search and of a draw; what is waited for is told after every token, and in the end."""
    model, writer = writers(latent)

    def write(device: str) -> tuple[Any, Any]:
        torch.manual_seed(1)
        hypotheses = beam_search(
            model.to(device), batch.to(device), 2, no_repeat_ngram_size=2, min_new_tokens=2
        )
        tokens = [[hypothesis.tokens for hypothesis in every] for every in hypotheses]
        return tokens, sample_text(writer.to(device), [[4], [5, 6]], 3, top_k=5, sample_heads=True)

    here = write("cpu")
    with there() as device:
        assert write(device.name) == here


def test_a_tensor_of_the_wrong_device_is_found() -> None:
    """What the others rely on."""
    with second_device() as device:
        there = torch.arange(6.0, device=NAME).view(2, 3)
        assert (there.device.type, device.waits) == (NAME, [])
        here = torch.zeros(2, 3)
        assert (there + 1).tolist() == [[1, 2, 3], [4, 5, 6]]
        assert there[there > 3].shape == (2,)
        assert bool(there.any())
        assert torch.ones(2).to(NAME, non_blocking=True).sum().cpu() == 2
        torch.ones(2).to(NAME)
        assert device.waits == ["copy", "index", READ, "copy", "copy"]
        with pytest.raises(RuntimeError, match="tensors of two devices"):
            there + torch.ones(3)
        assert (there + torch.ones(())).device.type == NAME
        with pytest.raises(RuntimeError, match="tensors of two devices"):
            there.sum() + torch.ones(3)
        with pytest.raises(RuntimeError, match="tensors of two devices"):
            there[:, torch.tensor([0, 1])]
        for written in (lambda: there[:, [0, 1]], lambda: there.new_tensor([0.0]) + 1):
            with pytest.raises(RuntimeError, match="numbers of the CPU were written on the device"):
                written()
        for race in (lambda: there.to("cpu", non_blocking=True), lambda: here.copy_(there, True)):
            with pytest.raises(RuntimeError, match="a copy to the CPU that is not waited for"):
                race()
        with pytest.raises(TypeError, match="numpy reads tensors of the CPU alone"):
            there.numpy()
