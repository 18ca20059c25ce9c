"""Models p(y, heads | x): a network, priors of its heads, and a likelihood."""

if __name__ != "latentheads.models":  # two names would make two classes of each
    raise ImportError(f"write latentheads.{__name__} for {__name__}: a class has one module")

from latentheads.distributions import HeadContext, HeadVariable
from latentheads.latents.logits.latent import Logits
from latentheads.latents.logits.priors import PRIORS, Prior, make_prior
from latentheads.model import Decoder, HeadModel
from latentheads.models.language_model import LanguageModel
from latentheads.models.network import AdaptiveOptions, Network, PostNorm, PreNorm
from latentheads.models.translation import Translation
from latentheads.names import Block

__all__ = [
    "PRIORS",
    "AdaptiveOptions",
    "Block",
    "Decoder",
    "HeadContext",
    "HeadModel",
    "HeadVariable",
    "LanguageModel",
    "Logits",
    "Network",
    "PostNorm",
    "PreNorm",
    "Prior",
    "Translation",
    "make_prior",
]
