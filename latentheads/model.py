"""The base class of models: a network with latent heads, a likelihood, and decoding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import pyro
import torch
from jaxtyping import Bool, Float, Int
from pyro.infer.util import is_validation_enabled
from torch import Tensor

from latentheads.arguments import Configured
from latentheads.attention.block import BlockCache, HeadBlock
from latentheads.attention.disagreement import Disagreement
from latentheads.batch import Batch, SentenceTasks, check_batch
from latentheads.distributions.tokens import Tokens, make_token_distribution
from latentheads.latents.l0_penalty import L0Penalty
from latentheads.latents.latent import Latent, LatentModel
from latentheads.latents.mixture import PassMixture
from latentheads.latents.network import Choice, EncoderDecoderStates
from latentheads.latents.output_heads import OutputHeads, OutputState
from latentheads.latents.selector import Selector
from latentheads.layers.output import Output
from latentheads.mask import AttentionMask
from latentheads.names import SENTENCES, TARGET, Block
from latentheads.parameters import register_parameters

L = TypeVar("L", bound=Latent)


class HeadModel(LatentModel):
    """The Pyro model p(y, heads | x): it samples every head and observes the target.

    Attributes:
        attention_types: The attention types of this network.
        output: The output layer; a subclass makes it.
        disagreement: A term that rewards heads for differing in training; None: there is none.
        l0_penalty: The L0 penalty of active heads in training; None: there is none.
        is_pruned: Whether heads were removed, or a selection of heads was folded into the weights.

    Args:
        attention_types: The attention types of this network.
        label_smoothing: Of the likelihood in training; evaluation is always exact.
    """

    output: Output

    def __init__(
        self,
        attention_types: Collection[str],
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.latents: dict[str, Latent] = {}
        self.l0_penalty: L0Penalty | None = None
        self.attention_types = tuple(attention_types)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.label_smoothing = label_smoothing
        self.disagreement: Disagreement | None = None
        self.is_pruned = False

    def add_latents(self, latents: Iterable[Latent]) -> None:
        """Give the model further latents.

        Raises:
            ValueError: The model has one of the same name already, or of the same role.
        """
        for latent in latents:
            for name, other in self.latents.items():
                excluded = other.excludes(latent) or latent.excludes(other)
                if name == latent.name or excluded:
                    raise ValueError(f"latents {name} and {latent.name} exclude each other")
            self.latents[latent.name] = latent
            for name, module in latent.modules_to_save.items():
                setattr(self, name, module)

    def set_vocabularies(self, source: Any, target: Any) -> None:
        """Set the vocabularies of the model's ids, for latents that depend on tokens.

        Raises:
            ValueError: A latent cannot be had with these vocabularies.
        """
        for latent in self.latents.values():
            latent.set_vocabularies(source, target)

    def remove_latent(self, name: str) -> None:
        """Take a latent away, which the model then no longer samples."""
        for module_name in self.latents.pop(name).modules_to_save:
            setattr(self, module_name, None)

    def find_latent(self, kind: type[L]) -> L | None:
        """The latent of a class; None if there is none."""
        return next((lat for lat in self.latents.values() if isinstance(lat, kind)), None)

    @property
    def selector(self) -> Selector | None:
        """What decides which heads are active; None: all are."""
        return self.find_latent(Selector)  # type: ignore[type-abstract]

    @property
    def output_heads(self) -> OutputHeads | None:
        return self.find_latent(OutputHeads)  # type: ignore[type-abstract]

    @property
    def head_blocks(self) -> list[HeadBlock]:
        return [module for module in self.modules() if isinstance(module, HeadBlock)]

    @property
    def latent_blocks(self) -> list[HeadBlock]:
        return [module for module in self.head_blocks if module.prior is not None]

    @property
    def samples_heads(self) -> bool:
        return any(module.has_noise for module in self.latent_blocks)

    @property
    def aligns_with_text(self) -> bool:
        """Whether heads point at positions of a text, latent or deterministic."""
        return self.output_heads is not None and self.output_heads.points

    @property
    def samples_alignments(self) -> bool:
        """Whether there are latent alignments, and so a posterior over them.

        Components of a mixture are no alignments, because they are no positions of a text.
        """
        return self.aligns_with_text and self.is_summed_out

    @property
    def selecting_blocks(self) -> list[HeadBlock]:
        return [module for module in self.head_blocks if module.selector is not None]

    def predict(
        self, states: Float[Tensor, "*batch target dim"]
    ) -> Float[Tensor, "*batch target vocab"]:
        """Score the vocabulary."""
        return self.output(states)

    def likelihood(self, states: Float[Tensor, "*batch target dim"], batch: Batch) -> Tokens:
        states, valid = states[..., batch.context :, :], batch.scored_mask
        return make_token_distribution(
            states, valid, self.output.with_current_weights(), self.smoothing
        )

    @property
    def smoothing(self) -> float:
        return self.label_smoothing if self.training else 0.0

    def forward(self, batch: Batch, *, observe: bool = True) -> Any:
        """Sample every head, then the target.

        Args:
            batch: The sentences.
            observe: Condition on the batch's target; if not, sample tokens after its prefix.
        """
        check_batch(batch)
        # on a GPU the check would synchronise
        if is_validation_enabled() and self.device.type == "cpu":
            batch.check_ids(**self.vocabulary_sizes)
        register_parameters("model", self)
        choices = self.select_heads(batch)
        with pyro.plate(SENTENCES, size=batch.size, subsample=batch.sentences):
            distribution = self._token_distribution_with_penalty(batch, choices)
            return pyro.sample(TARGET, distribution, obs=batch.scored if observe else None)

    def token_distribution(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> Tokens:
        for latent in self.latents.values():
            distribution = latent.token_distribution(self, batch, choices)
            if distribution is not None:
                return cast(Tokens, distribution)
        args = () if choices is None else (choices,)
        return self.likelihood(self.states(batch, *args), batch)

    def _token_distribution_with_penalty(
        self, batch: Batch, choices: Mapping[str, Choice]
    ) -> Tokens:
        """The token distribution; in training with a disagreement factor for every block."""
        disagreement = self.disagreement
        if disagreement is None or not self.training:
            return self.token_distribution(batch, choices)
        with disagreement.record_agreement(self) as disagreements:
            distribution = self.token_distribution(batch, choices)
        tokens = batch.scored_mask.sum(-1)
        for block, value in disagreements.items():
            pyro.factor(f"{block}.disagreement", -disagreement.weight * tokens * value)
        return distribution


@runtime_checkable
class _Cached(Protocol):
    """A module with a decoding cache."""

    block: Block

    def cache(self) -> BlockCache: ...


@dataclass
class DecodingState:
    """The decoding state: a cache for every block, and a position.

    A cascade needs no cache of its own: it runs through the layers within one row. The selection of
    heads is sampled once, at the start. If a latent is a mixture of passes, the rows of all tensors
    are the components of every sentence.
    """

    caches: dict[str, BlockCache] = field(default_factory=dict)
    position: int = 0
    choices: dict[str, Choice] = field(default_factory=dict)
    task: SentenceTasks | None = None
    output_heads: OutputState | None = None
    mixture: PassMixture | None = None

    def rows_of(
        self, tokens: Int[Tensor, "batch *hypothesis new"]
    ) -> Int[Tensor, "row *hypothesis new"]:
        """The tokens of every pass: those of each sentence, or of each component of a mixture."""
        return tokens if self.mixture is None else self.mixture.expand(tokens)

    def cache(self, block: _Cached) -> Any:
        """The cache of a block, initially empty."""
        return self.caches.setdefault(block.block.name, block.cache())

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Select, repeat or reorder sentences of the batch, and the hypotheses of each.

        Only self-attention has a cache for each hypothesis; nothing else is copied for them.

        Args:
            sentences: The sentences to keep; None: all, unchanged.
            hypotheses: The hypotheses to keep of each of these; None: all, unchanged.
        """
        if (mixture := self.mixture) is None:
            self._select_rows(sentences, hypotheses)
            return
        mixture.select(sentences, hypotheses)
        self._select_rows(
            None if sentences is None else mixture.expand_index(sentences),
            None if hypotheses is None else mixture.expand(hypotheses),
        )

    def _select_rows(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Selects rows of all tensors; see :meth:`select`."""
        if sentences is None and hypotheses is None:
            return
        for cache in self.caches.values():
            cache.select(sentences, hypotheses)
        if self.output_heads is not None:
            self.output_heads.select(sentences, hypotheses)
        if sentences is not None:
            self.choices = {name: choice.select(sentences) for name, choice in self.choices.items()}
            self.task = None if self.task is None else self.task.select(sentences)


@runtime_checkable
class Stepwise(Protocol):
    """The interface of models for decoding token by token."""

    @property
    def density_dtype(self) -> torch.dtype:
        """The dtype of log-probabilities."""

    def begin(self, batch: Batch) -> Any:
        """Start decoding a batch; the state is passed to every step."""

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Input further tokens and score the vocabulary after each."""


class Decoder(HeadModel, Configured):
    """A model with a causal decoder of the target; it keeps the arguments that it was made with."""

    def hidden(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> EncoderDecoderStates:
        """The inputs of heads above the decoder: states, with the earlier ones as memory."""
        assert self.output_heads is not None
        states = self.states(batch, choices)
        return self.output_heads.causal_states(states, batch.target_valid, batch.target)

    @property
    def undecodable(self) -> str:
        """Why it cannot decode; empty: it can."""
        name = next((name for name, latent in self.latents.items() if not latent.decodes), "")
        what = "run the network, so that decoding needs their decoding_mixture"
        return f"latents {name} {what}" if name else ""

    def begin_heads(self, batch: Batch) -> tuple[Batch, dict[str, Choice], PassMixture | None]:
        """The rows to decode, their active heads, and the mixture that they are components of.

        Args:
            batch: The sentences.

        Raises:
            ValueError: A latent runs the network, and has no form for decoding.
        """
        if self.undecodable:
            raise ValueError(self.undecodable)
        mixtures = (latent.decoding_mixture(self, batch) for latent in self.latents.values())
        passes = next((passes for passes in mixtures if passes is not None), None)
        if passes is None:
            return batch, self.select_heads(batch), None
        mixture = PassMixture(*passes, len(batch))
        rows = mixture.expand_batch(batch)
        return rows, self.select_heads(rows) | mixture.choices(), mixture

    @abstractmethod
    def begin(self, batch: Batch) -> DecodingState:
        """Start decoding a batch token by token, before its first target token."""

    @abstractmethod
    def step(
        self, tokens: Int[Tensor, "batch *hypothesis new"], state: DecodingState
    ) -> Float[Tensor, "batch *hypothesis new vocab"]:
        """Input further target tokens and score the vocabulary after each.

        Args:
            tokens: The next tokens of every sentence, or of each of its hypotheses.
            state: The state from :meth:`begin`.
        """

    def advance(
        self,
        states: Float[Tensor, "row *hypothesis new dim"],
        tokens: Int[Tensor, "batch *hypothesis new"],
        state: DecodingState,
    ) -> Float[Tensor, "batch *hypothesis new vocab"]:
        """Score the vocabulary after new tokens, with heads summed out, and advance the state.

        Args:
            states: The network's states after the tokens, a row for each component of a mixture.
            tokens: The input tokens.
            state: The state from :meth:`begin`.
        """
        state.position += tokens.shape[-1]
        if state.output_heads is not None:
            return state.output_heads.scores(states, tokens)
        scores = self.predict(states)
        return scores if state.mixture is None else state.mixture.mix(scores, tokens)

    def attention_mask(
        self, latent_queries: Bool[Tensor, "*batch query"], start: int = 0
    ) -> AttentionMask:
        """The causal mask of queries from a position on; padding must be on the right.

        Args:
            latent_queries: True at queries whose heads are latent.
            start: Position of the first query.
        """
        return AttentionMask(latent_queries, None, start, self.density_dtype)

    def step_mask(self, tokens: Int[Tensor, "batch *hypothesis new"], start: int) -> AttentionMask:
        """The mask of new tokens from a position on, shared by all sentences and hypotheses."""
        latent_queries = tokens.new_ones(
            (1,) * (tokens.ndim - 1) + tokens.shape[-1:], dtype=torch.bool
        )
        return self.attention_mask(latent_queries, start)

    @property
    def density_dtype(self) -> torch.dtype:
        """float32, or float64 for a model in float64."""
        return torch.promote_types(self.dtype, torch.float32)
