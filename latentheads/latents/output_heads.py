"""Latent heads above a decoder: they point at keys, and the output layer sees where.

:class:`OutputHeads` is the interface between a network and such heads. The network gives them its
states and the memory that they may point at; they return the distribution of the target tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.distributions.tokens import Tokens
from latentheads.latents.latent import Latent
from latentheads.latents.network import Choice, EncoderDecoderStates, LatentNetwork
from latentheads.layers.output import RowOutput
from latentheads.names import Block


def without_memory(states: Float[Tensor, "*batch target dim"]) -> EncoderDecoderStates:
    """States with an empty memory."""
    empty = states[..., :0, :]
    return EncoderDecoderStates(
        states, empty, empty.new_ones(*empty.shape[:-2], 1, 0, dtype=torch.bool)
    )


@runtime_checkable
class OutputState(Protocol):
    """The state of heads above a decoder in incremental decoding."""

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Select, repeat or reorder sentences, and the hypotheses of each."""

    def scores(
        self,
        states: Float[Tensor, "sentence *hypothesis new dim"],
        tokens: Int[Tensor, "sentence *hypothesis new"],
    ) -> Float[Tensor, "sentence *hypothesis new vocab"]:
        """Score the vocabulary after each new token, with the heads summed out."""


@runtime_checkable
class DecomposableState(OutputState, Protocol):
    """A state that also splits the uncertainty of a prediction, which ``SingleModel`` needs."""

    def decompose_uncertainty(
        self, probs: Float[Tensor, "sentence row vocab"], tokens: Int[Tensor, "sentence row"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Decompose the uncertainty about the tokens that were scored last.

        Args:
            probs: The probabilities of the next tokens: what was scored.
            tokens: The tokens that came.

        Returns:
            For each row the expected entropy of the token given the heads, its expected
            log-probability, and the expected KL from its marginal distribution to that given the
            heads.

        Raises:
            ValueError: Nothing was scored yet, or no head is latent.
        """


class OutputHeads(nn.Module, Latent):
    """Heads above a decoder, between its states and its output layer; a model has one such latent.

    By default they are latent and point at nothing.

    Attributes:
        is_latent: Whether the heads are random; if not, they add a mean.
        addresses: Their latent blocks, from the lowest.
        points: Whether heads point at keys of the memory.
        is_chained: Whether the heads of a token depend on those of the token before.
        no_position: Label of the first key where it is no position of a text; None: all keys are.
    """

    is_latent: bool = True
    addresses: Sequence[Block] = ()
    points: bool = False
    is_chained: bool = False
    no_position: str | None = None
    decodes = True  # by the state that :meth:`begin` returns

    def position_tokens(self, batch: Batch) -> Int[Tensor, "sentence target"]:
        """The tokens that name the earlier states of a language model: those that were read."""
        return batch.decoder_input

    def by_position(self, probs: Float[Tensor, "*batch choice"]) -> Float[Tensor, "*batch key"]:
        """The probability of each key, where several choices may point at one; by default none."""
        return probs

    @property
    def modules_to_save(self) -> Mapping[str, nn.Module]:
        return {self.name: self}

    @property
    def is_summed_out(self) -> bool:
        return self.is_latent

    @property
    def has_posterior(self) -> bool:
        return self.is_latent

    def token_distribution(
        self, model: LatentNetwork, batch: Batch, choices: Mapping[str, Choice] | None
    ) -> Tokens:
        hidden = model.hidden(batch, choices).drop_context(batch.context)
        hidden = self.add_earlier_blocks(hidden, batch)
        output = cast(RowOutput, model.output)
        return cast(Tokens, self(hidden, batch.scored_mask, output, model.smoothing))

    @property
    def reach_across_blocks(self) -> int:
        """How many tokens of a text a token may point back across blocks in evaluation; 0: none."""
        return 0

    @contextmanager
    def across_blocks(self) -> Iterator[None]:
        """Context in which heads point at earlier blocks of a text.

        Blocks come in the order of the text, each batch on the model's device: a batch that is
        passed twice in a row is recognised by its target tensor.
        """
        yield

    def add_earlier_blocks(
        self, hidden: EncoderDecoderStates, batch: Batch
    ) -> EncoderDecoderStates:
        """Adds positions of earlier blocks to the memory, within :meth:`across_blocks`."""
        return hidden

    @abstractmethod
    def forward(
        self,
        hidden: EncoderDecoderStates,
        valid: Bool[Tensor, "*valid target"],
        output: RowOutput,
        smoothing: float = 0.0,
    ) -> Tokens:
        """Sample the heads block by block, and return the distribution of the tokens.

        Args:
            hidden: The network's states.
            valid: True at real tokens.
            output: The output layer.
            smoothing: Label smoothing in training.
        """

    def causal_states(
        self,
        states: Float[Tensor, "*batch target dim"],
        valid: Bool[Tensor, "*valid target"],
        tokens: Int[Tensor, "*batch target"] | None = None,
    ) -> EncoderDecoderStates:
        """The memory of a causal network: states of earlier tokens; by default it is empty.

        Args:
            states: The states that predict the tokens.
            valid: True at real tokens.
            tokens: The tokens that the states predict.
        """
        return without_memory(states)

    @abstractmethod
    def begin(self, hidden: EncoderDecoderStates, output: RowOutput) -> OutputState:
        """Start decoding sentences whose memory is known, such as a source.

        Args:
            hidden: The memory; its states have length 0.
            output: The output layer.
        """

    def begin_causal(self, output: RowOutput, texts: int) -> OutputState:
        """Start decoding texts whose memory is their own past, which is empty."""
        weight = next(output.parameters())
        return self.begin(without_memory(weight.new_zeros(texts, 0, output.width)), output)
