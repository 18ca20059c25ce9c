"""Weights under many draws: their mean and standard deviation."""

from __future__ import annotations

import pytest
import torch

from latentheads.guides import Cascaded, Tied
from latentheads.reading import Recording, readings
from latentheads.reading.draws import BAND, drawn_weights, prior_readings
from tests.tiny import KINDS, attach, build, small_batch

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_mean_and_deviation_are_those_of_the_draws(kind: str) -> None:
    model = build(kind).eval()
    guide, batch = Cascaded(model).double(), small_batch()
    found = drawn_weights(model, guide, batch, draws=5, seed=3)
    for name, drawn in found.items():
        each = [heads[name].weights for _, heads in readings(model, [batch] * 5, guide, 3)]
        deviation, mean = torch.std_mean(torch.stack(each), 0)
        ends = torch.quantile(torch.stack(each), torch.tensor(BAND, dtype=mean.dtype), 0)
        torch.testing.assert_close(torch.stack([drawn.low, drawn.high]), ends)
        torch.testing.assert_close(drawn.mean, mean)
        torch.testing.assert_close(drawn.deviation, deviation)
    assert min(float(drawn.deviation.max()) for drawn in found.values()) > 0.01


@every_kind
def test_heads_without_noise_do_not_vary(kind: str) -> None:
    model, batch = build(kind, "delta").eval(), small_batch()
    found = drawn_weights(model, Tied(model), batch, draws=3)
    with Recording(model) as heads:
        model.states(batch)
    for name, drawn in found.items():
        torch.testing.assert_close(drawn.mean, heads[name].weights)
        assert float(drawn.deviation.max()) < 1e-7


def test_one_draw_has_no_deviation() -> None:
    model = build().eval()
    with pytest.raises(ValueError, match="draws must be at least 2 for a standard deviation"):
        drawn_weights(model, Tied(model), small_batch(), draws=1)


@every_kind
def test_draws_of_the_prior_are_those_of_a_guide_that_is_the_prior(kind: str) -> None:
    model, batch = build(kind).eval(), small_batch()
    tied, other = (
        [heads for _, heads in readings(model, [batch] * 3, guide, 5)]
        for guide in (Tied(model), attach("cascaded", model))
    )
    prior = list(prior_readings(model, Tied(model), batch, 3, 5))
    for block in prior[0].attending:
        mine, same, apart = (
            torch.stack([each[block.name].weights for each in drawn])
            for drawn in (prior, tied, other)
        )
        assert torch.equal(mine, same)
        assert not torch.allclose(mine, apart)
        assert float(mine.std(0).max()) > 0.01
