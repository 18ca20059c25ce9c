"""When the words of sounds of any length start, from the attention of Whisper."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from tqdm import tqdm

from latentheads.checks import check_choice, check_fraction, check_list
from latentheads.contrib.heads.alignment_heads import fit_alignment_heads
from latentheads.contrib.heads.boundaries.chain import BoundaryTimes
from latentheads.contrib.heads.word_attention import (
    WordAttention,
    get_cross_heads,
    record_word_attention,
)
from latentheads.contrib.speech.forced import (
    check_samples,
    make_forced_example,
    make_tokens,
    transcribe_words,
)
from latentheads.contrib.speech.windows import divide_words, split_at_pauses
from latentheads.contrib.speech.word_times import WordTime, to_word_times
from latentheads.errors import naming

LEARNED = 600
"""Seconds of sound that heads are learned from: of Whisper base, 48 heads, 1.5 GB of attention."""

MANY = 5
"""Windows from which on their number is shown."""

MOVED = 5
"""Words that may move between neighbouring windows."""

Item = TypeVar("Item")


def time_words(
    network: Any,
    processor: Any,
    sounds: Mapping[str, Float[np.ndarray, " sample"]],
    texts: Mapping[str, Sequence[str]] | None = None,
    *,
    level: float = 0.9,
) -> dict[str, list[WordTime]]:
    """The words of sounds with their times, by heads that are learned from all of them.

    A sound that is longer than the network takes is cut where it is quiet, and each part
    transcribed; words of its text are divided by these transcripts.

    ::

        time_words(whisper, processor, {"a": samples}, {"a": "it rains".split()})

    Args:
        network: A ``WhisperForConditionalGeneration``.
        processor: Its ``WhisperProcessor``; for a network of many languages one that was made with
            ``language="de", task="transcribe"``, for example.
        sounds: Samples at the processor's rate, by any name.
        texts: The words that are spoken, by the same names; others are transcribed.
        level: Probability of each interval.

    Raises:
        ValueError: A sound or its words are wrong, or no words were transcribed; it is named.

    Warns:
        UserWarning: A transcript is none, no head shows the words, or attention does not fit them;
            the sound is named.
    """
    check_fraction("level", level)
    whisper = _Whisper(network, processor)
    texts = texts or {}
    for name, words in texts.items():
        check_choice("the name of a text", name, sounds)
        check_list(f"texts[{name!r}]", words)
    for name, samples in sounds.items():
        with naming(name):
            check_samples(samples, None, whisper.rate)
    windows = {
        name: whisper.divide(name, samples, list(texts.get(name, ())))
        for name, samples in sounds.items()
    }
    all_times = whisper.times([window for parts in windows.values() for window in parts], level)
    return {
        name: to_word_times(
            [word for window in parts for word in window.words],
            _join([(window, next(all_times)) for window in parts]),
            len(sounds[name]) / whisper.rate,
        )
        for name, parts in windows.items()
    }


@dataclass(frozen=True)
class _Window:
    """A part of a sound that Whisper takes at once, with its words.

    Attributes:
        name: What it is called.
        offset: Seconds at which it starts.
        samples: Its sound.
        words: What is spoken in it.
    """

    name: str
    offset: float
    samples: Float[np.ndarray, " sample"]
    words: list[str]


class _Whisper:
    """Whisper, which transcribes and attends."""

    def __init__(self, network: Any, processor: Any) -> None:
        self.network, self.processor = network, processor
        self.rate: int = processor.feature_extractor.sampling_rate

    def divide(
        self, name: str, samples: Float[np.ndarray, " sample"], words: list[str]
    ) -> list[_Window]:
        """The windows of a sound that have words."""
        longest = self.processor.feature_extractor.chunk_length
        windows = []
        for first, last in split_at_pauses(samples, self.rate, longest):
            offset = first / self.rate
            named = f"{name}, from {offset:.1f} s" if first else name
            windows.append(_Window(named, offset, samples[first:last], words))
        if not words or len(windows) > 1:
            texts = [self._transcribe(w) for w in _show(windows, f"transcribing {name}")]
            texts = self._divide(windows, divide_words(texts, words)) if words else texts
            windows = [replace(w, words=text) for w, text in zip(windows, texts) if text]
        if not windows:
            raise ValueError(f"{name}: no words were transcribed: give its text")
        return windows

    def _divide(self, windows: Sequence[_Window], parts: list[list[str]]) -> list[list[str]]:
        """Moves words between neighbouring windows where these are then likelier.

        Transcripts err, at the ends of windows too, and a word that is given to another window has
        a wrong time.
        """
        parts = list(parts)
        scorers = [_Scorer(self.network, self.processor, window.samples) for window in windows]
        for k in range(len(windows) - 1):
            both, cut = [*parts[k], *parts[k + 1]], len(parts[k])
            cuts = range(max(0, cut - MOVED), min(len(both), cut + MOVED) + 1)
            scores = {c: scorers[k](both[:c]) + scorers[k + 1](both[c:]) for c in cuts}
            cut = max(cuts, key=lambda c: scores[c])
            parts[k : k + 2] = both[:cut], both[cut:]
        return parts

    def _transcribe(self, window: _Window) -> list[str]:
        with _naming(window):
            return transcribe_words(self.network, self.processor, window.samples)

    def _record(self, window: _Window) -> WordAttention:
        with _naming(window):
            example = make_forced_example(self.processor, window.samples, window.words)
            return record_word_attention(self.network, example)

    def times(self, windows: Sequence[_Window], level: float) -> Iterator[dict[str, BoundaryTimes]]:
        """The times of the words of each window."""
        seconds = sum(len(window.samples) for window in windows) / self.rate
        share = min(1.0, LEARNED / seconds)
        chosen = [i for i in range(len(windows)) if int((i + 1) * share) > int(i * share)]
        recorded = {i: self._record(windows[i]) for i in _show(chosen or [0], "learning heads")}
        heads = fit_alignment_heads(get_cross_heads(self.network), [*recorded.values()])
        for index, window in enumerate(_show(windows, "finding times")):
            attention = recorded.get(index) or self._record(window)
            with _naming(window):
                times = heads.times(attention, level)
            yield times


class _Scorer:
    """The log-probability of words, and of no more, in a sound."""

    def __init__(self, network: Any, processor: Any, samples: Float[np.ndarray, " sample"]) -> None:
        self.network, self.tokenizer = network, processor.tokenizer
        extractor = processor.feature_extractor
        features = extractor(samples, sampling_rate=extractor.sampling_rate, return_tensors="pt")
        features = features.input_features.to(network.device, network.dtype)
        with torch.no_grad():
            self.encoded = network.get_encoder()(features)

    @torch.no_grad()
    def __call__(self, words: Sequence[str]) -> float:
        tokens, _ = make_tokens(self.tokenizer, words)
        prompt = len(make_tokens(self.tokenizer, [])[0]) - 1
        inputs = torch.tensor([tokens], device=self.network.device)
        output = self.network(encoder_outputs=self.encoded, decoder_input_ids=inputs[:, :-1])
        log_probs = output.logits[0, prompt - 1 :].double().log_softmax(-1)
        return float(log_probs.gather(-1, inputs[0, prompt:, None]).sum())


def _show(items: Sequence[Item], what: str) -> Iterator[Item]:
    """The items, with a progress bar if there are many of them."""
    disable = True if len(items) < MANY else None  # None: where standard error is no terminal
    return iter(tqdm(items, what, leave=False, dynamic_ncols=True, disable=disable))


@contextmanager
def _naming(window: _Window) -> Iterator[None]:
    """Adds the name of a window to what is wrong with it, and to what is warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        with naming(window.name):
            yield
    for warning in caught:
        warnings.warn(f"{window.name}: {warning.message}", stacklevel=4)


def _join(windows: Sequence[tuple[_Window, dict[str, BoundaryTimes]]]) -> dict[str, BoundaryTimes]:
    """The times of the words of a sound, given those of its windows."""

    def join(kind: str, field: str) -> torch.Tensor:
        return torch.cat([getattr(times[kind], field) + w.offset for w, times in windows])

    fields = ("median", "low", "high")
    return {kind: BoundaryTimes(*(join(kind, f) for f in fields)) for kind in windows[0][1]}
