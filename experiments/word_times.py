"""Writes when each word of sound files starts, with an interval, from the attention of Whisper.

python experiments/word_times.py whisper-tiny a.wav b.flac
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import latentheads.experiments.cli.startup  # noqa: F401

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from latentheads.console import print_message
from latentheads.contrib.heads.alignment_heads import fit_alignment_heads
from latentheads.contrib.heads.boundaries.chain import BoundaryTimes
from latentheads.contrib.heads.word_attention import (
    WordAttention,
    get_cross_heads,
    record_word_attention,
)
from latentheads.contrib.speech.forced import (
    is_multilingual,
    make_forced_example,
    transcribe_words,
)
from latentheads.contrib.speech.waveform import Waveform, read_waveform, resample
from latentheads.contrib.speech.windows import divide_words, split_at_pauses
from latentheads.contrib.speech.word_times import FORMATS, to_word_times
from latentheads.corpora.text import read_lines
from latentheads.errors import naming
from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.outputs import check_distinct_files
from latentheads.experiments.cli.parser import Parser
from latentheads.files import write_text
from latentheads.options import Probability
from latentheads.packages import import_optional

DESCRIPTION = (
    "Writes when each word of sound files starts, with an interval, from the attention of "
    "Whisper.\n\n"
    "    python experiments/word_times.py data/whisper-tiny a.wav b.flac --format srt\n\n"
    "NETWORK is a folder that WhisperForConditionalGeneration.from_pretrained opens. One of many "
    "languages is given the one that is spoken, as --language de. The text "
    "of a.wav stands in a.txt beside it; if there is none, Whisper transcribes it. Which heads "
    "show the words, and how far they lag, is learned from all files together, without labels: "
    "some twenty sentences are better than one. The words of a.wav are written to a.json.\n\n"
    "A sound longer than Whisper takes, 30 seconds, is cut where it is quiet, and each part "
    "transcribed. If there is a text, its words are divided by these transcripts."
)
LEARNED = 600
"""Seconds of sound that heads are learned from: ten minutes of attention are some gigabytes."""

MANY = 5
"""Windows from which on their number is shown."""

Item = TypeVar("Item")

GROUPS = {"sound": ("language",), "output": ("format", "level", "help")}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("word_times.py", DESCRIPTION, GROUPS, "[options] NETWORK FILE [FILE ...]")
    parser.add_argument("network", help="folder of Whisper")
    parser.add_argument("files", nargs="+", help="sound, such as wav, flac or mp3")
    parser.add_argument("--language", help="what is spoken, to a network of many languages")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), default="json", help="what is written (default: json)"
    )
    parser.add_argument(
        "--level", type=Probability, default=0.9, help="probability of each interval (default: 0.9)"
    )
    return parser


def _load(folder: str, language: str | None) -> tuple[Any, Any]:
    """Whisper, and what prepares sound and text of a language for it."""
    transformers = import_optional("transformers")
    if not Path(folder).is_dir():  # transformers would ask its hub for it
        raise ValueError(f"there is no folder {folder}")
    try:
        network = transformers.WhisperForConditionalGeneration.from_pretrained(folder)
        if is_multilingual(network) and not language:
            raise ValueError(f"{folder} is of many languages: name one, as --language de")
        if language and not is_multilingual(network):
            raise ValueError(f"{folder} is of English alone: leave out --language {language}")
        prompt = {"language": language, "task": "transcribe"} if language else {}
        processor = transformers.WhisperProcessor.from_pretrained(folder, **prompt)
        known = getattr(network.generation_config, "lang_to_id", None)
        if language and known and processor.tokenizer.prefix_tokens[1] not in known.values():
            raise ValueError(f"{folder} has no language {language}: {', '.join(known)}")
        return network.eval(), processor
    except OSError as reason:  # such as a file that is not there
        raise ValueError(f"{folder} is no folder of Whisper: {reason}") from reason


@contextmanager
def _naming(name: str, notes: list[str]) -> Iterator[None]:
    """Adds the name of a sound to what is wrong with it, and to what is warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        with naming(name):
            yield
    notes += [f"{name}: {warning.message}" for warning in caught]


def _read_sound(path: Path) -> Waveform:
    with naming(str(path)):
        sound = read_waveform(path)
        if not len(sound.samples):
            raise ValueError("it has no samples")
        if sound.is_silent:
            raise ValueError("it is silent")
        return sound


def _read_text(path: Path) -> list[str]:
    """The words that stand beside a sound; empty if there is no such file."""
    beside = path.with_suffix(".txt")
    if not beside.is_file():
        return []
    if words := " ".join(read_lines(beside)).split():
        return words
    raise ValueError(f"{path}: {beside} has no words")


@dataclass(frozen=True)
class _Window:
    """A part of a sound that Whisper takes at once, with its words.

    Attributes:
        name: What it is called in notes.
        offset: Seconds at which it starts.
        samples: Its sound, at the rate of Whisper.
        words: What is spoken in it.
    """

    name: str
    offset: float
    samples: NDArray[np.float32]
    words: list[str]


class _Whisper:
    """Whisper, which transcribes and attends.

    Args:
        network: The network.
        processor: What prepares sound and text for it.

    Attributes:
        notes: What seems to be wrong with a sound.
    """

    def __init__(self, network: Any, processor: Any) -> None:
        self.network, self.processor = network, processor
        self.rate: int = processor.feature_extractor.sampling_rate
        self.notes: list[str] = []

    def divide(self, path: Path, sound: Waveform) -> list[_Window]:
        """The windows of a sound that have words."""
        samples, words = resample(sound, self.rate), _read_text(path)
        longest = self.processor.feature_extractor.chunk_length
        spans = split_at_pauses(samples, self.rate, longest)
        windows = [
            _Window(
                f"{path}, from {first / self.rate:.1f} s" if first else str(path),
                first / self.rate,
                samples[first:last],
                words,
            )
            for first, last in spans
        ]
        if not words or len(windows) > 1:
            texts = [self._transcribe(w) for w in _show(windows, f"transcribing {path.name}")]
            texts = divide_words(texts, words) if words else texts
            windows = [replace(w, words=text) for w, text in zip(windows, texts) if text]
        if not windows:
            raise ValueError(f"{path}: no words were transcribed: give its text")
        return windows

    def _transcribe(self, window: _Window) -> list[str]:
        with _naming(window.name, self.notes):
            return transcribe_words(self.network, self.processor, window.samples)

    def record(self, window: _Window) -> WordAttention:
        """The attention at each word of a window."""
        with naming(window.name):
            example = make_forced_example(self.processor, window.samples, window.words)
            return record_word_attention(self.network, example)

    def times(self, windows: Sequence[_Window], level: float) -> Iterator[dict[str, BoundaryTimes]]:
        """The times of the words of each window."""
        seconds = sum(len(window.samples) for window in windows) / self.rate
        share = min(1.0, LEARNED / seconds)
        chosen = [i for i in range(len(windows)) if int((i + 1) * share) > int(i * share)]
        recorded = {i: self.record(windows[i]) for i in _show(chosen, "learning heads")}
        heads = fit_alignment_heads(get_cross_heads(self.network), [*recorded.values()])
        for index, window in enumerate(_show(windows, "finding times")):
            attention = recorded.get(index) or self.record(window)
            with _naming(window.name, self.notes):
                yield heads.times(attention, level)


def _show(items: Sequence[Item], what: str) -> Iterator[Item]:
    """The items, with a progress bar where there are many of them."""
    return iter(
        tqdm(items, what, leave=False, dynamic_ncols=True, disable=len(items) < MANY or None)
    )


def _join(windows: Sequence[tuple[_Window, dict[str, BoundaryTimes]]]) -> dict[str, BoundaryTimes]:
    """The times of the words of a sound, given those of its windows."""
    return {
        kind: BoundaryTimes(
            *(
                torch.cat(
                    [getattr(times[kind], field) + window.offset for window, times in windows]
                )
                for field in ("median", "low", "high")
            )
        )
        for kind in windows[0][1]
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("word_times.py", on_interrupt="nothing was written"):
        paths = [Path(file) for file in options.files]
        sounds = [_read_sound(path) for path in paths]
        outputs = [path.with_suffix(f".{options.format}") for path in paths]
        named = [(f"the times of {p}", output) for p, output in zip(paths, outputs, strict=True)]
        check_distinct_files(named, options.files)
        whisper = _Whisper(*_load(options.network, options.language))
        windows = [whisper.divide(path, sound) for path, sound in zip(paths, sounds, strict=True)]
        all_times = [*whisper.times([*chain.from_iterable(windows)], options.level)]
        for note in whisper.notes:
            print_message(f"word_times.py: note: {note}", sys.stderr)
        remaining = iter(all_times)
        for output, sound, of_sound in zip(outputs, sounds, windows, strict=True):
            times = _join([(window, next(remaining)) for window in of_sound])
            words = [word for window in of_sound for word in window.words]
            word_times = to_word_times(words, times, sound.duration)
            write_text(output, FORMATS[options.format](word_times, sound.duration))
    return 0


if __name__ == "__main__":
    sys.exit(main())
