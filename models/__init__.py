"""Models: p(y, heads | x), each a network plus priors plus a likelihood."""

from latentheads.model import HeadModel
from latentheads.models.language_model import LanguageModel
from latentheads.models.network import Network
from latentheads.models.priors import PRIORS, Prior, make_prior
from latentheads.models.translation import Translation

__all__ = [
    "PRIORS",
    "HeadModel",
    "LanguageModel",
    "Network",
    "Prior",
    "Translation",
    "make_prior",
]
