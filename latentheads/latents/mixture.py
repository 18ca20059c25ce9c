"""A latent that is a mixture of whole passes of the network, in decoding token by token.

All components are decoded side by side: each sentence is repeated for every one of them. The
distribution of the next token is their mixture, weighted by the prior of a component and its
probability of the tokens before, so that it is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.attention.reorder import reorder
from latentheads.batch import Batch
from latentheads.latents.network import Choice
from latentheads.layers.numeric import full_precision

CHUNK = {"cpu": 2**19, "cuda": 2**27}
"""Scores that are mixed at a time: on a CPU they fit into a core's cache."""


@dataclass
class PassMixture:
    """The components of a mixture, and their weights given the tokens so far.

    Attributes:
        log_prior: Log-probability of every component, the same for all sentences or of each.
        gates: The gates of heads in every component, by block.
        sentences: Number of sentences.
        log_weights: Log-posterior of every component given the tokens so far, of every sentence and
            hypothesis.
        log_probs: Log-probabilities of the next token under every component, in the order of the
            last step; None before the first.
        rows: The row of ``log_probs`` of every sentence and hypothesis. Only one token of each row
            is read, so that reordering the table itself would cost more than all else.
    """

    log_prior: Float[Tensor, "*sentence component"]
    gates: Mapping[str, Float[Tensor, "component head"]]
    sentences: int
    log_weights: Float[Tensor, "sentence *hypothesis component"] | None = None
    log_probs: Float[Tensor, "row component vocab"] | None = None
    rows: Int[Tensor, sentence * hypothesis] | None = None

    @property
    def size(self) -> int:
        """Number of components."""
        return self.log_prior.shape[-1]

    def choices(self) -> dict[str, Choice]:
        """The active heads of every repeated sentence."""
        return {n: Choice(gates.repeat(self.sentences, 1)) for n, gates in self.gates.items()}

    def expand(self, rows: Tensor) -> Tensor:
        """Repeats every sentence for all components, one after the other."""
        return rows.repeat_interleave(self.size, 0)

    def expand_batch(self, batch: Batch) -> Batch:
        """Repeats every sentence of a batch."""
        values = {field.name: getattr(batch, field.name) for field in fields(batch)}
        tensors: dict[str, Any] = {
            n: self.expand(value) for n, value in values.items() if isinstance(value, Tensor)
        }
        return replace(batch, **{**tensors, "index": None, "corpus_size": 0})

    def expand_index(self, sentences: Int[Tensor, " kept"]) -> Int[Tensor, " rows"]:
        """The rows of all components of some sentences."""
        components = torch.arange(self.size, device=sentences.device)
        return (sentences[:, None] * self.size + components).flatten()

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Selects, repeats or reorders sentences and hypotheses.

        Args:
            sentences: The sentences to keep; None: all, unchanged.
            hypotheses: The hypotheses to keep of each of these; None: all, unchanged.
        """
        if sentences is not None and self.log_prior.ndim > 1:
            self.log_prior = self.log_prior.index_select(0, sentences)
        if self.log_weights is not None:
            self.log_weights = reorder(self.log_weights, sentences, hypotheses)
        if self.rows is not None:
            self.rows = reorder(self.rows, sentences, hypotheses)

    def mix(
        self,
        scores: Float[Tensor, "rows *hypothesis new vocab"],
        tokens: Int[Tensor, "sentence *hypothesis new"],
    ) -> Float[Tensor, "sentence *hypothesis new vocab"]:
        """Log-probabilities of the vocabulary after each new token."""
        by_component = scores.unflatten(0, (-1, self.size))
        by_component = by_component.movedim(1, -3)  # sentence, hypotheses, component, new, vocab
        mixed: list[Any] = []
        for position, token in enumerate(tokens.unbind(-1)):
            # normalised at each token: a sum over a long text would lose its digits
            self.log_weights = log_weights = self._weigh(token).log_softmax(-1)
            rows = by_component[..., position, :].flatten(0, -3)
            few = max(1, CHUNK.get(scores.device.type, CHUNK["cuda"]) // rows[0].numel())
            parts = zip(log_weights.flatten(0, -2).split(few), rows.split(few), strict=True)
            log_probs, of_rows = zip(*map(_mix, parts), strict=True)
            self.log_probs = torch.cat(log_probs)
            self.rows = torch.arange(len(rows), device=token.device).view(token.shape)
            mixed.append(torch.cat(of_rows).view(*token.shape, -1))
        return torch.stack(mixed, -2)

    def _weigh(
        self, token: Int[Tensor, sentence * hypothesis]
    ) -> Float[Tensor, sentence * hypothesis * component]:
        """Multiplies the weights by the probability of a token; the first token is given."""
        if self.log_weights is None or self.log_probs is None or self.rows is None:
            sentences = self.log_prior.shape[:-1]
            prior = self.log_prior.view(*sentences, *(1,) * (token.ndim - 1), self.size)
            return prior.expand(*token.shape, self.size)
        of_token = self.log_probs[self.rows.expand(token.shape), :, token]
        return self.log_weights + of_token


def _mix(
    part: tuple[Float[Tensor, "row component"], Float[Tensor, "row component vocab"]],
) -> tuple[Float[Tensor, "row component vocab"], Float[Tensor, "row vocab"]]:
    """The log-probabilities of some rows, and the logarithm of their weighted mean."""
    log_weights, scores = part
    log_probs = full_precision(scores).log_softmax(-1)
    return log_probs, (log_weights[..., None] + log_probs).logsumexp(-2)
