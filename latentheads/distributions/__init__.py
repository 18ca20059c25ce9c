"""The distributions of a model's sample sites: heads and tokens."""

from latentheads.distributions.autoregressive import CholeskyHeads, InverseHeads, MaskedHeads
from latentheads.distributions.heads import (
    BlockStates,
    HeadContext,
    HeadVariable,
    sum_over_latent_pairs,
)
from latentheads.distributions.normal import DeltaHeads, NormalHeads
from latentheads.distributions.tokens import SmoothedTokens, Tokens, make_token_distribution

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
    "make_token_distribution",
    "sum_over_latent_pairs",
]
