"""The decoding state of alignments to a text's own past: one more key for each token."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.attention.reorder import reorder
from latentheads.latents.alignments.stack import AlignmentStack
from latentheads.latents.alignments.state import AlignmentState
from latentheads.latents.network import EncoderDecoderStates
from latentheads.latents.output_heads import DecomposableState, without_memory
from latentheads.layers.output import RowOutput


class PastAlignmentState(DecomposableState):
    """The decoding state of alignments that point at the text's own past.

    Every hypothesis has a past of its own, so each is stored like a sentence.
    """

    def __init__(self, aligner: AlignmentStack, output: RowOutput) -> None:
        self.aligner, self.output = aligner, output
        self._state: Any = None  # that of sentences; a subclass has its own
        self._shape = torch.Size()

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        if self._state is None or (sentences is None and hypotheses is None):
            return
        device = self._state.hidden.memory.device
        indices = torch.arange(self._shape.numel(), device=device).view(self._shape)
        selected = reorder(indices, sentences, hypotheses)
        self._shape = selected.shape
        self._state.select(selected.flatten())

    def scores(
        self,
        states: Float[Tensor, "sentence *hypothesis new dim"],
        tokens: Int[Tensor, "sentence *hypothesis new"],
    ) -> Float[Tensor, "sentence *hypothesis new vocab"]:
        """Score the vocabulary after each new token, and append the states as keys."""
        rows = states.flatten(0, -3)
        if self._state is None:
            self._state, self._shape = self._begin(rows), states.shape[:-2]
        words = tokens.flatten(0, -2)
        self._state.extend(rows, words)
        return self._state.scores(rows, words).view(*states.shape[:-1], -1)

    def decompose_uncertainty(
        self,
        probs: Float[Tensor, "sentence row vocab"],
        tokens: Int[Tensor, "sentence row"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self._state is None:
            raise ValueError("there are no alignments to compare: score tokens first")
        return self._state.decompose_uncertainty(probs, tokens)

    def _begin(self, rows: Float[Tensor, "text new dim"]) -> Any:
        """The state of empty texts: null is their only key."""
        empty = rows[:, :0]
        memory = self.aligner.prepend_null(empty)
        hidden = EncoderDecoderStates(
            empty, memory, memory.new_ones(len(rows), 1, 1, dtype=torch.bool)
        )
        return AlignmentState(self.aligner, hidden, self.output)


def begin_past_alignments(
    aligner: AlignmentStack, output: RowOutput, texts: int
) -> PastAlignmentState | AlignmentState:
    """Start decoding texts of a language model, whose heads point at the past or at components."""
    if aligner.components is None:
        return PastAlignmentState(aligner, output)
    states = without_memory(aligner.components.new_zeros(texts, 0, output.width))
    return AlignmentState(aligner, states, output)
