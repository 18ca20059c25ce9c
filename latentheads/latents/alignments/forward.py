"""The forward algorithm of a chain, over tokens that come one after another in decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.attention.reorder import reorder
from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.distribution import NOWHERE


class ForwardAlgorithm:
    """The log-prior of each token's position given the tokens before.

    Args:
        emissions: The log-probability of a token for all positions, given what is kept of the state
            that predicted it.
    """

    def __init__(
        self, emissions: Callable[[Sequence[Tensor], Tensor], Float[Tensor, "*batch key"]]
    ) -> None:
        self._emissions = emissions
        self._kept: list[Tensor] = []
        self._log_probs: Tensor | None = None

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None,
    ) -> None:
        """Select, repeat or reorder sentences, and the hypotheses of each."""
        if self._log_probs is not None:
            self._kept = [reorder(value, sentences, hypotheses) for value in self._kept]
            self._log_probs = reorder(self._log_probs, sentences, hypotheses)

    def extend(self, keys: int) -> None:
        """Append keys, at which no earlier token points."""
        if self._log_probs is not None:
            self._log_probs = F.pad(self._log_probs, (0, keys), value=NOWHERE)

    def keep_keys(self, keys: Int[Tensor, " kept"]) -> None:
        """Drop all other keys."""
        if self._log_probs is not None:
            self._log_probs = self._log_probs.index_select(-1, keys)

    def __call__(
        self, prior: ChainParameters, tokens: Int[Tensor, "sentence *hypothesis new"], *kept: Tensor
    ) -> Float[Tensor, "sentence row key"]:
        """Advance by some tokens.

        Args:
            prior: The prior of the positions of the next tokens, a row for each hypothesis and new
                token.
            tokens: The input tokens: what followed the states before.
            *kept: What is kept of the states that predict the next tokens, rows like the prior's.
        """
        shape = (len(tokens), -1, tokens.shape[-1])  # sentence, hypothesis, new
        words = tokens.reshape(shape)
        scores = prior.scores[:, :, 0].view(*words.shape, -1)
        rows = [value.reshape(*words.shape, -1) for value in kept]
        log_priors = []
        for step in range(shape[-1]):
            if self._log_probs is None:
                log_probs = scores[:, :, step].log_softmax(-1)
            else:
                emissions = self._emissions(self._kept, words[..., step])
                log_probs = (self._log_probs + emissions).log_softmax(-1)
                transitions = (scores[:, :, step, None] + prior.transition_scores).log_softmax(-1)
                log_probs = (log_probs[..., None] + transitions).logsumexp(-2)
            self._kept, self._log_probs = [value[:, :, step] for value in rows], log_probs
            log_priors.append(log_probs)
        return torch.stack(log_priors, 2).flatten(1, 2)
