"""Language model: a causal decoder with latent heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.latents.default import DEFAULT_LATENTS
from latentheads.latents.latent import Latent
from latentheads.latents.network import Choice
from latentheads.latents.options import (
    LatentOptions,
    ModelShape,
    add_latents_of_blocks,
    make_latents,
)
from latentheads.layers.adaptive import AdaptiveOutput, AdaptiveTable
from latentheads.layers.linear_output import TableOutput
from latentheads.layers.output import Output, RowOutput
from latentheads.model import Decoder, DecodingState
from latentheads.models.heads import HeadOptions
from latentheads.models.layers import Layer, Stack
from latentheads.models.mixers import make_mixer
from latentheads.models.mixing import STACKS, named_stacks
from latentheads.models.network import (
    Embedding,
    Network,
    NetworkKwargs,
    PreNorm,
    Sides,
    check_network,
    check_sides,
)
from latentheads.names import ATTENTION_TYPES
from latentheads.options import from_dict


class LanguageModel(Decoder):
    """p(y, heads) of a causal decoder.

    Args:
        vocab_size: Vocabulary size, including special tokens.
        network: Sizes.
        latents: What is random: latents, or their options; None: alignment heads alone.
        label_smoothing: Label smoothing of the likelihood in training.
        targets: Names of the tasks that it distinguishes, for latents of each task.

    Example:
        >>> sizes = Network(width=16, heads=2)
        >>> model = LanguageModel(60, sizes, latents=[lh.latents.LogitsOptions("cascaded")])
        >>> [block.site() for block in model.blocks]
        ['decoder.0.self.logits', 'decoder.1.self.logits']
    """

    def __init__(
        self,
        vocab_size: int,
        network: Network | None = None,
        latents: Sequence[Latent | LatentOptions] | None = None,
        label_smoothing: float = 0.0,
        targets: Sequence[str] = ("",),
    ) -> None:
        attention_type = ATTENTION_TYPES[1]
        super().__init__((attention_type,), label_smoothing)
        check_network(network)
        latents = DEFAULT_LATENTS if latents is None else latents
        sizes = network or Network(norm=PreNorm())
        shape = ModelShape(
            sizes.heads,
            (attention_type,),
            sizes.width,
            sizes.dropout,
            is_causal=True,
            sources=tuple(targets),
            targets=tuple(targets),
        )
        self.add_latents(make_latents(latents, shape, before_blocks=True))
        self.network, heads = sizes, HeadOptions.of(self)
        _check_options(sizes)
        if sizes.adaptive is not None and label_smoothing:
            raise ValueError("label_smoothing needs a full softmax: drop it, or adaptive")
        table, self.output = _make_embeddings_and_output(vocab_size, sizes)
        self.embedding = Embedding(table, sizes.dropout)

        def layer(depth: int) -> Layer:
            return Layer(sizes, make_mixer(attention_type, depth, sizes, heads))

        self.decoder = Stack(sizes, sizes.depth("decoder"), layer)
        add_latents_of_blocks(self, latents, shape)

    @classmethod
    def of(
        cls,
        corpus: Sides,
        latents: Sequence[Latent | LatentOptions] | None = None,
        label_smoothing: float = 0.0,
        **sizes: Unpack[NetworkKwargs],
    ) -> LanguageModel:
        """Makes a model for the vocabulary of a corpus.

        Args:
            corpus: A corpus of one side.
            latents: What is random: latents, or options, such as ``lh.latents.LogitsOptions()``;
                None: alignment heads alone.
            label_smoothing: Label smoothing of the likelihood in training.
            **sizes: Fields of :class:`latentheads.models.Network`; pre-norm by default.
        """
        check_sides(corpus)
        if corpus.source is not None:
            raise ValueError("this corpus has a source: it is for Translation")
        network = from_dict(Network, {"norm": PreNorm(), **sizes})
        return cls(len(corpus.target), network, latents, label_smoothing)

    @property
    def vocabulary_sizes(self) -> dict[str, int]:
        return {"target": self.embedding.size}

    def states(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> Float[Tensor, "*batch target dim"]:
        choices = self.select_heads(batch) if choices is None else choices
        x = self.embedding(batch.decoder_input)
        return self.decoder(x, self.attention_mask(batch.target_latent), choices=choices)

    def begin(self, batch: Batch) -> DecodingState:
        batch, choices, mixture = self.begin_heads(batch)
        state = DecodingState(choices=choices, mixture=mixture)
        if (heads := self.output_heads) is not None:
            state.output_heads = heads.begin_causal(cast(RowOutput, self.output), len(batch))
        return state

    def step(
        self, tokens: Int[Tensor, "batch *hypothesis new"], state: DecodingState
    ) -> Float[Tensor, "batch *hypothesis new vocab"]:
        rows = state.rows_of(tokens)
        x, mask = self.embedding(rows, state.position), self.step_mask(rows, state.position)
        states = self.decoder(x, mask, state=state, choices=state.choices)
        return self.advance(states, tokens, state)


def _check_options(network: Network) -> None:
    """Raises an error for options of an encoder, or of attention where there is none."""
    for name in ("mixers", "windows", "ngram_width"):
        if STACKS[0] in named_stacks(name, str(getattr(network, name))):
            raise ValueError(f"{name} of an encoder is for a translation model")
    for name in ("ngram_context", "speech", "decoder_layers"):
        if getattr(network, name):
            raise ValueError(f"{name} is for a model with an encoder: a language model has none")
    if network.attention_dropout and {m.kind for m in network.stack(STACKS[1])} == {"ngram"}:
        raise ValueError("attention_dropout is for attention: all mixers are ngram")


def _make_embeddings_and_output(
    vocab_size: int, network: Network
) -> tuple[nn.Embedding | AdaptiveTable, Output]:
    """Makes the input embeddings and the output layer, tied unless ``share`` is none."""
    if (adaptive := network.adaptive) is not None:
        bands = AdaptiveTable(vocab_size, network.width, adaptive.cutoffs, adaptive.div_value)
        return bands, AdaptiveOutput(bands, adaptive.dropout)
    table = Embedding.new_table(vocab_size, network.width)
    untied = network.share == "none"
    output_table = Embedding.new_table(vocab_size, network.width) if untied else table
    return table, TableOutput(output_table)
