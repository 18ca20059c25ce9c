"""The parameters of copy heads: scores of all choices, and the pass that they make."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.latents.alignments.block import scaled_products
from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.distribution import NOWHERE, CategoricalParameters
from latentheads.latents.copy.emission import GENERATE, CopyPass, Slip
from latentheads.latents.copy.priors import CopyPrior, IndependentCopyPrior
from latentheads.latents.network import EncoderDecoderStates
from latentheads.layers.numeric import dropout, full_precision
from latentheads.layers.output import RowOutput

GENERATE_BIAS = 3.0
"""The score of generate at the start, so that the network learns before it copies."""


class CopyScorer(nn.Module):
    """Scores generate and every position of copy heads, without a sample site.

    Args:
        width: Model width.
        heads: Heads that copy.
        prior: What the choice of a position is conditioned on.
        lexicon: Whether a further head points at positions whose vector is added to the state.
        head_width: Width of the query and of the keys.
        window: How many earlier tokens a head may point at; 0: all.
        across_bias: Added to the score of generate where a head points across blocks.
        slip: The probability that a copied token is generated after all.
        learn_slip: Whether each head learns its slip.
        dropout: Dropout of the inputs of a lexicon head's vectors.

    Attributes:
        generate: The key that stands for generate.
        bias: What is added to its score.
        added_bias: What is added to that score besides, in passes across blocks.
        slip_logits: Log-odds of the slip of each copy head; None where it is fixed.
        lexicon: Makes the vectors of a lexicon head, initialised to zero; None without one.
        jumps: Scores of jumps between the choices of neighbouring tokens; None without a chain.
        target_ids: The target's id of each token of the source, -1 where the target has none; None:
            ids are the same on both sides.
    """

    added_bias = 0.0

    def __init__(
        self,
        width: int,
        heads: int = 1,
        prior: CopyPrior | None = None,
        lexicon: bool = False,
        head_width: int = 64,
        window: int = 0,
        across_bias: float = 0.0,
        slip: float = 0.01,
        learn_slip: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.copy_heads, self.head_width, self.window = heads, head_width, window
        self.prior = IndependentCopyPrior() if prior is None else prior
        self.across_bias, self.initial_slip, self.probability = across_bias, slip, dropout
        self.generate = nn.Parameter(torch.randn(width))
        self.bias = nn.Parameter(torch.tensor(GENERATE_BIAS))
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, (heads + lexicon) * head_width)
        self.key = nn.Linear(width, (heads + lexicon) * head_width)
        self.slip_logits = None
        if learn_slip:
            logits = math.log(slip) - math.log1p(-slip)
            self.slip_logits = nn.Parameter(torch.full((heads,), logits))
        self.lexicon = nn.Linear(width, width, bias=False) if lexicon else None
        if self.lexicon is not None:
            nn.init.zeros_(self.lexicon.weight)
        self.jumps = self.prior.make_jumps(self.heads)
        self.target_ids: Tensor | None
        self.register_buffer("target_ids", None)

    @property
    def heads(self) -> int:
        """The heads that point at positions: those that copy, and a lexicon head, which is last."""
        return self.copy_heads + (self.lexicon is not None)

    def with_generate(self, hidden: EncoderDecoderStates) -> EncoderDecoderStates:
        """The memory with the key in front that stands for generate."""
        if hidden.tokens is None:
            raise ValueError("copy heads need positions with tokens: this source has none")
        memory, tokens = hidden.memory, hidden.tokens
        if self.target_ids is not None:
            tokens = self.target_ids[tokens]
        first = self.generate.to(memory.dtype).expand(*memory.shape[:-2], 1, -1)
        return EncoderDecoderStates(
            hidden.states,
            torch.cat([first, memory], -2),
            F.pad(hidden.attn_mask, (1, 0), value=True),
            tokens=F.pad(tokens, (1, 0), value=GENERATE),
        )

    def choice_mask(self, hidden: EncoderDecoderStates) -> Bool[Tensor, "*mask #target choice"]:
        """True for the choices that a token has; only tokens of the target can be copied."""
        assert hidden.tokens is not None
        can_copy = hidden.attn_mask & (hidden.tokens >= 0)[..., None, :]
        can_point = [can_copy] * self.copy_heads + [hidden.attn_mask] * (self.lexicon is not None)
        of_heads = torch.stack(can_point, -1)[..., 1:, :].flatten(-2)
        return F.pad(of_heads, (1, 0), value=True)

    def with_choices(self, hidden: EncoderDecoderStates) -> EncoderDecoderStates:
        """A memory with generate, with a row for each choice: every position once for each head."""
        memory, tokens = hidden.memory, hidden.tokens
        assert tokens is not None
        return EncoderDecoderStates(
            hidden.states,
            torch.cat([memory[..., :1, :], self._of_heads(memory[..., 1:, :], -2)], -2),
            self.choice_mask(hidden),
            tokens=torch.cat([tokens[..., :1], self._of_heads(tokens[..., 1:], -1)], -1),
        )

    def _of_heads(self, positions: Tensor, dim: int) -> Tensor:
        """Repeats every position for each head."""
        return positions if self.heads == 1 else positions.repeat_interleave(self.heads, dim)

    def keys(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> Float[Tensor, "*batch key head size"]:
        """The keys of a memory for every head."""
        return self.key(self.norm(memory)).unflatten(-1, (self.heads, -1))

    def vectors(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> list[Float[Tensor, "*batch key dim"]]:
        """The vector that each position of a lexicon head adds to a state; empty without one."""
        if self.lexicon is None:
            return []
        return [self.lexicon(dropout(self.norm(memory), self.probability, self.training))]

    def slip(self, like: Tensor) -> Slip:
        """The slip of each copy head, on the device of a tensor."""
        if self.slip_logits is not None:
            return Slip.of_logits(self.slip_logits)
        return Slip.of(self.initial_slip, self.copy_heads, like)

    def prior_parameters(
        self,
        states: Float[Tensor, "*batch target dim"],
        keys: Float[Tensor, "*keys key head size"],
        attn_mask: Bool[Tensor, "*mask #target choice"],
    ) -> CategoricalParameters:
        """The parameters of the prior of every token's choice.

        Args:
            states: The states that predict the tokens.
            keys: The keys, that of generate first.
            attn_mask: True for choices that a token has.
        """
        query = self.query(states).unflatten(-1, (self.heads, -1))
        scores = scaled_products(query, keys)
        bias = self.bias + self.added_bias if self.added_bias else self.bias
        if self.heads > 1:
            # choices in order: one softmax over generate, of head 0, and all positions of all heads
            of_positions = scores[..., 1:].transpose(-1, -2).flatten(-2)
            scores = torch.cat([scores[..., :1, 0], of_positions], -1).unsqueeze(-2)
        scores = scores + F.pad(full_precision(bias)[None], (0, scores.shape[-1] - 1))
        scores = scores.masked_fill(~attn_mask.unsqueeze(-2), NOWHERE)
        if self.jumps is None:
            return CategoricalParameters(scores)
        transition_scores = self.jumps(attn_mask.shape[-1]).unsqueeze(0)
        return ChainParameters(scores, transition_scores=transition_scores)

    def prepare(
        self,
        hidden: EncoderDecoderStates,
        valid: Bool[Tensor, "*valid target"],
        output: RowOutput,
        smoothing: float = 0.0,
    ) -> CopyPass:
        """Computes the prior of a pass."""
        hidden = self.with_generate(hidden)
        keys, vectors = self.keys(hidden.memory), self.vectors(hidden.memory[..., 1:, :])
        vectors = [F.pad(rows, (0, 0, 1, 0)) for rows in vectors]
        hidden = self.with_choices(hidden)
        prior = self.prior_parameters(hidden.states, keys, hidden.attn_mask)
        device, slip = hidden.states.device.type, self.slip(hidden.states)
        autocast = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        return CopyPass(hidden, valid, [prior], vectors, output, autocast, smoothing, slip=slip)
