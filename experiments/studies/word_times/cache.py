"""Cross-attention of all utterances in one file, so that a trial takes seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor
from tqdm import tqdm

from latentheads.contrib.heads.word_attention import (
    WHISPER_STEP,
    ForcedExample,
    Head,
    WordAttention,
    get_cross_heads,
    record_cross_attention,
    to_word_attention,
)
from latentheads.contrib.speech.forced import make_forced_example
from latentheads.experiments.cli.inputs import check_folder
from latentheads.experiments.studies.word_times.espeak import RATE
from latentheads.experiments.studies.word_times.speech import Utterance
from latentheads.packages import import_optional


@dataclass(frozen=True)
class CachedUtterance:
    """An utterance with its attention.

    Attributes:
        name: Its set, and its index in it.
        words: The words.
        spans: The tokens of each word.
        weights: Attention of each head at each token, the end token too, as (head, token,
            position); the query at a token predicts the next one.
        whole_positions: Positions that the sound fills wholly, as OpenAI's code counts them.
        starts: Seconds at which words start; not a number where it is not known.
        ends: Seconds at which words end.
        energy: Energy of the sound at each position.
        heads: Layer and number of each head.
        listed: The alignment heads of OpenAI's list, which were chosen by hand.
    """

    name: str
    words: list[str]
    spans: list[tuple[int, int]]
    weights: Tensor
    whole_positions: int
    starts: list[float]
    ends: list[float] | None
    energy: Tensor
    heads: list[Head]
    listed: list[Head]

    def attention(self, labelled: bool) -> WordAttention:
        """The attention of its words, with or without their times."""
        starts, ends = (self.starts, self.ends or None) if labelled else (None, None)
        example = ForcedExample(
            {}, [], self.spans, None, starts, ends, self.energy, step=WHISPER_STEP
        )
        return to_word_attention(self.weights, example)

    def boundaries(self, kind: int) -> list[float]:
        """Seconds at which words start, or end."""
        return self.starts if kind == 0 else self.ends or []


class Recorder:
    """Records the attention of Whisper.

    Args:
        network: The folder of Whisper.
        language: What is spoken, as ``de``; None for a network of English alone.

    Attributes:
        whisper: The network.
        processor: What prepares sound and text for it.
    """

    def __init__(self, network: Path, language: str | None = None) -> None:
        transformers = import_optional("transformers")
        check_folder(network)
        prompt = {"language": language, "task": "transcribe"} if language else {}
        self.processor = transformers.WhisperProcessor.from_pretrained(network, **prompt)
        whisper = transformers.WhisperForConditionalGeneration.from_pretrained(network)
        self.whisper = whisper.eval()

    def record(self, utterance: Utterance) -> CachedUtterance:
        """The attention of all heads to an utterance, in half precision."""
        example = make_forced_example(self.processor, utterance.samples, utterance.words)
        # the last token is no input of the decoder, and OpenAI's code has its row
        tokens = [*example.tokens, example.tokens[-1]]
        weights = record_cross_attention(self.whisper, replace(example, tokens=tokens))
        assert example.energy is not None
        return CachedUtterance(
            utterance.name,
            utterance.words,
            list(example.words),
            weights.half(),
            len(utterance.samples) // round(WHISPER_STEP * RATE),
            list(map(float, utterance.starts)),
            utterance.ends and list(map(float, utterance.ends)),
            example.energy,
            get_cross_heads(self.whisper),
            [(layer, head) for layer, head in self.whisper.generation_config.alignment_heads],
        )


def write_cache(recorder: Recorder, utterances: Iterable[Utterance], path: Path) -> None:
    """Writes the attention of all utterances."""
    cached = [vars(recorder.record(utterance)) for utterance in tqdm(utterances, disable=None)]
    torch.save(cached, path)


def read_cache(path: Path) -> dict[str, list[CachedUtterance]]:
    """The utterances of each set."""
    try:
        utterances = [CachedUtterance(**entry) for entry in torch.load(path, weights_only=True)]
    except (EOFError, LookupError, RuntimeError, TypeError, UnpicklingError) as reason:
        raise ValueError(f"{path} is no cache of bench_word_times.py") from reason
    sets: dict[str, list[CachedUtterance]] = {}
    for cached in utterances:
        sets.setdefault(cached.name.partition("/")[0], []).append(cached)
    return sets
