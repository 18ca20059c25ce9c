"""The distributions of a model's sample sites: heads and tokens."""

from latentheads.distributions.autoregressive import CholeskyHeads, InverseHeads, MaskedHeads
from latentheads.distributions.heads import HeadContext, HeadLogits
from latentheads.distributions.normal import DeltaHeads, NormalHeads
from latentheads.distributions.tokens import SmoothedTokens, Tokens

__all__ = [
    "CholeskyHeads",
    "DeltaHeads",
    "HeadContext",
    "HeadLogits",
    "InverseHeads",
    "MaskedHeads",
    "NormalHeads",
    "SmoothedTokens",
    "Tokens",
]
