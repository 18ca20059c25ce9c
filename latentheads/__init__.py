"""latentheads: attention heads as random variables, with priors and guides to swap."""

from latentheads.batch import Batch
from latentheads.bound import Importance, Terms, importance, terms
from latentheads.distributions import HeadContext, HeadLogits
from latentheads.handlers import PlugIn
from latentheads.names import Block
from latentheads.objective import Head_ELBO

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
