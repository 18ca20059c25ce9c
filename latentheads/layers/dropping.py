"""What modules leave out at random while they are trained."""

from __future__ import annotations

from torch import nn

__all__ = ["drops_out"]

SHARES = ("p", "dropout", "probability", "rate")
"""What the share that is left out is called, in modules of PyTorch and of this library."""


def drops_out(module: nn.Module) -> bool:
    """Whether a module leaves something out in training mode: dropout, or what is hidden of speech.

    Args:
        module: One module; those within it are not looked at.
    """
    shares = (getattr(module, name, 0.0) for name in SHARES)
    left_out = any(isinstance(share, float) and share > 0 for share in shares)
    return left_out or any(getattr(module, "policy", ()))
