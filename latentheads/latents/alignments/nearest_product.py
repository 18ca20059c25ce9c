r"""The product that is nearest to a prior: where a guide starts that leaves out its couplings.

A product :math:`q = \prod_i q_i` over heads and words cannot express a prior that conditions a head
on another, or a word on the one before. Coordinate ascent lowers
:math:`\mathrm{KL}(q \,\|\, p)` in each of its factors in turn. For
:math:`p(z_i \mid z_j) \propto \exp(c_i(z_i) + r(z_j, z_i))` with the normaliser :math:`Z_i(z_j)`

.. math:: \log q_i(s) &= c_i(s) + \mathrm{E}_{q_j} r(z_j, s) + \ldots \\
          \log q_j(s) &= c_j(s) + \mathrm{E}_{q_i} r(s, z_i) - \log Z_i(s) + \ldots

It starts at marginals of the prior, whose KL is the mutual information of what the prior couples,
so that its own is at most that. The scores alone, without :math:`r`, may be nats away.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.distribution import CategoricalParameters
from latentheads.latents.alignments.transitions import SharedTransitions
from latentheads.layers.numeric import softmax

ROUNDS = 3
"""Updates of every factor."""


@torch.no_grad()
def nearest_product(
    priors: Sequence[CategoricalParameters], valid: Bool[Tensor, "*valid target"]
) -> list[Float[Tensor, "*batch target head key"]]:
    """The scores of every block's heads in a product near to the prior.

    Args:
        priors: The prior of every block, from the lowest.
        valid: True at real tokens.
    """
    with torch.autocast(valid.device.type, enabled=False):
        first, *above = priors
        if isinstance(first, ChainParameters):
            return [_product_of_words(first, valid)]
        if not any(block.pairs for block in above):
            return [block.scores for block in priors]
        (upper,) = above
        return _product_of_blocks(first, upper)


def _product_of_blocks(
    lower: CategoricalParameters, upper: CategoricalParameters
) -> list[Float[Tensor, "*batch target head key"]]:
    """A product of two blocks of one head each."""
    (pair_scores,) = upper.pairs.values()
    lower_scores, upper_scores = lower.scores[..., 0, :], upper.scores[..., 0, :]
    log_normalisers = (upper_scores.unsqueeze(-2) + pair_scores).logsumexp(-1)
    matrix = pair_scores.squeeze(-3)
    lower_product = lower_scores
    for _ in range(ROUNDS):
        upper_product = upper_scores + softmax(lower_product) @ matrix
        lower_product = lower_scores + softmax(upper_product) @ matrix.mT - log_normalisers
    upper_product = upper_scores + softmax(lower_product) @ matrix
    return [lower_product.unsqueeze(-2), upper_product.unsqueeze(-2)]


def _product_of_words(
    chain: ChainParameters, valid: Bool[Tensor, "*valid target"]
) -> Float[Tensor, "*batch target head key"]:
    """A product of the words of a chain: every second word is updated at once."""
    transitions = chain.transitions(shared=True)
    assert isinstance(transitions, SharedTransitions)
    scores, matrix = transitions.scores, transitions.transition_scores
    log_normalisers = transitions.normalisers.log()
    probs, product = transitions.marginals, scores
    is_odd = torch.arange(scores.shape[-2], device=scores.device)[:, None] % 2 == 1
    for is_updated in (~is_odd, is_odd) * ROUNDS:
        from_before = F.pad(probs[..., :-1, :] @ matrix, (0, 0, 1, 0))
        to_next = probs[..., 1:, :] @ matrix.mT - log_normalisers
        from_next = F.pad(to_next * valid[..., 1:, None], (0, 0, 0, 1))  # padding has no say
        product = torch.where(is_updated, scores + from_before + from_next, product)
        probs = softmax(product)
    return product.to(chain.scores.dtype).unsqueeze(-2)
