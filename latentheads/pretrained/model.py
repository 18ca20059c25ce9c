"""A network of ``transformers`` as a model of heads: made latent, and plain again."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.alignment.aligner import EncoderDecoderStates
from latentheads.alignment.options import AlignmentOptions, check_alignment_options
from latentheads.batch import Batch
from latentheads.distributions import Tokens
from latentheads.families import Family, check_family
from latentheads.layers.output import GivenLogits
from latentheads.model import HeadModel
from latentheads.models.priors import make_prior
from latentheads.names import Block
from latentheads.packages import need_package
from latentheads.pretrained.addresses import find_heads, parse_blocks
from latentheads.pretrained.alignments import AlignedDecoder, make_aligned
from latentheads.pretrained.batch import IGNORE_INDEX, EncodedBatch, scored_here_or_later
from latentheads.pretrained.block import ForwardPass, ForwardPassHolder, PretrainedBlock
from latentheads.pretrained.likelihoods import (
    Likelihood,
    Scores,
    check_labels,
    make_likelihood,
)
from latentheads.pretrained.registry import NAME, OWNER, register
from latentheads.selection.hard_gates import Gating
from latentheads.selection.selector import Choice, Selector
from latentheads.values import shown

__all__ = ["Pretrained", "latent", "plain"]

POSITIONS_FROM_TOKENS = "create_position_ids_from_input_ids"
"""An attribute of embeddings that find padding, and so all positions, in the tokens."""

ENDS = ("bos", "eos", "cls", "sep", "decoder_start")
"""The names that configurations have for tokens that only begin or end a sentence."""


class Pretrained(HeadModel):
    """p(y, heads | x) of a network of ``transformers``; :func:`latentheads.latent` makes one.

    The network's own code runs, with its own weights; ``network.generate`` draws heads too.

    Attributes:
        network: The network.
        heads: Its blocks, in its own order.

    Args:
        network: A ``PreTrainedModel``.
        prior: Makes the prior of each block.
        blocks: Those whose logits are drawn, as :func:`latentheads.latent` takes them.
        likelihood: What the network predicts; None: it has no bound.
        gates: Hard Concrete gates of its heads; None: all heads speak.
        alignments: Blocks above the decoder that point at the encoder's states, or at those of
            earlier tokens; None: none.
    """

    def __init__(
        self,
        network: Any,
        prior: Callable[[Block], Family],
        blocks: str,
        likelihood: Likelihood | None,
        gates: Selector | None,
        alignments: AlignmentOptions | None = None,
    ) -> None:
        addresses = find_heads(network)
        chosen = {b.name: b for b in parse_blocks(blocks, [a.block for a in addresses])}
        attention_types = {address.block.chain for address in addresses}
        _check_gates(gates, sorted(attention_types))
        latent_types = {block.chain for block in chosen.values()}
        super().__init__(sorted(attention_types), sorted(latent_types), selector=gates)
        self.network, self.label_likelihood, self.prior = network, likelihood, prior
        self.output = GivenLogits()
        self._holder = ForwardPassHolder()
        self._aligned_decoder: AlignedDecoder | None = None
        if (aligner_and_output := make_aligned(network, alignments, likelihood)) is not None:
            self.alignments, self.output = aligner_and_output
            self._aligned_decoder = AlignedDecoder(network, *aligner_and_output)
        highest = {
            attention_type: max(b.layer for b in chosen.values() if b.chain == attention_type)
            for attention_type in latent_types
        }
        addresses_and_blocks = [(a, chosen.get(a.block.name)) for a in addresses]
        self.heads = nn.ModuleList(
            PretrainedBlock(
                address if block is None else replace(address, block=block),
                None if block is None else check_family("prior must make", prior(block)),
                _selector_of_block(address.block, gates),
                self._holder,
                block is not None and block.layer == highest[block.chain],
                network.config,
            )
            for address, block in addresses_and_blocks
        ).to(network.device, torch.promote_types(network.dtype, torch.float32))
        self._original_attention = _attention_implementations(network)
        self._hooks: list[Any] = []
        self._attach()

    def _attach(self) -> None:
        """Has every attention module call its block."""
        for block in self._pretrained_blocks():
            setattr(block.attention, OWNER, (block,))
            hook = block.attention.register_forward_pre_hook(block.record_states, with_kwargs=True)
            self._hooks.append(hook)
        if self._aligned_decoder is not None:
            self._hooks += self._aligned_decoder.attach()
        self._hooks.append(self.network.register_forward_pre_hook(self._begin_call))
        setattr(self.network, OWNER, (self,))
        self.network.set_attn_implementation(NAME)
        self._latent_parts = [
            part for part in self._original_attention if _attention_implementation(part) == NAME
        ]

    def _begin_call(self, *_: Any) -> None:
        """Forgets the last call of the network itself: where it dropped layers, logits are left."""
        if any(m.training and getattr(m, "gradient_checkpointing", 0) for m in self.modules()):
            raise ValueError(
                "heads are drawn again for a gradient: activation_checkpointing_disable() first"
            )
        if not self._holder.forward_pass.queries:
            self._holder.forward_pass = ForwardPass()

    @property
    def _attached(self) -> bool:
        """Whether it is this model that the network's attention modules call."""
        return getattr(self.network, OWNER, (None,))[0] is self

    def detach(self) -> None:
        """Gives every attention module back what it called before; see :func:`plain`."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for module in (self.network, *(block.attention for block in self._pretrained_blocks())):
            delattr(module, OWNER)
        for part, name in self._original_attention.items():
            part.set_attn_implementation(name)

    def train(self, mode: bool = True) -> Pretrained:
        """Puts everything in training mode; a network that is frozen drops nothing all the same."""
        super().train(mode)
        if not any(parameter.requires_grad for parameter in self.network.parameters()):
            self.network.eval()
        return self

    def batch(
        self,
        inputs: Mapping[str, Tensor],
        labels: Tensor | None = None,
        index: Tensor | None = None,
        corpus_size: int = 0,
    ) -> EncodedBatch:
        """Makes a batch of what a tokenizer gives.

        Args:
            inputs: What the network is called with, such as input_ids and attention_mask; a
                collator may have put labels among them.
            labels: What is predicted, -100 where nothing is; a language model takes its own input.
            index: Each sentence's place in its corpus.
            corpus_size: Sentences of the corpus; 0 takes the batch for the corpus.

        Raises:
            ValueError: The inputs are no tensors, or none of sentences; the network has no
                likelihood, or it needs labels, or other ones, or alignments need them in a row.
        """
        _check_inputs(inputs)
        _check_tokens(inputs, self.network)
        if not isinstance(labels, Tensor | None):
            raise ValueError(f"labels must be a tensor, got {type(labels).__name__}")
        index = None if index is None else torch.as_tensor(index)
        if self.label_likelihood is None:
            raise ValueError(
                f"{type(self.network).__name__} predicts nothing by itself: give latent() a "
                "likelihood, a name or a function of outputs and batch"
            )
        inputs = dict(inputs)
        collated_labels = inputs.pop("labels", None)
        targets = self.label_likelihood.labels(
            inputs, collated_labels if labels is None else labels
        )
        valid = targets != IGNORE_INDEX
        if self._chained and not torch.equal(valid, scored_here_or_later(valid)):
            raise ValueError(
                "alignments in a chain read every token from the first on: pad on the right, and "
                "give no label -100 before one that is predicted"
            )
        target = targets.masked_fill(~valid, 0)
        tokens, mask = inputs.get("input_ids"), inputs.get("attention_mask")
        attention_valid = None if mask is None else mask.bool()
        if attention_valid is None and tokens is not None:
            attention_valid = torch.ones_like(tokens, dtype=torch.bool)
        batch = EncodedBatch(
            target,
            None,
            index,
            corpus_size,
            inputs=inputs,
            scored_valid=valid,
            ends=_boundary_ids(self.network.config),
        )
        return self._add_sides(batch, tokens, attention_valid)

    def _add_sides(
        self, batch: EncodedBatch, tokens: Tensor | None, attention_valid: Tensor | None
    ) -> EncodedBatch:
        """Says what the encoder and the decoder read, and which positions are real."""
        assert self.label_likelihood is not None
        assert batch.scored_valid is not None
        inputs, valid = dict(batch.inputs), batch.scored_valid
        if self.network.config.is_encoder_decoder:
            if "decoder_input_ids" not in inputs:
                inputs["decoder_input_ids"] = self._shift_right(batch)
            decoder_inputs = inputs["decoder_input_ids"]
            mask = inputs.get("decoder_attention_mask")
            decoder_mask = torch.ones_like(decoder_inputs) if mask is None else mask
            latent = self.label_likelihood.drawn(valid, decoder_mask.bool())
            decoder_valid = (
                latent if mask is None else mask.bool()
            )  # what nothing predicted reads is padding
            batch = replace(batch, source=tokens, encoder_valid=attention_valid)
            return replace(
                batch,
                inputs=inputs,
                read=decoder_inputs,
                decoder_valid=decoder_valid,
                decoder_latent=latent,
            )
        if any(block.side == "encoder" for block in self._pretrained_blocks()):
            return replace(
                batch,
                source=tokens,
                read=tokens,
                encoder_valid=attention_valid,
                decoder_valid=attention_valid,
            )
        if attention_valid is None:
            return replace(batch, read=tokens)
        if not attention_valid[:, 0].all():
            inputs = self._add_position_ids(inputs, attention_valid)
        latent = self.label_likelihood.drawn(valid, attention_valid)
        return replace(
            batch, inputs=inputs, read=tokens, decoder_valid=attention_valid, decoder_latent=latent
        )

    def _shift_right(self, batch: EncodedBatch) -> Tensor:
        """What the decoder reads: the labels behind a start, as the network shifts them."""
        shift = getattr(self.network, "prepare_decoder_input_ids_from_labels", None)
        if shift is None or batch.scored_valid is None:
            raise ValueError(
                "inputs must hold decoder_input_ids: the network does not shift labels"
            )
        return shift(labels=batch.target.masked_fill(~batch.scored_valid, IGNORE_INDEX))

    def _add_position_ids(
        self, inputs: dict[str, Tensor], attention_valid: Tensor
    ) -> dict[str, Tensor]:
        """Counts positions from the first real token, as ``generate`` does, behind left padding."""
        # RoBERTa and those like it count by themselves, and from another number than 0
        computes_own_positions = any(
            hasattr(part, POSITIONS_FROM_TOKENS) for part in self.network.modules()
        )
        if computes_own_positions or "position_ids" in inputs or not self._takes("position_ids"):
            return inputs
        return inputs | {"position_ids": (attention_valid.long().cumsum(-1) - 1).clamp_min(0)}

    def _takes(self, name: str) -> bool:
        """Whether the network has an argument of a name."""
        return name in inspect.signature(self.network.forward).parameters

    @property
    def _chained(self) -> bool:
        """Whether a word's alignment reads that of the word before."""
        aligner = self.alignments
        return aligner is not None and aligner.options.chained

    def _pretrained_blocks(self) -> list[PretrainedBlock]:
        return [module for module in self.heads if isinstance(module, PretrainedBlock)]

    def run(self, batch: Batch, choices: Mapping[str, Choice] | None = None) -> Any:
        """Runs the network; what it says is as it says it.

        Args:
            batch: What it is run on.
            choices: The gates of blocks that have them; drawn when not given.
        """
        if not isinstance(batch, EncodedBatch):
            raise ValueError("a pre-trained network takes the batches that its method batch makes")
        if not self._attached:
            raise ValueError("plain gave its network back: take what a new latent(network) returns")
        for part in self._latent_parts:
            if (implementation := _attention_implementation(part)) != NAME:
                raise ValueError(
                    f"the network was told to call {implementation} attention, and no longer its latent "
                    f"heads: network.set_attn_implementation({NAME!r}) undoes it"
                )
        choices = self.choose(batch) if choices is None else choices
        options: dict[str, Any] = {"return_dict": True}
        if self._takes("use_cache"):
            options["use_cache"] = False
        with self._run_forward_pass(batch, choices):
            return self.network(**{**batch.inputs, **options})

    @contextmanager
    def _run_forward_pass(
        self, batch: EncodedBatch, choices: Mapping[str, Choice]
    ) -> Iterator[None]:
        """Tells the blocks of a pass; one may run inside another, as that of a guide."""
        outer = self._holder.forward_pass
        queries = {side: batch.queries(side) for side in ("encoder", "decoder")}
        self._holder.forward_pass = ForwardPass(queries, choices)
        try:
            yield
        finally:
            self._holder.forward_pass = outer

    def states(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> Float[Tensor, "batch place label"]:
        """The scores of every label at every place that is scored.

        Below alignments they are the states that predict each token, before anything is added.
        """
        if self._aligned_decoder is not None:
            return self.hidden(batch, choices).states
        outputs = self.run(batch, choices)
        assert isinstance(batch, EncodedBatch)
        assert self.label_likelihood is not None
        scores = self.label_likelihood.scores(outputs, batch)
        check_labels(batch.target, scores.shape)
        return scores

    def hidden(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> EncoderDecoderStates:
        """What alignments know of a batch: the states that are scored, and what they point at."""
        assert self._aligned_decoder is not None
        assert self.label_likelihood is not None
        with self._aligned_decoder.recording():
            self.run(batch, choices)
            assert isinstance(batch, EncodedBatch)
            sides = batch.decoder_valid, batch.encoder_valid
            hidden = self._aligned_decoder.recorded_states(self.label_likelihood, *sides)
        vocab_size = len(self._aligned_decoder.output.layer.weight)
        check_labels(batch.target, (*hidden.states.shape[:-1], vocab_size))
        return hidden

    def likelihood(self, states: Float[Tensor, "batch place label"], batch: Batch) -> Tokens:
        """The law of the labels."""
        assert isinstance(batch, EncodedBatch)
        assert batch.scored_valid is not None
        return Tokens(states, batch.scored_valid, self.output)


def latent(
    model: Any,
    prior: str | Callable[[Block], Family] | None = None,
    blocks: str = "all",
    likelihood: str | Scores | None = None,
    gates: Selector | None = None,
    alignments: AlignmentOptions | None = None,
) -> Pretrained:
    """Makes the attention logits of a network of ``transformers`` explicit sample sites.

    The network itself is changed in which attention function it calls, and in nothing else:
    :func:`latentheads.plain` gives it back. It is given a copy of its configuration, which says so
    and which another network may have. Its own calls, and ``generate``, draw heads from the
    prior; what is returned is run under Pyro, read by guides, and has a bound.

    Args:
        model: A ``PreTrainedModel`` of any kind: encoder, decoder, or both.
        prior: A prior of :data:`latentheads.models.PRIORS` by name, or what makes one; independent
            when not given, and beside alignments delta: the logits have no noise.
        blocks: Which are drawn: all, layers such as ``3`` or ``3-5``, chains such as
            ``decoder-cross``, or names such as ``encoder.0.self``, commas between.
        likelihood: What is predicted: language-model, masked-language-model, classification,
            sequence-to-sequence, or a function of outputs and batch that scores every label; that
            of the network's class when not given.
        gates: Hard Concrete gates of the heads of some chains; None: all heads speak.
        alignments: Blocks above the decoder whose heads point at one position each: of the encoder,
            or of the tokens before where there is none; None: none.

    Returns:
        The model of its heads, in the network's mode; ``network`` is the network.

    Raises:
        MissingPackageError: ``transformers`` is not installed; an `ImportError`.
        ValueError: The network is none of ``transformers``, is latent already, or does not let its
            attention be chosen; or there is no such block, gated chain, prior or likelihood; or
            alignments cannot stand above it.
    """
    transformers = need_package("transformers")
    if not isinstance(model, transformers.PreTrainedModel):
        raise ValueError(
            f"model must be a PreTrainedModel of transformers, got {type(model).__name__}"
        )
    if any(hasattr(module, OWNER) for module in model.modules()):
        raise ValueError("the heads of this model are latent already: call plain(model) first")
    if gates is not None and not isinstance(gates, Gating):
        raise ValueError(
            f"gates must be Gating, got {type(gates).__name__}: a pre-trained network has no "
            "candidates to select heads among"
        )
    check_alignment_options(alignments)
    if not isinstance(blocks, str):
        raise ValueError(f"blocks must be a word, as all, 3-5 or decoder-cross, got {blocks!r}")
    if prior is None:
        prior = "independent" if alignments is None or not alignments.blocks else "delta"
    family = make_prior(prior) if isinstance(prior, str) else prior
    if not callable(family):
        raise ValueError(f"prior must be a name, or make a Family of a block, got {shown(prior)}")
    register()
    _copy_configurations(model, transformers.PretrainedConfig)
    label_likelihood = make_likelihood(model, likelihood)
    pretrained = Pretrained(model, family, blocks, label_likelihood, gates, alignments)
    return pretrained if model.training else pretrained.eval()


def plain(model: Any) -> Any:
    """Undoes :func:`latentheads.latent`: the network computes what it did before.

    Args:
        model: What :func:`latentheads.latent` was given, or what it returned.

    Returns:
        The network.

    Raises:
        ValueError: Its heads are not latent.
    """
    (owner,) = (model,) if isinstance(model, Pretrained) else getattr(model, OWNER, (None,))
    if owner is None or not owner._attached:
        raise ValueError("the heads of this model are not latent")
    owner.detach()
    return owner.network


def _check_inputs(inputs: Any) -> None:
    """Refuses what a tokenizer gives unless it is asked for tensors, and masks of pairs."""
    by_name = inputs if isinstance(inputs, Mapping) else {"inputs": inputs}
    not_tensors = [name for name, value in by_name.items() if not isinstance(value, Tensor)]
    if not_tensors or by_name is not inputs:
        name = next(iter(not_tensors), "inputs")
        raise ValueError(
            "inputs must be tensors by name, as a tokenizer gives with return_tensors='pt', got "
            f"{name} of type {type(by_name[name]).__name__}"
        )
    for name in ("input_ids", "attention_mask"):
        if name in inputs and inputs[name].ndim != 2:
            raise ValueError(
                f"{name} must have a row for each sentence and a column for each position, got "
                f"shape {tuple(inputs[name].shape)}"
            )
    tokens, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    if tokens is not None and mask is not None and tokens.shape != mask.shape:
        raise ValueError(
            f"attention_mask must have the shape of input_ids, {tuple(tokens.shape)}, got "
            f"{tuple(mask.shape)}"
        )


def _check_tokens(inputs: Mapping[str, Tensor], network: nn.Module) -> None:
    """Refuses no tokens at all, tokens that the vocabulary lacks, and more than have a position."""
    config: Any = network.config
    tables = {m.num_embeddings for m in network.modules() if isinstance(m, nn.Embedding)}
    positions: int = getattr(config, "max_position_embeddings", None) or 0
    limited = positions in tables or positions + 2 in tables  # OPT's begins at 2
    for name in ("input_ids", "decoder_input_ids"):
        tokens = inputs.get(name)
        if tokens is None:
            continue
        if not tokens.numel():
            raise ValueError(f"{name} has no token: a batch has at least one sentence of one token")
        if limited and tokens.shape[-1] > positions:
            raise ValueError(
                f"{name} has {tokens.shape[-1]} tokens, and the network has positions for "
                f"{positions}: truncate the text"
            )
        size = getattr(config, "vocab_size", None)
        if name.startswith("decoder_"):
            size = getattr(config, "decoder_vocab_size", None) or size
        low, high = map(int, tokens.aminmax())
        if size is not None and (low < 0 or high >= size):
            raise ValueError(
                f"{name} has the id {low if low < 0 else high}, and the network's vocabulary has "
                f"the ids 0 to {size - 1:,}"
            )


def _boundary_ids(config: Any) -> tuple[int, ...]:
    """The ids that a configuration names of tokens that only begin or end a sentence."""
    ids = [getattr(config, f"{name}_token_id", None) for name in ENDS]
    id_lists = [
        token_ids if isinstance(token_ids, list) else [token_ids]
        for token_ids in ids
        if token_ids is not None
    ]
    return tuple(dict.fromkeys(token_id for token_ids in id_lists for token_id in token_ids))


def _check_gates(gates: Selector | None, attention_types: Sequence[str]) -> None:
    """Refuses gates of heads that a network does not have."""
    for attention_type in () if gates is None else gates.attention_types:
        if attention_type not in attention_types:
            raise ValueError(
                f"gates name the chain {attention_type!r}, which no block of this network is in: it has "
                f"{', '.join(attention_types)}"
            )


def _selector_of_block(block: Block, gates: Selector | None) -> Selector | None:
    return (
        gates.for_heads(block.heads)
        if gates is not None and block.chain in gates.attention_types
        else None
    )


def _attention_implementations(network: Any) -> dict[Any, str]:
    """The attention function that a network and each of its parts call, the whole first."""
    parts = [module for module in network.modules() if hasattr(module, "set_attn_implementation")]
    return {part: _attention_implementation(part) for part in parts}


def _attention_implementation(part: Any) -> str:
    """The attention function that a part of a network calls, by name."""
    return str(part.config._attn_implementation)


def _copy_configurations(network: Any, config_class: type) -> None:
    """Gives a network configurations of its own: another may read them, and have other attention.

    Args:
        network: The network.
        config_class: The class of configurations.
    """
    copies: dict[int, Any] = {}
    for module in network.modules():
        configurations = {
            name: value for name, value in vars(module).items() if isinstance(value, config_class)
        }
        vars(module).update(copy.deepcopy(configurations, copies))
