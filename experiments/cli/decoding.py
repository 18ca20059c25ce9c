"""Options of the programs that decode with a finished run."""

from __future__ import annotations

from dataclasses import replace

from jsonargparse import Namespace

from latentheads.decoding.translate import Decoding
from latentheads.experiments.cli.options import Parser
from latentheads.runs.generation import check_outputs_vary
from latentheads.runs.run import Run
from latentheads.runs.sampling_checks import check_is_stochastic

__all__ = ["DECODING", "add_decoding_options", "choose_decoding"]

DECODING = ("beam", "draws", "length_penalty", "min_tokens", "max_tokens", "no_repeat")
"""The options, as the help shows them."""


def add_decoding_options(parser: Parser, unit: str, longest: str) -> None:
    """Adds the options, each of which is the run's own where it is not given.

    Args:
        parser: The program's.
        unit: What is decoded: a sentence, or a text.
        longest: Most tokens where 0 is given.
    """
    parser.add_argument("--beam", type=int, help=f"hypotheses of a {unit} (default: the run's)")
    parser.add_argument(
        "--length_penalty",
        type=float,
        help="exponent of the length that log-probability is divided by (default: the run's)",
    )
    parser.add_argument(
        "--draws",
        type=int,
        help="draws of the heads, and of which of them speak, whose probabilities are averaged; 0: "
        "heads at their prior's location, the likeliest selection (default: the run's)",
    )
    parser.add_argument(
        "--min_tokens", type=int, help="fewest tokens, the end counted (default: the run's)"
    )
    parser.add_argument(
        "--max_tokens",
        type=int,
        help=f"most tokens, the end counted; 0: {longest} (default: the run's)",
    )
    parser.add_argument(
        "--no_repeat",
        type=int,
        help="no n-gram of so many tokens comes twice; 0: any may (default: the run's)",
    )


def choose_decoding(run: Run, options: Namespace) -> Decoding:
    """How the run decodes, but for what the command line says; for a number of texts by one draw.

    Raises:
        ValueError: An option is out of range, or acts on nothing.
    """
    chosen = {name: options[name] for name in DECODING if options[name] is not None}
    anew = bool(options.get("number"))
    found = replace(run.settings.decoding, **({"draws": 1} if anew else {}) | chosen)
    if "length_penalty" in chosen and found.beam == 1:
        raise ValueError(
            "--length_penalty acts on nothing here: it needs --beam 2 or more, which has "
            "hypotheses to rank"
        )
    if chosen.get("draws"):
        check_is_stochastic([run], "--draws", ("heads", "selections"))
    if anew:
        check_outputs_vary(run, found, "--number", "--draws")
    return found
