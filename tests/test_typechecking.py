"""The checker of annotations finds what does not keep them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.batch import Batch
from tests.typechecking import check

if TYPE_CHECKING:
    from collections import Counter

pytestmark = pytest.mark.skipif(
    not os.environ.get("CHECK_ANNOTATIONS"),
    reason="calls are checked where CHECK_ANNOTATIONS is set, as make suite sets it for a part",
)


def add(left: Float[Tensor, "row column"], right: Float[Tensor, "row column"]) -> Any:
    return left + right


def first(matrix: Float[Tensor, "row column"]) -> Float[Tensor, row]:
    return matrix[0]


def plain(number: float, *, times: int = 1) -> float:
    return number * times


def unread(words: Counter[str]) -> None: ...


@dataclass
class Pair:
    left: Float[Tensor, " row"]
    right: Float[Tensor, row]


def test_what_keeps_its_annotations_is_called_as_it_is() -> None:
    one = torch.ones(2, 3)
    assert torch.equal(check(add)(one, right=one), one + one)
    assert check(first)(torch.ones(3, 3)).shape == (3,)
    assert check(plain)(2, times=3) == 6  # an int is a float
    assert check(plain).__name__ == "plain"
    assert check(unread)("what only a type checker knows") is None


def test_what_breaks_them_is_found() -> None:
    for call in (
        lambda: check(add)(torch.ones(2, 3), torch.ones(2, 5)),
        lambda: check(add)(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int64)),
        lambda: check(first)(torch.ones(2, 3)),
        lambda: check(plain)("2"),
        lambda: check(plain)(2, times="3"),
        lambda: check(Pair)(torch.ones(2), torch.ones(3)),
    ):
        for _ in "ab":  # found, and remembered
            with pytest.raises(TypeError, match="violates type hint"):
                call()


def test_sizes_are_those_of_one_call() -> None:
    for size in (2, 3):
        assert check(add)(torch.ones(size, 1), torch.ones(size, 1)).shape == (size, 1)


def test_the_library_is_checked() -> None:
    with pytest.raises(TypeError, match="violates type hint"):
        Batch(torch.ones(2, 3, dtype=torch.int64), torch.ones(5, 3, dtype=torch.int64))
