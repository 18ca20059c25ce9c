"""The base of every model: a network whose heads are drawn, a likelihood, and decoding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast, runtime_checkable

import pyro
import torch
from jaxtyping import Bool, Float, Int
from pyro.infer.util import is_validation_enabled
from torch import Tensor, nn

from latentheads.alignment.aligner import Aligner, EncoderDecoderStates
from latentheads.alignment.past import PastAlignmentState
from latentheads.alignment.state import AlignmentState
from latentheads.attention.block import BlockCache, HeadBlock
from latentheads.attention.disagreement import Disagreement
from latentheads.batch import Batch, SentenceTasks, check_batch
from latentheads.distributions import Tokens, make_token_distribution
from latentheads.handlers import register_parameters
from latentheads.layers.output import Output, RowOutput
from latentheads.mask import AttentionMask
from latentheads.names import SELECTION, SENTENCES, TARGET, Block, check_attention_types, side_of
from latentheads.selection.hard_gates import Gating
from latentheads.selection.selector import Choice, Selector

__all__ = ["Decoder", "DecodingState", "HeadModel", "Stepwise"]


class HeadModel(nn.Module, ABC):
    """p(y, heads | x): run under Pyro it draws every head and observes the target.

    Attributes:
        output: The layer that turns the states into tokens; a subclass makes it.
        disagreement: A term that rewards heads for differing while training; None: there is none.
        alignments: The alignment blocks above the decoder; None: there are none.

    Args:
        chains: The chains of blocks this network has.
        latent: Those whose heads are drawn; None for all.
        label_smoothing: Of the likelihood while training; evaluation is always exact.
        selector: How blocks select their heads among candidates; None: all heads speak.
    """

    output: Output

    def __init__(
        self,
        chains: Collection[str],
        latent: Collection[str] | None = None,
        label_smoothing: float = 0.0,
        selector: Selector | None = None,
    ) -> None:
        super().__init__()
        self.selector = selector
        self.pressure = selector.l0_penalty if isinstance(selector, Gating) else None
        given = latent if latent is None or isinstance(latent, str) else tuple(latent)
        check_attention_types("latent", () if given is None else given, chains)
        self.latent = tuple(chains if given is None else given)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.label_smoothing = label_smoothing
        self.disagreement: Disagreement | None = None
        self.alignments: Aligner | None = None

    @property
    def blocks(self) -> list[Block]:
        """The blocks whose logits are drawn, in the order in which they are."""
        return [module.block for module in self.latent_blocks if module.has_attention_weights]

    @property
    def vocabulary_sizes(self) -> dict[str, int]:
        """The types of the source and of the target, where the model has a table of them."""
        return {}

    @property
    def latent_outputs(self) -> list[HeadBlock]:
        """The drawn blocks without attention weights, such as n-grams."""
        return [module for module in self.latent_blocks if not module.has_attention_weights]

    @property
    def latent_blocks(self) -> list[HeadBlock]:
        """All blocks of which something is drawn, whatever it is."""
        modules = (m for m in self.modules() if isinstance(m, HeadBlock))
        return [module for module in modules if module.prior is not None]

    @property
    def samples_heads(self) -> bool:
        """Whether two draws of its heads differ, alignments apart: those are summed out."""
        return any(module.has_noise for module in self.latent_blocks)

    @property
    def has_latent_alignments(self) -> bool:
        """Whether alignments are drawn above the network: bounds are then sums over all of them."""
        return self.alignments is not None and not self.alignments.soft

    @property
    def selecting(self) -> list[HeadBlock]:
        """The blocks that select their heads among candidates."""
        modules = (m for m in self.modules() if isinstance(m, HeadBlock))
        return [module for module in modules if module.selector is not None]

    def choose(self, batch: Batch, drawn: Mapping[str, Tensor] | None = None) -> dict[str, Choice]:
        """Draws which heads speak for every task, once for all sentences there are.

        Args:
            batch: The sentences.
            drawn: What was drawn at each site; it is then not drawn again.
        """
        alone = self._find_alone()
        if drawn is not None:
            values = ((m, drawn.get(m.block.site(SELECTION))) for m in self.selecting)
            return {m.block.name: self._choose_heads(m, batch, alone, v) for m, v in values}
        found: dict[str, Choice] = {}
        for side in ("encoder", "decoder"):
            blocks = [m for m in self.selecting if side_of(m.block.chain) == side]
            if blocks and self.selector is not None:
                with pyro.plate(f"{side}_tasks", self.selector.num_tasks(blocks[0].block.chain)):
                    found |= {m.block.name: self._choose_heads(m, batch, alone) for m in blocks}
        return found

    def _find_alone(self) -> set[str]:
        """The chains of which no block looks at what was drawn below it."""
        attending = [
            m for m in self.modules() if isinstance(m, HeadBlock) and m.has_attention_weights
        ]
        looked_at = {m.block.chain for m in attending if not m.can_skip_inactive}
        return {m.block.chain for m in attending} - looked_at

    def _choose_heads(
        self, module: HeadBlock, batch: Batch, alone: Collection[str], drawn: Tensor | None = None
    ) -> Choice:
        chain = module.block.chain
        task = batch.task_of(chain)
        return module.choose(task, batch.one_task, drawn, batch.draws, chain in alone)

    @abstractmethod
    def states(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> Float[Tensor, "*batch target dim"]:
        """Runs the network up to the states that predict each target token.

        Args:
            batch: The sentences.
            choices: The selected heads of blocks that select; drawn when not given.
        """

    def predict(
        self, states: Float[Tensor, "*batch target dim"]
    ) -> Float[Tensor, "*batch target vocab"]:
        """Scores the vocabulary."""
        return self.output(states)

    def likelihood(self, states: Float[Tensor, "*batch target dim"], batch: Batch) -> Tokens:
        """The law of the scored tokens: smoothed while training if asked, exact otherwise."""
        states, valid = states[..., batch.context :, :], batch.counted
        return make_token_distribution(
            states, valid, self.output.with_current_weights(), self.smoothing
        )

    @property
    def smoothing(self) -> float:
        """Label smoothing of this pass: none in evaluation."""
        return self.label_smoothing if self.training else 0.0

    def forward(self, batch: Batch, observe: bool = True) -> Any:
        """Draws every head, then the target.

        Args:
            batch: The sentences.
            observe: Condition on the batch's target; if not, tokens are drawn after its prefix.
        """
        check_batch(batch)
        # to read ids on a GPU is to wait for it
        if is_validation_enabled() and self.device.type == "cpu":
            batch.check_ids(**self.vocabulary_sizes)
        register_parameters("model", self)
        choices = self.choose(batch)
        with pyro.plate(SENTENCES, size=batch.size, subsample=batch.sentences):
            law = self._law_of_pass(batch, choices)
            return pyro.sample(TARGET, law, obs=batch.scored if observe else None)

    def law(self, batch: Batch, choices: Mapping[str, Choice] | None = None) -> Tokens:
        """Runs the network, draws where alignments point, and gives the law of the scored tokens.

        Args:
            batch: The sentences.
            choices: The selected heads of blocks that select; drawn when not given.
        """
        given = () if choices is None else (choices,)
        if self.alignments is None:
            return self.likelihood(self.states(batch, *given), batch)
        hidden = self.hidden(batch, choices).behind(batch.context)
        output = cast(RowOutput, self.output)
        return self.alignments(hidden, batch.counted, output, self.smoothing)

    def hidden(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> EncoderDecoderStates:
        """What alignments know of whole sentences; a model that may have some overrides it.

        Args:
            batch: The sentences.
            choices: The selected heads of blocks that select; drawn when not given.
        """
        raise NotImplementedError(f"{type(self).__name__} has alignments: define its hidden()")

    def _law_of_pass(self, batch: Batch, choices: Mapping[str, Choice]) -> Tokens:
        """The law; while training, with a factor a block for how its heads differ."""
        given: tuple[Any, ...] = (batch, choices) if choices else (batch,)
        term = self.disagreement
        if term is None or not self.training:
            return self.law(*given)
        with term.record_agreement(self) as found:
            law = self.law(*given)
        tokens = batch.counted.sum(-1)
        for block, value in found.items():
            pyro.factor(f"{block}.disagreement", -term.weight * tokens * value)
        return law

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


@runtime_checkable
class _Cached(Protocol):
    """A module with a cache for decoding."""

    block: Block

    def cache(self) -> BlockCache: ...


@dataclass
class DecodingState:
    """The state of a decoder between two tokens: a cache of every block, and a position.

    A cascade needs nothing more: it runs up the layers within one row. Which heads are selected is
    drawn once, at the beginning.
    """

    caches: dict[str, BlockCache] = field(default_factory=dict)
    position: int = 0
    choices: dict[str, Choice] = field(default_factory=dict)
    task: SentenceTasks | None = None
    alignments: AlignmentState | PastAlignmentState | None = None

    def cache(self, block: _Cached) -> Any:
        """The cache of a block, empty at first."""
        return self.caches.setdefault(block.block.name, block.cache())

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Keeps, repeats or reorders sentences of the batch, and the hypotheses of each.

        Only self-attention keeps anything for each hypothesis, so nothing else is copied for them.

        Args:
            sentences: The sentences to keep; None for all as they are.
            hypotheses: For each sentence kept, those of its hypotheses to go on with; None for
                all as they are.
        """
        for cache in self.caches.values():
            cache.select(sentences, hypotheses)
        if self.alignments is not None:
            self.alignments.select(sentences, hypotheses)
        if sentences is not None:
            self.choices = {name: c.select(sentences) for name, c in self.choices.items()}
            self.task = None if self.task is None else self.task.select(sentences)


@runtime_checkable
class Stepwise(Protocol):
    """A model as a search uses it: it begins, and goes on token by token."""

    @property
    def density_dtype(self) -> torch.dtype:
        """The type of log-probabilities."""

    def begin(self, batch: Batch) -> Any:
        """Prepares to decode a batch; what it gives is handed to every step."""

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Feeds further tokens and scores the vocabulary after each."""


class Decoder(HeadModel):
    """A model with a causal stack over the target."""

    def hidden(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> EncoderDecoderStates:
        """What alignments above it know of whole sentences: states, and those of earlier words."""
        assert self.alignments is not None
        return self.alignments.look_back(self.states(batch, choices), batch.target_valid)

    @abstractmethod
    def begin(self, batch: Batch) -> DecodingState:
        """Prepares to decode a batch token by token, before its first target token."""

    @abstractmethod
    def step(
        self, tokens: Int[Tensor, "batch *hypothesis new"], state: DecodingState
    ) -> Float[Tensor, "batch *hypothesis new vocab"]:
        """Feeds further target tokens and scores the vocabulary after each.

        Args:
            tokens: The next tokens of every sentence, or of each of its hypotheses.
            state: What :meth:`begin` prepared.
        """

    def advance(
        self,
        states: Float[Tensor, "batch *hypothesis new dim"],
        tokens: Int[Tensor, "batch *hypothesis new"],
        state: DecodingState,
    ) -> Float[Tensor, "batch *hypothesis new vocab"]:
        """Scores the vocabulary after new tokens, all alignments summed, and counts the tokens.

        Args:
            states: What the network says after each.
            tokens: Those that were fed.
            state: What :meth:`begin` prepared.
        """
        state.position += tokens.shape[-1]
        if state.alignments is not None:
            return state.alignments.scores(states, tokens)
        return self.predict(states)

    def reach(self, drawn: Bool[Tensor, "*batch query"], start: int = 0) -> AttentionMask:
        """Causal validity of the queries from a position on; padding follows every real token.

        Args:
            drawn: The queries whose heads are drawn.
            start: Position of the first.
        """
        return AttentionMask(drawn, None, start, self.density_dtype)

    def step_mask(self, tokens: Int[Tensor, "batch *hypothesis new"], start: int) -> AttentionMask:
        """The reach of new tokens from a position on, one for all sentences and hypotheses."""
        one = tokens.new_ones((1,) * (tokens.ndim - 1) + tokens.shape[-1:], dtype=torch.bool)
        return self.reach(one, start)

    @property
    def density_dtype(self) -> torch.dtype:
        """float32, or float64 for a model in float64."""
        return torch.promote_types(self.dtype, torch.float32)
