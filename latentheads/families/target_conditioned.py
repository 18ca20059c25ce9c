r"""A posterior of logits that is conditioned on the target: each target token shifts the scores.

.. math:: c_{htk} + \delta_{htk} - \operatorname{mean}_k \delta_{htk},
    \qquad \delta_{htk} = u_{ht}^\top w_{hk}

:math:`u_{ht}` is computed from the target token and :math:`w_{hk}` from the state at the key; both
have a low rank. The mean over keys is subtracted, since a constant that is added to all logits of a
row changes no attention weight and yet costs a KL. At initialisation the shift is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.batch import PAD
from latentheads.distributions.heads import HeadContext, HeadVariable
from latentheads.families.family import Dependence, Family
from latentheads.layers.numeric import full_precision
from latentheads.layers.output import RowOutput
from latentheads.layers.target_encoder import TargetEncoder


class WordScores(nn.Module):
    """Computes the shift of the scores from the target; 0 at initialisation.

    The model's states and embeddings are detached: the posterior acts on the likelihood through the
    logits alone.

    Args:
        heads: Number of heads H of the block.
        width: Width of the states that enter the block.
        output: The output layer, whose rows embed the target tokens.
        target: Whether to condition on the whole target, not only on the prefix.
        size: Hidden width.
        rank: Rank of the shift, for each head.
    """

    def __init__(
        self,
        heads: int,
        width: int,
        output: RowOutput,
        target: bool,
        size: int = 64,
        rank: int = 4,
    ) -> None:
        super().__init__()
        self._output = (
            output,
        )  # a tuple, so that the model's layer is not a submodule of this one
        self.rank = rank
        self.state = nn.Linear(width, size)
        self.target = TargetEncoder(output.width, size) if target else None
        self.word = nn.Linear(size, heads * rank)
        self.position = nn.Linear(width, heads * rank)
        nn.init.zeros_(self.word.weight)
        nn.init.zeros_(self.word.bias)

    def forward(self, context: HeadContext) -> Float[Tensor, "*batch head query key"]:
        """Computes the shift of the scores."""
        weight = self.state.weight
        states = self.state(context.query.detach().to(weight.dtype))
        if self.target is not None:
            batch = context.batch
            assert batch is not None
            with torch.no_grad():
                target_embeddings = self._output[0].rows_of(batch.target).to(states.dtype)
            # context tokens condition the model and are not scored
            is_context = batch.target[:, : batch.context] != PAD
            target_states = self.target(
                target_embeddings, torch.cat([is_context, batch.scored_mask], 1)
            )
            # a decoder may be fed one token more, whose position predicts nothing
            states = states + F.pad(
                target_states, (0, 0, 0, states.shape[-2] - target_states.shape[-2])
            )
        word_factors = self._split(self.word(torch.tanh(states)))
        position_factors = self._split(self.position(context.key.detach().to(weight.dtype)))
        latent = context.mask.latent.unsqueeze(-3)
        shift = (word_factors @ position_factors.mT).to(context.scores.dtype) * latent
        mean = shift.sum(-1, keepdim=True) / latent.sum(-1, keepdim=True).clamp_min(1)
        return (shift - mean) * latent

    def _split(
        self, states: Float[Tensor, "*batch position features"]
    ) -> Float[Tensor, "*batch head position rank"]:
        return full_precision(states).unflatten(-1, (-1, self.rank)).transpose(-3, -2)

    @torch.no_grad()
    def prune(self, heads: Sequence[int]) -> None:
        """Removes the parameters of all other heads."""
        for layer in (self.word, self.position):
            for name, parameter in list(layer.named_parameters()):
                kept = parameter.unflatten(0, (-1, self.rank))[list(heads)].flatten(0, 1)
                setattr(layer, name, nn.Parameter(kept))
            layer.out_features = len(layer.bias)


class TargetConditioned(Family):
    """A family around scores that are shifted by the target."""

    def __init__(self, family: Family, scores: WordScores) -> None:
        super().__init__()
        self.family, self.scores = family, scores

    @property
    def dependence(self) -> Dependence:
        """The dependence of the family: the shift of a head has parameters of its own."""
        return self.family.dependence

    def prune(self, heads: Sequence[int]) -> None:
        self.family.prune(heads)
        self.scores.prune(heads)

    def forward(self, context: HeadContext) -> HeadVariable:
        return self.family(replace(context, scores=context.scores + self.scores(context)))
