"""The latent alignment heads above a decoder: their sample sites, posteriors and decoding."""

from __future__ import annotations

from typing import ClassVar

import pyro
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentheads.batch import Batch
from latentheads.distributions.tokens import Tokens, make_token_distribution
from latentheads.latents.alignments.distribution import Alignments
from latentheads.latents.alignments.passes import AlignedTokens, AlignmentContext
from latentheads.latents.alignments.past import begin_past_alignments
from latentheads.latents.alignments.posterior import AlignmentPosterior, with_parameters
from latentheads.latents.alignments.stack import AlignmentStack
from latentheads.latents.alignments.state import AlignmentState
from latentheads.latents.latent import ConditionOn, Structure
from latentheads.latents.network import EncoderDecoderStates, LatentNetwork
from latentheads.latents.output_heads import OutputHeads, OutputState, without_memory
from latentheads.layers.output import RowOutput
from latentheads.names import ALIGNED_POSITION, Block

NULL = "null"
"""The label of the position at which a language model's alignment head points at no word."""


class Aligner(AlignmentStack, OutputHeads):
    """The stack of alignment blocks above a decoder, each with its sample site.

    With soft attention nothing is latent, and every head adds a mean.
    """

    name: ClassVar[str] = "alignments"

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
        return [block.site(ALIGNED_POSITION) for block in self.addresses]

    @property
    def is_chained(self) -> bool:  # type: ignore[override]
        """Whether a token's alignment depends on that of the token before."""
        return self.prior.chained

    @property
    def points(self) -> bool:  # type: ignore[override]
        """Whether heads point at positions of a text."""
        return self.components is None

    @property
    def addresses(self) -> list[Block]:  # type: ignore[override]
        """The latent blocks, from the lowest."""
        return [] if self.soft else self.all_addresses

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
        if not length and self.prior.chained:
            raise ValueError("prior chain needs texts of two tokens or more in a batch")
        last_key = torch.arange(length, device=states.device) * valid
        memory = self.prepend_null(states[..., :-1, :])
        valid_keys = F.pad(valid[..., :-1], (1, 0), value=True).unsqueeze(-2)
        attn_mask = self.window_mask(last_key, memory.shape[-2]) & valid_keys
        return EncoderDecoderStates(states, memory, attn_mask, self.window)

    def make_posterior(
        self, model: LatentNetwork, structure: Structure, condition_on: ConditionOn
    ) -> AlignmentPosterior | None:
        """Makes the posterior of all blocks; None where attention is soft."""
        if self.soft:
            return None
        width = model.output.width if isinstance(model.output, RowOutput) else 0
        return AlignmentPosterior(
            len(self.blocks), self.heads, width, structure, condition_on, self.prior.chained
        )

    def exact_posterior(self, prior: Alignments, batch: Batch) -> Alignments:
        if not isinstance(context := prior.context, AlignmentContext):
            return prior
        posterior = context.alignment_pass.exact_inference(batch.scored).posterior()
        # a bound has no gradient in the exact posterior, which is its maximum
        return with_parameters(prior, posterior[context.index].detached())

    def begin(self, hidden: EncoderDecoderStates, output: RowOutput) -> OutputState:
        return AlignmentState(self, hidden, output)

    def begin_causal(self, output: RowOutput, texts: int) -> OutputState:
        return begin_past_alignments(self, output, texts)

    def forward(
        self,
        hidden: EncoderDecoderStates,
        valid: Bool[Tensor, "*valid target"],
        output: RowOutput,
        smoothing: float = 0.0,
    ) -> Tokens:
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
