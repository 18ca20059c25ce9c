"""Writes when each word of sound files starts, with an interval, from the attention of Whisper.

python experiments/word_times.py whisper-tiny a.wav b.flac
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import numpy as np
from numpy.typing import NDArray

from latentheads.console import print_message
from latentheads.contrib.heads.alignment_heads import fit_alignment_heads
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
    "some twenty sentences are better than one. The words of a.wav are written to a.json."
)
GROUPS = {"sound": ("language",), "output": ("format", "level", "help")}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("word_times.py", DESCRIPTION, GROUPS, "[options] NETWORK FILE [FILE ...]")
    parser.add_argument("network", help="folder of Whisper")
    parser.add_argument("files", nargs="+", help="sound of at most 30 seconds each")
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
def _naming_file(path: Path, notes: list[str]) -> Iterator[None]:
    """Adds the name of a file to what is wrong with it, and to what is warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        with naming(str(path)):
            yield
    notes += [f"{path}: {warning.message}" for warning in caught]


def _read_sound(path: Path) -> Waveform:
    with _naming_file(path, []):
        sound = read_waveform(path)
        if not len(sound.samples):
            raise ValueError("it has no samples")
        if sound.is_silent:
            raise ValueError("it is silent")
        return sound


def _read_words(
    path: Path, network: Any, processor: Any, samples: NDArray[np.float32]
) -> list[str]:
    """The words of a sound: those beside it, or else a transcript."""
    beside = path.with_suffix(".txt")
    if beside.is_file():
        if words := " ".join(read_lines(beside)).split():
            return words
        raise ValueError(f"{beside} has no words")
    return transcribe_words(network, processor, samples)


def _record(
    path: Path, network: Any, processor: Any, samples: NDArray[np.float32]
) -> tuple[list[str], WordAttention]:
    """The words of a sound, and the attention at each."""
    words = _read_words(path, network, processor, samples)
    example = make_forced_example(processor, samples, words)
    return words, record_word_attention(network, example)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("word_times.py", on_interrupt="nothing was written"):
        paths = [Path(file) for file in options.files]
        sounds = [_read_sound(path) for path in paths]
        outputs = [path.with_suffix(f".{options.format}") for path in paths]
        named = [(f"the times of {p}", output) for p, output in zip(paths, outputs, strict=True)]
        check_distinct_files(named, options.files)
        network, processor = _load(options.network, options.language)
        rate = processor.feature_extractor.sampling_rate
        notes: list[str] = []
        records = []
        for path, sound in zip(paths, sounds, strict=True):
            with _naming_file(path, notes):
                records.append(_record(path, network, processor, resample(sound, rate)))
        attentions = [attention for _, attention in records]
        heads = fit_alignment_heads(get_cross_heads(network), attentions)
        times = []
        for path, attention in zip(paths, attentions, strict=True):
            with _naming_file(path, notes):
                times.append(heads.times(attention, options.level))
        for note in notes:
            print_message(f"word_times.py: note: {note}", sys.stderr)
        for output, sound, (words, _), of_words in zip(outputs, sounds, records, times):
            word_times = to_word_times(words, of_words, sound.duration)
            write_text(output, FORMATS[options.format](word_times, sound.duration))
    return 0


if __name__ == "__main__":
    sys.exit(main())
