"""The decoding state of alignment blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.latents.alignments.bands import make_next_token_distribution
from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.exact import block_log_probs, broadcast_sum
from latentheads.latents.alignments.forward import ForwardAlgorithm
from latentheads.latents.alignments.stack import AlignmentStack
from latentheads.latents.network import EncoderDecoderStates
from latentheads.latents.output_heads import DecomposableState
from latentheads.layers.numeric import exp
from latentheads.layers.output import RowOutput


class AlignmentState(DecomposableState):
    """The decoding state of alignments, for a batch of sentences.

    Args:
        aligner: The alignment blocks.
        hidden: The memory that heads may point at; its states have length 0.
        output: The output layer.
    """

    def __init__(
        self, aligner: AlignmentStack, hidden: EncoderDecoderStates, output: RowOutput
    ) -> None:
        self.aligner, self.output = aligner, output
        self.hidden = aligner.choose_memory(hidden)
        self._keys = aligner.keys(self.hidden.memory)
        self.vectors = aligner.vectors(self.hidden.memory)
        self.next_token = (
            None if aligner.soft else make_next_token_distribution(output, self.vectors)
        )
        self._forward = ForwardAlgorithm(self._emissions)
        self._scored: tuple[Tensor, Tensor] | None = None

    def extend(
        self, states: Float[Tensor, "sentence new dim"], tokens: Int[Tensor, "sentence new"]
    ) -> None:
        """Append states as keys that later tokens may point at, whatever their input tokens."""
        self._drop_keys_outside_window()
        memory = torch.cat([self.hidden.memory, states], -2)
        keys, new = memory.shape[-2], states.shape[-2]
        last_key = torch.arange(keys - new - 1, keys - 1, device=states.device)
        attn_mask = self.aligner.window_mask(last_key.expand(len(states), -1), keys)
        self.hidden = EncoderDecoderStates(states, memory, attn_mask)
        self._keys = [torch.cat(pair, -3) for pair in zip(self._keys, self.aligner.keys(states))]
        vectors = self.aligner.position_vectors(states)
        pairs = zip(self.vectors, vectors, strict=True)
        self.vectors = [torch.cat(pair, -2) for pair in pairs]
        if self.next_token is not None:
            self.next_token.extend(vectors)
        self._forward.extend(new)

    def _drop_keys_outside_window(self) -> None:
        """Drop the keys that neither the next token nor the previous one may point at."""
        keys, window = self.hidden.memory.shape[-2], self.aligner.window
        if not window or keys <= window + 2:
            return
        all_keys = torch.arange(keys, device=self.hidden.memory.device)
        # null, which is key 0, always stays
        kept = torch.cat([all_keys[:1], all_keys[-window - 1 :]])
        memory = self.hidden.memory.index_select(-2, kept)
        self.hidden = replace(
            self.hidden, memory=memory, attn_mask=self.hidden.attn_mask[..., kept]
        )
        self._keys = [rows.index_select(-3, kept) for rows in self._keys]
        self.vectors = [rows.index_select(-2, kept) for rows in self.vectors]
        if self.next_token is not None:
            self.next_token.keep_positions(kept)
        self._forward.keep_keys(kept)

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        self._forward.select(sentences, hypotheses)
        if sentences is None:
            return
        hidden = self.hidden
        parts = (hidden.states, hidden.memory, hidden.attn_mask)
        states, memory, attn_mask = (value.index_select(0, sentences) for value in parts)
        self.hidden = replace(self.hidden, states=states, memory=memory, attn_mask=attn_mask)
        self._keys = [value.index_select(0, sentences) for value in self._keys]
        self.vectors = [value.index_select(0, sentences) for value in self.vectors]
        if self.next_token is not None:
            self.next_token.select(sentences)

    def scores(
        self,
        states: Float[Tensor, "sentence *hypothesis new dim"],
        tokens: Int[Tensor, "sentence *hypothesis new"],
    ) -> Float[Tensor, "sentence *hypothesis new vocab"]:
        rows = states.flatten(1, -2)
        hidden = EncoderDecoderStates(rows, self.hidden.memory, self.hidden.attn_mask)
        alignment_pass = self.aligner.prepare(
            hidden, None, self.output, self.vectors, keys=self._keys
        )
        if self.next_token is None:
            return self.output(alignment_pass.soft_states()).view(*states.shape[:-1], -1)
        prior = alignment_pass.priors[0]
        if isinstance(prior, ChainParameters):
            log_prior = self._forward(prior, tokens, rows)
        else:
            log_prior = broadcast_sum(block_log_probs(alignment_pass.priors))
        self._scored = rows, log_prior
        return self.next_token.log_probs(rows, log_prior).view(*states.shape[:-1], -1)

    def decompose_uncertainty(
        self,
        probs: Float[Tensor, "sentence row vocab"],
        tokens: Int[Tensor, "sentence row"],
    ) -> tuple[Tensor, Tensor, Tensor]:
        # nothing is sampled: each value is an expectation over all alignments
        if self.next_token is None or self._scored is None:
            raise ValueError("there are no alignments to compare: score tokens first")
        rows, log_prior = self._scored
        prior = exp(log_prior)
        entropies = self.next_token.word_entropies(rows)
        log_probs = self.next_token.word_log_probs(rows, tokens)
        mean_log_probs = self.next_token.mean_log_probs(rows, probs)
        means = (
            (prior * values).flatten(2).sum(-1) for values in (entropies, log_probs, mean_log_probs)
        )
        aleatoric, mean_log, cross_entropy = means
        return aleatoric, mean_log, torch.xlogy(probs, probs).sum(-1) - cross_entropy

    def _emissions(self, kept: Sequence[Tensor], tokens: Tensor) -> Tensor:
        """Log-probability of tokens for all positions."""
        assert self.next_token is not None
        (states,) = kept
        return self.next_token.word_log_probs(states, tokens)
