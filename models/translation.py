"""Translation: an encoder-decoder whose three chains of heads are drawn."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentheads.alignment.aligner import Hidden
from latentheads.alignment.options import AlignmentOptions
from latentheads.alignment.state import AlignmentState
from latentheads.attention.latent import LatentAttention
from latentheads.batch import PAD, Batch, SentenceTasks
from latentheads.corpora import Corpus
from latentheads.distributions import Tokens
from latentheads.layers.output import TableOutput
from latentheads.mask import Mask, Reach
from latentheads.model import Decoder, DecodingState
from latentheads.models.adapters import Adapters
from latentheads.models.alignments import make_aligner
from latentheads.models.heads import HeadOptions
from latentheads.models.layers import Layer, Stack
from latentheads.models.mixers import Mixer, make_mixer
from latentheads.models.network import Embedding, Network
from latentheads.models.priors import Prior, make_prior
from latentheads.names import CHAINS, Block
from latentheads.selection.selector import Choice, Selector

__all__ = ["Translation"]


@dataclass
class _TranslationState(DecodingState):
    memory: Tensor | None = None
    memory_mask: Mask | None = None

    def select(self, sentences: Tensor | None, hypotheses: Tensor | None = None) -> None:
        super().select(sentences, hypotheses)
        if sentences is not None:
            assert self.memory is not None
            assert self.memory_mask is not None
            self.memory = self.memory.index_select(0, sentences)
            mask = self.memory_mask
            parts = (mask.bias, mask.latent, mask.pairs)
            self.memory_mask = Mask(*(part.index_select(0, sentences) for part in parts))


class Translation(Decoder):
    """p(y, heads | x) of an encoder-decoder.

    Args:
        source_vocabulary: Number of source types, special tokens included.
        target_vocabulary: Number of target types.
        prior: Makes the prior of each block; see :func:`latentheads.models.make_prior`.
        network: Sizes.
        latent: The chains whose heads are drawn, of encoder-self, decoder-self, decoder-cross.
        label_smoothing: Of the likelihood while training.
        selector: How blocks select their heads among candidates; None: all heads speak.
        adapters: Steps of its own for each task, behind those that all share; None: none.
        alignments: Blocks above the decoder that point at source positions; None: none.

    Example:
        >>> sizes = Network(width=16, heads=2, layers=1)
        >>> model = Translation(50, 60, make_prior("independent"), sizes)
        >>> [block.name for block in model.blocks]
        ['encoder.0.self', 'decoder.0.self', 'decoder.0.cross']
    """

    output: TableOutput

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        prior: Prior,
        network: Network | None = None,
        latent: Collection[str] | None = None,
        label_smoothing: float = 0.0,
        selector: Selector | None = None,
        adapters: Adapters | None = None,
        alignments: AlignmentOptions | None = None,
    ) -> None:
        super().__init__(CHAINS, latent, label_smoothing, selector)
        sizes = network or Network()
        self.network, self.prior, self.adapters = sizes, prior, adapters
        heads, width = HeadOptions(prior, self.latent, selector), sizes.width
        if sizes.cutoffs:
            raise ValueError("cutoffs, of an adaptive softmax, are for a language model")
        joint = sizes.share == "all"
        if joint and source_vocabulary != target_vocabulary:
            raise ValueError(
                "share='all' needs one joint vocabulary, "
                f"got {source_vocabulary} source and {target_vocabulary} target types"
            )
        source = Embedding.new_table(source_vocabulary, width)
        target = source if joint else Embedding.new_table(target_vocabulary, width)
        untied = sizes.share == "none"
        last = Embedding.new_table(target_vocabulary, width) if untied else target
        self.output = TableOutput(last)
        self.source_embedding = Embedding(source, sizes.dropout)
        self.target_embedding = Embedding(target, sizes.dropout)

        def mixing(chain: str, layer: int) -> Mixer:
            return make_mixer(chain, layer, sizes, heads)

        def reading(layer: int) -> LatentAttention:
            return heads.make_attention(Block(CHAINS[2], layer, sizes.heads), sizes)

        def own(side: str) -> nn.ModuleList | None:
            return None if adapters is None else adapters.make(side, width)

        self.encoder = Stack(
            sizes, lambda depth: Layer(sizes, mixing(CHAINS[0], depth), None, own("encoder"))
        )
        self.decoder = Stack(
            sizes,
            lambda depth: Layer(sizes, mixing(CHAINS[1], depth), reading(depth), own("decoder")),
        )
        self.alignments = make_aligner(alignments, sizes, label_smoothing)

    @classmethod
    def of(
        cls,
        corpus: Corpus,
        prior: str | Prior = "independent",
        latent: Collection[str] | None = None,
        label_smoothing: float = 0.0,
        alignments: AlignmentOptions | None = None,
        **sizes: Any,
    ) -> Translation:
        """Makes a model for the vocabularies of a corpus.

        Args:
            corpus: A parallel corpus.
            prior: A prior, or its name.
            latent: The chains whose heads are drawn; None for all.
            label_smoothing: Of the likelihood while training.
            alignments: Blocks above the decoder that point at source positions; None: none.
            **sizes: Those of :class:`latentheads.models.Network`.
        """
        if corpus.source is None:
            raise ValueError(f"corpus {corpus.name!r} has no source: it is for a LanguageModel")
        network = Network(**sizes)
        if network.share == "all" and corpus.source is not corpus.target:
            raise ValueError("share='all' needs one joint vocabulary of source and target")
        types = len(corpus.source), len(corpus.target)
        law = make_prior(prior) if isinstance(prior, str) else prior
        smoothing = label_smoothing
        return cls(*types, law, network, latent, label_smoothing=smoothing, alignments=alignments)

    def encode(
        self,
        source: Int[Tensor, "batch source"],
        valid: Bool[Tensor, "batch source"],
        choices: Mapping[str, Choice],
        task: SentenceTasks | None = None,
    ) -> Float[Tensor, "*batch source dim"]:
        """Runs the encoder."""
        reach = Reach(valid, valid, dtype=self.density_dtype)
        return self.encoder(self.source_embedding(source), reach, choices=choices, task=task)

    def hidden(self, batch: Batch, choices: Mapping[str, Choice] | None = None) -> Hidden:
        """Runs encoder and decoder on whole sentences."""
        valid = batch.source_valid
        assert batch.source is not None
        choices = self.choose(batch) if choices is None else choices
        memory = self.encode(batch.source, valid, choices, batch.tasks("encoder"))
        queries = batch.target_drawn
        cross = self._cross_mask(valid, queries)
        x = self.target_embedding(batch.fed)
        x = self.decoder(
            x, self.reach(queries), memory, cross, choices=choices, task=batch.tasks("decoder")
        )
        return Hidden(x, memory, valid.unsqueeze(-2))

    def states(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> Float[Tensor, "*batch target dim"]:
        """The states that predict each target token, before alignments add to them."""
        return self.hidden(batch, choices).states

    def law(self, batch: Batch, choices: Mapping[str, Choice] | None = None) -> Tokens:
        """Runs the network, draws where alignments point, and gives the law of the scored tokens.

        Args:
            batch: The sentences.
            choices: The selected heads of blocks that select; drawn when not given.
        """
        if self.alignments is None:
            return super().law(batch, choices)
        hidden, valid = self.hidden(batch, choices), batch.scored != PAD
        return self.alignments(hidden.behind(batch.context), valid, self.output)

    def _cross_mask(self, source: Tensor, queries: Tensor) -> Mask:
        readable = source.unsqueeze(-2).expand(*queries.shape, source.shape[-1])
        return Mask.build(readable, queries, self.density_dtype)

    def begin(self, batch: Batch) -> DecodingState:
        """Encodes the source."""
        valid = batch.source_valid
        assert batch.source is not None
        one = valid.new_ones(len(batch), 1)
        choices = self.choose(batch)
        memory = self.encode(batch.source, valid, choices, batch.tasks("encoder"))
        alignments = None
        if self.alignments is not None:
            known = Hidden(memory[..., :0, :], memory, valid.unsqueeze(-2))
            alignments = AlignmentState(self.alignments, known, self.output)
        return _TranslationState(
            choices=choices,
            task=batch.tasks("decoder"),
            memory=memory,
            memory_mask=self._cross_mask(valid, one),
            alignments=alignments,
        )

    def step(
        self, tokens: Int[Tensor, "batch *hypothesis new"], state: DecodingState
    ) -> Float[Tensor, "batch *hypothesis new vocab"]:
        """Feeds further target tokens and scores the vocabulary after each."""
        assert isinstance(state, _TranslationState)
        reach = self.step_reach(tokens, state.position)
        x = self.target_embedding(tokens, state.position)
        x = self.decoder(
            x, reach, state.memory, state.memory_mask, state, state.choices, state.task
        )
        return self.advance(x, tokens, state)
