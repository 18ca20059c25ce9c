r"""Noise that a head bears: how much its logits may vary before the target is less likely.

The guide is :math:`q(z_h) = \mathcal N(c_h, s_h^2)` around the network's own logits :math:`c_h`,
with one scale :math:`s_h` for each head. Learned are the scales alone, on

.. math:: \mathbb E_q \log p(y \mid z, x) - w \operatorname{KL}(q \,\Vert\, p),

whose KL to the model's prior falls as noise grows: with the price :math:`w = 1` that is the bound,
with less it is the price at which noise is bought. A head with a large scale hardly minds where it
looks. That does not say whether it may go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.batch import Batch
from latentheads.checks import check_least
from latentheads.corpora import Part
from latentheads.corpora.batches import every_batch
from latentheads.families import Gaussian, HeadScale, Identity
from latentheads.guide import Guide
from latentheads.handlers import evaluation_mode
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import evaluating
from latentheads.inference.objective import Head_ELBO
from latentheads.model import HeadModel
from latentheads.names import Block
from latentheads.noise import fixed_noise

__all__ = ["NoisyHeads", "learn_noise", "noise_cost"]

START = 0.5
"""The scale that learning starts from."""

SILENT = 1e-6
"""A scale that is as good as none."""


class NoisyHeads(Guide):
    """The network's own logits, under noise whose scale each head learns.

    Args:
        model: A model whose heads have noise.

    Raises:
        ValueError: None of its heads has.
    """

    def finish(self) -> None:
        """Makes the families, of one block at least."""
        super().finish()
        if not self._scales():
            raise ValueError(
                "no head of this model has noise: give it a prior that draws logits, such as "
                "independent"
            )

    def family(self, block: Block) -> Gaussian:
        """A Gaussian around the scores."""
        return Gaussian(Identity(), HeadScale(block.heads, START, learned=True))

    def scales(self) -> dict[str, Float[Tensor, " head"]]:
        """The scale of every head, by block."""
        return {name: log.detach().exp().flatten() for name, log in self._scales().items()}

    @torch.no_grad()
    def take(self, scales: Mapping[str, Float[Tensor, " head"]]) -> None:
        """Sets the scale of every head.

        Args:
            scales: By block.
        """
        for name, log in self._scales().items():
            log.copy_(scales[name].log()[:, None, None])

    def _scales(self) -> dict[str, Tensor]:
        """The parameter of every block: the logarithm of its scales."""
        blocks = [block for block in self.model.blocks if block.key in self.families]
        families = {block.name: cast(Gaussian, self.families[block.key]) for block in blocks}
        return {name: cast(Tensor, family.scale.log) for name, family in families.items()}


def learn_noise(
    model: HeadModel,
    parts: Part | Sequence[Batch],
    price: float = 1.0,
    learning_rate: float = 0.15,
    seed: int = 0,
) -> dict[str, Float[Tensor, " head"]]:
    """Learns how much noise each head bears: the scale of its logits, by block.

    The model stays as it is. What noise a head may have at most is told by its prior.

    Args:
        model: A model whose heads have noise, such as ``lh.latent(network)``.
        parts: The batch of every update, in their order, or a part of a corpus.
        price: Weight of the KL; 1 is the bound.
        learning_rate: Of the first update; it falls to 0 along a cosine.
        seed: Of the noise.

    Example:
        >>> found = lh.analysis.learn_noise(model, [batch] * 3, price=0.1)
        >>> found["encoder.0.self"].shape
        torch.Size([2])
    """
    check_least({"price": price, "learning_rate": learning_rate}, price=0.0, learning_rate=0.0)
    known = list(every_batch(parts, "parts"))
    like = next(model.parameters())
    guide = NoisyHeads(model).to(like)
    own = list(guide._scales().values())
    objective = Head_ELBO(kl_weight=price, analytic=True)
    adam = torch.optim.Adam(own, lr=learning_rate)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, len(known))
    with evaluation_mode(model), fixed_noise(seed, like.device):
        for batch in known:
            adam.zero_grad()
            loss = objective.differentiable_loss(model, guide, batch.to(like.device))
            loss.backward(inputs=own)  # nothing else is to keep a gradient
            adam.step()
            falling.step()
    return guide.scales()


def noise_cost(
    model: HeadModel, parts: Part | Sequence[Batch], scale: float, seed: int = 0
) -> dict[str, Float[Tensor, " head"]]:
    """What noise in one head alone costs: nats that the log-likelihood of a sentence loses.

    Args:
        model: A model whose heads have noise; which noise their prior has is of no account.
        parts: A part of a corpus, or batches, each sentence once.
        scale: Standard deviation of the noise around the head's own logits.
        seed: Of the noise, the same for every head.

    Returns:
        The mean over sentences, for the heads of every block.
    """
    check_least({"scale": scale}, scale=SILENT)
    like = next(model.parameters())
    guide = NoisyHeads(model).to(like)
    silent = {name: torch.full_like(each, SILENT) for name, each in guide.scales().items()}
    here = [batch.to(like.device) for batch in every_batch(parts, "parts")]

    def measure(scales: Mapping[str, Tensor]) -> float:
        guide.take(scales)
        with evaluating(model, guide), fixed_noise(seed, like.device):
            found = [terms(model, guide, batch).log_likelihood for batch in here]
        return float(torch.cat(found).mean())

    whole, cost = measure(silent), {}
    for name, none in silent.items():
        cost[name] = torch.zeros(len(none))
        for head in range(len(none)):
            noisy = none.clone()
            noisy[head] = scale
            cost[name][head] = whole - measure(silent | {name: noisy})
    return cost
