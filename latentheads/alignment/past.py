"""Texts that are decoded and point at their own past: their keys grow by one a token."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.alignment.aligner import Aligner, EncoderDecoderStates, without_memory
from latentheads.alignment.state import AlignmentState
from latentheads.attention.block import reorder
from latentheads.layers.output import RowOutput

__all__ = ["PastAlignmentState", "begin_past_alignments"]


class PastAlignmentState:
    """The state of alignments of texts that are decoded and point at their own past.

    Every hypothesis has a past of its own, so that each is kept as a sentence is.

    Args:
        aligner: The blocks.
        output: The layer that turns states into tokens.
    """

    def __init__(self, aligner: Aligner, output: RowOutput) -> None:
        self.aligner, self.output = aligner, output
        self._texts: AlignmentState | None = None
        self._shape = torch.Size()

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Keeps, repeats or reorders sentences, and the hypotheses of each."""
        if self._texts is None or (sentences is None and hypotheses is None):
            return
        device = self._texts.hidden.memory.device
        every = torch.arange(self._shape.numel(), device=device).view(self._shape)
        kept = reorder(every, sentences, hypotheses)
        self._shape = kept.shape
        self._texts.select(kept.flatten())

    def scores(
        self,
        states: Float[Tensor, "sentence *hypothesis new dim"],
        tokens: Int[Tensor, "sentence *hypothesis new"],
    ) -> Float[Tensor, "sentence *hypothesis new vocab"]:
        """Scores the vocabulary after each of further tokens, which are keys from then on.

        Args:
            states: What predicts the next tokens.
            tokens: Those that were fed to compute them.
        """
        rows = states.flatten(0, -3)
        if self._texts is None:
            self._texts, self._shape = self._begin(rows), states.shape[:-2]
        self._texts.extend(rows)
        return self._texts.scores(rows, tokens.flatten(0, -2)).view(*states.shape[:-1], -1)

    def disagree(
        self,
        law: Float[Tensor, "sentence row vocab"],
        words: Int[Tensor, "sentence row"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """How far the earlier words that heads may point at differ about the words scored last.

        See :meth:`latentheads.alignment.state.AlignmentState.disagree`.

        Args:
            law: The probabilities of the next words, whatever heads point at: what was scored.
            words: The words that came.
        """
        if self._texts is None:
            raise ValueError("there are no alignments that differ: score words first")
        return self._texts.disagree(law, words)

    def _begin(self, rows: Float[Tensor, "text new dim"]) -> AlignmentState:
        """Texts without a word yet: null is their only key."""
        none = rows[:, :0]
        memory = self.aligner.lead_by_null(none)
        hidden = EncoderDecoderStates(
            none, memory, memory.new_ones(len(rows), 1, 1, dtype=torch.bool)
        )
        return AlignmentState(self.aligner, hidden, self.output)


def begin_past_alignments(
    aligner: Aligner, output: RowOutput, texts: int
) -> PastAlignmentState | AlignmentState:
    """Starts texts of a language model, whose heads point back or, in a mixture, nowhere.

    Args:
        aligner: The blocks.
        output: The layer that turns states into tokens.
        texts: How many.
    """
    if aligner.components is None:
        return PastAlignmentState(aligner, output)
    nothing = without_memory(aligner.components.new_zeros(texts, 0, output.width))
    return AlignmentState(aligner, nothing, output)
