"""Translations of finished runs, or of text files, to be scored beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latentheads.files import read_json
from latentheads.metrics.protocol import Protocol
from latentheads.metrics.resampling import RESAMPLES, SEED, Estimate, References
from latentheads.metrics.scores import Scores, compare_systems

__all__ = ["System", "compare", "read_lines", "read_run", "read_systems"]


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
        paper_wer: Whether transcripts are scored by the papers' WER too.
    """

    name: str
    translations: list[str]
    references: list[str]
    tokenised: bool
    lowercase: bool
    recognised: bool = False
    accuracy: bool = False
    paper_wer: bool = False

    @property
    def kind(self) -> str:
        """What it holds, in words."""
        text = "tokens" if self.tokenised else "raw text"
        text = "transcripts" if self.recognised else text
        return f"{text} without case" if self.lowercase else text


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
    """Reads the translations of a finished run."""
    try:
        results = read_json(folder / "results.json")
        test = Scores.read(results["test"])
        signatures = [row.signature for row in test.rows if row.name in ("bleu", "wer")]
    except FileNotFoundError:
        raise ValueError(f"{folder} is no finished run: it has no results.json") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{folder} is no finished run: cannot read its results.json") from None
    if "translations" in results.get("missing", {}):
        raise ValueError(f"the report of {folder} lacks its translations: run.py goes on with it")
    if not signatures:
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
        "tok:none" in signatures[0].split("|"),
        "case:lc" in signatures[0].split("|"),
        "wer" in test,
        "accuracy" in test,
        "paper_wer" in test,
    )


def _of_task(folder: Path, system: System, task: str) -> System:
    """The lines of one task of a run."""
    path = folder / "test.tasks.txt"
    if not path.is_file():
        raise ValueError(f"{folder} has one direction alone: drop --direction")
    tasks = read_lines(path)
    task = _find_task(folder, task, list(dict.fromkeys(tasks)))
    if not len(tasks) == len(system.translations) == len(system.references):
        raise ValueError(f"{path} must name the task of each line of test.translations.txt")
    kept = [place for place, name in enumerate(tasks) if name == task]
    lines = (system.translations, system.references)
    mine, right = ([side[place] for place in kept] for side in lines)
    return replace(system, translations=mine, references=right)


def _find_task(folder: Path, task: str, known: Sequence[str]) -> str:
    """The whole name of a task, of which its target may be said alone, as fr of en-fr."""
    domain, _, target = task.rpartition(":")
    ends = [name for name in known if name.rpartition(":")[0] == domain]
    found = [task] if task in known else [name for name in ends if name.endswith(f"-{target}")]
    if len(found) != 1:
        how = "several tasks" if found else "no task"
        raise ValueError(f"{folder} has {how} {task!r}: choose from {', '.join(known)}")
    return found[0]


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
        systems = [_of_task(Path(system.name), system, task) for system in systems]
    for system in systems:
        _check(system, systems[0])
    return systems


def _check(system: System, first: System) -> None:
    """Refuses a system that cannot be scored, or not beside the baseline."""
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
) -> list[dict[str, Estimate]]:
    """Scores every system and tests it against the first."""
    first = systems[0]
    if first.recognised:
        for name, asked in (("--paper", paper is not None), ("--accuracy", accuracy)):
            if asked:
                raise ValueError(f"{name} is of translations: {first.name} holds transcripts")
    references = References(
        first.references,
        first.tokenised,
        first.lowercase,
        first.recognised,
        paper,
        accuracy or first.accuracy,
        first.paper_wer,
    )
    return compare_systems([each.translations for each in systems], references, resamples, seed)
