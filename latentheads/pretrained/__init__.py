"""Networks of Hugging Face ``transformers``: one call makes their attention heads sample sites.

``transformers`` is imported when a network is made latent, not when this package is imported.
"""

from latentheads.pretrained.batch import EncodedBatch
from latentheads.pretrained.conversion import from_gpt2, to_gpt2
from latentheads.pretrained.likelihoods import LIKELIHOODS, Likelihood
from latentheads.pretrained.model import Pretrained, latent, plain
from latentheads.pretrained.removal import from_pretrained

__all__ = [
    "LIKELIHOODS",
    "EncodedBatch",
    "Likelihood",
    "Pretrained",
    "from_gpt2",
    "from_pretrained",
    "latent",
    "plain",
    "to_gpt2",
]
