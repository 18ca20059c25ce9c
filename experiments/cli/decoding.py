"""Decoding options of the programs that translate or transcribe with a run."""

from __future__ import annotations

from latentheads.decoding.options import Decoding
from latentheads.experiments.cli.parser import Options, Parser, texts_of
from latentheads.options import options_of
from latentheads.runs.generation import check_outputs_vary, override_decoding
from latentheads.runs.run import Run

DECODING_OPTIONS = (
    "num_beams",
    "num_samples",
    "length_penalty",
    "min_new_tokens",
    "max_new_tokens",
    "no_repeat_ngram_size",
)
"""The options, in the order of the help."""


def add_decoding_options(parser: Parser) -> None:
    """Adds the options, with the defaults of the run."""
    options, texts = options_of(Decoding), texts_of(Decoding)
    for name in DECODING_OPTIONS:
        text = f"{texts[name].removesuffix('.')} (default: the run's)"
        parser.add_argument(f"--{name}", type=options[name].kind, help=text)


def choose_decoding(run: Run, options: Options) -> Decoding:
    """The run's decoding options, changed by the command line."""
    given = {name: getattr(options, name) for name in DECODING_OPTIONS}
    changes = {name: value for name, value in given.items() if value is not None}
    number = getattr(options, "num_return_sequences", None)
    decoding = override_decoding(run, run.settings.decode, changes, number)
    if number is not None:
        check_outputs_vary(run, decoding)
    return decoding
