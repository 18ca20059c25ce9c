"""Two heads that explain one word together, each at one of three positions.

The first position carries the signal; the word says with a noise of .02 whether both heads together
say OR, XOR, AGREE or DIFFER. The figures were computed apart from this library.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

NOISE, KEYS = 0.02, 3
WORDS = {
    "or": (lambda a, b: (a == 0) | (b == 0), -0.5918, 0.322, 1.158, 0.233),
    "xor": (lambda a, b: (a == 0) ^ (b == 0), -0.8059, 0.664, 1.376, 0.581),
    "agree": (lambda a, b: a == b, -1.0788, 1.047, 1.536, 0.906),
    "differ": (lambda a, b: a != b, -0.4155, 0.816, 0.902, 0.356),
}
"""Of each: when the word says yes, exact log p, what the best product over heads lacks, what the
prior lacks, and the mutual information of the heads given the word."""


def table(word: str) -> Tensor:
    """Log-probability of a word that says yes, for all positions of both heads."""
    places = torch.arange(KEYS)
    yes = WORDS[word][0](places[:, None], places)
    return torch.where(yes, math.log(1 - NOISE), math.log(NOISE)).double()[None, None]
