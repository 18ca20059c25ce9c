"""Everything that a training step computes, on a device of its own: same numbers, and no waits.

A step that waits for a GPU keeps it idle while Python prepares what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyro
import pytest
import torch
from torch import Tensor, nn

from latentheads import Batch, Head_ELBO
from latentheads.attention.disagreement import KINDS as COMPARED
from latentheads.attention.disagreement import Disagreement
from latentheads.guides import GUIDES, RECIPES, Cascaded
from latentheads.inference.selection_objectives import Enumerated_ELBO, ScoreFunction_ELBO
from latentheads.models import Translation, make_prior
from latentheads.selection.hard_gates import Gating
from latentheads.selection.laws import LAWS, Law, make_selector
from tests.crossing import pairwise
from tests.latentheads.alignment.models import SHAPES, SOFT, WINDOWED, aligned
from tests.second_device import NAME, near, second_device
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

READ = "_local_scalar_dense"
"""A number that Python asks for."""

NETWORKS: dict[str, dict[str, Any]] = {
    "local": {"mixers": "local", "windows": "2"},
    "mixed": {"mixers": "ngram,local,attention", "windows": "3,2,5", "layers": 3},
    "n-grams": {"mixers": "ngram", "windows": "2", "ngram_noise": 0.3, "ngram_context": True},
    "slices": {"mixers": "ngram", "windows": "2", "ngram_slices": True},
    "smoothed": {"label_smoothing": 0.1},
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
    found = loss(batch)
    found.backward()
    nn.utils.clip_grad_norm_(loss.parameters(), 1e9)
    values = [near(p.grad) for p in loss.parameters()]
    return near(found.detach()), [value for value in values if value is not None]


def assert_same_there(
    elbo: Any, model: Any, guide: Any, batch: Batch, waits: Sequence[str]
) -> None:
    """A step on the second device has the numbers of one on the CPU, and waits for nothing else."""
    loss = elbo(model.train(), guide.train())
    here, slopes = gradients(loss, batch)
    with second_device() as device:
        model.to(NAME)
        guide.to(NAME)
        moved = batch.to(NAME)
        device.waits.clear()
        there, found = gradients(loss, moved)
    assert device.waits == [*waits]
    torch.testing.assert_close(there, here, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, slopes, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_recipe_waits(recipe: str) -> None:
    prior, guide = RECIPES[recipe]
    model = build(prior=prior)
    form = "cholesky" if guide == "autoregressive" else guide
    assert_same_there(Head_ELBO(), model, attach(form, model), small_batch(corpus_size=29), [])


@pairwise(form=FORMS, kind=KINDS, free_bits=[0.0, 0.3])
def test_no_guide_waits(form: str, kind: str, free_bits: float, batch: Batch) -> None:
    model = build(kind, "autoregressive", options={"scale": 0.7})
    elbo = Head_ELBO(0.5, free_bits, analytic=True)
    assert_same_there(elbo, model, attach(form, model), batch, [])


@pytest.mark.parametrize("choice", NETWORKS)
def test_no_mixer_waits(choice: str, batch: Batch) -> None:
    model = build(**NETWORKS[choice])
    model.disagreement = Disagreement(("output",) if "ngram" in str(NETWORKS[choice]) else COMPARED)
    assert_same_there(Head_ELBO(), model, attach("cascaded", model), batch, [])


def test_bands_of_types_are_counted(batch: Batch) -> None:
    """Two of the input, and one of the output."""
    model = build("language-model", cutoffs=(4,), adaptive_factor=2)
    assert_same_there(Head_ELBO(), model, attach("cascaded", model), batch, ["nonzero"] * 3)


@pairwise(shape=SHAPES, guide=GUIDES, objective=["bound", "marginal", "sampled", "iwae", "rws"])
def test_alignments_are_waited_for_once(
    shape: str, guide: str, objective: str, batch: Batch
) -> None:
    model = aligned(SHAPES[shape])
    elbo = Head_ELBO(analytic=True, objective=objective, objective_draws=2)
    summed = guide == "exact" or objective in ("bound", "marginal")
    own = jiggle(GUIDES[guide](model).double(), 0.1)
    assert_same_there(elbo, model, own, batch, [READ] * summed)


@pytest.mark.parametrize("shape", [*SOFT, *WINDOWED])
def test_windows_of_alignments_are_waited_for_one_by_one(shape: str, batch: Batch) -> None:
    """Of four words, two or one at a time; where one head points the table is made at once."""
    options = {**SOFT, **WINDOWED}[shape]
    tables = {"window of two heads": 2, "window of two blocks": 4, "window of a chain": 1}
    model = aligned(options, kind="language-model" if shape in WINDOWED else "translation")
    guide = jiggle(Cascaded(model).double(), 0.1)
    waits = [READ] * tables.get(shape, 0)
    assert_same_there(Head_ELBO(analytic=True), model, guide, batch, waits)


def selecting(selector: Any, prior: str) -> Any:
    network = sizes(heads=2, layers=1)
    law = make_prior(prior)
    model = Translation(SOURCE_TYPES, TARGET_TYPES, law, network, selector=selector)
    return jiggle(model, 0.4).double()


@pairwise(law=LAWS, gradient=GRADIENTS, prior=["delta", "independent"])
def test_no_selection_waits(law: Law, gradient: str, prior: str, batch: Batch) -> None:
    how: dict[str, Any] = {"target_sets": (0, 1, 1)} if law == "static" else {}
    number = {"static": 0, "group": 4}.get(law, 3)
    model = selecting(make_selector(law, 2, number, ("decoder-self",), 2, 3, **how), prior)
    guide = attach("tied" if prior == "delta" else "cascaded", model, 0.1)
    for family in guide.selection_families:
        family.temperature = 1.0 if gradient == "straight-through" else None
    tasks = {"source_task": torch.tensor([0, 1, 0]), "target_task": torch.tensor([2, 0, 1])}
    elbo = GRADIENTS[gradient](analytic=True)
    assert_same_there(elbo, model, guide, replace(batch, **tasks), [])


@pytest.mark.parametrize("prior", ["delta", "independent"])
def test_no_gate_waits(prior: str, batch: Batch) -> None:
    model = selecting(Gating(2), prior)
    guide = attach("tied" if prior == "delta" else "cascaded", model, 0.1)
    model.pressure.value.fill_(0.3)
    assert_same_there(Head_ELBO(analytic=True), model, guide, batch, [])


def test_a_tensor_of_the_wrong_device_is_found() -> None:
    """What the others rely on."""
    with second_device() as device:
        there = torch.arange(6.0, device=NAME).view(2, 3)
        assert (there.device.type, device.waits) == (NAME, [])
        assert (there + 1).tolist() == [[1, 2, 3], [4, 5, 6]]
        assert there[there > 3].shape == (2,)
        assert bool(there.any())
        assert torch.ones(2).to(NAME, non_blocking=True).sum().cpu() == 2
        torch.ones(2).to(NAME)
        assert device.waits == ["copy", "index", READ, "copy", "copy"]
        with pytest.raises(RuntimeError, match="tensors of two devices"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError, match="tensors of two devices"):
            there[:, torch.tensor([0, 1])]
        for written in (lambda: there[:, [0, 1]], lambda: there.new_tensor([0.0]) + 1):
            with pytest.raises(RuntimeError, match="numbers of the CPU were written on the device"):
                written()
        with pytest.raises(TypeError, match="numpy reads tensors of the CPU alone"):
            there.numpy()
