"""Sound and the words that are spoken in it, as examples with forced decoder tokens for Whisper."""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.checks import check_list
from latentheads.contrib.heads.word_attention import WHISPER_STEP, ForcedExample

ENGLISH_SIZE = 51864
"""Size of the vocabulary of a Whisper of English alone; others have one more."""

REPETITION = 2.4
"""Compression ratio above which a transcript repeats itself: that of OpenAI's ``transcribe``."""


def make_forced_example(
    processor: Any,
    samples: Float[np.ndarray, " sample"],
    words: Sequence[str],
    starts: Sequence[float] | None = None,
    ends: Sequence[float] | None = None,
    *,
    sampling_rate: int | None = None,
) -> ForcedExample:
    """An example for :func:`latentheads.alignment_heads`, whose times are seconds.

    Args:
        processor: A ``WhisperProcessor``; for a network of many languages one that was made with
            ``language="de", task="transcribe"``, for example.
        samples: At most 30 seconds of sound, at the processor's rate.
        words: The words that are spoken, with their punctuation.
        starts: Seconds at which words start, if they are known.
        ends: Seconds at which words end, if they are known.
        sampling_rate: Samples in a second, to check them by; None: those of the processor.

    Raises:
        ValueError: There is too much sound, of another rate or of several channels, or of whole
            numbers; words are one text; or the processor is only a part of one.
    """
    for part in ("tokenizer", "feature_extractor"):
        if not hasattr(processor, part):
            raise ValueError(
                f"processor must be a WhisperProcessor, got {type(processor).__name__}"
            )
    check_list("words", words)
    tokenizer, extractor = processor.tokenizer, processor.feature_extractor
    check_samples(samples, sampling_rate, extractor.sampling_rate)
    rate = extractor.sampling_rate
    seconds = len(samples) / rate
    if seconds > extractor.chunk_length:
        raise ValueError(
            f"sound must have at most {extractor.chunk_length} seconds, got {seconds:.1f}"
        )
    tokens, spans = make_tokens(tokenizer, words)
    features = extract_features(processor, samples)
    length = math.ceil(len(samples) / (rate * WHISPER_STEP))  # .14 / .02 is more than 7
    return ForcedExample(
        {"input_features": features},
        tokens,
        spans,
        length,
        starts,
        ends,
        _energy(features, length),
        WHISPER_STEP,
    )


def extract_features(
    processor: Any, samples: Float[np.ndarray, " sample"]
) -> Float[Tensor, "1 band frame"]:
    """What the encoder is called with, padded to the length that it takes."""
    extractor = processor.feature_extractor
    rate = extractor.sampling_rate
    features: Tensor = extractor(samples, sampling_rate=rate, return_tensors="pt").input_features
    return features


def make_tokens(tokenizer: Any, words: Sequence[str]) -> tuple[list[int], list[tuple[int, int]]]:
    """The prompt, words and the end as decoder tokens, and the span of each word."""
    tokens = [token for token in tokenizer("")["input_ids"] if token != tokenizer.eos_token_id]
    spans = []
    for word in words:
        first = len(tokens)
        tokens += tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
        spans.append((first, len(tokens)))
    return [*tokens, tokenizer.eos_token_id], spans


def is_multilingual(network: Any) -> bool:
    """Whether a Whisper is of many languages; by its vocabulary if it has no such option."""
    default = network.config.vocab_size > ENGLISH_SIZE
    return bool(getattr(network.generation_config, "is_multilingual", default))


def transcribe_words(
    network: Any,
    processor: Any,
    samples: Float[np.ndarray, " sample"],
    *,
    sampling_rate: int | None = None,
) -> list[str]:
    """Transcribes a sound; returns its words.

    Args:
        network: A ``WhisperForConditionalGeneration``.
        processor: Its ``WhisperProcessor``, whose language is transcribed.
        samples: At most 30 seconds of sound, at the processor's rate.
        sampling_rate: Samples in a second, to check them by; None: those of the processor.

    Warns:
        UserWarning: The transcript repeats itself, or was cut off at the largest length.
    """
    words, reason = transcribe_checked(network, processor, samples, sampling_rate=sampling_rate)
    if reason:
        warnings.warn(f"{reason}: give its text", stacklevel=2)
    return words


def transcribe_checked(
    network: Any,
    processor: Any,
    samples: Float[np.ndarray, " sample"],
    *,
    sampling_rate: int | None = None,
) -> tuple[list[str], str]:
    """The words of a sound, and what shows that they are no transcript; empty if nothing does."""
    check_samples(samples, sampling_rate, processor.feature_extractor.sampling_rate)
    features = extract_features(processor, samples)
    language = getattr(processor.tokenizer, "language", None)
    prompt = {"language": language, "task": processor.tokenizer.task} if language else {}
    options = network.generation_config
    length = options.max_length or network.config.max_target_positions
    with torch.no_grad():
        tokens = network.generate(
            features.to(network.device, network.dtype), max_length=length, **prompt
        )
    text = processor.batch_decode(tokens, skip_special_tokens=True)[0]
    # Whisper returns neither its prompt, of at most four tokens, nor the end token
    return text.split(), _describe_runaway(
        text, tokens.shape[-1], options.max_new_tokens or length - 4
    )


def _describe_runaway(text: str, tokens: int, limit: int) -> str:
    """What shows that a transcript is unusable; empty if nothing does."""
    encoded = text.encode()
    ratio = len(encoded) / len(zlib.compress(encoded))
    if ratio > REPETITION:
        return f"the transcript repeats itself (compression ratio {ratio:.1f})"
    return f"the transcript was cut off after {tokens} tokens" if tokens >= limit else ""


def check_samples(samples: Any, sampling_rate: int | None, expected: int) -> None:
    """Checks that samples are of one channel, from -1 to 1, and of the rate that is expected."""
    if len(shape := np.shape(samples)) != 1:
        raise ValueError(f"samples must be of one channel, got shape {list(shape)}")
    if (dtype := np.asarray(samples).dtype).kind != "f":  # such as those of scipy.io.wavfile
        raise ValueError(f"samples must be floats from -1 to 1, got {dtype}")
    if sampling_rate not in (None, expected):
        raise ValueError(
            f"samples must have the processor's rate, {expected} a second, got {sampling_rate}: "
            "resample them"
        )


def _energy(features: Float[Tensor, "1 band frame"], length: int) -> Float[Tensor, " position"]:
    """The mean of the log of the bands, of the two frames of each position."""
    return features[0].double().mean(0).unflatten(0, (-1, 2)).mean(1)[:length]
