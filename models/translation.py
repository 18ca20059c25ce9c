"""Translation: an encoder-decoder with latent heads in all three types of attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import pyro
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentheads.attention.latent import LatentAttention
from latentheads.batch import Batch
from latentheads.checks import check_least
from latentheads.latents.default import DEFAULT_LATENTS
from latentheads.latents.latent import Latent
from latentheads.latents.network import Choice, EncoderDecoderStates
from latentheads.latents.options import (
    LatentOptions,
    ModelShape,
    add_latents_of_blocks,
    make_latents,
)
from latentheads.layers.linear_output import TableOutput
from latentheads.mask import AttentionMask, PairMask
from latentheads.model import Decoder, DecodingState
from latentheads.models.adapters import Adapters
from latentheads.models.front_end import FrontEnd
from latentheads.models.heads import HeadOptions
from latentheads.models.layers import Layer, Stack
from latentheads.models.mixers import Mixer, make_mixer
from latentheads.models.network import (
    Embedding,
    Network,
    NetworkKwargs,
    Sides,
    check_network,
    check_sides,
    task_names,
)
from latentheads.names import ATTENTION_TYPES, Block, side_of
from latentheads.options import from_dict


@dataclass
class _TranslationState(DecodingState):
    memory: Tensor | None = None
    memory_mask: PairMask | None = None

    def _select_rows(self, sentences: Tensor | None, hypotheses: Tensor | None = None) -> None:
        super()._select_rows(sentences, hypotheses)
        if sentences is not None:
            assert self.memory is not None
            assert self.memory_mask is not None
            self.memory = self.memory.index_select(0, sentences)
            mask = self.memory_mask
            parts = (mask.bias, mask.latent, mask.pairs)
            self.memory_mask = PairMask(*(part.index_select(0, sentences) for part in parts))


class Translation(Decoder):
    """p(y, heads | x) of an encoder-decoder.

    Args:
        source_vocab_size: Source vocabulary size, including special tokens.
        target_vocab_size: Target vocabulary size.
        network: Sizes.
        latents: What is random: latents, or their options; None: alignment heads alone.
        label_smoothing: Label smoothing of the likelihood in training.
        adapters: Residual layers for each task; None: none.
        sources: Names of the tasks that the encoder distinguishes, for latents of each task.
        targets: The same for the decoder.
        bins: Coefficients of a frame, for a source of speech; 0: the source is text.
        ctc: Weight of the CTC loss in training, which is never part of a bound; 0: none.

    Attributes:
        ctc: The CTC head; None without CTC.

    Example:
        >>> sizes = Network(width=16, heads=2, layers=1)
        >>> model = Translation(50, 60, sizes, latents=[lh.latents.LogitsOptions("independent")])
        >>> [block.name for block in model.blocks]
        ['encoder.0.self', 'decoder.0.self', 'decoder.0.cross']
    """

    output: TableOutput

    def __init__(
        self,
        source_vocab_size: int,
        target_vocab_size: int,
        network: Network | None = None,
        latents: Sequence[Latent | LatentOptions] | None = None,
        label_smoothing: float = 0.0,
        adapters: Adapters | None = None,
        sources: Sequence[str] = ("",),
        targets: Sequence[str] = ("",),
        bins: int = 0,
        ctc: float = 0.0,
    ) -> None:
        super().__init__(ATTENTION_TYPES, label_smoothing)
        check_network(network)
        latents = DEFAULT_LATENTS if latents is None else latents
        sizes = network or Network()
        shape = ModelShape(
            sizes.heads,
            ATTENTION_TYPES,
            sizes.width,
            sizes.dropout,
            sources=tuple(sources),
            targets=tuple(targets),
        )
        self.add_latents(make_latents(latents, shape, before_blocks=True))
        _check_source(sizes, source_vocab_size, target_vocab_size, bins)
        _check_ctc(ctc, bins)
        self.network, self.adapters = sizes, adapters
        heads, width = HeadOptions.of(self), sizes.width
        self._make_embeddings(source_vocab_size, target_vocab_size, bins)

        def make_self_attention(attention_type: str, layer: int) -> Mixer:
            return make_mixer(attention_type, layer, sizes, heads)

        def make_cross_attention(layer: int) -> LatentAttention:
            return heads.make_attention(Block(ATTENTION_TYPES[2], layer, sizes.heads), sizes)

        def make_adapters(side: str) -> nn.ModuleList | None:
            return None if adapters is None else adapters.make(side, width)

        self.encoder = Stack(
            sizes,
            sizes.depth("encoder"),
            lambda depth: Layer(
                sizes,
                make_self_attention(ATTENTION_TYPES[0], depth),
                None,
                make_adapters("encoder"),
            ),
        )
        self.decoder = Stack(
            sizes,
            sizes.depth("decoder"),
            lambda depth: Layer(
                sizes,
                make_self_attention(ATTENTION_TYPES[1], depth),
                make_cross_attention(depth),
                make_adapters("decoder"),
            ),
        )
        add_latents_of_blocks(self, latents, shape)
        self.ctc = self._front_end.make_loss(width, target_vocab_size, ctc) if ctc else None

    def _make_embeddings(self, source_vocab_size: int, target_vocab_size: int, bins: int) -> None:
        """Makes the embeddings of both sides, and the output layer.

        The order fixes which random numbers initialise which weights.
        """
        sizes = self.network
        source = None if bins else Embedding.new_table(source_vocab_size, sizes.width)
        shared = source if sizes.share == "all" else None
        target = Embedding.new_table(target_vocab_size, sizes.width) if shared is None else shared
        untied = sizes.share == "none"
        self.output = TableOutput(
            Embedding.new_table(target_vocab_size, sizes.width) if untied else target
        )
        self.source_embedding = (
            self._front_end.make_embedding(bins, sizes.width, sizes.dropout)
            if source is None
            else Embedding(source, sizes.dropout)
        )
        self.target_embedding = Embedding(target, sizes.dropout)

    @property
    def _front_end(self) -> FrontEnd:
        """What reads frames."""
        return self.network.speech or FrontEnd.default()

    @classmethod
    def of(
        cls,
        corpus: Sides,
        latents: Sequence[Latent | LatentOptions] | None = None,
        label_smoothing: float = 0.0,
        ctc: float = 0.0,
        **sizes: Unpack[NetworkKwargs],
    ) -> Translation:
        """Makes a model for the vocabularies of a corpus, and its tasks.

        Args:
            corpus: A parallel corpus, or one of speech, or the processor of one.
            latents: What is random: latents, or options, such as ``lh.latents.LogitsOptions()``;
                None: alignment heads alone.
            label_smoothing: Label smoothing of the likelihood in training.
            ctc: Weight of the CTC loss in training, for a corpus of speech.
            **sizes: Fields of :class:`latentheads.models.Network`.
        """
        check_sides(corpus)
        source, target = corpus.source, corpus.target
        if source is None:
            raise ValueError("this corpus has no source: it is for a LanguageModel")
        network = from_dict(Network, sizes)
        if network.share == "all" and source is not target:
            raise ValueError("share='all' needs one joint vocabulary of source and target")
        sources, targets = task_names(corpus.mixture)
        model = cls(
            len(source),
            len(target),
            network,
            latents,
            label_smoothing,
            sources=sources,
            targets=targets,
            bins=source.bins,
            ctc=ctc,
        )
        model.set_vocabularies(source, target)
        return model

    @property
    def vocabulary_sizes(self) -> dict[str, int]:
        """The vocabulary sizes of both sides; speech has none."""
        target = {"target": len(self.output.weight)}
        if not isinstance(self.source_embedding, Embedding):
            return target
        return target | {"source": self.source_embedding.size}

    def encode(
        self, batch: Batch, choices: Mapping[str, Choice]
    ) -> Float[Tensor, "*batch source dim"]:
        """Runs the encoder."""
        valid, task = batch.source_valid, batch.tasks("encoder")
        attention_mask = AttentionMask(valid, valid, dtype=self.density_dtype)
        return self.encoder(self._embed_source(batch), attention_mask, choices=choices, task=task)

    def _embed_source(self, batch: Batch) -> Float[Tensor, "batch source dim"]:
        if isinstance(self.source_embedding, Embedding):
            return self.source_embedding(batch.source)
        if batch.frames is None:
            raise ValueError("this batch has no frames: the model takes speech")
        return self.source_embedding(batch.frames, batch.frame_counts)

    def hidden(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> EncoderDecoderStates:
        valid = batch.source_valid
        choices = self.select_heads(batch) if choices is None else choices
        memory = self.encode(batch, choices)
        if self.training and self.ctc is not None:
            nats = self.ctc(memory, valid, batch.scored)
            pyro.factor("encoder.ctc", -self.ctc.weight * nats)
        queries = batch.target_latent
        cross = self._cross_mask(valid, queries)
        x = self.target_embedding(batch.decoder_input)
        x = self.decoder(
            x,
            self.attention_mask(queries),
            memory,
            cross,
            choices=choices,
            task=batch.tasks("decoder"),
        )
        return EncoderDecoderStates(x, memory, valid.unsqueeze(-2), tokens=_key_tokens(batch))

    def decode_ctc(self, batch: Batch) -> list[list[int]]:
        """Decodes each utterance greedily by CTC, without the decoder: tokens without EOS."""
        if self.ctc is None:
            raise ValueError("this model has no CTC: train it with ctc")
        return self.ctc.greedy_decode(
            self.encode(batch, self.select_heads(batch)), batch.source_valid
        )

    def states(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> Float[Tensor, "*batch target dim"]:
        """The states that predict each target token, before heads above the decoder add to them."""
        return self.hidden(batch, choices).states

    def _cross_mask(self, source: Tensor, queries: Tensor) -> PairMask:
        attn_mask = source.unsqueeze(-2).expand(*queries.shape, source.shape[-1])
        return PairMask.build(attn_mask, queries, self.density_dtype)

    def begin(self, batch: Batch) -> DecodingState:
        """Encodes the source."""
        sentences = batch
        batch, choices, mixture = self.begin_heads(sentences)
        valid = batch.source_valid
        first_query = valid.new_ones(len(batch), 1)
        chosen_in_encoder = any(side_of(name) == "encoder" for name in choices)
        if mixture is None or self.samples_heads or chosen_in_encoder:
            memory = self.encode(batch, choices)
        else:  # all components of a sentence read the same
            memory = mixture.expand(self.encode(sentences, {}))
        output_state = None
        if (heads := self.output_heads) is not None:
            empty, attn_mask = memory[..., :0, :], valid.unsqueeze(-2)
            hidden = EncoderDecoderStates(empty, memory, attn_mask, tokens=_key_tokens(batch))
            output_state = heads.begin(hidden, self.output)
        return _TranslationState(
            choices=choices,
            task=batch.tasks("decoder"),
            memory=memory,
            memory_mask=self._cross_mask(valid, first_query),
            output_heads=output_state,
            mixture=mixture,
        )

    def step(
        self, tokens: Int[Tensor, "batch *hypothesis new"], state: DecodingState
    ) -> Float[Tensor, "batch *hypothesis new vocab"]:
        assert isinstance(state, _TranslationState)
        rows = state.rows_of(tokens)
        attention_mask = self.step_mask(rows, state.position)
        x = self.target_embedding(rows, state.position)
        x = self.decoder(
            x, attention_mask, state.memory, state.memory_mask, state, state.choices, state.task
        )
        return self.advance(x, tokens, state)


def _key_tokens(batch: Batch) -> Tensor | None:
    """The tokens of the source, if it is text."""
    return batch.source if batch.frames is None else None


def _check_source(
    network: Network, source_vocab_size: int, target_vocab_size: int, bins: int
) -> None:
    """Raises an error for sizes that a translation model with this source cannot have."""
    if network.adaptive is not None:
        raise ValueError("adaptive, a softmax in bands, is for a language model")
    if network.speech is not None and not bins:
        raise ValueError("speech is for an encoder of speech: this source is text")
    joint = network.share == "all"
    if joint and bins:
        raise ValueError("share='all' is of text: speech has no embeddings to share")
    if joint and source_vocab_size != target_vocab_size:
        raise ValueError(
            "share='all' needs one joint vocabulary, "
            f"got sizes {source_vocab_size} and {target_vocab_size}"
        )


def _check_ctc(ctc: float, bins: int) -> None:
    """Raises an error for a negative weight of CTC, and for CTC of text."""
    check_least({"ctc": ctc}, ctc=0.0)
    if ctc and not bins:
        raise ValueError("ctc is for speech: text has no frames to align")
