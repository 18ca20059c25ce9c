"""Profiles by Fourier transforms, whose sizes are fast ones."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from latentheads.contrib.heads.boundaries.profiles import empty_counts
from tests.latentheads.contrib.heads.boundaries.tiny import make_attention, make_model


@pytest.mark.parametrize("positions", [59, 203])
def test_transforms_of_any_number_of_positions_have_a_fast_size(positions: int) -> None:
    attention, profiles = make_attention(positions=positions), make_model().profiles
    marginals = torch.full((2, 2, positions), 1 / positions, dtype=torch.float64)
    transform, sizes = torch.fft.rfft, set()

    def noted(values: Any, size: int | None = None) -> Any:
        sizes.add(values.shape[-1] if size is None else size)
        return transform(values, size)

    with mock.patch.object(torch.fft, "rfft", noted):
        empty_counts(profiles).add(profiles, attention, marginals)
    assert sizes
    for size in sizes:
        assert positions + 2 * profiles.reach <= size < positions + 2 * profiles.reach + 64
        assert size % 64 == 0
