"""The benchmark's yardstick equals the library, and its command line keeps its word."""

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.guides import Cascaded, Tied
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.logits.latent import Logits
from latentheads.models import Network, Translation, make_prior
from tests.experiments.programs import painted, succeed

SMALL = "--width 8 --feed_forward 8 --layers 1 --heads 2 --batch 2 --length 5 --vocabulary 9"
PAIRS: dict[str, tuple[str, Callable[..., Any]]] = {
    "transformer": ("delta", Tied),
    "coda": ("cascaded", Tied),
    "cascaded": ("independent", Cascaded),
}


@pytest.fixture
def in_memory() -> ModuleType:
    return import_module("latentheads.experiments.studies.benchmarks.plain_pytorch")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    noise: list[Tensor] = []

    def record(like: Tensor, shape: torch.Size | None = None) -> Tensor:
        noise.append(torch.randn(like.shape if shape is None else shape, dtype=like.dtype))
        return noise[-1]

    monkeypatch.setattr("latentheads.distributions.heads.standard_normal", record)
    return noise


def random_pair(recipe: str) -> tuple[Translation, nn.Module]:
    prior, guide = PAIRS[recipe]
    network = Network(width=12, feed_forward=14, heads=3, layers=3, dropout=0.0)
    model = Translation(11, 13, network, latents=[Logits(make_prior(prior))])
    pair = model, guide(model)
    with torch.no_grad():
        for parameter in nn.ModuleList(pair).parameters():
            parameter.normal_(std=0.3)
    return pair


@pytest.mark.parametrize("analytic", [True, False], ids=["analytic", "sampled"])
@pytest.mark.parametrize("recipe", PAIRS)
def test_by_hand_equals_ours(
    recipe: str, analytic: bool, batch: Batch, in_memory: ModuleType, drawn: list[Tensor]
) -> None:
    model, guide = random_pair(recipe)
    loss = Head_ELBO(analytic=analytic).differentiable_loss(model, guide, batch)
    loss.backward()
    weights = in_memory.take_weights(model.state_dict(), guide.state_dict())
    noise = iter(drawn)
    network = in_memory.PlainTransformer(
        weights, recipe, 3, 0.0, analytic, lambda like: next(noise)
    )
    other = network.loss(batch.source, batch.target)
    other.backward()
    torch.testing.assert_close(other, loss, rtol=1e-12, atol=1e-10)
    assert not list(noise)
    check_gradients(weights, model, guide)


def check_gradients(weights: dict[str, Tensor], model: nn.Module, guide: nn.Module) -> None:
    ours = dict(model.named_parameters())
    for name in ours:
        torch.testing.assert_close(weights[name].grad, ours[name].grad, rtol=1e-9, atol=1e-10)
    theirs = dict(guide.named_parameters())
    assert len(weights) == len(ours) + len(theirs)
    if theirs:
        in_memory = weights["decoder.layers.1.cross.guide.scale.log"].grad
        ours_again = theirs["families.decoder_1_cross.scale.log"].grad
        torch.testing.assert_close(in_memory, ours_again, rtol=1e-9, atol=1e-10)


def test_every_row_is_measured_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from latentheads.experiments.studies import bench

    plan = replace(bench.QUICK, growth_rounds=1, lengths=(5,), heads=(2,))
    monkeypatch.setattr(bench, "QUICK", plan)
    file, figure = tmp_path / "bench.json", tmp_path / "bench.png"
    words = [
        "--quick",
        "--rounds",
        "1",
        *SMALL.split(),
        "--recipe",
        "cascaded",
        "--precision",
        "fp32",
    ]
    words += ["--threads", "1", "--json", str(file), "--figure", str(figure)]
    with painted():
        succeed("bench.py", *words)
    written = json.loads(file.read_text())
    assert {"torch", "pyro", "threads", "device", "plan", "memory"} <= set(written["metadata"])
    rows = {row["row"]: row for row in written["rows"]}
    assert len(rows) == 6
    assert rows["by hand"]["ratio"] == 1.0
    assert rows["guide, replay"]["memory"] > rows["ours"]["memory"] > 0
    assert {point["row"] for point in written["growth"]["length"]} == {*rows}
    assert figure.stat().st_size > 1000
