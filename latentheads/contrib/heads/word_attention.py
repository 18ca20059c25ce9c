"""How the heads of cross-attention attend while each word of a forced target is predicted."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.checks import check_as_many, check_not_empty
from latentheads.contrib.hf.addresses import (
    NAME,
    attention_of_parts,
    find_heads,
    inner_network,
)
from latentheads.contrib.hf.arguments import device_of_inputs
from latentheads.contrib.hf.tokens import check_tokens
from latentheads.errors import shown
from latentheads.passes import evaluation_mode

Head = tuple[int, int]
"""The layer and the index of a head, both from 0."""

WHISPER_STEP = 0.02
"""Seconds of a position of Whisper's encoder."""


@dataclass(frozen=True)
class ForcedExample:
    """A source, and the target that the decoder is forced to produce.

    Attributes:
        inputs: Tensors that the encoder is called with, of one sequence: ``input_features`` of
            speech, ``input_ids`` and ``attention_mask`` of text.
        tokens: Decoder tokens, from the start token to the end token.
        words: For each word the index of its first token, and the one after its last.
        length: Positions of the encoder that are no padding; None: those of ``attention_mask``, if
            it has one number for each position, else all.
        starts: When each word starts, in seconds of sound, in positions of text; None, or not a
            number for a word, where it is not known. Positions need not be whole: .5 is the middle
            of the first one, so a word that comes from ``input_ids[:, i]`` has i + .5.
        ends: When each word ends.
        energy: Energy of a sound at each position, on any scale that grows with it; without labels
            it shows where words start.
        step: Seconds of a position; 1: ``starts`` and ``ends`` are positions. None: .02 for
            Whisper, 1 for text (``input_ids``).
    """

    inputs: Mapping[str, Tensor]
    tokens: Sequence[int]
    words: Sequence[tuple[int, int]]
    length: int | None = None
    starts: Sequence[float] | None = None
    ends: Sequence[float] | None = None
    energy: Float[Tensor, " position"] | None = None
    step: float | None = None


@dataclass(frozen=True)
class WordAttention:
    """Attention at every word of an example, in several views.

    Attributes:
        weights: A view is a head and a query: all heads by the query that predicts the word's first
            token, then all heads by the query whose input is its last token.
        starts: Position at which each word starts; not a number where it is not known.
        ends: Position at which each word ends.
        energy: Energy of a sound at each position.
        step: Seconds of a position; 1: times are counted in positions.
    """

    weights: Float[Tensor, "view word position"]
    starts: Float[Tensor, " word"]
    ends: Float[Tensor, " word"]
    energy: Float[Tensor, " position"] | None = None
    step: float = 1.0

    def __post_init__(self) -> None:
        for name in ("weights", "starts", "ends", "energy"):  # half precision is of the network
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, value.to("cpu", torch.float64))

    @property
    def positions(self) -> int:
        """Number of positions."""
        return self.weights.shape[-1]

    @property
    def is_labelled(self) -> bool:
        """Whether any boundary is known."""
        return bool(torch.cat([self.starts, self.ends]).isfinite().any())

    def restrict(self, views: Bool[Tensor, " view"]) -> WordAttention:
        """The same in some views alone."""
        return replace(self, weights=self.weights[views])


def get_cross_heads(network: Any) -> list[Head]:
    """The heads of cross-attention, in the order of :func:`record_cross_attention`."""
    inner = inner_network(network)
    blocks = [a.block for a in find_heads(inner) if a.block.attention_type == "decoder-cross"]
    if not blocks:
        raise ValueError(f"{type(inner).__name__} has no cross-attention")
    return [(block.layer, head) for block in blocks for head in range(block.heads)]


@torch.no_grad()
def record_cross_attention(
    network: Any, example: ForcedExample
) -> Float[Tensor, "head token position"]:
    """Attention weights of the query that predicts each token but the first.

    Those of a latent network have no noise, and those of one in training mode no dropout.

    Warns:
        UserWarning: Tokens name no language or no task to a Whisper of many languages, which then
            attends elsewhere.
    """
    network = inner_network(network)
    if _lacks_prompt(network, example.tokens):
        warnings.warn(
            "tokens must name a language and a task, or attention hardly shows the words: make the "
            "processor by from_pretrained(..., language='de', task='transcribe') for German",
            stacklevel=2,
        )
    device, dtype = device_of_inputs(network), network.dtype
    tokens = torch.tensor([list(example.tokens)], device=device)
    inputs = {
        name: value.to(device, dtype if value.is_floating_point() else None)
        for name, value in example.inputs.items()
    }
    check_tokens({**inputs, "decoder_input_ids": tokens[:, :-1]}, network)
    mask = {name: inputs[name] for name in ("attention_mask",) if name in inputs}
    is_latent = NAME in attention_of_parts(network).values()
    with evaluation_mode(network):
        with _eager_attention(network) if is_latent else nullcontext():  # no head is sampled
            encoded = network.get_encoder()(**inputs)
        with _eager_attention(network):
            output = network(
                encoder_outputs=encoded,
                decoder_input_ids=tokens[:, :-1],
                output_attentions=True,
                use_cache=False,
                return_dict=True,
                **mask,
            )
    weights = torch.cat([layer[0] for layer in output.cross_attentions])
    length = _length_of_mask(mask.get("attention_mask"), weights.shape[-1])
    return weights[..., : length if example.length is None else example.length]


def _lacks_prompt(network: Any, tokens: Sequence[int]) -> bool:
    """Whether tokens for a network of many languages name no language, or no task."""
    options = getattr(network, "generation_config", None)
    if not getattr(options, "is_multilingual", False):
        return False
    kinds = (getattr(options, name, None) for name in ("lang_to_id", "task_to_id"))
    return any(set(kind.values()).isdisjoint(tokens) for kind in kinds if kind)


def _length_of_mask(mask: Tensor | None, positions: int) -> int:
    """Positions that are no padding; a mask of another length is not one of positions."""
    if mask is None or mask.shape != (1, positions):
        return positions
    length = int(mask.count_nonzero())
    if not mask[0, :length].all():  # positions of words would be those of padding
        raise ValueError("attention_mask must have its padding on the right, got some before a 1")
    return length


def to_word_attention(
    weights: Float[Tensor, "head token position"], example: ForcedExample
) -> WordAttention:
    """The attention of words, given that of tokens.

    Args:
        weights: What :func:`record_cross_attention` returns.
        example: Its example; without a step its times are positions.
    """
    # row i has token i as its input, and predicts token i + 1
    at_output = [weights[:, first - 1] for first, _ in example.words]
    at_input = [weights[:, min(stop, weights.shape[1]) - 1] for _, stop in example.words]
    views = torch.cat([torch.stack(at_output, 1), torch.stack(at_input, 1)])
    if not views.isfinite().all():  # such as an overflow of half precision
        raise ValueError("attention weights of the network must be finite; load it in float32")
    step = 1.0 if example.step is None else example.step
    starts = _to_labels("starts", example.starts, views, step)
    ends = _to_labels("ends", example.ends, views, step)
    if (ends < starts).any():
        word = int((ends < starts).nonzero()[0])
        span = f"{starts[word] * step:g} to {ends[word] * step:g}"
        raise ValueError(f"word {word} must end after it starts, got {span}")
    energy = None if example.energy is None else torch.as_tensor(example.energy)
    if energy is not None and energy.shape != views.shape[-1:]:
        raise ValueError(
            f"energy must have a number for each of {views.shape[-1]} positions, got shape "
            f"{list(energy.shape)}"
        )
    if energy is not None and not energy.isfinite().all():  # such as the logarithm of silence
        raise ValueError("energy must be finite at each position")
    return WordAttention(views, starts, ends, energy, step)


def _to_labels(
    name: str,
    labels: Sequence[float] | None,
    views: Float[Tensor, "view word position"],
    step: float,
) -> Float[Tensor, " word"]:
    """The position of each boundary, given in positions or seconds."""
    _, words, positions = views.shape
    values = [torch.nan] * words if labels is None else labels
    times = torch.as_tensor(values, dtype=torch.float64)
    boundaries = times / step
    # labels may be off by a position at the ends of the input
    outside = times[(boundaries < -1) | (boundaries > positions + 1)]
    if len(outside):
        limit = "the number of positions" if step == 1 else "the seconds of the sound"
        raise ValueError(
            f"{name} must be from 0 to {step * positions:g}, {limit}, got {outside[0]:g}"
        )
    return boundaries


def record_word_attention(network: Any, example: ForcedExample) -> WordAttention:
    """Attention of every head of cross-attention at every word of an example."""
    example = replace(example, step=find_step(network, example))
    return to_word_attention(record_example(network, example), example)


def record_example(
    network: Any, example: ForcedExample, *, with_end: bool = False
) -> Float[Tensor, "head token position"]:
    """Attention of every head of cross-attention at every input token of an example.

    Args:
        network: The network.
        example: The example, with its step.
        with_end: Whether its last token is an input too.
    """
    check_example(example)
    limit = getattr(inner_network(network).config, "max_target_positions", None)
    if limit is not None and len(example.tokens) > (most := limit + (not with_end)):
        raise ValueError(
            f"tokens must be at most {most} for this network, got {len(example.tokens)}"
        )
    # what comes after the last input is not read
    inputs = replace(example, tokens=[*example.tokens, 0]) if with_end else example
    weights = record_cross_attention(network, inputs)
    words, positions = len(example.words), weights.shape[-1]
    if "input_ids" not in example.inputs and words > positions:  # they would all start at once
        raise ValueError(
            f"there are more words than positions of sound: {words} words, {positions} positions "
            f"of {example.step:g} seconds"
        )
    return weights


def find_step(network: Any, example: ForcedExample) -> float:
    """Seconds of a position of an example, or 1 where it has positions of text.

    Raises:
        ValueError: It is not given, and not known of the network.
    """
    if example.step is not None:
        if not (isinstance(example.step, int | float) and 0 < example.step < math.inf):
            raise ValueError(
                f"step must be a positive number of seconds, got {shown(example.step)}"
            )
        return float(example.step)
    inner = inner_network(network)
    if "input_ids" in example.inputs:
        return 1.0
    if inner.config.model_type == "whisper":
        return WHISPER_STEP
    raise ValueError(
        f"step of an example of {type(inner).__name__} must be given: seconds of a position, or 1 "
        "if its times are positions"
    )


def check_example(example: ForcedExample) -> None:
    """Raises a ValueError if words are no spans of tokens in order, or have too few labels.

    Inputs must be of one sequence, with a length of at least one position.
    """
    sequences = {len(value) for value in example.inputs.values()}
    if sequences != {1}:
        raise ValueError(f"inputs must be tensors of one sequence, got {sorted(sequences)}")
    last = 1
    for index, (first, stop) in enumerate(example.words):
        if not last <= first < stop <= len(example.tokens):
            raise ValueError(
                f"word {index} must be a span of tokens from {last} to {len(example.tokens)}, in "
                f"order, got ({first}, {stop})"
            )
        last = stop
    check_not_empty("words of an example", example.words)
    for name in ("starts", "ends"):
        labels = getattr(example, name)
        if labels is not None:
            check_as_many(name, labels, "words", example.words)


@contextmanager
def _eager_attention(network: Any) -> Iterator[None]:
    """Attention that returns its weights, which fused kernels do not."""
    before = attention_of_parts(network)
    network.set_attn_implementation("eager")
    try:
        yield
    finally:
        for part, name in before.items():
            part.set_attn_implementation(name)
