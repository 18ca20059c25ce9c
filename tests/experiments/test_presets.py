"""Presets: read without data, and as large as the papers say."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

from models import Translation
from tests.experiments.programs import ROOT

FUSION = {4: 24 * 16 + 9 * 4, 8: 24 * 64 + 9 * 8}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    read = import_module("command").read_settings

    def made(*words: str) -> Any:
        return read(list(words), "run.py", "", lambda parser: None)[0]

    return made


def size(plan: Any, source: int, target: int) -> int:
    with torch.device("meta"):
        model = Translation(source, target, plan.prior, plan.network, plan.latent)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("preset", "types", "plain", "released"),
    [
        ("iwslt14", (8848, 6632), 39_469_056, "39.477"),
        ("wmt14", (32768, 32768), 60_915_712, "60.945"),
    ],
)
def test_networks_are_as_large_as_the_published_ones(
    settings: Any, preset: str, types: tuple[int, int], plain: int, released: str
) -> None:
    """The published cascade also counts a fusion in the first block of each chain, never used."""
    assert size(settings("--preset", preset, "--recipe", "transformer"), *types) == plain
    plan = settings("--preset", preset, "--recipe", "coda-released")
    unused = 3 * FUSION[plan.network.heads]
    assert f"{(size(plan, *types) + unused) / 1e6:.3f}" == released


def test_transformer_tiny_has_two_point_six_million_parameters(settings: Any) -> None:
    plan = settings("--preset", "multi30k", "--recipe", "transformer")
    assert size(plan, 10_000, 10_000) == pytest.approx(2.6e6, rel=0.01)


@pytest.mark.parametrize("preset", ["grammar", "pydoc", "multi30k", "iwslt14", "wmt14"])
def test_every_preset_is_read_without_its_data(settings: Any, preset: str) -> None:
    plan = settings("--preset", preset)
    assert plan.data.data == preset


def test_published_settings(settings: Any) -> None:
    iwslt, wmt = settings("--preset", "iwslt14"), settings("--preset", "wmt14")
    assert (iwslt.training.learning_rate, wmt.training.learning_rate) == (5e-4, 7e-4)
    assert {iwslt.training.warmup_steps, wmt.training.warmup_steps} == {4000}
    assert (iwslt.network.dropout, wmt.network.dropout) == (0.3, 0.1)
    assert (iwslt.decoding.beam, iwslt.decoding.length_penalty) == (5, 1.0)
    assert (wmt.decoding.beam, wmt.decoding.length_penalty) == (4, 0.6)
    assert (iwslt.training.average, wmt.training.average) == (0, 10)
    assert {iwslt.label_smoothing, wmt.label_smoothing} == {0.1}
