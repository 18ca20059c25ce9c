"""The parts of a Transformer around its attention: embeddings, feed-forward, residuals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, TypedDict, runtime_checkable

import torch
from annotated_types import Ge, Le
from jaxtyping import Float, Int
from pydantic import NonNegativeFloat
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.batch import PAD
from latentheads.checks import MAX_WIDTH, check_instance
from latentheads.errors import shown
from latentheads.layers.adaptive import AdaptiveTable
from latentheads.layers.numeric import dropout
from latentheads.layers.position import sinusoidal_positions
from latentheads.models.front_end import FrontEnd
from latentheads.models.mixing import STACKS, MixerConfig, named_stacks, parse_mixers
from latentheads.options import Choice, Count, Dropout, OptionError, Size, Width, options_class

Share = Literal["decoder", "all", "none"]
MAX_LAYERS = 1000
"""Most layers of a stack: more do not fit into memory."""

NGRAM = ("ngram_heads", "ngram_width", "ngram_slices", "ngram_context", "ngram_noise")
"""Options of n-gram layers."""
MIXERS_OF_OPTION = {"windows": {"local", "ngram"}, "ngram_width": {"ngram"}}
"""Options that are parsed by layer, and the mixers that they apply to."""


@options_class()
class Norm(Choice, ABC):
    """Where the layer norms stand."""

    @classmethod
    def choices(cls) -> Mapping[str, type[Norm]]:
        return {"post": PostNorm, "pre": PreNorm}

    @property
    @abstractmethod
    def is_pre(self) -> bool:
        """Whether the input of a step is normalised, in place of the residual sum."""

    @property
    @abstractmethod
    def ends_stack(self) -> bool:
        """Whether a layer norm follows the last layer."""


@options_class()
class PostNorm(Norm):
    """Layer norms after each residual sum."""

    is_pre = False
    ends_stack = False  # the last residual sum is normalised already


@options_class()
class PreNorm(Norm):
    """Layer norms before each step of a layer.

    Attributes:
        final_norm: Whether a stack ends with a layer norm; the papers' language models have none.
    """

    final_norm: bool = True
    is_pre = True

    @property
    def ends_stack(self) -> bool:
        """Whether ``final_norm`` is set."""
        return self.final_norm


@options_class()
class AdaptiveOptions:
    """Adaptive input and softmax of a language model: frequent words have wider embeddings.

    Attributes:
        cutoffs: First token id of each band after the first; low ids are the most frequent.
        div_value: By which factor each band is narrower than the one before.
        dropout: Dropout of the states from which further bands are computed.
    """

    cutoffs: tuple[int, ...]
    div_value: Count = 4
    dropout: Dropout = 0.0

    def __post_init__(self) -> None:
        if not self.cutoffs:
            raise OptionError("cutoffs", " must hold at least one: without any, drop adaptive")


@options_class()
class Network:
    """The size of a network.

    Attributes:
        width: Model width d.
        feed_forward: Hidden width of the feed-forward steps.
        heads: Heads of every block; must divide the width.
        layers: Layers of each stack.
        norm: Layer norms after each residual sum (post) or before each step (pre).
        dropout: Dropout of embeddings and of every residual step.
        attention_dropout: Dropout of attention weights.
        activation_dropout: Dropout inside the feed-forward step, and of n-gram heads.
        share: Which embeddings are one table: decoder input and output (decoder), the source's
            too, for a joint vocabulary (all), or none.
        adaptive: Adaptive input and softmax of a language model, as ``2000,10000``, the token ids
            at which new bands begin; none: one full softmax.
        mixers: What mixes positions: attention, local (attention to a window), or ngram (a neural
            n-gram), for each layer as ``ngram*3,attention*3``, for a stack alone as
            ``encoder=ngram decoder=attention``. Cross-attention stays.
        windows: Window n of local and n-gram layers, in the same notation: the last n positions in
            a decoder, in an encoder those from t - n + 1 to t + n - 1. Empty: 5.
        ngram_heads: Heads of n-gram layers; 0: as many as attention has.
        ngram_width: Width of each n-gram head, in the same notation. Empty or 0: so that the layer
            has about as many parameters as attention.
        ngram_slices: The input of each n-gram head is its own slice of every state, not all of it.
        ngram_context: n-gram layers of the encoder also take the maximum over the whole sentence.
        ngram_noise: Standard deviation of noise on the outputs of n-gram heads, which are then
            sampled for each sentence; 0: they are not.
        speech: The layers for frames of speech; not given: for a source of speech, the defaults.
        decoder_layers: Layers of a decoder beside an encoder, where it has another number; 0: the
            same.

    Example:
        >>> network = Network(layers=3, mixers="ngram*2,attention")
        >>> [mixing.kind for mixing in network.stack("encoder")]
        ['ngram', 'ngram', 'attention']
    """

    width: Width = 64
    feed_forward: Annotated[int, Ge(1), Le(4 * MAX_WIDTH)] = 128
    heads: Count = 4
    layers: Annotated[int, Ge(1), Le(MAX_LAYERS)] = 2
    norm: Norm = PostNorm()
    dropout: Dropout = 0.0
    attention_dropout: Dropout = 0.0
    activation_dropout: Dropout = 0.0
    share: Share = "decoder"
    adaptive: AdaptiveOptions | None = None
    mixers: str = "attention"
    windows: str | int = ""
    ngram_heads: Size = 0
    ngram_width: str | int = ""
    ngram_slices: bool = False
    ngram_context: bool = False
    ngram_noise: NonNegativeFloat = 0.0
    speech: FrontEnd | None = None
    decoder_layers: Annotated[int, Ge(0), Le(MAX_LAYERS)] = 0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise OptionError("heads", f" must divide the width {self.width}, got {self.heads}")
        if self.width % 2:
            raise OptionError("width", f" must be even, got {self.width}")
        if self.adaptive is not None and self.share == "none":
            raise OptionError("adaptive", " ties the output to the input: share none is impossible")
        self._numbers_to_text()
        self._check_mixers()

    def _numbers_to_text(self) -> None:
        """Converts integer values of options that are parsed by layer to text."""
        for name in MIXERS_OF_OPTION:
            object.__setattr__(self, name, str(getattr(self, name)))

    def _check_mixers(self) -> None:
        kinds = {mixing.kind for stack in STACKS for mixing in self.stack(stack)}
        if self.windows and kinds == {"attention"}:
            raise OptionError("windows", " are for local and ngram layers: mixers has none")
        for name, mixers in MIXERS_OF_OPTION.items():
            for stack in named_stacks(name, getattr(self, name)):
                if not mixers & {mixing.kind for mixing in self.stack(stack)}:
                    names = " and ".join(sorted(mixers))
                    raise OptionError(name, f" is for {names} layers: the {stack} has none")
        for name in NGRAM:
            if getattr(self, name) not in ("", "0", 0) and "ngram" not in kinds:
                raise OptionError(name, " is for ngram layers: mixers has none")
        if self.ngram_slices and self.width % (self.ngram_heads or self.heads):
            raise OptionError(
                "ngram_heads",
                f" must divide the width {self.width} for slices, got {self.ngram_heads}",
            )
        if self.ngram_context and all(m.kind != "ngram" for m in self.stack(STACKS[0])):
            raise OptionError("ngram_context", " is for ngram layers of the encoder: it has none")

    def stack(self, name: str) -> tuple[MixerConfig, ...]:
        """The mixer of every layer of the encoder or the decoder."""
        numbers = str(self.windows), str(self.ngram_width)
        return parse_mixers(self.mixers, *numbers, name, self.depth(name))

    def depth(self, name: str) -> int:
        """Layers of the encoder or the decoder."""
        return (self.decoder_layers if name == STACKS[1] else 0) or self.layers


class NetworkKwargs(TypedDict, total=False):
    """The options of a :class:`Network`."""

    width: int
    feed_forward: int
    heads: int
    layers: int
    norm: Norm | str | Mapping[str, Any]
    dropout: float
    attention_dropout: float
    activation_dropout: float
    share: Share
    adaptive: AdaptiveOptions | Mapping[str, Any] | Sequence[int] | None
    mixers: str
    windows: str | int
    ngram_heads: int
    ngram_width: str | int
    ngram_slices: bool
    ngram_context: bool
    ngram_noise: float
    speech: FrontEnd | Mapping[str, Any] | None
    decoder_layers: int


class ScaledWithPositions(nn.Module):
    """Scales states by sqrt(d), adds sinusoidal positions, applies dropout.

    Args:
        dropout: Dropout of the sum.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self._positions: Tensor | None = None

    def add_positions(
        self, x: Float[Tensor, "*batch token dim"], start: int = 0
    ) -> Float[Tensor, "*batch token dim"]:
        """Scales states, adds positions from ``start`` on, and applies dropout."""
        x = x * x.shape[-1] ** 0.5
        x = x + self._positions_at(start, x.shape[-2], x)
        return dropout(x, self.dropout, self.training)

    def _positions_at(self, start: int, length: int, like: Tensor) -> Tensor:
        cached = self._positions
        end = start + length
        fits = cached is not None and (cached.device, cached.dtype) == (like.device, like.dtype)
        if cached is None or not fits or cached.shape[0] < end:
            # twice as many, since incremental decoding needs one position more at each step
            cached = sinusoidal_positions(
                max(2 * end, 128), like.shape[-1], like.device, like.dtype
            )
            self._positions = cached
        return cached[start:end]


class Embedding(ScaledWithPositions):
    """Token embeddings times sqrt(d), plus sinusoidal positions, with dropout.

    Args:
        table: The embedding table, possibly shared.
        dropout: Dropout of the sum.
    """

    def __init__(self, table: nn.Embedding | AdaptiveTable, dropout: float) -> None:
        super().__init__(dropout)
        self.table = table

    @staticmethod
    def new_table(vocab_size: int, width: int) -> nn.Embedding:
        """Makes a table with the padding row at zero."""
        table = nn.Embedding(vocab_size, width, padding_idx=PAD)
        nn.init.normal_(table.weight, std=width**-0.5)
        with torch.no_grad():
            table.weight[PAD].zero_()
        return table

    @property
    def size(self) -> int:
        """The vocabulary size."""
        table = self.table
        return table.num_embeddings if isinstance(table, nn.Embedding) else table.ends[-1]

    def forward(
        self, tokens: Int[Tensor, "*batch token"], start: int = 0
    ) -> Float[Tensor, "*batch token dim"]:
        """Embeds tokens, of which the first has the position ``start``."""
        return self.add_positions(self._look_up(tokens), start)

    def _look_up(self, tokens: Int[Tensor, "*batch token"]) -> Float[Tensor, "*batch token dim"]:
        try:
            return self.table(tokens)
        except IndexError as reason:  # only on a CPU, and never from an adaptive table
            assert isinstance(self.table, nn.Embedding)
            low, high = map(int, tokens.aminmax())
            raise ValueError(
                f"token ids must lie between 0 and {self.table.num_embeddings - 1}, those of the "
                f"vocabulary, got {low} to {high}"
            ) from reason


class FeedForward(nn.Module):
    """Two linear layers with a ReLU between them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.inner = nn.Linear(network.width, network.feed_forward)
        self.outer = nn.Linear(network.feed_forward, network.width)
        self.dropout = network.activation_dropout
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, "*batch token dim"]) -> Float[Tensor, "*batch token dim"]:
        """Transforms every position."""
        hidden = dropout(F.relu(self.inner(x)), self.dropout, self.training)
        return self.outer(hidden)


class Residual(nn.Module):
    """A residual connection around a sub-layer, with layer norm after (post) or before (pre)."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(network.width)
        self.pre = network.norm.is_pre
        self.dropout = network.dropout

    def prepare_input(self, x: Tensor) -> Tensor:
        """The input of the sub-layer: normalised if pre-norm."""
        return self.norm(x) if self.pre else x

    def add_update(self, x: Tensor, update: Tensor) -> Tensor:
        """Adds the output of the sub-layer; normalises if post-norm."""
        x = x + dropout(update, self.dropout, self.training)
        return x if self.pre else self.norm(x)

    def forward(self, x: Tensor, step: Callable[[Tensor], Tensor]) -> Tensor:
        """Applies a sub-layer with its residual connection."""
        return self.add_update(x, step(self.prepare_input(x)))


@runtime_checkable
class Tokens(Protocol):
    """What a model has to know of a vocabulary: its size, and the coefficients of a frame."""

    bins: int

    def __len__(self) -> int: ...


@runtime_checkable
class TaskNames(Protocol):
    """What a model has to know of a mixture of tasks: those that each side distinguishes."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Those of the encoder."""

    @property
    def targets(self) -> tuple[str, ...]:
        """Those of the decoder."""


@runtime_checkable
class Sides(Protocol):
    """The vocabularies of source and target, as a corpus and its processor have them."""

    @property
    def source(self) -> Tokens | None:
        """That of the source; None: there is none."""

    @property
    def target(self) -> Tokens:
        """That of the target."""

    @property
    def mixture(self) -> TaskNames | None:
        """Its tasks; None: there is one alone."""


def task_names(mixture: TaskNames | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the tasks of both sides; one without a name where there is one alone."""
    return (("",), ("",)) if mixture is None else (mixture.sources, mixture.targets)


def check_sides(corpus: object) -> None:
    """Raises an error unless this has vocabularies."""
    sides = getattr(corpus, "target", None), getattr(corpus, "source", ())
    if not (isinstance(sides[0], Tokens) and isinstance(sides[1], Tokens | None)):
        raise ValueError(f"corpus must be a Corpus, or the processor of one, got {shown(corpus)}")


def check_network(network: object) -> None:
    """Raises an error unless these are the sizes of a network, or None."""
    check_instance("network", network, Network | None, "a Network, such as Network(width=64)")
