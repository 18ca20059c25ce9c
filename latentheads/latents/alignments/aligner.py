"""All alignment blocks of a model, and one pass through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pyro
import torch
from jaxtyping import Bool, Float, Int
from pyro.poutine import Trace
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.distributions import Tokens, make_token_distribution
from latentheads.latents.alignments.bands import compute_emission_log_probs
from latentheads.latents.alignments.block import AlignmentBlock
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
from latentheads.latents.alignments.nearest_product import nearest_product
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.alignments.past import begin_past_alignments
from latentheads.latents.alignments.posterior import AlignmentPosterior, with_parameters
from latentheads.latents.alignments.state import AlignmentState
from latentheads.latents.latent import ConditionOn, Structure
from latentheads.latents.output_heads import (
    EncoderDecoderStates,
    OutputHeads,
    OutputState,
    without_memory,
)
from latentheads.latents.summed_out import Enumeration, SummedOut
from latentheads.layers.numeric import full_precision, softmax
from latentheads.layers.output import RowOutput
from latentheads.names import ALIGNED_POSITION, ALIGNMENT, Block

if TYPE_CHECKING:
    from latentheads.batch import Batch
    from latentheads.model import HeadModel


NULL = "null"
"""The label of the position at which a language model's alignment head points at no word."""


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
        cache: Results of :meth:`exact_inference`, each with its tokens.
    """

    hidden: EncoderDecoderStates
    valid: Bool[Tensor, "*valid target"]
    priors: Sequence[CategoricalParameters]
    vectors: Sequence[Float[Tensor, "*memory key dim"]]
    output: RowOutput
    autocast: tuple[bool, torch.dtype]
    smoothing: float = 0.0
    cache: dict[Any, tuple[Tensor, ExactInference]] = field(default_factory=dict)

    @cached_property
    def product_scores(self) -> list[Float[Tensor, "*batch target head key"]]:
        """The scores of every block in the product that is nearest to the prior; detached."""
        return nearest_product(self.priors, self.valid)

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
        # the key holds the tokens' address; the cache keeps them alive, so that it stays theirs
        version = 0 if tokens.is_inference() else tokens._version
        key = tokens.data_ptr(), tokens.shape, version, torch.is_grad_enabled()
        if key not in self.cache:
            enabled, dtype = self.autocast
            with torch.autocast(tokens.device.type, dtype, enabled):
                self.cache[key] = tokens, self.infer(tokens, posterior)
        return self.cache[key][1]

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
            keys, indices = self.hidden.window_keys(chunk.start, chunk.stop)
            rows = [vector.index_select(1, keys) for vector in vectors]
            inputs = states[:, chunk], rows, tokens[:, chunk]
            log_probs = compute_emission_log_probs(self.output, *inputs, smoothing=self.smoothing)
            for dim in range(2, log_probs.ndim):
                log_probs = log_probs.index_select(dim, indices)
            parts.append(log_probs)
        return torch.cat(parts, 1)


class AlignedTokens(Tokens, SummedOut):
    """The tokens of a sentence given sampled alignments.

    :meth:`exact_inference` sums over all alignments instead.

    Attributes:
        latent_class: The distribution of alignments at their own sites.

    Args:
        alignment_pass: The pass.
        alignments: The alignments of all heads.
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
        """Exact log p(y | x) of every sentence, given all other latents."""
        return self.exact_inference(tokens).log_evidence

    def enumerate_latents(self, model_trace: Trace, guide_trace: Trace) -> Enumeration:
        """Enumerate the alignments of a pass."""
        return enumerate_alignments(model_trace, guide_trace)

    def loss_terms(
        self, model_trace: Trace, guide_trace: Trace, objective: str, num_samples: int
    ) -> tuple[Tensor, Mapping[str, Tensor], bool]:
        """The terms of a training objective; see :func:`alignment_loss_terms`."""
        return alignment_loss_terms(model_trace, guide_trace, objective, num_samples)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> AlignedTokens:
        """Add batch dimensions in front."""
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


class Aligner(OutputHeads):
    """The stack of alignment blocks above a decoder.

    Args:
        options: Number and form of the blocks.
        width: Model width.
        probability: Dropout of the inputs of the heads' vectors.
        past: Whether heads point at the states of earlier tokens, or at null, whose vector is 0.

    Attributes:
        null: The state in front of those of earlier tokens; None if heads do not point at them.
        components: Learned vectors that heads choose from instead of positions; None if heads point
            at positions. With one head that is a mixture of softmaxes (Yang et al. 2018,
            https://arxiv.org/abs/1711.03953) whose components differ in the vector that they add to
            the state.
    """

    name: ClassVar[str] = "alignments"

    def __init__(
        self, options: AlignmentOptions, width: int, probability: float = 0.0, past: bool = False
    ) -> None:
        super().__init__()
        self.options = options
        num_components = options.prior.num_components
        self.null = nn.Parameter(torch.randn(width)) if past and not num_components else None
        self.components = (
            nn.Parameter(torch.randn(num_components, width)) if num_components else None
        )
        heads, first_head = options.heads, 0
        blocks = []
        for layer in range(options.number_of_blocks):
            block = Block(ALIGNMENT, layer, heads)
            prior, size = options.prior, options.width
            null = self.null is not None
            blocks.append(AlignmentBlock(block, first_head, width, size, prior, probability, null))
            first_head += heads
        self.blocks = nn.ModuleList(blocks)

    @property
    def soft(self) -> bool:
        """Whether attention is soft: every head adds a mean, and nothing is latent."""
        return not self.options.is_latent

    @property
    def is_latent(self) -> bool:  # type: ignore[override]
        """Whether heads are random: not with soft attention."""
        return not self.soft

    @property
    def no_position(self) -> str | None:  # type: ignore[override]
        """Null, at which heads of a language model point at no word."""
        return None if self.null is None else NULL

    @property
    def sites(self) -> list[str]:
        """The sites of the latent blocks."""
        return [block.site(ALIGNED_POSITION) for block in self.addresses]

    @property
    def is_chained(self) -> bool:  # type: ignore[override]
        """Whether a token's alignment depends on that of the token before."""
        return self.options.chained

    @property
    def points(self) -> bool:  # type: ignore[override]
        """Whether heads point at positions of a text."""
        return self.components is None

    @property
    def addresses(self) -> list[Block]:  # type: ignore[override]
        """The latent blocks, from the lowest."""
        return [] if self.soft else self.all_addresses

    @property
    def all_addresses(self) -> list[Block]:
        """All blocks, from the lowest."""
        return [block.block for block in self._block_modules()]

    def _block_modules(self) -> list[AlignmentBlock]:
        return [module for module in self.blocks if isinstance(module, AlignmentBlock)]

    def prepare(
        self,
        hidden: EncoderDecoderStates,
        valid: Bool[Tensor, "*valid target"] | None,
        output: RowOutput,
        vectors: Sequence[Tensor] | None = None,
        smoothing: float = 0.0,
    ) -> AlignmentPass:
        """Compute the priors and the vectors of all positions.

        Args:
            hidden: The network's states.
            valid: True at real tokens; None: all are.
            output: The output layer.
            vectors: The vectors of all positions, if they were computed already.
            smoothing: Label smoothing in training.
        """
        hidden = self.choose_memory(hidden)
        below, priors = list[Tensor](), list[CategoricalParameters]()
        for block in self._block_modules():
            keys = block.keys(hidden.memory)
            priors.append(block.prior_parameters(hidden.states, keys, hidden.attn_mask, below))
            below.extend(keys.unbind(-2))
        if valid is None:
            valid = hidden.states.new_ones(hidden.states.shape[:-1], dtype=torch.bool)
        vectors = self.vectors(hidden.memory) if vectors is None else vectors
        device = hidden.states.device.type
        autocast = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        return AlignmentPass(hidden, valid, priors, vectors, output, autocast, smoothing)

    def choose_memory(self, hidden: EncoderDecoderStates) -> EncoderDecoderStates:
        """Keep the memory, or replace it by the components."""
        if self.components is None:
            return hidden
        memory, attn_mask = hidden.memory, hidden.attn_mask
        components = self.components.to(memory.dtype).expand(*memory.shape[:-2], -1, -1)
        attn_mask = attn_mask.new_ones(*attn_mask.shape[:-2], 1, len(self.components))
        return EncoderDecoderStates(hidden.states, components, attn_mask)

    def vectors(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> list[Float[Tensor, "*batch key dim"]]:
        """The vector that each position adds to a state, for each head; that of null is 0."""
        if self.null is None:
            return self.position_vectors(memory)
        vectors = self.position_vectors(memory[..., 1:, :])
        return [F.pad(rows, (0, 0, 1, 0)) for rows in vectors]

    def position_vectors(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> list[Float[Tensor, "*batch key dim"]]:
        """The vectors of a memory without null."""
        return [rows for block in self._block_modules() for rows in block.vectors(memory)]

    def prepend_null(
        self, states: Float[Tensor, "*batch key dim"]
    ) -> Float[Tensor, "*batch next dim"]:
        """Prepend null to states."""
        assert self.null is not None
        null = self.null.to(states.dtype).expand(*states.shape[:-2], 1, -1)
        return torch.cat([null, states], -2)

    def causal_states(
        self,
        states: Float[Tensor, "*batch target dim"],
        valid: Bool[Tensor, "*valid target"],
        tokens: Int[Tensor, "*batch target"] | None = None,
    ) -> EncoderDecoderStates:
        """The memory of a causal network: every token may point at the states of earlier ones.

        Args:
            states: The states that predict the tokens.
            valid: True at real tokens; padding points at null, as the first token does, and nothing
                points at padding.
            tokens: The tokens that the states predict; alignments do not depend on them.

        Raises:
            ValueError: There is no token, and the prior is a chain.
        """
        if self.components is not None:
            return without_memory(states)
        length = states.shape[-2]
        if not length and self.options.chained:
            raise ValueError("prior chain needs texts of two tokens or more in a batch")
        last_key = torch.arange(length, device=states.device) * valid
        memory = self.prepend_null(states[..., :-1, :])
        valid_keys = F.pad(valid[..., :-1], (1, 0), value=True).unsqueeze(-2)
        attn_mask = self.window_mask(last_key, memory.shape[-2]) & valid_keys
        return EncoderDecoderStates(states, memory, attn_mask, self.options.window)

    def window_mask(
        self, last_key: Int[Tensor, "*batch target"], keys: int
    ) -> Bool[Tensor, "*batch target key"]:
        """True where a token may point: at null, which is key 0, and in its window."""
        positions = torch.arange(keys, device=last_key.device)
        mask = positions <= last_key.unsqueeze(-1)
        if self.options.window:
            in_window = positions > last_key.unsqueeze(-1) - self.options.window
            mask &= in_window | (positions == 0)
        return mask

    def make_posterior(
        self, model: HeadModel, structure: Structure, condition_on: ConditionOn
    ) -> AlignmentPosterior | None:
        """Makes the posterior of all blocks; None where attention is soft."""
        if self.soft:
            return None
        width = model.output.width if isinstance(model.output, RowOutput) else 0
        return AlignmentPosterior(self.options, width, structure, condition_on)

    def exact_posterior(self, prior: Alignments, batch: Batch) -> Alignments:
        """The exact posterior of a block, by Bayes' rule."""
        if not isinstance(context := prior.context, AlignmentContext):
            return prior
        posterior = context.alignment_pass.exact_inference(batch.scored).posterior()
        # a bound has no gradient in the exact posterior, which is its maximum
        return with_parameters(prior, posterior[context.index].detached())

    def begin(self, hidden: EncoderDecoderStates, output: RowOutput) -> OutputState:
        """Start decoding sentences with a source."""
        return AlignmentState(self, hidden, output)

    def begin_causal(self, output: RowOutput, texts: int) -> OutputState:
        """Start decoding texts whose heads point at the past, or at components."""
        return begin_past_alignments(self, output, texts)

    def forward(
        self,
        hidden: EncoderDecoderStates,
        valid: Bool[Tensor, "*valid target"],
        output: RowOutput,
        smoothing: float = 0.0,
    ) -> Tokens:
        """Sample the alignments block by block, and return the distribution of the tokens."""
        alignment_pass = self.prepare(
            hidden, valid, output.with_current_weights(), smoothing=smoothing
        )
        if self.soft:
            return make_token_distribution(
                alignment_pass.soft_states(), valid, alignment_pass.output, smoothing
            )
        alignments: Tensor | None = None
        for index, (block, prior) in enumerate(
            zip(self.addresses, alignment_pass.priors, strict=True)
        ):
            context = AlignmentContext(block, index, alignment_pass)
            value = pyro.sample(
                block.site(ALIGNED_POSITION), Alignments(prior, valid, alignments, context)
            )
            alignments = value if alignments is None else _concat_heads(alignments, value)
        assert alignments is not None
        return AlignedTokens(alignment_pass, alignments)


def _concat_heads(below: Tensor, value: Tensor) -> Tensor:
    """Concatenate the alignments of a block to those of lower blocks."""
    shape = torch.broadcast_shapes(below.shape[:-1], value.shape[:-1])
    return torch.cat([below.expand(*shape, -1), value.expand(*shape, -1)], -1)
