"""Pictures are painted here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.experiments.programs import painted


@pytest.fixture(scope="package", autouse=True)
def figures_with_paint() -> Iterator[None]:
    with painted():
        yield
