"""What the tests of corpora share."""

from __future__ import annotations

import pytest

from latentheads.corpora import Part
from latentheads.corpora.from_grammar import sample_pairs


@pytest.fixture(scope="session")
def part() -> Part:
    """Pairs of the grammar, of a prime number."""
    return sample_pairs(sentences=307, held_out=11).train
