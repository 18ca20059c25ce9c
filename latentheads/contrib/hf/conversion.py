"""Converts the library's language model to GPT-2 of ``transformers`` and back, with equal outputs.

Both are pre-norm stacks of the same layers. Scaled embeddings and sinusoidal positions become
tables; the output layer gets a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from latentheads.attention.latent import LatentAttention
from latentheads.batch import BOS, EOS, PAD
from latentheads.checks import check_instance
from latentheads.families.location import Identity
from latentheads.families.normal import Point
from latentheads.latents.logits.latent import Logits
from latentheads.layers.linear_output import TableOutput
from latentheads.layers.position import sinusoidal_positions
from latentheads.models.language_model import LanguageModel
from latentheads.models.layers import Layer
from latentheads.models.network import Network
from latentheads.options import from_dict, to_dict
from latentheads.packages import import_optional

SIZES = "latentheads_network"
"""The attribute of a configuration with the sizes of the library's network."""


@torch.no_grad()
def to_gpt2(model: LanguageModel, length: int = 1024) -> Any:
    """Makes a ``GPT2LMHeadModel`` with the outputs of a language model without noise.

    Its input tokens are those of the library's model, of which the first is BOS.

    Args:
        model: A plain Transformer: pre-norm, attention in every layer, heads without noise.
        length: Number of positions.

    Raises:
        ValueError: The model is not a plain Transformer.
    """
    check_instance("model", model, LanguageModel, "a LanguageModel")
    network = model.network
    _check_convertible(model)
    transformers = import_optional("transformers")
    table = model.embedding.table.weight
    assert isinstance(table, Tensor)
    config = transformers.GPT2Config(
        vocab_size=len(table),
        n_positions=length,
        n_embd=network.width,
        n_layer=network.layers,
        n_head=network.heads,
        n_inner=network.feed_forward,
        activation_function="relu",
        resid_pdrop=network.dropout,
        embd_pdrop=network.dropout,
        attn_pdrop=network.attention_dropout,
        tie_word_embeddings=False,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        **{SIZES: to_dict(network)},
    )
    gpt2 = transformers.GPT2LMHeadModel(config).to(table.device, table.dtype)
    gpt2.transformer.wte.weight.copy_(table * network.width**0.5)
    gpt2.transformer.wpe.weight.copy_(
        sinusoidal_positions(length, network.width, table.device, table.dtype)
    )
    assert isinstance(model.output, TableOutput)
    gpt2.lm_head.weight.copy_(model.output.table.weight)
    for theirs, ours, transposed in _parameter_pairs(gpt2, model):
        theirs.copy_(ours.T if transposed else ours)
    return gpt2.train(model.training)


@torch.no_grad()
def from_gpt2(network: Any) -> LanguageModel:
    """Makes the library's language model from the output of :func:`to_gpt2`, possibly fine-tuned.

    Args:
        network: A ``GPT2LMHeadModel``.

    Raises:
        ValueError: It was not made by :func:`to_gpt2`, or its positions were trained, or its tied
            tables now differ.
    """
    sizes = getattr(network.config, SIZES, None)
    if sizes is None:
        raise ValueError(
            f"{type(network).__name__} was not made by to_gpt2: its positions are a table, and the "
            "library's are computed"
        )
    sizes_of_network = from_dict(Network, sizes)
    transformer, head = network.transformer, network.lm_head.weight
    expected_positions = sinusoidal_positions(
        len(transformer.wpe.weight), sizes_of_network.width, head.device, head.dtype
    )
    model = LanguageModel(len(head), sizes_of_network, latents=()).to(head.device, head.dtype)
    tied = sizes_of_network.share != "none"
    if not torch.equal(transformer.wpe.weight, expected_positions):
        raise ValueError("the positions of this network were trained: the library's are computed")
    if tied and not torch.equal(transformer.wte.weight, head * sizes_of_network.width**0.5):
        raise ValueError("the tables of input and output were trained apart: the library's are one")
    assert isinstance(model.output, TableOutput)
    assert isinstance(model.embedding.table, nn.Embedding)
    model.embedding.table.weight.copy_(transformer.wte.weight / sizes_of_network.width**0.5)
    model.output.table.weight.copy_(head)
    for theirs, ours, transposed in _parameter_pairs(network, model):
        ours.copy_(theirs.T if transposed else theirs)
    return model.train(network.training)


def _check_convertible(model: LanguageModel) -> None:
    """Checks that a model can be converted to GPT-2."""
    network = model.network
    other_latents = [name for name in model.latents if name != Logits.name]
    unsupported = {
        "norm post": not network.norm.is_pre,
        "no final_norm": not network.norm.ends_stack,
        f"mixers {network.mixers}": network.mixers != "attention",
        "adaptive": network.adaptive is not None,
        f"latents {'+'.join(other_latents)}": bool(other_latents),
        "a prior with noise or a residual": any(map(_differs_from_scores, model.latent_blocks)),
        "fewer heads than it was made with": any(
            attention.attention.active is not None or attention.attention.heads != network.heads
            for attention in model.modules()
            if isinstance(attention, LatentAttention)
        ),
    }
    if present := [name for name, is_present in unsupported.items() if is_present]:
        raise ValueError(f"only a plain pre-norm Transformer has GPT-2's form: not {present[0]}")


def _differs_from_scores(module: Any) -> bool:
    """Whether the logits of a block are not simply its scores."""
    return not (isinstance(module.prior, Point) and isinstance(module.prior.location, Identity))


def _parameter_pairs(network: Any, model: LanguageModel) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """Yields GPT-2's parameters, the library's, and whether one is the transpose of the other."""
    blocks, layers = network.transformer.h, model.decoder.layers
    pairs: list[tuple[Any, Any]] = [(network.transformer.ln_f, model.decoder.norm)]
    for block, layer in zip(blocks, layers, strict=True):
        assert isinstance(layer, Layer)
        assert isinstance(layer.inner, LatentAttention)
        attention = layer.inner.attention
        yield block.attn.c_attn.weight, attention.in_weight, True
        yield block.attn.c_attn.bias, attention.in_bias, False
        pairs += [(block.ln_1, layer.inner_step.norm), (block.ln_2, layer.feed_forward_step.norm)]
        pairs += [(block.attn.c_proj, attention.out), (block.mlp.c_fc, layer.feed_forward.inner)]
        pairs += [(block.mlp.c_proj, layer.feed_forward.outer)]
    for gpt2_module, own_module in pairs:
        yield gpt2_module.weight, own_module.weight, isinstance(own_module, nn.Linear)
        yield gpt2_module.bias, own_module.bias, False
