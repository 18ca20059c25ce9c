"""Guards of a captured step: masks that it takes to be true nowhere.

A replay repeats the operations of a captured step, and so the branches that Python took in it.
Where one branch is hardly ever taken the captured step leaves it out, and a guard shows after each
replay whether that was right. ``torch.compile`` has guards of its code in the same sense.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

_open: list[Guards] = []


class Guards:
    """While it is open, :func:`any_true` notes its masks and returns False."""

    def __init__(self) -> None:
        self._masks: list[Tensor] = []

    def __enter__(self) -> Guards:
        _open.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _open.remove(self)

    def note(self, mask: Tensor) -> None:
        """Takes a mask to be true nowhere."""
        self._masks.append(mask.any())

    @property
    def failed(self) -> Bool[Tensor, ""] | None:
        """Whether any mask is true somewhere; None without masks."""
        return torch.stack(self._masks).any() if self._masks else None


def any_true(mask: Tensor) -> bool:
    """Whether a mask is true anywhere, which is rare; on a GPU it waits, unless guards are open."""
    if _open:
        _open[-1].note(mask)
        return False
    return bool(mask.any())
