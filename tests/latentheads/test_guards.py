"""Guards: what a captured step takes to be true nowhere."""

from __future__ import annotations

import pytest
import torch

from latentheads.guards import Guards, any_true


@pytest.mark.parametrize(("values", "expected"), [([0, 1, 0], True), ([0, 0], False), ([], False)])
def test_a_mask_is_read(values: list[int], expected: bool) -> None:
    assert any_true(torch.tensor(values, dtype=torch.bool)) is expected


def test_an_open_guard_takes_every_mask_to_be_false() -> None:
    yes, no = torch.tensor([False, True]), torch.zeros(3, dtype=torch.bool)
    with Guards() as guards:
        assert guards.failed is None
        assert not any_true(no)
        assert not bool(guards.failed)
        with Guards() as inner:
            assert not any_true(yes)
        assert not bool(guards.failed)
        assert not any_true(no)
    assert (bool(guards.failed), bool(inner.failed)) == (False, True)
    assert any_true(yes)


def test_guards_close_after_an_error() -> None:
    with pytest.raises(RuntimeError), Guards():
        raise RuntimeError
    assert any_true(torch.ones(1, dtype=torch.bool))
