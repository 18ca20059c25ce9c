"""Which modules leave something out at random while they are trained."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from latentheads.layers.spec_augment import SpecAugment

__all__ = ["drops_out"]

SHARES = ("dropout", "probability", "rate")
"""The names of the share that is left out, in modules of PyTorch and of this library."""


def drops_out(module: nn.Module) -> bool:
    """Whether a module leaves something out in training mode: by dropout, or by hiding frames.

    Args:
        module: One module; those within it are not looked at.
    """
    if isinstance(module, _DropoutNd):
        return module.p > 0
    shares = (getattr(module, name, 0.0) for name in SHARES)
    left_out = any(isinstance(share, int | float) and share > 0 for share in shares)
    policy = getattr(module, "policy", None)
    return left_out or (isinstance(policy, SpecAugment) and any(policy))
