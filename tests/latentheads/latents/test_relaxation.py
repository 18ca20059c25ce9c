"""A temperature falls geometrically."""

from __future__ import annotations

import pytest

from latentheads.latents.relaxation import Relaxation
from latentheads.options import OptionError


def test_the_temperature_falls_geometrically() -> None:
    relaxation = Relaxation(4.0, 1.0)
    actual = [relaxation.temperature_at(step, 10) for step in (0, 5, 10)]
    assert actual == pytest.approx([4.0, 2.0, 1.0])
    assert Relaxation(4.0).temperature_at(7, 10) == 4.0


def test_it_does_not_rise() -> None:
    with pytest.raises(OptionError, match=r"^least_temperature must be at most the temperature, 1"):
        Relaxation(least_temperature=2.0)
