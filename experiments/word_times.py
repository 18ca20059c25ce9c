"""Writes when each word of sound files starts, with an interval, from the attention of Whisper.

python experiments/word_times.py whisper-tiny a.wav b.flac
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.contrib.heads.kept import load_alignment_heads, save_alignment_heads
from latentheads.contrib.speech.forced import is_multilingual
from latentheads.contrib.speech.timing import time_words
from latentheads.contrib.speech.waveform import Waveform, read_waveform, resample
from latentheads.contrib.speech.word_times import FORMATS
from latentheads.corpora.text import read_lines
from latentheads.errors import naming
from latentheads.experiments.cli.errors import error_handling, warnings_as_notes
from latentheads.experiments.cli.inputs import check_folder
from latentheads.experiments.cli.outputs import check_distinct_files, check_output_file
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
    "some twenty sentences are better than one. --keep writes the heads to a file, with which "
    "--heads times the words of later files. The words of a.wav are written to a.json.\n\n"
    "A sound is cut at pauses of 2.3 seconds, and where it is quiet if it is longer than Whisper "
    "takes, 30 seconds, and each part transcribed. If there is a text, its words are divided by "
    "these transcripts."
)
GROUPS = {
    "sound": ("language",),
    "the heads": ("keep", "heads"),
    "output": ("format", "level", "help"),
}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("word_times.py", DESCRIPTION, GROUPS, "[options] NETWORK FILE [FILE ...]")
    parser.add_argument("network", help="folder of Whisper")
    parser.add_argument("files", nargs="+", help="sound, such as wav, flac or mp3")
    parser.add_argument("--language", help="what is spoken, to a network of many languages")
    parser.add_argument("--keep", help="file to keep the learned heads in")
    parser.add_argument("--heads", help="heads of this network that --keep wrote; it learns none")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), default="json", help="what is written (default: json)"
    )
    parser.add_argument(
        "--level",
        type=Probability,
        default=0.9,
        help="nominal probability of each interval: no label shows how far times are off "
        "(default: 0.9)",
    )
    return parser


def _load(folder: str, language: str | None) -> tuple[Any, Any]:
    """Whisper, and what prepares sound and text of a language for it."""
    transformers = import_optional("transformers")
    check_folder(folder)
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("word_times.py", on_interrupt="nothing was written"):
        paths = [Path(file) for file in options.files]
        sounds = [_read_sound(path) for path in paths]
        outputs = [path.with_suffix(f".{options.format}") for path in paths]
        named: list[tuple[str, str | Path]] = [
            (f"the times of {p}", output) for p, output in zip(paths, outputs, strict=True)
        ]
        if options.keep is not None and options.heads is not None:
            raise ValueError("--keep has no effect with --heads: none are learned")
        named += [("--keep", options.keep)] if options.keep is not None else []
        texts_beside = [path.with_suffix(".txt") for path in paths]
        of_network = Path(options.network).glob("*")
        check_distinct_files(named, [*paths, *texts_beside, *of_network, options.heads])
        for option, output in named:
            check_output_file(output, option)
        heads = None if options.heads is None else load_alignment_heads(options.heads)
        network, processor = _load(options.network, options.language)
        rate = processor.feature_extractor.sampling_rate
        texts = {str(path): _read_text(path) for path in paths}
        samples = {str(path): resample(sound, rate) for path, sound in zip(paths, sounds)}
        with warnings_as_notes("word_times.py"):
            words = time_words(network, processor, samples, texts, heads=heads, level=options.level)
        for output, (name, of_sound) in zip(outputs, words.items(), strict=True):
            write_text(output, FORMATS[options.format](of_sound, len(samples[name]) / rate))
        if options.keep is not None:
            save_alignment_heads(words.heads, options.keep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
