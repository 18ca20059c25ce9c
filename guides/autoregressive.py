r"""Every head given the heads before it: :math:`q(z) = \prod_h q(z_h \mid z_{<h})`.

The masked network is MADE (Germain, Gregor, Murray and Larochelle 2015,
https://arxiv.org/abs/1502.03509). The inverse form is an inverse autoregressive flow (Kingma et al.
2016, https://arxiv.org/abs/1606.04934), the masked form a masked autoregressive flow (Papamakarios,
Pavlakou and Murray 2017, https://arxiv.org/abs/1705.07057).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.checks import check_choice
from latentheads.distributions.autoregressive import InverseHeads, MaskedHeads
from latentheads.distributions.heads import HeadContext, HeadVariable, linear_over_heads
from latentheads.families.family import Dependence, Family
from latentheads.families.fusion import LEAK
from latentheads.families.guide import Guide, check_options
from latentheads.families.location import OwnMLP
from latentheads.families.normal import Correlated
from latentheads.families.scale import CholeskyFactor, HeadScale
from latentheads.latents.latent import AutoConditionOn, LatentModel
from latentheads.names import Block

Form = Literal["cholesky", "inverse", "masked"]


class MaskedMLP(nn.Module):
    """Shift and log-scale of each head from the heads before it and from all scores (MADE).

    Args:
        heads: Number of heads H.
        hidden: Hidden units per head.
        scale: Initial scale of every head.
    """

    before: Tensor
    upto: Tensor

    def __init__(self, heads: int, hidden: int, scale: float) -> None:
        super().__init__()
        self.read = nn.Linear(heads, hidden * heads)
        self.seen = nn.Linear(heads, hidden * heads, bias=False)
        self.shift = nn.Linear(hidden * heads, heads)
        self.log_scale = nn.Linear(hidden * heads, heads)
        for layer in (self.shift, self.log_scale):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        nn.init.constant_(self.log_scale.bias, torch.tensor(scale).log().item())
        head = torch.arange(heads)
        owner = head.repeat_interleave(hidden)
        self.register_buffer("before", (owner[:, None] > head).float(), persistent=False)
        self.register_buffer("upto", (head[:, None] >= owner).float(), persistent=False)

    def forward(
        self,
        scores: Float[Tensor, "*batch head query key"],
        values: Float[Tensor, "*values head query key"],
    ) -> tuple[Tensor, Tensor]:
        """Compute shift and log-scale from values of earlier heads and scores of all heads."""
        with torch.autocast(values.device.type, enabled=False):
            from_scores = linear_over_heads(self.seen.weight, scores.flatten(-2))
            from_values = linear_over_heads(
                self.read.weight * self.before, values.flatten(-2), self.read.bias
            )
            hidden = F.leaky_relu(from_scores + from_values, LEAK)
            return self._apply_masked(self.shift, hidden, values), self._apply_masked(
                self.log_scale, hidden, values
            )

    def _apply_masked(self, layer: nn.Linear, hidden: Tensor, like: Tensor) -> Tensor:
        out = linear_over_heads(layer.weight * self.upto, hidden, layer.bias)
        return out.unflatten(-1, like.shape[-2:])


class NonLinear(Family):
    """Means and scales that are non-linear in the earlier heads, through a masked MLP.

    Attributes:
        noise: A factor of all noise: 1, or less during a warm-up of the noise.
    """

    def __init__(self, heads: int, hidden: int, scale: float, form: Form) -> None:
        super().__init__()
        self.conditioner = MaskedMLP(heads, hidden, scale)
        self.noise = HeadScale(heads)
        self.distribution_class = InverseHeads if form == "inverse" else MaskedHeads

    @property
    def dependence(self) -> Dependence:
        return Dependence(on_lower_logits=False)

    def forward(self, context: HeadContext) -> HeadVariable:
        return self.distribution_class(
            context.scores, context, partial(self._condition, context.scores)
        )

    def _condition(self, scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Condition on the earlier heads, with the current noise factor.

        The inverse form conditions on noise, the masked form on logits, which are scaled already.
        """
        noise_factor = self.noise.noise_factor
        if noise_factor == 1.0:
            return self.conditioner(scores, values)
        conditioned_values = (
            noise_factor * values if self.distribution_class is InverseHeads else values
        )
        shift, log_scale = self.conditioner(scores, conditioned_values)
        return shift, log_scale + math.log(noise_factor)


class Autoregressive(Guide):
    """Heads of a block depend on each other; blocks depend through the sampled scores only.

    Three forms, each with a density that is computed in parallel:

    - ``cholesky``: linear; one matrix over the heads of a block, sampled in parallel, with an exact
      KL to a prior of independent heads.
    - ``inverse``: non-linear in the *noise* of the earlier heads; sampled in parallel.
    - ``masked``: non-linear in the *logits* of the earlier heads; sampled head by head.

    Args:
        model: The model.
        form: How the heads of a block depend on each other.
        hidden: Hidden units per head of the location's MLP.
        scale: Initial standard deviation of the posterior.
        condition_on: The text that the posterior is conditioned on: source, prefix (also the target
            before the word) or target (also the whole target). auto: the target for discrete
            latents, the source for logits.

    Example:
        >>> bound = lh.terms(model, Autoregressive(model, form="inverse"), batch)
        >>> bound.how["decoder.0.self.logits"]
        'sampled'
    """

    tied_prior = "autoregressive"
    structure = "autoregressive"
    of_logits = ("form", "hidden", "scale")
    of_text = ("condition_on",)

    def __init__(
        self,
        model: LatentModel,
        form: Form = "cholesky",
        hidden: int = 4,
        scale: float = 1.0,
        condition_on: AutoConditionOn = "auto",
    ) -> None:
        super().__init__(model)
        check_options(hidden, scale)
        check_choice("form", form, get_args(Form))
        self.form, self.hidden, self.scale = form, hidden, scale
        self.condition_on = condition_on

    def family(self, block: Block) -> Family:
        if self.form == "cholesky":
            factor = CholeskyFactor(block.heads, self.scale)
            return Correlated(OwnMLP(block.heads, self.hidden), factor)
        return NonLinear(block.heads, self.hidden, self.scale, self.form)
