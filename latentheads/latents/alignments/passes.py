"""One pass through alignment blocks: its sums over alignments, and the tokens given a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pyro.poutine import Trace
from torch import Tensor

from latentheads.batch import Batch
from latentheads.distributions.tokens import Tokens, make_token_distribution
from latentheads.latents.alignments.bands import compute_emission_log_probs
from latentheads.latents.alignments.chain import ChainInference
from latentheads.latents.alignments.distribution import Alignments, CategoricalParameters
from latentheads.latents.alignments.emission import EmissionRequest
from latentheads.latents.alignments.enumeration import enumerate_alignments
from latentheads.latents.alignments.exact import (
    ExactInference,
    IndependentWords,
    block_log_probs,
    broadcast_sum,
)
from latentheads.latents.alignments.loss_terms import alignment_loss_terms
from latentheads.latents.network import EncoderDecoderStates
from latentheads.latents.summed_out import Enumeration, SummedOut
from latentheads.latents.token_cache import TokenCache
from latentheads.layers.numeric import full_precision, softmax
from latentheads.layers.output import RowOutput
from latentheads.names import ALIGNED_POSITION, Block


@dataclass(frozen=True)
class AlignmentPass:
    """One pass through the alignment blocks.

    Attributes:
        hidden: The network's states of the scored tokens.
        valid: True at real tokens.
        priors: The parameters of every block's prior, from the lowest.
        vectors: The vector that each position adds to a state, for each head.
        output: The output layer.
        autocast: Whether autocast is enabled, and its dtype.
        smoothing: Label smoothing in training.
        cache: Results of :meth:`exact_inference`.
        inputs: What posteriors read, which is the same for all blocks, each with its batch and the
            heads of the blocks that have read it.
    """

    hidden: EncoderDecoderStates
    valid: Bool[Tensor, "*valid target"]
    priors: Sequence[CategoricalParameters]
    vectors: Sequence[Float[Tensor, "*memory key dim"]]
    output: RowOutput
    autocast: tuple[bool, torch.dtype]
    smoothing: float = 0.0
    cache: TokenCache[ExactInference] = field(default_factory=TokenCache)
    inputs: dict[Any, tuple[Batch, Any, tuple[range, ...]]] = field(default_factory=dict)

    def aligned_states(
        self, alignments: Int[Tensor, "*sample target head"]
    ) -> Float[Tensor, "*out target dim"]:
        """The states plus the vectors of the aligned positions."""
        states = self.hidden.states
        for head, vectors in enumerate(self.vectors):
            positions = alignments[..., head]
            shape = torch.broadcast_shapes(positions.shape[:-1], vectors.shape[:-2])
            rows = vectors.expand(*shape, *vectors.shape[-2:])
            index = positions.expand(*shape, -1).unsqueeze(-1).expand(*shape, -1, rows.shape[-1])
            states = states + rows.gather(-2, index)
        return states

    def soft_states(self) -> Float[Tensor, "*batch target dim"]:
        """The states plus each head's mean vector under its prior scores: soft attention."""
        states = self.hidden.states
        heads = [scores for prior in self.priors for scores in prior.scores.unbind(-2)]
        for scores, vectors in zip(heads, self.vectors, strict=True):
            states = states + softmax(scores).to(vectors.dtype) @ vectors
        return states

    def soft_log_prob(self, tokens: Int[Tensor, "*words target"]) -> Float[Tensor, "*batch target"]:
        """Log-probability of every token under soft attention by the heads' prior scores."""
        distribution = make_token_distribution(
            self.soft_states(), self.valid, self.output, self.smoothing
        )
        return distribution.token_log_prob(tokens)

    def evidence(
        self, tokens: Int[Tensor, "*words target"], rows: Float[Tensor, "*words target dim"]
    ) -> list[Float[Tensor, "*out target key"]]:
        """How well each position explains each token, for each head; detached.

        Args:
            tokens: The tokens.
            rows: Their rows of the output layer.
        """
        wide_rows = full_precision(rows.detach())
        with torch.autocast(wide_rows.device.type, enabled=False):  # like the emissions
            return [wide_rows @ full_precision(vectors.detach()).mT for vectors in self.vectors]

    def exact_inference(
        self,
        tokens: Int[Tensor, "*words target"],
        posterior: Sequence[CategoricalParameters] | None = None,
    ) -> ExactInference:
        """Exact inference over all alignments, given the tokens; cached.

        Args:
            tokens: The tokens.
            posterior: The posterior of every block, if the loss is the expectation under it; None
                if it is the marginal likelihood. It only selects which gradient is precomputed.
        """

        def compute() -> ExactInference:
            enabled, dtype = self.autocast
            with torch.autocast(tokens.device.type, dtype, enabled):
                return self.infer(tokens, posterior)

        return self.cache.get(tokens, compute)

    def infer(
        self,
        tokens: Int[Tensor, "*words target"],
        posterior: Sequence[CategoricalParameters] | None = None,
    ) -> ExactInference:
        """Exact inference, not cached; see :meth:`exact_inference`."""
        return self.inference_from(self.emission_log_probs(tokens, posterior))

    def inference_from(self, emissions: Float[Tensor, "*table"]) -> ExactInference:
        """Exact inference over all alignments, from the emissions."""
        valid = self.valid.expand(self.hidden.states.shape[:-1])
        inference_class = ChainInference if self.priors[0].chained else IndependentWords
        return inference_class(self.priors, emissions, valid)

    def emission_log_probs(
        self,
        tokens: Int[Tensor, "*words target"],
        posterior: Sequence[CategoricalParameters] | None = None,
    ) -> Float[Tensor, "*table"]:
        """Log-probability of every token for all positions; see :meth:`exact_inference`."""
        states = self.hidden.states
        shape = states.shape[:-2]
        flat_vectors = [
            vectors.expand(*shape, *vectors.shape[-2:]).flatten(0, -3) for vectors in self.vectors
        ]
        flat_states = states.flatten(0, -3)
        flat_tokens = tokens.expand(states.shape[:-1]).flatten(0, -2)
        if self.hidden.window and len(flat_vectors) > 1:  # not faster for one head
            return self._windowed_emissions(flat_states, flat_vectors, flat_tokens).unflatten(
                0, shape
            )
        request = self._emission_request(posterior)
        log_probs = compute_emission_log_probs(
            self.output, flat_states, flat_vectors, flat_tokens, request, self.smoothing
        )
        return log_probs.unflatten(0, shape)

    def _emission_request(
        self, posterior: Sequence[CategoricalParameters] | None
    ) -> EmissionRequest | None:
        """The gradient to precompute; None without gradients, or in a chain."""
        parameters = self.priors if posterior is None else posterior
        if self.priors[0].chained or not torch.is_grad_enabled():
            return None
        with torch.no_grad():
            log_probs = broadcast_sum(block_log_probs(parameters))
        shape, heads = self.hidden.states.shape[:-1], len(self.vectors)
        log_probs = log_probs.expand(*shape, *log_probs.shape[-heads:]).flatten(0, -2 - heads)
        valid = self.valid.expand(shape).flatten(0, -2)
        return EmissionRequest(log_probs, valid, posterior is None)

    def _windowed_emissions(
        self,
        states: Float[Tensor, "sentence target dim"],
        vectors: Sequence[Float[Tensor, "sentence key dim"]],
        tokens: Int[Tensor, "sentence target"],
    ) -> Float[Tensor, "sentence target *keys"]:
        """Emissions with a short window: a chunk of tokens at a time, with the keys in its windows.

        Keys outside the window get the value of null; no head points there.
        """
        parts, step = [], self.hidden.window
        for start in range(0, states.shape[1], step):
            chunk = slice(start, min(start + step, states.shape[1]))
            keys, indices = _window_keys(self.hidden, chunk)
            rows = [vector.index_select(1, keys) for vector in vectors]
            inputs = states[:, chunk], rows, tokens[:, chunk]
            log_probs = compute_emission_log_probs(self.output, *inputs, smoothing=self.smoothing)
            for dim in range(2, log_probs.ndim):
                log_probs = log_probs.index_select(dim, indices)
            parts.append(log_probs)
        return torch.cat(parts, 1)


def _window_keys(hidden: EncoderDecoderStates, tokens: slice) -> tuple[Tensor, Tensor]:
    """The keys in the windows of some tokens, and the index of every key among them.

    Keys outside all windows get the index of null, which is 0.
    """
    keys, device = hidden.memory.shape[-2], hidden.memory.device
    context = keys - hidden.states.shape[-2]
    low, high = max(1, context + tokens.start + 1 - hidden.window), context + tokens.stop
    all_keys = torch.arange(keys, device=device)
    in_window = (all_keys >= low) & (all_keys < high)
    return torch.cat([all_keys[:1], all_keys[low:high]]), in_window * (all_keys - low + 1)


class AlignedTokens(Tokens, SummedOut):
    """The tokens of a sentence given sampled alignments.

    :meth:`exact_inference` sums over all alignments instead.

    Attributes:
        latent_class: The distribution of alignments at their own sites.
    """

    latent_class: ClassVar[type] = Alignments

    def __init__(
        self, alignment_pass: AlignmentPass, alignments: Int[Tensor, "*sample target head"]
    ) -> None:
        self.alignment_pass, self.alignments = alignment_pass, alignments
        self.smoothing = alignment_pass.smoothing
        super().__init__(
            alignment_pass.aligned_states(alignments), alignment_pass.valid, alignment_pass.output
        )

    def exact_inference(
        self,
        tokens: Int[Tensor, "*words target"],
        posterior: Sequence[CategoricalParameters] | None = None,
    ) -> ExactInference:
        """Exact inference over all alignments; see :meth:`AlignmentPass.exact_inference`."""
        return self.alignment_pass.exact_inference(tokens, posterior)

    def given(self, alignments: Int[Tensor, "*sample target head"]) -> AlignedTokens:
        """The tokens of the same pass given other alignments."""
        return type(self)(self.alignment_pass, alignments)

    def log_evidence(self, tokens: Int[Tensor, "*words target"]) -> Float[Tensor, "*batch"]:
        return self.exact_inference(tokens).log_evidence

    def enumerate_latents(self, model_trace: Trace, guide_trace: Trace) -> Enumeration:
        return enumerate_alignments(model_trace, guide_trace)

    def loss_terms(
        self, model_trace: Trace, guide_trace: Trace, objective: str, num_samples: int
    ) -> tuple[Tensor, Mapping[str, Tensor], bool]:
        """The terms of a training objective; see :func:`alignment_loss_terms`."""
        return alignment_loss_terms(model_trace, guide_trace, objective, num_samples)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> AlignedTokens:
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        return type(self)(
            self.alignment_pass, self.alignments.expand(*batch_shape, *self.alignments.shape[-2:])
        )


@dataclass(frozen=True)
class AlignmentContext:
    """What a posterior of a block of alignments may condition on.

    Attributes:
        block: The address of the block.
        index: The index of the block, from the lowest.
        alignment_pass: The pass: states, memory, and the priors of all blocks.
        latent: The latent of the block's site.
    """

    block: Block
    index: int
    alignment_pass: AlignmentPass
    latent: str = ALIGNED_POSITION

    @property
    def site(self) -> str:
        """The site of the block."""
        return self.block.site(self.latent)

    @property
    def prior(self) -> CategoricalParameters:
        """The prior of this block."""
        return self.alignment_pass.priors[self.index]
