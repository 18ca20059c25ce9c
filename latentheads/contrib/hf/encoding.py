"""Makes a batch for a network of ``transformers`` of what a tokenizer or a collator gives."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from latentheads.contrib.hf.batch import IGNORE_INDEX, EncodedBatch
from latentheads.contrib.hf.likelihoods import Likelihood
from latentheads.contrib.hf.tokens import check_tokens, computes_positions

ENDS = ("bos", "eos", "cls", "sep", "decoder_start")
"""Names, in configurations, of tokens that only begin or end a sentence."""


def check_inputs(inputs: Any) -> None:
    """Checks that inputs are tensors by name, with one row per sentence."""
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


def encode(
    network: Any,
    likelihood: Likelihood,
    sides: set[str],
    inputs: Mapping[str, Tensor],
    labels: Tensor | None,
) -> EncodedBatch:
    """Makes a batch of the output of a tokenizer or a collator.

    Args:
        network: The network.
        likelihood: Which labels are predicted.
        sides: The sides of its blocks, encoder or decoder.
        inputs: The arguments of the network, and perhaps labels.
        labels: The labels; None: those of the inputs, or the tokens themselves.
    """
    inputs = dict(inputs)
    collated_labels = inputs.pop("labels", None)
    labels = collated_labels if labels is None else labels
    targets = likelihood.labels(inputs, labels)
    valid = targets != IGNORE_INDEX
    target = targets.masked_fill(~valid, 0)  # -100 is no index of the vocabulary
    tokens, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    attention_valid = None if mask is None else mask.bool()
    if attention_valid is None and tokens is not None:
        attention_valid = torch.ones_like(tokens, dtype=torch.bool)
    batch = EncodedBatch(
        target,
        None,
        inputs=inputs,
        scored_valid=valid,
        boundary_ids=_boundary_ids(network.config),
    )
    of_tokens = labels is None or labels.ndim > 1
    return _add_sides(network, likelihood, sides, batch, tokens, attention_valid, of_tokens)


def _add_sides(
    network: Any,
    likelihood: Likelihood,
    sides: set[str],
    batch: EncodedBatch,
    tokens: Tensor | None,
    attention_valid: Tensor | None,
    of_tokens: bool,
) -> EncodedBatch:
    """Adds the inputs and padding masks of encoder and decoder.

    Without labels of tokens an encoder-decoder feeds its decoder by itself, with the source.
    """
    assert batch.scored_valid is not None
    inputs, valid = dict(batch.inputs), batch.scored_valid
    if network.config.is_encoder_decoder:
        if (of_tokens or tokens is None) and "decoder_input_ids" not in inputs:
            inputs["decoder_input_ids"] = _shift_right(network, batch)
            check_tokens({"decoder_input_ids": inputs["decoder_input_ids"]}, network)
        decoder_inputs = inputs.get("decoder_input_ids")
        positions = tokens if decoder_inputs is None else decoder_inputs
        assert positions is not None
        mask = inputs.get("decoder_attention_mask")
        decoder_mask = torch.ones_like(positions) if mask is None else mask
        latent = likelihood.latent_positions(valid, decoder_mask.bool())
        if attention_valid is None:
            attention_valid = _sound_positions(network.config, inputs)
        return replace(
            batch,
            inputs=inputs,
            source=tokens,
            input_ids=decoder_inputs,
            encoder_valid=attention_valid,
            # without a mask, positions that no prediction depends on are padding
            decoder_valid=latent if mask is None else mask.bool(),
            decoder_latent=latent,
        )
    if sides == {"encoder"}:
        return replace(
            batch,
            source=tokens,
            input_ids=tokens,
            encoder_valid=attention_valid,
            decoder_valid=attention_valid,
        )
    if attention_valid is None:
        return replace(batch, input_ids=tokens)
    # networks of text and images have an encoder too, and may count positions otherwise
    if sides == {"decoder"} and not attention_valid[:, 0].all():
        inputs = _add_position_ids(network, inputs, attention_valid)
    latent = likelihood.latent_positions(valid, attention_valid)
    return replace(
        batch,
        inputs=inputs,
        input_ids=tokens,
        decoder_valid=attention_valid,
        decoder_latent=latent,
    )


def _sound_positions(config: Any, inputs: Mapping[str, Tensor]) -> Tensor | None:
    """The positions of Whisper's encoder, all of which are real; None: of another network."""
    if config.model_type != "whisper" or (features := inputs.get("input_features")) is None:
        return None
    return features.new_ones(len(features), config.max_source_positions, dtype=torch.bool)


def _shift_right(network: Any, batch: EncodedBatch) -> Tensor:
    """The input of the decoder: the labels after a start token, as the network shifts them."""
    shift = getattr(network, "prepare_decoder_input_ids_from_labels", None)
    assert batch.scored_valid is not None
    if shift is not None:
        return shift(labels=batch.target.masked_fill(~batch.scored_valid, IGNORE_INDEX))
    config = network.config
    start = getattr(config, "decoder_start_token_id", None)
    pad = getattr(config, "pad_token_id", None)
    if start is None or pad is None:
        raise ValueError("inputs must hold decoder_input_ids: the network does not shift labels")
    # as Whisper does within its forward pass, where labels would add a loss
    tokens = batch.target.masked_fill(~batch.scored_valid, pad)
    return torch.cat([torch.full_like(tokens[:, :1], start), tokens[:, :-1]], 1)


def _add_position_ids(
    network: Any, inputs: dict[str, Tensor], attention_valid: Tensor
) -> dict[str, Tensor]:
    """Counts positions from the first real token after left padding, as ``generate`` does."""
    # RoBERTa and similar networks count by themselves, and not from 0
    is_own = computes_positions(network)
    if is_own or "position_ids" in inputs or not takes(network, "position_ids"):
        return inputs
    return inputs | {"position_ids": (attention_valid.long().cumsum(-1) - 1).clamp_min(0)}


def takes(network: Any, name: str) -> bool:
    """Whether a network has an argument of this name."""
    return name in inspect.signature(network.forward).parameters


def _boundary_ids(config: Any) -> tuple[int, ...]:
    """The ids of tokens that only begin or end a sentence, by a configuration."""
    ids = [getattr(config, f"{name}_token_id", None) for name in ENDS]
    id_lists = [
        token_ids if isinstance(token_ids, list) else [token_ids]
        for token_ids in ids
        if token_ids is not None
    ]
    return tuple(dict.fromkeys(token_id for token_ids in id_lists for token_id in token_ids))
