"""Networks of Hugging Face ``transformers``: one call makes their attention heads sample sites.

``transformers`` is imported when a network is made latent, not when this package is imported.
"""

from latentheads.contrib.hf.batch import EncodedBatch
from latentheads.contrib.hf.conversion import from_gpt2, to_gpt2
from latentheads.contrib.hf.likelihoods import LIKELIHOODS, Likelihood
from latentheads.contrib.hf.model import Pretrained, latent, plain
from latentheads.contrib.hf.removal import from_pretrained

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
