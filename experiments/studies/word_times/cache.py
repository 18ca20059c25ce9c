"""Cross-attention of all utterances in one file, so that a trial takes seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from latentheads.contrib.heads.word_attention import ForcedExample, record_cross_attention
from latentheads.experiments.studies.word_times.espeak import RATE
from latentheads.experiments.studies.word_times.speech import Utterance
from latentheads.packages import import_optional

STEP = 0.02
"""Seconds of a position of Whisper's encoder."""

PROMPT = 2
"""Tokens before a transcript: its start, and that it has no times."""


@dataclass(frozen=True)
class CachedUtterance:
    """An utterance with its attention.

    Attributes:
        name: Its set, and its index in it.
        words: The words.
        spans: The tokens of each word.
        weights: Attention of each head, by the query that predicts each token, as (head, token,
            position).
        starts: Seconds at which words start; not a number where it is not known.
        ends: Seconds at which words end.
        onset: Seconds at which the sound's energy starts.
    """

    name: str
    words: list[str]
    spans: list[tuple[int, int]]
    weights: Tensor
    starts: list[float]
    ends: list[float] | None
    onset: float


def find_onset(samples: np.ndarray, share: float = 0.05) -> float:
    """Seconds at which the energy of 10 ms first is above the noise.

    Args:
        samples: 16,000 a second.
        share: The share of the way from the quietest to the loudest tenth, in log energy above
            which it starts.
    """
    size = RATE // 100
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    energy = np.sqrt(np.square(frames.astype(np.float64)).mean(1))
    floor, top = np.quantile(energy, (0.1, 0.95))
    return float(np.argmax(energy > floor + share * (top - floor)) * size / RATE)


def make_example(utterance: Utterance, tokenizer, extractor) -> ForcedExample:  # noqa: ANN001
    """What is forced, and what the encoder is given."""
    tokens, spans = [50257, 50362], []
    for word in utterance.words:
        first = len(tokens)
        tokens += tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
        spans.append((first, len(tokens)))
    tokens.append(50256)
    features = extractor(utterance.samples, sampling_rate=RATE, return_tensors="pt")
    length = int(np.ceil(len(utterance.samples) / RATE / STEP))
    return ForcedExample({"input_features": features.input_features}, tokens, spans, length)


def write_cache(network: Path, utterances: Iterable[Utterance], path: Path) -> None:
    """Writes the attention of all utterances."""
    transformers = import_optional("transformers")
    processor = transformers.WhisperProcessor.from_pretrained(network)
    whisper = transformers.WhisperForConditionalGeneration.from_pretrained(network).eval()
    cached = []
    for utterance in tqdm(utterances, disable=None):
        example = make_example(utterance, processor.tokenizer, processor.feature_extractor)
        weights = record_cross_attention(whisper, example).half()
        cached.append(
            {
                "name": utterance.name,
                "words": utterance.words,
                "spans": example.words,
                "weights": weights,
                "starts": list(map(float, utterance.starts)),
                "ends": utterance.ends and list(map(float, utterance.ends)),
                "onset": find_onset(utterance.samples),
            }
        )
    torch.save(cached, path)


def read_cache(path: Path) -> dict[str, list[CachedUtterance]]:
    """The utterances of each set."""
    sets: dict[str, list[CachedUtterance]] = {}
    for entry in torch.load(path, weights_only=True):
        cached = CachedUtterance(**entry)
        sets.setdefault(cached.name.partition("/")[0], []).append(cached)
    return sets
