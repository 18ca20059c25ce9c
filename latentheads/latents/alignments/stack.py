"""The stack of alignment blocks above a decoder: priors and vectors of all positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.latents.alignments.block import AlignmentBlock
from latentheads.latents.alignments.distribution import CategoricalParameters
from latentheads.latents.alignments.passes import AlignmentPass
from latentheads.latents.alignments.priors import AlignmentPrior, CascadedPrior
from latentheads.latents.network import EncoderDecoderStates
from latentheads.layers.output import RowOutput
from latentheads.names import ALIGNMENT, Block


class AlignmentStack(nn.Module):
    """The blocks of alignment heads above a decoder, without their sample sites.

    Args:
        width: Model width.
        num_blocks: Number of blocks.
        heads: Heads of each block.
        prior: What a head's prior is conditioned on.
        head_width: Width of the queries and keys of a head.
        window: How many earlier words a head may point at; 0: all.
        dropout: Dropout of the inputs of the heads' vectors.
        past: Whether heads point at the states of earlier tokens, or at null, whose vector is 0.

    Attributes:
        null: The state in front of those of earlier tokens; None if heads do not point at them.
        components: Learned vectors that heads choose from instead of positions; None if heads point
            at positions. With one head that is a mixture of softmaxes (Yang et al. 2018,
            https://arxiv.org/abs/1711.03953) whose components differ in the vector that they add to
            the state.
    """

    def __init__(
        self,
        width: int,
        num_blocks: int = 1,
        heads: int = 1,
        prior: AlignmentPrior | None = None,
        head_width: int = 64,
        window: int = 0,
        dropout: float = 0.0,
        past: bool = False,
    ) -> None:
        super().__init__()
        prior = CascadedPrior() if prior is None else prior
        self.heads, self.prior = heads, prior
        self.head_width, self.window = head_width, window
        num_components = prior.num_components
        self.null = nn.Parameter(torch.randn(width)) if past and not num_components else None
        self.components = (
            nn.Parameter(torch.randn(num_components, width)) if num_components else None
        )
        sizes, null = (width, head_width, prior, dropout), self.null is not None
        addresses = [Block(ALIGNMENT, layer, heads) for layer in range(num_blocks)]
        self.blocks = nn.ModuleList(
            AlignmentBlock(address, address.layer * heads, *sizes, null) for address in addresses
        )

    @property
    def soft(self) -> bool:
        """Whether attention is soft: every head adds a mean, and nothing is latent."""
        return not self.prior.is_latent

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
        keys: Sequence[Tensor] | None = None,
    ) -> AlignmentPass:
        """Compute the priors and the vectors of all positions.

        Args:
            hidden: The network's states.
            valid: True at real tokens; None: all are.
            output: The output layer.
            vectors: The vectors of all positions, if they were computed already.
            smoothing: Label smoothing in training.
            keys: The keys of all positions for each block, if they were computed already.
        """
        hidden = self.choose_memory(hidden)
        below, priors = list[Tensor](), list[CategoricalParameters]()
        keys = self.keys(hidden.memory) if keys is None else keys
        for block, own in zip(self._block_modules(), keys, strict=True):
            priors.append(block.prior_parameters(hidden.states, own, hidden.attn_mask, below))
            below.extend(own.unbind(-2))
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

    def keys(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> list[Float[Tensor, "*batch key head size"]]:
        """The keys of all positions, for each block."""
        return [block.keys(memory) for block in self._block_modules()]

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

    def window_mask(
        self, last_key: Int[Tensor, "*batch target"], keys: int
    ) -> Bool[Tensor, "*batch target key"]:
        """True where a token may point: at null, which is key 0, and in its window."""
        positions = torch.arange(keys, device=last_key.device)
        mask = positions <= last_key.unsqueeze(-1)
        if self.window:
            in_window = positions > last_key.unsqueeze(-1) - self.window
            mask &= in_window | (positions == 0)
        return mask
