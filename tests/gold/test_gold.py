"""The parts of the comparison by hand, and a few steps of it."""

from __future__ import annotations

import math

import pytest
import torch

from tests.gold.__main__ import main
from tests.gold.posterior import TinyModel


def test_what_is_compared_is_what_the_model_reads() -> None:
    model = TinyModel()
    assert model.size == 2 * (2 + 3) + 2 * (3 * 3)
    noise = torch.randn(model.size)
    nodes = model._trace(1, model.unpack(noise[None])).nodes
    values = {site: nodes[site]["value"] for site in model.sites}
    log_probability = nodes["target"]["fn"].log_prob(nodes["target"]["value"]).item()
    prior = sum(nodes[site]["fn"].log_prob(value).item() for site, value in values.items())
    constant = model.size * math.log(2 * math.pi) / 2
    assert model.potential({"noise": noise}).item() == pytest.approx(
        -log_probability - prior - constant
    )
    shifted = {site: value + 3 for site, value in values.items()}
    assert torch.allclose(model.identified(values), model.identified(shifted))
    assert torch.equal(model.identified(values), model.read_noise(noise[None]))


def test_weighed_draws_know_the_target() -> None:
    weights = TinyModel().weigh_prior(2000)
    assert weights.effective > 300
    assert ((weights.posterior - weights.prior) / weights.error).abs().max() > 8


def test_a_chain_takes_its_first_steps(capsys: pytest.CaptureFixture[str]) -> None:
    """Four draws say nothing of agreement: that is seen by hand."""
    main(["--chains=1", "--num_samples=4", "--warmup=1", "--weighed=100"])
    assert capsys.readouterr().out.startswith("quantities ")
