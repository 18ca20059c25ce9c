"""Prepares a corpus from the files that it is distributed in.

python experiments/prepare.py digits free-spoken-digit-dataset --out data/digits
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import latentheads.experiments.cli.beginning  # noqa: F401

from latentheads.corpora.preparing.digits import prepare_digits
from latentheads.corpora.preparing.inflection import prepare_inflection
from latentheads.corpora.preparing.stamps import prepare_stamps
from latentheads.experiments.cli.errors import ending
from latentheads.experiments.cli.options import Parser

DESCRIPTION = (
    "Prepares a corpus from the files that it is distributed in.\n\n"
    "    git clone https://github.com/Jakobovski/free-spoken-digit-dataset\n"
    "    python experiments/prepare.py digits free-spoken-digit-dataset --out data/digits\n"
    "    python experiments/run.py --preset digits\n\n"
    "digits: connected digits of the Free Spoken Digit Dataset (CC BY-SA 4.0), of its folder or a "
    "tar file.\n\n"
    "sigmorphon: inflection in some fifty languages, letter by letter, the high setting of the "
    "CoNLL-SIGMORPHON 2017 shared task (no licence is named: for research), of a clone of "
    "https://github.com/sigmorphon/conll2017 or a tar file.\n\n"
    "stamps: descriptions of pictures in nine languages (GPL-2), of the Debian package that "
    "apt-get download tuxpaint-stamps-default fetches, or of the folder that it is unpacked in.\n\n"
    "What is prepared already is left as it is; what is read is known by its checksum, of "
    "sigmorphon in six languages."
)

CORPORA: dict[str, Callable[..., Path]] = {
    "digits": prepare_digits,
    "sigmorphon": prepare_inflection,
    "stamps": prepare_stamps,
}

SEVERAL: tuple[str, ...] = ()
"""Corpora that are made of several packages."""


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser(
        prog="prepare.py",
        usage="prepare.py [options] CORPUS SOURCE [SOURCE ...]",
        description=DESCRIPTION,
    )
    parser.sections = {"output": ("out", "help")}
    parser.add_argument("corpus", type=str, help=f"which: {', '.join(CORPORA)}")
    parser.add_argument(
        "sources", type=str, nargs="+", metavar="SOURCE", help="its folder, tar file or package"
    )
    parser.add_argument("--out", type=str, help="where it goes (default: data/CORPUS)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.corpus not in CORPORA:
        parser.error(f"unknown corpus {options.corpus!r}: choose from {', '.join(CORPORA)}")
    sources = [Path(source) for source in options.sources]
    if options.corpus not in SEVERAL and len(sources) > 1:
        parser.error(f"{options.corpus} is made of one source, got {len(sources)}")
    out = Path(options.out or f"data/{options.corpus}")
    given = sources if options.corpus in SEVERAL else sources[0]
    with ending("prepare.py", trouble=f"nothing is in {out}"):
        CORPORA[options.corpus](given, out, print)
    return 0


if __name__ == "__main__":
    sys.exit(main())
