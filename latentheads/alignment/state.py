"""The state of alignment blocks while a batch is decoded word by word."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.alignment.aligner import Aligner, EncoderDecoderStates
from latentheads.alignment.bands import BandedNextTokenDistribution, make_next_token_distribution
from latentheads.alignment.chain import ChainParameters
from latentheads.alignment.distribution import NOWHERE
from latentheads.alignment.exact import block_tables, sum_of
from latentheads.alignment.next_token import NextTokenDistribution
from latentheads.attention.block import reorder
from latentheads.layers.numeric import exp
from latentheads.layers.output import RowOutput

__all__ = ["AlignmentState"]


class AlignmentState:
    """The state of alignments while a batch of sentences is decoded.

    Args:
        aligner: The blocks.
        hidden: What they may point at; the states are those of no token.
        output: The layer that turns states into tokens.
    """

    def __init__(self, aligner: Aligner, hidden: EncoderDecoderStates, output: RowOutput) -> None:
        self.aligner, self.output = aligner, output
        self.hidden = aligner.choose_memory(hidden)
        self.vectors = aligner.vectors(self.hidden.memory)
        self.dictionary = (
            None if aligner.soft else make_next_token_distribution(output, self.vectors)
        )
        self._last: tuple[Tensor, Tensor] | None = None
        self._scored: tuple[Tensor, Tensor] | None = None

    def extend(self, states: Float[Tensor, "sentence new dim"]) -> None:
        """Makes keys of the states of further words, each for the words behind it."""
        self._forget_keys()
        memory = torch.cat([self.hidden.memory, states], -2)
        keys, new = memory.shape[-2], states.shape[-2]
        last = torch.arange(keys - new - 1, keys - 1, device=states.device)
        readable = self.aligner.in_window(last.expand(len(states), -1), keys)
        self.hidden = EncoderDecoderStates(states, memory, readable)
        further = self.aligner.vectors_of_positions(states)
        pairs = zip(self.vectors, further, strict=True)
        self.vectors = [torch.cat(pair, -2) for pair in pairs]
        if self.dictionary is not None:
            self.dictionary.extend(further)
        if self._last is not None:
            before, law = self._last
            self._last = before, F.pad(law, (0, new), value=NOWHERE)

    def _forget_keys(self) -> None:
        """Drops the keys that lie in the window neither of the next word nor of the one before."""
        keys, window = self.hidden.memory.shape[-2], self.aligner.options.window
        if not window or keys <= window + 2:
            return
        every = torch.arange(keys, device=self.hidden.memory.device)
        near = torch.cat([every[:1], every[-window - 1 :]])
        memory = self.hidden.memory.index_select(-2, near)
        self.hidden = replace(self.hidden, memory=memory, readable=self.hidden.readable[..., near])
        self.vectors = [rows.index_select(-2, near) for rows in self.vectors]
        if self.dictionary is not None:
            self.dictionary.keep(near)
        if self._last is not None:
            before, law = self._last
            self._last = before, law.index_select(-1, near)

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Keeps, repeats or reorders sentences, and the hypotheses of each."""
        if self._last is not None:
            states, prior = (reorder(each, sentences, hypotheses) for each in self._last)
            self._last = states, prior
        if sentences is None:
            return
        hidden = self.hidden
        parts = (hidden.states, hidden.memory, hidden.readable)
        states, memory, readable = (part.index_select(0, sentences) for part in parts)
        self.hidden = replace(self.hidden, states=states, memory=memory, readable=readable)
        self.vectors = [each.index_select(0, sentences) for each in self.vectors]
        if self.dictionary is not None:
            self.dictionary.select(sentences)

    def scores(
        self,
        states: Float[Tensor, "sentence *hypothesis new dim"],
        tokens: Int[Tensor, "sentence *hypothesis new"],
    ) -> Float[Tensor, "sentence *hypothesis new vocab"]:
        """Scores the vocabulary after each of further tokens, whatever heads point at.

        Args:
            states: What predicts the next tokens.
            tokens: Those that were fed to compute them.
        """
        rows = states.flatten(1, -2)
        hidden = EncoderDecoderStates(rows, self.hidden.memory, self.hidden.readable)
        aligned = self.aligner.prepare(hidden, None, self.output, self.vectors)
        if self.dictionary is None:
            return self.output(aligned.softened()).view(*states.shape[:-1], -1)
        prior = aligned.priors[0]
        if isinstance(prior, ChainParameters):
            law = self._walk(states, tokens, prior, self.dictionary)
        else:
            law = sum_of(block_tables(aligned.priors))
        self._scored = rows, law
        return self.dictionary.log_probs(rows, law).view(*states.shape[:-1], -1)

    def disagree(
        self,
        law: Float[Tensor, "sentence row vocab"],
        words: Int[Tensor, "sentence row"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """How far the positions that heads may point at differ about the words scored last.

        No alignment is drawn: each figure is a mean over all of them.

        Args:
            law: The probabilities of the next words, whatever heads point at: what was scored.
            words: The words that came.

        Returns:
            Of every row the mean entropy of the word given where heads point, its mean
            log-probability, and the mean KL from its law to that given where they point.

        Raises:
            ValueError: Nothing was scored yet, or heads are not drawn.
        """
        if self.dictionary is None or self._scored is None:
            raise ValueError("there are no alignments that differ: score words first")
        rows, log_prior = self._scored
        prior = exp(log_prior)
        entropies = self.dictionary.word_entropies(rows)
        came = self.dictionary.word_log_probs(rows, words)
        meant = self.dictionary.mean_log_probs(rows, law)
        means = ((prior * each).flatten(2).sum(-1) for each in (entropies, came, meant))
        data, mean_log, cross = means
        return data, mean_log, torch.xlogy(law, law).sum(-1) - cross

    def _walk(
        self,
        states: Tensor,
        tokens: Tensor,
        prior: ChainParameters,
        dictionary: NextTokenDistribution | BandedNextTokenDistribution,
    ) -> Float[Tensor, "sentence row key"]:
        """Where each next word may point, given the words before it: the forward algorithm."""
        shape = (len(states), -1, states.shape[-2])  # sentence, hypothesis, new
        rows, fed = states.reshape(*shape, states.shape[-1]), tokens.reshape(shape)
        scores = prior.scores[:, :, 0].view(*rows.shape[:-1], -1)
        found = []
        for new in range(shape[-1]):
            if self._last is None:
                law = scores[:, :, new].log_softmax(-1)
            else:
                before, law = self._last
                law = (law + dictionary.word_log_probs(before, fed[..., new])).log_softmax(-1)
                moves = (scores[:, :, new, None] + prior.steps).log_softmax(-1)
                law = (law[..., None] + moves).logsumexp(-2)
            self._last = rows[:, :, new], law
            found.append(law)
        return torch.stack(found, 2).flatten(1, 2)
