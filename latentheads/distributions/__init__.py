"""The distributions of a model's sample sites: heads and tokens."""

from latentheads.distributions.autoregressive import CholeskyHeads, InverseHeads, MaskedHeads
from latentheads.distributions.heads import BlockStates, HeadContext, HeadVariable, per_pair
from latentheads.distributions.normal import DeltaHeads, NormalHeads
from latentheads.distributions.tokens import SmoothedTokens, Tokens, tokens_of

__all__ = [
    "BlockStates",
    "CholeskyHeads",
    "DeltaHeads",
    "HeadContext",
    "HeadVariable",
    "InverseHeads",
    "MaskedHeads",
    "NormalHeads",
    "SmoothedTokens",
    "Tokens",
    "per_pair",
    "tokens_of",
]
