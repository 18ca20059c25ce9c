r"""Noise tolerance of heads: how much logits may vary before the target becomes less likely.

The guide is :math:`q(z_h) = \mathcal N(c_h, s_h^2)` around the network's own logits :math:`c_h`,
with one scale :math:`s_h` for each head. Only the scales are trained, on

.. math:: \mathbb E_q \log p(y \mid z, x) - w \operatorname{KL}(q \,\Vert\, p),

whose KL to the model's prior falls as noise grows. With the KL weight :math:`w = 1` this is the
ELBO; a smaller weight rewards noise less. The output of a head with a large scale depends little on
its attention weights. That does not mean that the head can be removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.batch import Batch
from latentheads.checks import check_least
from latentheads.corpora.batches import iterate_batches
from latentheads.corpora.part import Part
from latentheads.families.guide import Guide
from latentheads.families.location import Identity
from latentheads.families.normal import Gaussian
from latentheads.families.scale import HeadScale
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import eval_no_grad
from latentheads.inference.objective import Head_ELBO
from latentheads.model import HeadModel
from latentheads.names import Block
from latentheads.noise import fixed_noise
from latentheads.passes import evaluation_mode

INITIAL_SCALE = 0.5
"""The scale at the start of training."""

MIN_SCALE = 1e-6
"""A scale that is practically no noise."""


class NoisyHeads(Guide):
    """Adds Gaussian noise to the network's own logits, with one learned scale per head."""

    def post_init(self) -> None:
        super().post_init()
        if not self._scales():
            raise ValueError(
                "no head of this model has noise: give it a prior over logits, such as independent"
            )

    def family(self, block: Block) -> Gaussian:
        """A Gaussian centred on the scores."""
        return Gaussian(Identity(), HeadScale(block.heads, INITIAL_SCALE, learned=True))

    def scales(self) -> dict[str, Float[Tensor, " head"]]:
        """The scale of every head, by block."""
        parameters = self._scales().items()
        return {name: log_scale.detach().exp().flatten() for name, log_scale in parameters}

    @torch.no_grad()
    def set_scales(self, scales: Mapping[str, Float[Tensor, " head"]]) -> None:
        """Sets the scale of every head."""
        for name, log_scale in self._scales().items():
            log_scale.copy_(scales[name].log()[:, None, None])

    def _scales(self) -> dict[str, Tensor]:
        """The parameter of every block, the logarithm of its scales."""
        blocks = [block for block in self.model.blocks if block.key in self.families]
        families = {block.name: cast(Gaussian, self.families[block.key]) for block in blocks}
        return {name: cast(Tensor, family.scale.log) for name, family in families.items()}


def learn_noise(
    model: HeadModel,
    batches: Part | Iterable[Batch],
    kl_weight: float = 1.0,
    learning_rate: float = 0.15,
    seed: int = 0,
) -> dict[str, Float[Tensor, " head"]]:
    """Learns how much noise each head tolerates: the scale of its logits, by block.

    The model is not changed. The scale of the prior limits the noise.

    Args:
        model: A model with latent logits, such as ``lh.latent(network)``.
        batches: The batch of every optimiser step, in order, or a part of a corpus.
        kl_weight: Weight of the KL; 1 gives the ELBO.
        learning_rate: Initial learning rate; it decays to 0 along a cosine.
        seed: Seed of the noise.

    Example:
        >>> scales = lh.contrib.heads.learn_noise(model, [batch] * 3, kl_weight=0.1)
        >>> scales["encoder.0.self"].shape
        torch.Size([2])
    """
    options = {"kl_weight": kl_weight, "learning_rate": learning_rate}
    check_least(options, kl_weight=0.0, learning_rate=0.0)
    training_batches = list(iterate_batches(batches, "batches"))
    parameter = next(model.parameters())
    guide = NoisyHeads(model).to(parameter)
    log_scales = list(guide._scales().values())
    elbo = Head_ELBO(kl_weight=kl_weight, analytic=True)
    optimizer = torch.optim.Adam(log_scales, lr=learning_rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(training_batches))
    with evaluation_mode(model), fixed_noise(seed, parameter.device), torch.enable_grad():
        for batch in training_batches:
            optimizer.zero_grad()
            loss = elbo.differentiable_loss(model, guide, batch.to(parameter.device))
            loss.backward(inputs=log_scales)  # the model's parameters get no gradient
            optimizer.step()
            scheduler.step()
    return guide.scales()


def noise_cost(
    model: HeadModel, batches: Part | Iterable[Batch], scale: float, seed: int = 0
) -> dict[str, Float[Tensor, " head"]]:
    """Computes the loss of log-likelihood, in nats per sentence, from noise in a single head.

    Args:
        model: A model with latent logits; the noise of their prior has no effect.
        batches: A part of a corpus, or batches, each sentence once.
        scale: Standard deviation of the noise around the head's own logits.
        seed: Seed of the noise, the same for every head.

    Returns:
        The mean over sentences, for each head of every block.
    """
    check_least({"scale": scale}, scale=MIN_SCALE)
    parameter = next(model.parameters())
    guide = NoisyHeads(model).to(parameter)
    noiseless = {name: torch.full_like(s, MIN_SCALE) for name, s in guide.scales().items()}
    all_batches = [batch.to(parameter.device) for batch in iterate_batches(batches, "batches")]

    def measure(scales: Mapping[str, Tensor]) -> float:
        guide.set_scales(scales)
        with eval_no_grad(model, guide), fixed_noise(seed, parameter.device):
            log_likelihoods = [terms(model, guide, batch).log_likelihood for batch in all_batches]
        return float(torch.cat(log_likelihoods).mean())

    baseline, cost = measure(noiseless), {}
    for name, scales in noiseless.items():
        cost[name] = torch.zeros(len(scales))
        for head in range(len(scales)):
            noisy = scales.clone()
            noisy[head] = scale
            cost[name][head] = baseline - measure(noiseless | {name: noisy})
    return cost
