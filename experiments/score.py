"""Scores the translations of finished runs and tests each run against the first.

python experiments/score.py runs/transformer-seed0 runs/cascaded-seed0 --paper iwslt14
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import latentheads.experiments.cli.beginning  # noqa: F401

from latentheads.experiments.cli.groups import Paragraphs
from latentheads.experiments.cli.plain import Parser, writable
from latentheads.experiments.cli.tables import aligned
from latentheads.files import read_json
from latentheads.metrics.recognition import Errors, compare_errors
from latentheads.metrics.resampling import RESAMPLES, SEED
from latentheads.metrics.scores import SCORES
from latentheads.metrics.translation import Comparison, Estimate, Protocol, paired_bootstrap

DESCRIPTION = (
    "Scores what finished runs write, and tests each against the first.\n\n"
    "    python experiments/score.py runs/transformer-seed0 runs/coda-seed0 --paper iwslt14\n"
    "    python experiments/score.py mine.txt other.txt --references test.de\n\n"
    "Translations are scored with BLEU and chrF2, whole ones with accuracy and edit distance "
    "where they are asked for, recognised speech with WER and CER. "
    "Tests are by paired bootstrap: the same resampled sentences for all runs. Prints one "
    "table, score [95 % interval] and p of no difference, and the signatures to cite. Plain "
    "text files, one sentence a line, may stand for runs: give --references."
)
GROUPS = {
    "what to score": ("direction", "references", "tokenised", "lowercase", "recognised"),
    "how": ("accuracy", "paper", "resamples", "seed"),
    "output": ("json", "help"),
}
TITLES = {**SCORES, "chrf": "chrF2", "paper_bleu": "paper BLEU", "paper_wer": "paper WER, %"}


@dataclass(frozen=True)
class System:
    """The translations of one run or file.

    Attributes:
        name: As given on the command line.
        translations: One sentence each.
        references: The translation of each sentence that counts as right.
        tokenised: Whether words stand with spaces between.
        lowercase: Whether case counts for nothing.
        recognised: Whether the lines are transcripts of speech.
        accuracy: Whether it is right or wrong as a whole.
    """

    name: str
    translations: list[str]
    references: list[str]
    tokenised: bool
    lowercase: bool
    recognised: bool = False
    accuracy: bool = False

    @property
    def kind(self) -> str:
        """What it holds, in words."""
        text = "tokens" if self.tokenised else "raw text"
        text = "transcripts" if self.recognised else text
        return f"{text} without case" if self.lowercase else text


def make_parser() -> Parser:
    """Builds the command line."""
    parser = Parser("score.py", DESCRIPTION, GROUPS, "[options] RUN [RUN ...]", Paragraphs)
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folder, or text file; the first is the baseline"
    )
    parser.add_argument(
        "--references", type=Path, metavar="FILE", help="references of plain text files"
    )
    parser.add_argument(
        "--tokenised",
        action="store_true",
        help="plain text files hold tokens with spaces between: scored as they are (tok:none); "
        "a run folder says it itself",
    )
    parser.add_argument(
        "--lowercase", action="store_true", help="plain text files are scored without case"
    )
    parser.add_argument(
        "--accuracy",
        action="store_true",
        help="add the share of translations that are right to the letter, and how many edits they "
        "are away; a run folder says it itself",
    )
    parser.add_argument(
        "--paper",
        choices=get_args(Protocol),
        help="add the BLEU of the papers, another figure: compounds split, case counts on wmt14 "
        "alone",
    )
    parser.add_argument(
        "--recognised",
        action="store_true",
        help="plain text files are transcripts of speech, scored with WER and CER; a run folder "
        "says it itself",
    )
    parser.add_argument(
        "--direction", metavar="NAME", help="score the lines of one task alone, as en-de: of runs"
    )
    parser.add_argument(
        "--resamples",
        type=int,
        default=RESAMPLES,
        help=f"resamples of the test part (default: {RESAMPLES})",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, help=f"of the resamples (default: {SEED})"
    )
    parser.add_argument("--json", type=writable, metavar="FILE", help="write all figures there too")
    return parser


def read_lines(path: Path) -> list[str]:
    """Reads a text file, one sentence a line; a byte order mark is no part of the first."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"cannot read {path}: it is no UTF-8 text") from None
    except OSError as reason:
        raise ValueError(f"cannot read {path}: {reason.strerror}") from None
    return text.removesuffix("\n").split("\n") if text else []


def read_run(folder: Path) -> System:
    """Reads what a finished run wrote."""
    try:
        results = read_json(folder / "results.json")
        test = results["test"]
        signature = test.get("bleu_signature", test.get("wer_signature", "")).split("|")
    except FileNotFoundError:
        raise ValueError(f"{folder} is no finished run: it has no results.json") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{folder} is no finished run: cannot read its results.json") from None
    if "translations" in results.get("missing", {}):
        raise ValueError(f"the report of {folder} lacks its translations: run.py goes on with it")
    if signature == [""]:
        raise ValueError(f"{folder} has no scores: run.py makes them where the task is translation")
    for name in ("test.translations.txt", "test.references.txt"):
        if not (folder / name).is_file():
            raise ValueError(
                f"{folder} has no {name}: run.py writes it where the task is translation"
            )
    return System(
        str(folder),
        read_lines(folder / "test.translations.txt"),
        read_lines(folder / "test.references.txt"),
        "tok:none" in signature,
        "case:lc" in signature,
        "wer" in test,
        test.get("accuracy") is not None,
    )


def of_task(folder: Path, system: System, task: str) -> System:
    """The lines of one task of a run."""
    path = folder / "test.tasks.txt"
    if not path.is_file():
        raise ValueError(f"{folder} has one direction alone: drop --direction")
    tasks = read_lines(path)
    if task not in tasks:
        known = ", ".join(dict.fromkeys(tasks))
        raise ValueError(f"{folder} has no task {task!r}: choose from {known}")
    if not len(tasks) == len(system.translations) == len(system.references):
        raise ValueError(f"{path} must name the task of each line of test.translations.txt")
    kept = [place for place, name in enumerate(tasks) if name == task]
    lines = (system.translations, system.references)
    mine, right = ([side[place] for place in kept] for side in lines)
    return replace(system, translations=mine, references=right)


def read_systems(
    names: Sequence[str],
    references: Path | None,
    tokenised: bool = False,
    lowercase: bool = False,
    task: str | None = None,
    recognised: bool = False,
) -> list[System]:
    """Reads every run folder and text file, all on one test part."""
    files = [name for name in names if not Path(name).is_dir()]
    for name in files:
        if not Path(name).exists():
            raise ValueError(f"{name} does not exist: give run folders or text files")
    if files and references is None:
        raise ValueError(f"{files[0]} is no run folder: a text file needs --references FILE")
    if not files and (references is not None or tokenised or lowercase or recognised):
        raise ValueError(
            "--references, --tokenised, --lowercase and --recognised are for text files: all of "
            "these are runs"
        )
    right = [] if references is None else read_lines(references)
    systems = [
        System(name, read_lines(Path(name)), right, tokenised, lowercase, recognised)
        if name in files
        else read_run(Path(name))
        for name in names
    ]
    if task is not None:
        if files:
            raise ValueError(f"--direction is for runs: {files[0]} is a text file")
        systems = [of_task(Path(system.name), system, task) for system in systems]
    for system in systems:
        _check(system, systems[0])
    return systems


def _check(system: System, first: System) -> None:
    """Refuses what cannot be scored, or not beside the baseline."""
    if len(system.translations) != len(system.references):
        raise ValueError(
            f"{system.name} has {len(system.translations)} translations of "
            f"{len(system.references)} references: one line each is needed"
        )
    if system.references != first.references:
        raise ValueError(
            f"{system.name} and {first.name} have different references: "
            "runs on one test part are needed"
        )
    if system.kind != first.kind:
        raise ValueError(
            f"{system.name} holds {system.kind}, {first.name} {first.kind}: one kind is needed "
            "(--tokenised, --lowercase and --recognised say it of text files)"
        )


def compare(
    systems: Sequence[System],
    paper: Protocol | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    accuracy: bool = False,
) -> Sequence[Comparison | Errors]:
    """Scores every system and tests it against the first."""
    first, *others = systems
    if first.recognised:
        for name, asked in (("--paper", paper is not None), ("--accuracy", accuracy)):
            if asked:
                raise ValueError(f"{name} is of translations: {first.name} holds transcripts")
        written = [other.translations for other in others]
        right, case = first.references, first.lowercase
        return compare_errors(
            first.translations, written, right, case, resamples=resamples, seed=seed
        )
    return paired_bootstrap(
        first.translations,
        [other.translations for other in others],
        first.references,
        first.tokenised,
        paper,
        resamples,
        seed,
        first.lowercase,
        accuracy or first.accuracy,
    )


def table(names: Sequence[str], rows: Sequence[Comparison | Errors]) -> str:
    """The scores of all systems, then the signatures."""
    shown = [name for name in TITLES if getattr(rows[0], name, None) is not None]
    heads = [cell for name in shown for cell in (f"{TITLES[name]} [95 %]", "p")]
    cells = [[cell for name in shown for cell in _cells(getattr(row, name))] for row in rows]
    lines = [("run", *heads), *((name, *line) for name, line in zip(names, cells, strict=True))]
    signatures = [(TITLES[name], getattr(rows[0], name).signature) for name in shown]
    width = max(len(title) for title, _ in signatures)
    return "\n".join([aligned(lines), "", *(f"{t.ljust(width)}  {s}" for t, s in signatures)])


def _cells(estimate: Estimate) -> tuple[str, str]:
    interval = f"{estimate.score:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
    return interval, "" if estimate.p is None else f"{estimate.p:.4f}"


def record(systems: Sequence[System], rows: Sequence[Comparison | Errors]) -> dict[str, Any]:
    """All figures, as written to a file."""
    return {
        "sentences": len(systems[0].references),
        "tokenised": systems[0].tokenised,
        "lowercase": systems[0].lowercase,
        "systems": [
            {"run": system.name, **_figures(row)} for system, row in zip(systems, rows, strict=True)
        ],
    }


def _figures(row: Comparison | Errors) -> dict[str, Any]:
    estimates = {name: getattr(row, name, None) for name in TITLES}
    return {name: asdict(it) for name, it in estimates.items() if it is not None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        systems = read_systems(
            options.runs,
            options.references,
            options.tokenised,
            options.lowercase,
            options.direction,
            options.recognised,
        )
        how = (options.paper, options.resamples, options.seed, options.accuracy)
        rows = compare(systems, *how)
    except ValueError as mistake:
        parser.error(str(mistake))
    print(table([system.name for system in systems], rows))
    if options.json is not None:
        text = json.dumps(record(systems, rows), indent=2, ensure_ascii=False)
        try:
            options.json.write_text(text + "\n", encoding="utf-8")
        except OSError as reason:
            parser.error(f"--json: cannot write {options.json}: {reason.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
