"""What the tests of the programs share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def as_the_programs_do() -> None:
    """Float32, as a user has it."""
    torch.set_default_dtype(torch.float32)
