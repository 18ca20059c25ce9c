"""A network of ``transformers`` as a model with latent heads: :func:`latent` and :func:`plain`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.checks import check_instance
from latentheads.contrib.hf.addresses import (
    NAME,
    Address,
    attention_of_parts,
    find_heads,
    parse_blocks,
)
from latentheads.contrib.hf.alignments import AlignedDecoder, make_output_heads
from latentheads.contrib.hf.arguments import device_of_inputs
from latentheads.contrib.hf.batch import EncodedBatch, scored_here_or_later
from latentheads.contrib.hf.block import ForwardPass, ForwardPassHolder, PretrainedBlock
from latentheads.contrib.hf.encoding import check_inputs, encode, takes
from latentheads.contrib.hf.likelihoods import (
    Likelihood,
    NextToken,
    Scores,
    TargetToken,
    check_labels,
    make_likelihood,
)
from latentheads.contrib.hf.registry import OWNER, owner_of, register
from latentheads.contrib.hf.removal import weight_of
from latentheads.contrib.hf.tokens import check_tokens
from latentheads.distributions.tokens import Tokens
from latentheads.errors import shown
from latentheads.families.family import Family, check_family
from latentheads.latents.latent import Latent
from latentheads.latents.logits.priors import make_prior
from latentheads.latents.network import Choice, EncoderDecoderStates
from latentheads.latents.options import (
    LatentOptions,
    ModelShape,
    add_latents_of_blocks,
    check_latents,
    make_latents,
)
from latentheads.latents.selector import Selector
from latentheads.layers.output import GivenLogits
from latentheads.model import HeadModel
from latentheads.names import Block
from latentheads.packages import import_optional


class Pretrained(HeadModel):
    """p(y, heads | x) of a network of ``transformers``; :func:`latentheads.latent` makes one.

    The network's own code runs, with its own weights; ``network.generate`` samples heads too.

    Attributes:
        network: The network.
        heads: Its blocks, in its own order.

    Args:
        network: A ``PreTrainedModel``.
        prior: Makes the prior of each block.
        blocks: The blocks whose logits are latent, as :func:`latentheads.latent` takes them.
        likelihood: The likelihood of the labels; None: the model has no bound.
        latents: Further latents, or their options, as :func:`latentheads.latent` takes them.
    """

    takes_particles: ClassVar[bool] = False

    def __init__(
        self,
        network: Any,
        prior: Callable[[Block], Family],
        blocks: str,
        likelihood: Likelihood | None,
        latents: Sequence[Latent | LatentOptions] = (),
    ) -> None:
        addresses = find_heads(network)
        attention_types = sorted({address.block.attention_type for address in addresses})
        parsed_blocks = parse_blocks(blocks, [address.block for address in addresses])
        if isinstance(likelihood, NextToken) and _is_bidirectional(network, attention_types):
            raise ValueError(
                f"{type(network).__name__} attends to later tokens, and has no likelihood of the "
                "next one: make it causal, as by is_decoder=True, or give another likelihood"
            )
        super().__init__(attention_types)
        # parameters stand in this order in the state of an optimizer
        shape = ModelShape(max(address.block.heads for address in addresses), attention_types)
        self.add_latents(make_latents(latents, shape, before_blocks=True))
        _check_selector(self.selector, attention_types)
        for latent in latents:
            if isinstance(latent, LatentOptions):
                _check_types("latents", latent.named_types, attention_types)
        self.network, self.label_likelihood, self.prior = network, likelihood, prior
        of_blocks = [x for x in latents if isinstance(x, LatentOptions) and x.needs_blocks]
        self._add_output_heads([latent for latent in latents if latent not in of_blocks])
        self._holder = ForwardPassHolder()
        self.heads = self._make_blocks(addresses, {block.name: block for block in parsed_blocks})
        self._add_latents_of_blocks(of_blocks, shape)
        self._original_attention = attention_of_parts(network)
        self._hooks: list[Any] = []
        self._attach()

    def _add_output_heads(self, latents: Sequence[Latent | LatentOptions]) -> None:
        """Makes heads above the decoder, with an output layer of their own, if latents has them."""
        self.output = GivenLogits()
        self._aligned_decoder: AlignedDecoder | None = None
        heads_and_output = make_output_heads(self.network, latents, self.label_likelihood)
        if heads_and_output is not None:
            heads, self.output = heads_and_output
            self.add_latents([heads])
            self._aligned_decoder = AlignedDecoder(self.network, *heads_and_output)

    def _make_blocks(
        self, addresses: Sequence[Address], latent_blocks: Mapping[str, Block]
    ) -> nn.ModuleList:
        """Makes every block of the network, those of ``latent_blocks`` with a prior."""
        top_layers: dict[str, int] = {}
        for block in latent_blocks.values():
            layer = top_layers.get(block.attention_type, block.layer)
            top_layers[block.attention_type] = max(layer, block.layer)
        modules = nn.ModuleList()
        for address in addresses:
            family, is_top = None, False
            if (latent_block := latent_blocks.get(address.block.name)) is not None:
                address = replace(address, block=latent_block)
                family = check_family("prior must make", self.prior(latent_block))
                is_top = latent_block.layer == top_layers[latent_block.attention_type]
            selector = _selector_of_block(address, self.selector)
            config = self.network.config
            modules.append(PretrainedBlock(address, family, selector, self._holder, is_top, config))
        # densities are never computed in less than float32
        dtype = torch.promote_types(self.network.dtype, torch.float32)
        return modules.to(self.device, dtype)

    def _add_latents_of_blocks(self, options: Sequence[LatentOptions], shape: ModelShape) -> None:
        """Makes the latents that need to know the blocks, on the device of the network."""
        add_latents_of_blocks(self, options, shape)
        for latent in self.latents.values():
            nn.ModuleDict(latent.modules_to_save).to(self.device)

    def _attach(self) -> None:
        """Makes every attention module call its block."""
        for block in self._pretrained_blocks():
            attention = block.called_module
            setattr(attention, OWNER, (block,))
            hook = attention.register_forward_pre_hook(block.record_states, with_kwargs=True)
            self._hooks.append(hook)
        if self._aligned_decoder is not None:
            self._hooks += self._aligned_decoder.attach()
        self._hooks.append(self.network.register_forward_pre_hook(self._begin_call))
        setattr(self.network, OWNER, (self,))
        self.network.set_attn_implementation(NAME)
        implementations = attention_of_parts(self.network).items()
        self._latent_parts = [part for part, name in implementations if name == NAME]

    def _begin_call(self, *_: Any) -> None:
        """Clears the state of the last call, in which layer dropout may leave logits."""
        if any(m.training and getattr(m, "gradient_checkpointing", 0) for m in self.modules()):
            raise ValueError(
                "heads are sampled again for a gradient: activation_checkpointing_disable() first"
            )
        if not self._holder.forward_pass.queries:
            self._holder.forward_pass = ForwardPass()

    @property
    def device(self) -> torch.device:
        return device_of_inputs(self.network)

    @property
    def _attached(self) -> bool:
        """Whether the network's attention modules call this model."""
        return owner_of(self.network) is self

    def detach(self) -> None:
        """Restores the attention function of every module; see :func:`plain`."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for module in (self.network, *(block.called_module for block in self._pretrained_blocks())):
            delattr(module, OWNER)
        for part, name in self._original_attention.items():
            part.set_attn_implementation(name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        register()  # a process that opens a pickled model may have made none
        super().__setstate__(state)

    def train(self, mode: bool = True) -> Pretrained:
        """Sets training mode; a frozen network stays in evaluation mode, without dropout."""
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
        """Makes a batch from the output of a tokenizer.

        Args:
            inputs: The arguments of the network, such as input_ids and attention_mask; a collator
                may have put labels among them.
            labels: The labels, -100 where nothing is predicted; by default a language model
                predicts its inputs.
            index: Index of each sentence in its corpus.
            corpus_size: Number of sentences of the corpus; 0: the batch is the corpus.

        Raises:
            ValueError: The inputs are not tensors of sentences; the network has no likelihood; or
                labels are missing, or have a gap that alignments cannot have.
        """
        check_inputs(inputs)
        check_tokens(inputs, self.network)
        check_instance("labels", labels, Tensor | None, "a tensor")
        index = None if index is None else torch.as_tensor(index)
        if self.label_likelihood is None:
            raise ValueError(
                f"{type(self.network).__name__} has no likelihood: take a network with an output "
                "layer, such as BertForMaskedLM, or give likelihood= of lh.latent, a name or a "
                "function of outputs and batch"
            )
        sides = {block.side for block in self._pretrained_blocks()}
        batch = encode(self.network, self.label_likelihood, sides, inputs, labels)
        valid = batch.scored_mask
        # a chain passes through every token: padding may only follow
        chained = self.output_heads is not None and self.output_heads.is_chained
        if chained and not torch.equal(valid, scored_here_or_later(valid)):
            raise ValueError(
                "alignments in a chain need every token from the first on: pad on the right, and "
                "give no label -100 before one that is predicted"
            )
        return replace(batch, index=index, corpus_size=corpus_size)

    @property
    def vocabulary_sizes(self) -> dict[str, int]:
        """The vocabulary sizes of the encoder's tokens and of those that a decoder predicts."""
        config, sizes = self.network.config, dict[str, int]()
        size = getattr(config, "vocab_size", None)
        reads_text = self.network.main_input_name == "input_ids"  # and not sounds, as Whisper
        has_encoder = any(b.side == "encoder" for b in self._pretrained_blocks())
        if size is not None and reads_text and has_encoder:
            sizes["source"] = size
        if size is not None and isinstance(self.label_likelihood, NextToken | TargetToken):
            sizes["target"] = getattr(config, "decoder_vocab_size", None) or size
        return sizes

    def _pretrained_blocks(self) -> list[PretrainedBlock]:
        return [module for module in self.heads if isinstance(module, PretrainedBlock)]

    def run(self, batch: Batch, choices: Mapping[str, Choice] | None = None) -> Any:
        """Runs the network and returns its outputs.

        Args:
            batch: The batch.
            choices: The gates of blocks that have them; None: they are sampled.
        """
        if not isinstance(batch, EncodedBatch):
            raise ValueError("a pre-trained network takes the batches that its method batch makes")
        if not self._attached:
            raise ValueError("plain gave its network back: take what a new latent(network) returns")
        for part in self._latent_parts:
            if (implementation := part.config._attn_implementation) != NAME:
                raise ValueError(
                    f"the network was set to {implementation} attention, and no longer calls its "
                    f"latent heads: network.set_attn_implementation({NAME!r}) undoes it"
                )
        choices = self.select_heads(batch) if choices is None else choices
        options: dict[str, Any] = {"return_dict": True}
        if takes(self.network, "use_cache"):
            options["use_cache"] = False
        with self._run_forward_pass(batch, choices):
            return self.network(**{**batch.inputs, **options})

    @contextmanager
    def _run_forward_pass(
        self, batch: EncodedBatch, choices: Mapping[str, Choice]
    ) -> Iterator[None]:
        """Sets the state of a forward pass; passes may be nested, such as that of a guide."""
        outer = self._holder.forward_pass
        queries = {side: batch.queries(side) for side in ("encoder", "decoder")}
        self._holder.forward_pass = ForwardPass(queries, choices, sentences=len(batch.target))
        try:
            yield
        finally:
            self._holder.forward_pass = outer

    def states(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> Float[Tensor, "batch scored label"]:
        """The scores of every label at every scored position.

        With heads above the decoder, the states that predict each token, before heads add to them.
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
        """The states of a batch for heads above the decoder, and what they point at."""
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

    def likelihood(self, states: Float[Tensor, "batch scored label"], batch: Batch) -> Tokens:
        assert isinstance(batch, EncodedBatch)
        assert batch.scored_valid is not None
        return Tokens(states, batch.scored_valid, self.output)


def latent(
    model: Any,
    prior: str | Callable[[Block], Family] | None = None,
    blocks: str = "all",
    likelihood: str | Scores | None = None,
    latents: Sequence[Latent | LatentOptions] = (),
) -> Pretrained:
    """Makes the attention logits of a network of ``transformers`` sample sites.

    Only the network's attention function is changed, and :func:`latentheads.contrib.hf.plain`
    restores it. The network gets a copy of its configuration, since other networks may share the
    original. Its own calls, and ``generate``, sample heads from the prior. The returned model runs
    under Pyro, has guides, and has a bound.

    Args:
        model: A ``PreTrainedModel`` of any kind: encoder, decoder, or both.
        prior: A prior of :data:`latentheads.models.PRIORS` by name, or a function that makes the
            family of a block. None: independent or, with heads above the decoder, delta (no noise).
        blocks: The latent blocks: all, layers such as ``3`` or ``3-5``, attention types such as
            ``decoder-cross``, or names such as ``encoder.0.self``, with commas between.
        likelihood: language-model, masked-language-model, classification, sequence-to-sequence, or
            a function of outputs and batch that scores every label; None: by the network's class.
        latents: Further latents, or their options, such as
            ``lh.latents.AlignmentOptions()``: alignment heads above the decoder, which point at the
            encoder's states or, in a decoder-only network, at those of the tokens before;
            ``CopyOptions``, copy heads of a decoder-only network; ``GateOptions``, gates for all
            sentences; or ``BernoulliHeadsOptions``, which heads are active in each sentence.

    Returns:
        The model, in the network's training or evaluation mode; ``network`` is the network.

    Raises:
        MissingPackageError: ``transformers`` is not installed; an `ImportError`.
        ValueError: The network is not a ``PreTrainedModel``, is latent already, or does not use
            ``AttentionInterface``; or there is no such block, attention type, prior or
            likelihood; or the network cannot have such a latent.
    """
    transformers = import_optional("transformers")
    accepted = "a PreTrainedModel of transformers (of peft: model.get_base_model())"
    check_instance("model", model, transformers.PreTrainedModel, accepted)
    if any(hasattr(module, OWNER) for module in model.modules()):
        raise ValueError("the heads of this model are latent already: call plain(model) first")
    check_latents(latents)
    if any(x.kind.before_blocks and not x.kind.selects_heads for x in latents):
        raise ValueError("the logits of a pre-trained network are latent by prior, not by latents")
    label_likelihood = make_likelihood(model, likelihood)
    copies = any(latent.kind.copies for latent in latents)
    if copies and not isinstance(label_likelihood, NextToken):
        raise ValueError(
            "copy heads of a pre-trained network point at earlier tokens of a text: "
            f"{type(model).__name__} is no language model with a decoder alone"
        )
    check_instance("blocks", blocks, str, "a text with commas, as 3-5,decoder-cross")
    if prior is None:
        prior = "delta" if any(not x.kind.selects_heads for x in latents) else "independent"
    family = make_prior(prior) if isinstance(prior, str) else prior
    if not callable(family):
        raise ValueError(f"prior must be a name, or make a Family of a block, got {shown(prior)}")
    register()
    _copy_configurations(model, transformers.PretrainedConfig)
    pretrained = Pretrained(model, family, blocks, label_likelihood, latents)
    return pretrained if model.training else pretrained.eval()


def plain(model: Any) -> Any:
    """Undoes :func:`latentheads.latent`: the network computes what it did before.

    Args:
        model: The argument of :func:`latentheads.latent`, or its result.

    Returns:
        The network.

    Raises:
        ValueError: Its heads are not latent.
    """
    owner = model if isinstance(model, Pretrained) else owner_of(model)
    if owner is None or not owner._attached:
        raise ValueError("the heads of this model are not latent")
    owner.detach()
    return owner.network


def _check_selector(selector: Selector | None, attention_types: Sequence[str]) -> None:
    """Checks that the network has the blocks and the heads that a selector is for."""
    if selector is None:
        return
    if selector.has_candidates:
        raise ValueError(
            f"latents has {type(selector).__name__}: a pre-trained network has no candidates to "
            "select heads among; Gating gates its own"
        )
    _check_types(selector.name, selector.attention_types, attention_types)


def _check_types(name: str, named_types: Collection[str], attention_types: Sequence[str]) -> None:
    """Checks that the network has blocks of these attention types."""
    for attention_type in named_types:
        if attention_type not in attention_types:
            raise ValueError(
                f"{name} name {attention_type!r}, of which this network has no block: it has "
                f"{', '.join(attention_types)}"
            )


def _is_bidirectional(network: Any, attention_types: Collection[str]) -> bool:
    """Whether a network that could be a decoder is an encoder, as BertLMHeadModel may be."""
    is_causal = getattr(network.config.get_text_config(decoder=True), "is_causal", True)
    return not is_causal or "decoder-self" not in attention_types


def _selector_of_block(address: Address, selector: Selector | None) -> Selector | None:
    if selector is None or address.block.attention_type not in selector.attention_types:
        return None
    if address.joined is not address.projection:
        raise ValueError(
            f"block {address.block.name!r} normalises its heads together before they are projected:"
            " gates cannot be folded into its weights"
        )
    weight_of(address.projection)  # gates are folded into it
    return selector.for_heads(address.block.heads)


def _copy_configurations(network: Any, config_class: type) -> None:
    """Copies the configurations of a network, which other networks may share."""
    copies: dict[int, Any] = {}
    for module in network.modules():
        configurations = {
            name: value for name, value in vars(module).items() if isinstance(value, config_class)
        }
        vars(module).update(copy.deepcopy(configurations, copies))
