"""latentheads: attention heads as random variables, with priors and guides to swap."""

from latentheads.batch import Batch
from latentheads.distributions import HeadContext, HeadLogits
from latentheads.effects import PlugIn
from latentheads.inference.bound import Importance, Terms, importance, terms
from latentheads.inference.objective import Head_ELBO
from latentheads.names import Block

__all__ = [
    "Batch",
    "Block",
    "HeadContext",
    "HeadLogits",
    "Head_ELBO",
    "Importance",
    "PlugIn",
    "Terms",
    "importance",
    "terms",
]
