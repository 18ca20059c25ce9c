r"""A posterior of logits that is told a text: its scores are moved by what each word says.

.. math:: c_{htk} + \delta_{htk} - \operatorname{mean}_k \delta_{htk},
    \qquad \delta_{htk} = u_{ht}^\top w_{hk}

u is made of the word and w of the position, a few numbers each. A row is moved by 0 on average,
since what is added to all of its logits changes no weight of attention and costs a KL all the same.
At the start nothing is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.batch import PAD
from latentheads.distributions import HeadContext, HeadVariable
from latentheads.families.family import Family
from latentheads.families.location import Dependence
from latentheads.layers.numeric import full_precision
from latentheads.layers.output import RowOutput
from latentheads.layers.target_encoder import TargetEncoder

__all__ = ["TargetConditioned", "WordScores"]


class WordScores(nn.Module):
    """What a word says of every position; nothing at the start.

    What it takes of the model is detached: it reaches the likelihood through the logits alone.

    Args:
        heads: Number of heads H of the block.
        width: Width of the states that the block reads.
        output: Its rows stand for the words.
        target: Whether the whole target is read, not the words before alone.
        size: Its own width.
        rank: Numbers that a word and a position have for each head.
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
        self._output = (output,)  # the model's own, and so no part of this
        self.rank = rank
        self.state = nn.Linear(width, size)
        self.target = TargetEncoder(output.width, size) if target else None
        self.word = nn.Linear(size, heads * rank)
        self.position = nn.Linear(width, heads * rank)
        nn.init.zeros_(self.word.weight)
        nn.init.zeros_(self.word.bias)

    def forward(self, context: HeadContext) -> Float[Tensor, "*batch head query key"]:
        """What the scores are moved by."""
        weight = self.state.weight
        states = self.state(context.query.detach().to(weight.dtype))
        if self.target is not None:
            batch = context.batch
            assert batch is not None
            with torch.no_grad():
                target_embeddings = self._output[0].rows_of(batch.target).to(states.dtype)
            is_context = batch.target[:, : batch.context] != PAD  # read, and not scored
            target_states = self.target(
                target_embeddings, torch.cat([is_context, batch.counted], 1)
            )
            # behind the last token a decoder may read one more, which predicts nothing
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
        self, states: Float[Tensor, "*batch place number"]
    ) -> Float[Tensor, "*batch head place rank"]:
        return full_precision(states).unflatten(-1, (-1, self.rank)).transpose(-3, -2)

    @torch.no_grad()
    def prune(self, heads: Sequence[int]) -> None:
        """Forgets what belongs to other heads."""
        for layer in (self.word, self.position):
            for name, parameter in list(layer.named_parameters()):
                kept = parameter.unflatten(0, (-1, self.rank))[list(heads)].flatten(0, 1)
                setattr(layer, name, nn.Parameter(kept))
            layer.out_features = len(layer.bias)


class TargetConditioned(Family):
    """A family around scores that a text has moved.

    Args:
        family: What it is without the text.
        scores: What the text says.
    """

    def __init__(self, family: Family, scores: WordScores) -> None:
        super().__init__()
        self.family, self.scores = family, scores

    @property
    def dependence(self) -> Dependence:
        """That of the family: a head is moved by what words say to it alone."""
        return self.family.dependence

    def prune(self, heads: Sequence[int]) -> None:
        """Forgets what belongs to other heads."""
        self.family.prune(heads)
        self.scores.prune(heads)

    def forward(self, context: HeadContext) -> HeadVariable:
        """The family's law around the moved scores."""
        return self.family(replace(context, scores=context.scores + self.scores(context)))
