"""Models: p(y, heads | x), each a network plus priors plus a likelihood."""

from models.base import HeadModel
from models.language_model import LanguageModel
from models.network import Network
from models.priors import PRIORS, Prior, make_prior
from models.translation import Translation

__all__ = [
    "PRIORS",
    "HeadModel",
    "LanguageModel",
    "Network",
    "Prior",
    "Translation",
    "make_prior",
]
