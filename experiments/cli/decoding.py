"""Decoding options of the programs that translate or transcribe with a finished run."""

from __future__ import annotations

from dataclasses import replace

from latentheads.decoding.translate import Decoding
from latentheads.experiments.cli.options import Options, Parser
from latentheads.runs.generation import check_outputs_vary
from latentheads.runs.run import Run
from latentheads.runs.trained_model import check_is_stochastic

DECODING_OPTIONS = ("beam", "draws", "length_penalty", "min_tokens", "max_tokens", "no_repeat")
"""The options, in the order of the help."""


def add_decoding_options(parser: Parser, unit: str, longest: str) -> None:
    """Adds the options, with the defaults of the run; ``longest`` is what 0 tokens mean."""
    parser.add_argument("--beam", type=int, help=f"beam size of a {unit} (default: the run's)")
    parser.add_argument(
        "--length_penalty",
        type=float,
        help="exponent of the length that log-probability is divided by (default: the run's)",
    )
    parser.add_argument(
        "--draws",
        type=int,
        help="samples of the heads, and of their selection, whose probabilities are averaged; 0: "
        "heads at their prior's location, the likeliest selection (default: the run's)",
    )
    parser.add_argument(
        "--min_tokens", type=int, help="fewest tokens, EOS included (default: the run's)"
    )
    parser.add_argument(
        "--max_tokens",
        type=int,
        help=f"most tokens, EOS included; 0: {longest} (default: the run's)",
    )
    parser.add_argument(
        "--no_repeat",
        type=int,
        help="no n-gram of this length occurs twice; 0: no limit (default: the run's)",
    )


def choose_decoding(run: Run, options: Options) -> Decoding:
    """The run's decoding options, changed by the command line; one sample for several outputs."""
    changes = {name: options[name] for name in DECODING_OPTIONS if options[name] is not None}
    several = bool(options.get("number"))
    decoding = replace(run.settings.decode, **({"draws": 1} if several else {}) | changes)
    if "length_penalty" in changes and decoding.beam == 1:
        raise ValueError(
            "--length_penalty has no effect here: it needs --beam 2 or more, which has "
            "hypotheses to rank"
        )
    if changes.get("draws"):
        check_is_stochastic([run.trained_model], "--draws", ("heads", "selections"))
    if several:
        check_outputs_vary(run.trained_model, decoding, "--number", "--draws")
    return decoding
