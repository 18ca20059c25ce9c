"""When the words of sounds of any length start, from the attention of Whisper."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from latentheads.checks import (
    check_choice,
    check_fraction,
    check_instance,
    check_list,
    check_not_empty,
)
from latentheads.console import show_progress
from latentheads.contrib.heads.alignment_heads import AlignmentHeads, fit_alignment_heads
from latentheads.contrib.heads.boundaries.chain import BoundaryTimes
from latentheads.contrib.heads.head_exports import describe_unlikely
from latentheads.contrib.heads.word_attention import (
    WordAttention,
    get_cross_heads,
    record_word_attention,
)
from latentheads.contrib.speech.forced import (
    check_samples,
    extract_features,
    make_forced_example,
    make_tokens,
    transcribe_checked,
)
from latentheads.contrib.speech.windows import divide_words, split_at_pauses
from latentheads.contrib.speech.word_times import WordTime, to_word_times
from latentheads.errors import naming
from latentheads.frames import make_frame
from latentheads.passes import evaluation_mode

if TYPE_CHECKING:
    import pandas as pd

LEARNED = 600 * 48
"""Seconds of sound to learn from, times heads: ten minutes of Whisper base, some 1.5 GB."""

FEW = 5
"""Windows that heads are learned from at least."""

SHORT = 5
"""Seconds of the shortest window that is cut once more if its transcript repeats itself."""

HALF = 0.75
"""Share of such a window that a part of it has at most, so that there are two."""

MOVED = 5
"""Words that may move between two windows: transcripts err most where a sound is cut."""

SPEED = 2.5
"""Words in a second of a window that could not be transcribed."""


def time_words(
    network: Any,
    processor: Any,
    sounds: Mapping[str, Float[np.ndarray, " sample"]],
    texts: Mapping[str, Sequence[str]] | None = None,
    *,
    heads: AlignmentHeads | None = None,
    level: float = 0.9,
) -> TimedWords:
    """The words of sounds with their times, by heads that are given or learned from these sounds.

    A sound is cut at pauses of 2.3 seconds, and where it is quiet if it is longer than the network
    takes, and each part transcribed. Words of its text are divided by these transcripts, and at the
    ends of parts by their log-probability. A part whose transcript repeats itself, or was cut off,
    is cut again. The last word of a part ends with it. Heads learn from ten minutes at most if the
    network has 48 heads, from less if it has more, but from five parts at least.

    ::

        time_words(whisper, processor, {"a": samples}, {"a": "it rains".split()})

    Args:
        network: A ``WhisperForConditionalGeneration``.
        processor: Its ``WhisperProcessor``; for a network of many languages one that was made with
            ``language="de", task="transcribe"``, for example.
        sounds: Samples at the processor's rate, by any name.
        texts: The words that are spoken, by the same names; others are transcribed.
        heads: Alignment heads of this network, such as those of sounds before, or
            :func:`~latentheads.contrib.heads.load_alignment_heads`. None: they are learned.
        level: Probability of each interval; nominal, unless the heads were learned with labels: no
            label shows how far times are from the truth.

    Returns:
        The words by the name of their sound; its attribute ``heads`` has the heads.

    Raises:
        ValueError: A sound or its words are wrong, or no words were transcribed; it is named. Or
            the heads are of another network.

    Warns:
        UserWarning: A transcript is unusable, or attention does not fit the words; the sound is
            named. Or no head shows words.
    """
    check_fraction("level", level)
    whisper = _Whisper(network, processor)
    if heads is not None:
        check_instance("heads", heads, AlignmentHeads, "AlignmentHeads")
        heads.check_network(network)
    texts = texts or {}
    _check_sounds(sounds, texts, whisper.rate)
    with evaluation_mode(network):
        windows = {
            name: whisper.divide(name, samples, texts.get(name, ()))
            for name, samples in sounds.items()
        }
        all_windows = [window for parts in windows.values() for window in parts]
        recorded = whisper.record_some(all_windows) if heads is None else {}
        heads = heads or fit_alignment_heads(get_cross_heads(network), [*recorded.values()])
        all_times = whisper.times(all_windows, heads, recorded, level)
        timed = {
            name: [
                word
                for window, times in zip(parts, all_times)
                for word in to_word_times(
                    window.words, times, len(window.samples) / whisper.rate, window.offset
                )
            ]
            for name, parts in windows.items()
        }
    return TimedWords(timed, replace(heads, attentions=[]))


def _check_sounds(
    sounds: Mapping[str, Float[np.ndarray, " sample"]],
    texts: Mapping[str, Sequence[str]],
    rate: int,
) -> None:
    """Raises an error for samples or a text that cannot be timed."""
    for name, words in texts.items():
        check_choice("the name of a text", name, sounds)
        check_list(f"texts[{name!r}]", words)
    for name, samples in sounds.items():
        with naming(name):
            check_not_empty("samples", samples)
            check_samples(samples, None, rate)


class TimedWords(dict[str, list[WordTime]]):
    """The words of each sound, by its name.

    Attributes:
        heads: The alignment heads that the times are from, without the attention of examples.
    """

    def __init__(self, words: Mapping[str, list[WordTime]], heads: AlignmentHeads) -> None:
        super().__init__(words)
        self.heads = heads

    def to_frame(self) -> pd.DataFrame:
        """A row for each word: its sound, and the fields of `WordTime`."""
        rows = [(sound, word) for sound, words in self.items() for word in words]
        columns = {
            field.name: [getattr(word, field.name) for _, word in rows]
            for field in fields(WordTime)
        }
        return make_frame({"sound": [sound for sound, _ in rows], **columns})


@dataclass(frozen=True)
class _Window:
    """A part of a sound that Whisper takes at once, with its words.

    Attributes:
        sound: What the sound is called.
        samples: The part.
        offset: Seconds at which it starts.
        words: What is spoken in it.
        is_transcribed: Whether these words are a transcript that does not repeat itself.
    """

    sound: str
    samples: Float[np.ndarray, " sample"]
    offset: float = 0.0
    words: Sequence[str] = ()
    is_transcribed: bool = False

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.sound}, from {self.offset:.1f} s" if self.offset else self.sound

    def split(self, rate: int, longest: float) -> list[_Window]:
        """Parts of it, cut at its pauses."""
        return [
            replace(self, samples=self.samples[first:last], offset=self.offset + first / rate)
            for first, last in split_at_pauses(self.samples, rate, longest)
        ]


class _Whisper:
    """Whisper, which transcribes and attends."""

    def __init__(self, network: Any, processor: Any) -> None:
        self.network, self.processor = network, processor
        self.rate: int = processor.feature_extractor.sampling_rate

    def divide(
        self, name: str, samples: Float[np.ndarray, " sample"], words: Sequence[str]
    ) -> list[_Window]:
        """The windows of a sound that have words."""
        whole = _Window(name, samples, words=words)
        windows = whole.split(self.rate, self.processor.feature_extractor.chunk_length)
        if not words or len(windows) > 1:
            shown = show_progress(windows, f"transcribing {name}", "window")
            windows = [part for window in shown for part in self._transcribe(window)]
            if words:
                texts = self._divide_words(windows, words)
                windows = [replace(w, words=text) for w, text in zip(windows, texts)]
        windows = [window for window in windows if window.words]
        if not windows:
            raise ValueError(f"{name}: no words were transcribed: give its text")
        return windows

    def _transcribe(self, window: _Window) -> list[_Window]:
        """A window with its words; its parts if the transcript repeats itself or was cut off."""
        with naming(window.name):
            words, reason = transcribe_checked(self.network, self.processor, window.samples)
        seconds = len(window.samples) / self.rate
        if reason and seconds > SHORT:
            return [
                part
                for half in window.split(self.rate, HALF * seconds)
                for part in self._transcribe(half)
            ]
        if reason:
            advice = "its words are divided evenly" if window.words else "give its text"
            warnings.warn(f"{window.name}: {reason}: {advice}", stacklevel=4)
        return [replace(window, words=words, is_transcribed=not reason)]

    def _divide_words(
        self, windows: Sequence[_Window], words: Sequence[str]
    ) -> Sequence[Sequence[str]]:
        """The words of each window: by the transcripts, and by how likely words are at its ends."""
        has_transcripts = any(w.words for w in windows)
        transcripts = [
            w.words
            if has_transcripts and w.is_transcribed
            else [""] * round(SPEED * len(w.samples) / self.rate)
            for w in windows
        ]
        parts: list[Sequence[str]] = [*divide_words(transcripts, words)]
        score = self._make_scorer(windows[0])
        for index in show_progress(range(len(windows) - 1), "dividing words", "cut"):
            score_next = self._make_scorer(windows[index + 1])
            both, cut = [*parts[index], *parts[index + 1]], len(parts[index])
            cuts = range(max(0, cut - MOVED), min(len(both), cut + MOVED) + 1)
            cut = cuts[int(np.argmax([score(both[:c]) + score_next(both[c:]) for c in cuts]))]
            parts[index : index + 2] = both[:cut], both[cut:]
            score = score_next
        return parts

    def _make_scorer(self, window: _Window) -> Callable[[Sequence[str]], float]:
        """What computes the log-probability that words, and no more, are spoken in a window."""
        tokenizer = self.processor.tokenizer
        features = extract_features(self.processor, window.samples)
        prompt = len(make_tokens(tokenizer, [])[0]) - 1
        with torch.no_grad():
            encoded = self.network.get_encoder()(
                features.to(self.network.device, self.network.dtype)
            )

        @torch.no_grad()
        def score(words: Sequence[str]) -> float:
            tokens = torch.tensor([make_tokens(tokenizer, words)[0]], device=self.network.device)
            if tokens.shape[1] - 1 > self.network.config.max_target_positions:
                return -math.inf
            output = self.network(encoder_outputs=encoded, decoder_input_ids=tokens[:, :-1])
            log_probs = output.logits[0, prompt - 1 :].double().log_softmax(-1)
            return float(log_probs.gather(-1, tokens[0, prompt:, None]).sum())

        return score

    def _record(self, window: _Window) -> WordAttention:
        with _naming(window):
            example = make_forced_example(self.processor, window.samples, window.words)
            return record_word_attention(self.network, example)

    def record_some(self, windows: Sequence[_Window]) -> dict[int, WordAttention]:
        """The attention of as many windows as heads are learned from, by their index."""
        seconds = sum(len(window.samples) for window in windows) / self.rate
        heads = len(get_cross_heads(self.network))
        number = max(FEW, int(len(windows) * LEARNED / (seconds * heads)))
        chosen = np.linspace(0, len(windows) - 1, min(number, len(windows))).round().astype(int)
        return {
            i: self._record(windows[i])
            for i in show_progress(chosen.tolist(), "reading attention", "window")
        }

    def times(
        self,
        windows: Sequence[_Window],
        heads: AlignmentHeads,
        recorded: Mapping[int, WordAttention],
        level: float,
    ) -> Iterator[dict[str, BoundaryTimes]]:
        """The times of the words of each window, of which some are recorded."""
        if unlikely := describe_unlikely(heads.probabilities):
            warnings.warn(unlikely, stacklevel=3)  # once, and not of each window
        for index, window in enumerate(show_progress(windows, "finding times", "window")):
            attention = recorded.get(index) or self._record(window)
            with warnings.catch_warnings(action="ignore") if unlikely else _naming(window):
                times = heads.times(attention, level)
            yield times


@contextmanager
def _naming(window: _Window) -> Iterator[None]:
    """Adds the name of a window to what is wrong with it, and to what is warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        with naming(window.name):
            yield
    for warning in caught:
        warnings.warn(f"{window.name}: {warning.message}", warning.category, stacklevel=4)
