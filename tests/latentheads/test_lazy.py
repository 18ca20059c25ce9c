"""Names that are loaded when they are first used."""

from __future__ import annotations

from types import ModuleType

import pytest

import latentheads as lh
from latentheads import contrib, inference, latents
from latentheads.contrib import align, speech


@pytest.mark.parametrize("package", [lh, contrib, inference, latents, align, speech])
def test_every_name_of_a_package_is_there_and_listed(package: ModuleType) -> None:
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in package.__all__)


def test_the_library_has_twenty_names_at_most() -> None:
    assert len(lh.__all__) <= 20


def test_a_name_of_a_part_is_refused_with_its_part() -> None:
    with pytest.raises(AttributeError, match=r"^write latentheads\.data\.Batch, not"):
        _ = lh.Batch
    with pytest.raises(AttributeError, match=r"^module 'latentheads' has no attribute 'nothing'$"):
        _ = lh.nothing
    with pytest.raises(AttributeError, match=r"^module 'latentheads.latents' has no attribute"):
        _ = latents.nothing
