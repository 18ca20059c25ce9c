"""The precision of ``auto``: by the processor, once, and kept where training goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from latentheads.training import checkpoints
from latentheads.training.engine import Engine
from latentheads.training.options import make_training
from latentheads.training.precision import BFLOAT16_UNITS, choose_precision
from latentheads.training.progress import note_precision
from tests.latentheads.training.engines import part
from tests.tiny import FORMS, build

CPU = torch.device("cpu")


def set_units(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Makes a CPU of this one that has only these units; PyTorch need not know the others."""
    for name in BFLOAT16_UNITS:
        monkeypatch.delattr(torch.cpu, name, raising=False)
    for name in names:
        monkeypatch.setattr(torch.cpu, name, lambda: True, raising=False)


def engine_of(precision: str = "auto") -> Engine:
    model = build(prior="independent").float()
    training = make_training({"precision": precision, "steps": 3, "warmup_steps": 1})
    return Engine(model, FORMS["cascaded"](model).float(), part(), training)


@pytest.mark.parametrize("name", BFLOAT16_UNITS)
def test_auto_is_bfloat16_where_the_processor_has_it(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = [torch.ones(2, dtype=torch.float32)]
    set_units(monkeypatch)
    assert choose_precision("auto", weights, CPU).name == "fp32"
    set_units(monkeypatch, name)
    assert choose_precision("auto", [torch.ones(2).double()], CPU).name == "fp32"
    precision = choose_precision("auto", weights, CPU)
    note_precision(precision)
    line = f"precision bf16: the {BFLOAT16_UNITS[name]} of this CPU multiplies bfloat16\n"
    assert capsys.readouterr().err == line
    note_precision(choose_precision("fp32", weights, CPU))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("began", ["bf16", "fp32"])
def test_training_goes_on_in_the_precision_that_it_began_in(
    began: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine with other units than the first does not change it."""
    unit = "_is_amx_tile_supported"
    set_units(monkeypatch, *([unit] if began == "bf16" else []))
    path = tmp_path / "last.safetensors"
    checkpoints.save(path, *engine_of().state())
    set_units(monkeypatch, *([] if began == "bf16" else [unit]))
    assert engine_of().precision.name != began
    resumed = engine_of()
    tensors, facts = checkpoints.load(path)
    resumed.check(tensors, facts)
    resumed.restore(tensors, facts)
    assert resumed.precision == (began, "this training began in it")
    with resumed._autocast():
        assert torch.is_autocast_enabled("cpu") == (began == "bf16")
    named = engine_of("fp32")  # what is asked for by name is not overruled
    named.restore(tensors, facts)
    assert named.precision.name == "fp32"
