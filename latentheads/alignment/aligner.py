"""All alignment blocks of a model, and one pass of them: what is drawn, and what is summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyro
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.alignment.bands import make_table
from latentheads.alignment.block import AlignmentBlock
from latentheads.alignment.chain import ChainInference
from latentheads.alignment.distribution import Alignments, CategoricalParameters
from latentheads.alignment.emission import EmissionRequest
from latentheads.alignment.exact import ExactInference, IndependentWords, block_tables, sum_of
from latentheads.alignment.options import AlignmentOptions
from latentheads.distributions import Tokens, make_token_distribution
from latentheads.layers.numeric import softmax
from latentheads.layers.output import RowOutput
from latentheads.names import ALIGNMENT, POINTING, Block

__all__ = [
    "AlignedTokens",
    "Aligner",
    "AlignmentContext",
    "AlignmentPass",
    "EncoderDecoderStates",
    "without_memory",
]


@dataclass(frozen=True)
class EncoderDecoderStates:
    """The states of a network below its output, and the keys that alignments may point at.

    Attributes:
        states: The states that predict the target tokens.
        memory: The keys that alignments may point at.
        readable: True where a token may point at a key; one row where all tokens may point alike.
        window: Where the memory is null and the states before: how many of these states a token
            may point at, besides null. 0: all of them, or another memory.
    """

    states: Float[Tensor, "*batch target dim"]
    memory: Float[Tensor, "*memory key dim"]
    readable: Bool[Tensor, "*mask #target key"]
    window: int = 0

    def behind(self, context: int) -> EncoderDecoderStates:
        """The same without the first target tokens, which are read and not scored."""
        own = self.readable if self.readable.shape[-2] == 1 else self.readable[..., context:, :]
        return EncoderDecoderStates(self.states[..., context:, :], self.memory, own, self.window)

    def reach(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """The keys in the windows of some tokens, and the place of every key among them.

        A key that is in none of the windows is given the place of null, which is the first.

        Args:
            start: Place of the first token.
            stop: Place behind the last.
        """
        keys, device = self.memory.shape[-2], self.memory.device
        before = keys - self.states.shape[-2]  # tokens that are read and not scored
        low, high = max(1, before + start + 1 - self.window), before + stop
        every = torch.arange(keys, device=device)
        inside = (every >= low) & (every < high)
        return torch.cat([every[:1], every[low:high]]), inside * (every - low + 1)


@dataclass(frozen=True)
class AlignmentPass:
    """One pass of the alignment blocks.

    Attributes:
        hidden: What the network knows of the scored tokens.
        valid: True at the tokens that are counted.
        priors: The prior of every block, from the lowest, before anything is drawn.
        vectors: What every position adds to a state, for each head.
        output: The layer that turns states into tokens.
        autocast: Whether the pass is made under autocast, and its type.
        smoothing: Label smoothing of the table of words, while training.
        known: The sums over alignments that were computed, each with the tokens it is given.
    """

    hidden: EncoderDecoderStates
    valid: Bool[Tensor, "*valid target"]
    priors: Sequence[CategoricalParameters]
    vectors: Sequence[Float[Tensor, "*memory key dim"]]
    output: RowOutput
    autocast: tuple[bool, torch.dtype]
    smoothing: float = 0.0
    known: dict[Any, tuple[Tensor, ExactInference]] = field(default_factory=dict)

    def moved(self, drawn: Int[Tensor, "*draw target head"]) -> Float[Tensor, "*out target dim"]:
        """The states, plus the vectors of the positions that the heads point at."""
        states = self.hidden.states
        for head, vectors in enumerate(self.vectors):
            place = drawn[..., head]
            shape = torch.broadcast_shapes(place.shape[:-1], vectors.shape[:-2])
            rows = vectors.expand(*shape, *vectors.shape[-2:])
            index = place.expand(*shape, -1).unsqueeze(-1).expand(*shape, -1, rows.shape[-1])
            states = states + rows.gather(-2, index)
        return states

    def softened(self) -> Float[Tensor, "*batch target dim"]:
        """The states, plus the mean of the positions' vectors by each head's own prior scores."""
        states = self.hidden.states
        heads = [scores for law in self.priors for scores in law.scores.unbind(-2)]
        for scores, vectors in zip(heads, self.vectors, strict=True):
            states = states + softmax(scores).to(vectors.dtype) @ vectors
        return states

    def summed(
        self,
        words: Int[Tensor, "*words target"],
        guide: Sequence[CategoricalParameters] | None = None,
    ) -> ExactInference:
        """All alignments at once, given the tokens; computed once.

        Args:
            words: The tokens.
            guide: The posterior of every block, where training takes the mean under them; None
                where it takes the sum under the prior. The result is the same: this says for which
                of the two the gradient is prepared.
        """
        # the key has the address of the tokens: they are kept, so that no other tensor gets it
        version = 0 if words.is_inference() else words._version
        key = words.data_ptr(), words.shape, version, torch.is_grad_enabled()
        if key not in self.known:
            enabled, kind = self.autocast
            with torch.autocast(words.device.type, kind, enabled):
                table = self.word_embeddings(words, guide)
            self.known[key] = words, self.summed_from(table)
        return self.known[key][1]

    def summed_from(self, table: Float[Tensor, "*table"]) -> ExactInference:
        """All alignments at once, from the table of words."""
        valid = self.valid.expand(self.hidden.states.shape[:-1])
        kind = ChainInference if self.priors[0].chained else IndependentWords
        return kind(self.priors, table, valid)

    def word_embeddings(
        self,
        words: Int[Tensor, "*words target"],
        guide: Sequence[CategoricalParameters] | None = None,
    ) -> Float[Tensor, "*table"]:
        """Log-probability of every word for all positions of all heads; see :meth:`summed`."""
        states = self.hidden.states
        shape = states.shape[:-2]
        rows = [each.expand(*shape, *each.shape[-2:]).flatten(0, -3) for each in self.vectors]
        flat, said = states.flatten(0, -3), words.expand(states.shape[:-1]).flatten(0, -2)
        if self.hidden.window and len(rows) > 1:  # one head gains nothing
            return self._windowed_table(flat, rows, said).unflatten(0, shape)
        asked = self._asked(guide)
        table = make_table(self.output, flat, rows, said, asked, self.smoothing)
        return table.unflatten(0, shape)

    def _asked(self, guide: Sequence[CategoricalParameters] | None) -> EmissionRequest | None:
        """How training will weigh the table; None without gradients, or in a chain."""
        laws = self.priors if guide is None else guide
        if self.priors[0].chained or not torch.is_grad_enabled():
            return None
        with torch.no_grad():
            law = sum_of(block_tables(laws))
        shape, heads = self.hidden.states.shape[:-1], len(self.vectors)
        law = law.expand(*shape, *law.shape[-heads:]).flatten(0, -2 - heads)
        return EmissionRequest(law, self.valid.expand(shape).flatten(0, -2), guide is None)

    def _windowed_table(
        self,
        states: Float[Tensor, "sentence target dim"],
        vectors: Sequence[Float[Tensor, "sentence key dim"]],
        words: Int[Tensor, "sentence target"],
    ) -> Float[Tensor, "sentence target *keys"]:
        """The table where a window is short: a window of words at a time, and the keys they reach.

        The entry at a key out of reach is that of null; no head points there.
        """
        parts, step = [], self.hidden.window
        for start in range(0, states.shape[1], step):
            some = slice(start, min(start + step, states.shape[1]))
            keys, places = self.hidden.reach(some.start, some.stop)
            rows = [each.index_select(1, keys) for each in vectors]
            known = states[:, some], rows, words[:, some]
            found = make_table(self.output, *known, smoothing=self.smoothing)
            for dim in range(2, found.ndim):
                found = found.index_select(dim, places)
            parts.append(found)
        return torch.cat(parts, 1)


class AlignedTokens(Tokens):
    """The tokens of a sentence given where heads point.

    The density is given the alignments that were drawn; :meth:`summed` has the sum over all.

    Args:
        aligned: The pass.
        drawn: The alignments of all heads.
    """

    def __init__(self, aligned: AlignmentPass, drawn: Int[Tensor, "*draw target head"]) -> None:
        self.aligned, self.drawn = aligned, drawn
        self.smoothing = aligned.smoothing
        super().__init__(aligned.moved(drawn), aligned.valid, aligned.output)

    def summed(
        self,
        words: Int[Tensor, "*words target"],
        guide: Sequence[CategoricalParameters] | None = None,
    ) -> ExactInference:
        """All alignments at once, given the tokens; see :class:`AlignmentPass`."""
        return self.aligned.summed(words, guide)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> AlignedTokens:
        """Puts batch dimensions in front."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        return AlignedTokens(self.aligned, self.drawn.expand(*batch_shape, *self.drawn.shape[-2:]))


@dataclass(frozen=True)
class AlignmentContext:
    """Everything a block of alignments knows when its heads are drawn.

    Attributes:
        block: Its address.
        place: Its place among the blocks, from the lowest.
        aligned: The pass: states, memory, and the priors of all blocks.
    """

    block: Block
    place: int
    aligned: AlignmentPass

    @property
    def prior(self) -> CategoricalParameters:
        """The prior of this block."""
        return self.aligned.priors[self.place]


class Aligner(nn.Module):
    """The alignment blocks above a decoder, one above the other.

    Args:
        options: How many, and of what form.
        width: Model width.
        probability: Dropout of the states that word vectors are made of.
        past: Whether heads point at the states of earlier words, or at null, which adds nothing.

    Attributes:
        null: The state in front of those of earlier words; None where heads do not point at them.
        components: Learned vectors, of which a head takes one in place of a position; None where
            heads point. With one head that is a mixture of softmaxes (Yang et al. 2018,
            https://arxiv.org/abs/1711.03953) whose components differ by what they add to the state.
    """

    def __init__(
        self, options: AlignmentOptions, width: int, probability: float = 0.0, past: bool = False
    ) -> None:
        super().__init__()
        self.options = options
        mixes, number = options.alignment_prior == "mixture", options.alignment_components
        self.null = nn.Parameter(torch.randn(width)) if past and not mixes else None
        self.components = nn.Parameter(torch.randn(number, width)) if mixes else None
        heads, first = options.alignment_heads, 0
        blocks = []
        for layer in range(options.blocks):
            block = Block(ALIGNMENT, layer, heads)
            kind, size = options.alignment_prior, options.alignment_width
            reach = options.alignment_reach
            blocks.append(AlignmentBlock(block, first, width, size, kind, reach, probability, past))
            first += heads
        self.blocks = nn.ModuleList(blocks)

    @property
    def soft(self) -> bool:
        """Whether nothing is drawn: every head adds a mean."""
        return self.options.alignment_prior == "soft"

    @property
    def points(self) -> bool:
        """Whether heads point at positions of a text."""
        return self.components is None

    @property
    def addresses(self) -> list[Block]:
        """The blocks that are drawn, from the lowest."""
        return [] if self.soft else self.all_addresses

    @property
    def all_addresses(self) -> list[Block]:
        """All blocks, from the lowest."""
        return [each.block for each in self._modules_of_blocks()]

    def _modules_of_blocks(self) -> list[AlignmentBlock]:
        return [each for each in self.blocks if isinstance(each, AlignmentBlock)]

    def prepare(
        self,
        hidden: EncoderDecoderStates,
        valid: Bool[Tensor, "*valid target"] | None,
        output: RowOutput,
        vectors: Sequence[Tensor] | None = None,
        smoothing: float = 0.0,
    ) -> AlignmentPass:
        """Computes priors and word vectors, before anything is drawn.

        Args:
            hidden: What the network knows.
            valid: True at the tokens that are counted; None: all are.
            output: The layer that turns states into tokens.
            vectors: The word vectors, where they were computed already.
            smoothing: Label smoothing, while training.
        """
        hidden = self.choose_memory(hidden)
        below, priors = list[Tensor](), list[CategoricalParameters]()
        for block in self._modules_of_blocks():
            keys = block.keys(hidden.memory)
            priors.append(block.pointing(hidden.states, keys, hidden.readable, below))
            below.extend(keys.unbind(-2))
        if valid is None:
            valid = hidden.states.new_ones(hidden.states.shape[:-1], dtype=torch.bool)
        vectors = self.vectors(hidden.memory) if vectors is None else vectors
        device = hidden.states.device.type
        autocast = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        return AlignmentPass(hidden, valid, priors, vectors, output, autocast, smoothing)

    def choose_memory(self, hidden: EncoderDecoderStates) -> EncoderDecoderStates:
        """Keeps the memory, or puts the components in its place."""
        if self.components is None:
            return hidden
        memory, readable = hidden.memory, hidden.readable
        own = self.components.to(memory.dtype).expand(*memory.shape[:-2], -1, -1)
        every = readable.new_ones(*readable.shape[:-2], 1, len(self.components))
        return EncoderDecoderStates(hidden.states, own, every)

    def vectors(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> list[Float[Tensor, "*batch key dim"]]:
        """The vector that every position adds to a state, for each head; that of null is 0."""
        if self.null is None:
            return self.vectors_of_positions(memory)
        found = self.vectors_of_positions(memory[..., 1:, :])
        return [F.pad(rows, (0, 0, 1, 0)) for rows in found]

    def vectors_of_positions(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> list[Float[Tensor, "*batch key dim"]]:
        """The vectors of a memory without null."""
        return [rows for block in self._modules_of_blocks() for rows in block.vectors(memory)]

    def lead_by_null(
        self, states: Float[Tensor, "*batch key dim"]
    ) -> Float[Tensor, "*batch next dim"]:
        """Puts null before the states of words."""
        assert self.null is not None
        null = self.null.to(states.dtype).expand(*states.shape[:-2], 1, -1)
        return torch.cat([null, states], -2)

    def look_back(
        self, states: Float[Tensor, "*batch target dim"], valid: Bool[Tensor, "*valid target"]
    ) -> EncoderDecoderStates:
        """The hidden states of a causal network: every word may point at those before its own.

        Args:
            states: What predicts each word.
            valid: True at real words; padding points at null, as the first word does, and nothing
                points at padding.

        Raises:
            ValueError: There is no word, and the prior is a chain.
        """
        if self.components is not None:
            return without_memory(states)
        words = states.shape[-2]
        if not words and self.options.chained:
            raise ValueError("alignment_prior chain needs texts of two tokens or more in a batch")
        last = torch.arange(words, device=states.device) * valid
        memory = self.lead_by_null(states[..., :-1, :])
        real = F.pad(valid[..., :-1], (1, 0), value=True).unsqueeze(-2)
        readable = self.in_window(last, memory.shape[-2]) & real
        return EncoderDecoderStates(states, memory, readable, self.options.alignment_window)

    def in_window(
        self, last: Int[Tensor, "*batch target"], keys: int
    ) -> Bool[Tensor, "*batch target key"]:
        """True where a word may point: null, which is key 0, and the keys up to the word's last."""
        place = torch.arange(keys, device=last.device)
        found = place <= last.unsqueeze(-1)
        if self.options.alignment_window:
            near = place > last.unsqueeze(-1) - self.options.alignment_window
            found &= near | (place == 0)
        return found

    def forward(
        self,
        hidden: EncoderDecoderStates,
        valid: Bool[Tensor, "*valid target"],
        output: RowOutput,
        smoothing: float = 0.0,
    ) -> Tokens:
        """Draws the alignments, block after block, and gives the law of the tokens."""
        aligned = self.prepare(hidden, valid, output.with_current_weights(), smoothing=smoothing)
        if self.soft:
            return make_token_distribution(aligned.softened(), valid, aligned.output, smoothing)
        drawn: Tensor | None = None
        for place, (block, prior) in enumerate(zip(self.addresses, aligned.priors, strict=True)):
            context = AlignmentContext(block, place, aligned)
            value = pyro.sample(block.site(POINTING), Alignments(prior, valid, drawn, context))
            drawn = value if drawn is None else _joined(drawn, value)
        assert drawn is not None
        return AlignedTokens(aligned, drawn)


def without_memory(states: Float[Tensor, "*batch target dim"]) -> EncoderDecoderStates:
    """The hidden states where there is nothing to point at."""
    none = states[..., :0, :]
    return EncoderDecoderStates(
        states, none, none.new_ones(*none.shape[:-2], 1, 0, dtype=torch.bool)
    )


def _joined(drawn: Tensor, value: Tensor) -> Tensor:
    """Heads of one block behind those of the blocks below."""
    shape = torch.broadcast_shapes(drawn.shape[:-1], value.shape[:-1])
    return torch.cat([drawn.expand(*shape, -1), value.expand(*shape, -1)], -1)
