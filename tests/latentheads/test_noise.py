"""Noise of its own: it goes on where it stopped, and nothing around it moves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from latentheads.noise import NoiseStream, fixed_noise
from tests.typechecking import unchecked

CPU = torch.device("cpu")


def expected(seed: int, number: int) -> torch.Tensor:
    return torch.rand(number, generator=torch.Generator().manual_seed(seed))


def test_numbers_go_on_from_stretch_to_stretch_whatever_is_drawn_between() -> None:
    stream, values = NoiseStream(CPU, 3), []
    for _ in range(2):
        before = torch.get_rng_state()
        with stream.active():
            values.append(torch.rand(5))
        assert torch.equal(torch.get_rng_state(), before)
        torch.rand(7)
    assert torch.equal(torch.cat(values), expected(3, 10))


def test_where_it_stands_is_told_within_and_between() -> None:
    stream = NoiseStream(CPU, 3)
    with stream.active():
        torch.rand(5)
        within = stream.states["cpu"]
    assert torch.equal(stream.states["cpu"], within)
    other = NoiseStream(CPU, 4)
    other.set(stream.states)
    with other.active():
        assert torch.equal(torch.rand(2), expected(3, 7)[5:])


def test_what_is_broken_off_goes_on_too() -> None:
    stream = NoiseStream(CPU, 3)
    before = torch.get_rng_state()

    def interrupt() -> None:
        with stream.active():
            torch.rand(5)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert torch.equal(torch.get_rng_state(), before)
    with stream.active():
        assert torch.equal(torch.rand(2), expected(3, 7)[5:])
    unchecked(NoiseStream.seed)(stream, np.int64(3))
    with stream.active():
        assert torch.equal(torch.rand(2), expected(3, 2))


def test_a_seed_of_its_own_begins_no_other_stream_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_rng_state()
    monkeypatch.setattr(torch, "manual_seed", pytest.fail)  # it would begin those of all devices
    for _ in range(2):
        with fixed_noise(3, CPU):
            assert torch.equal(torch.rand(2), expected(3, 2))
    assert torch.equal(torch.get_rng_state(), before)
