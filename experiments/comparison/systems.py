"""Translations of finished runs, or in text files, for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latentheads.checks import check_as_many
from latentheads.corpora.text import read_lines
from latentheads.errors import shown
from latentheads.files import read_json
from latentheads.metrics.protocol import Protocol
from latentheads.metrics.resampling import RESAMPLES, SEED, Estimate, References
from latentheads.metrics.scores import Scores, compare_systems

FEW = 30
"""Below as many sentences the bootstrap is far from its level, as docs/comparing.md shows."""


@dataclass(frozen=True)
class System:
    """The translations of one run or file.

    Attributes:
        name: The name as given on the command line.
        translations: The translation of each sentence.
        references: The references, and how translations are compared with them.
        step: The training step of a run.
    """

    name: str
    translations: list[str]
    references: References
    step: int | None = None

    @property
    def kind(self) -> str:
        """A description of its lines."""
        text = "tokens" if self.references.tokenised else "raw text"
        text = "transcripts" if self.references.is_speech else text
        return f"{text} without case" if self.references.lowercase else text


def read_run(folder: Path) -> System:
    """Reads the translations of a finished run."""
    try:
        results = read_json(folder / "results.json")
        test = Scores.read(results["test"])
        signatures = [row.signature for row in test.rows if row.name in ("bleu", "wer")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{folder} is not a finished run: cannot read its results.json") from None
    if "translations" in results.get("missing", {}):
        raise ValueError(f"the report of {folder} has no translations: run.py goes on with it")
    if not signatures:
        raise ValueError(
            f"{folder} has no scores: run.py makes them where the task is translation; "
            "--likelihood compares other runs"
        )
    references = References(
        read_lines(folder / "test.references.txt"),
        tokenised="tok:none" in signatures[0].split("|"),
        lowercase="case:lc" in signatures[0].split("|"),
        is_speech="wer" in test,
        accuracy="accuracy" in test,
        paper_wer="paper_wer" in test,
    )
    return System(
        str(folder),
        read_lines(folder / "test.translations.txt"),
        references,
        results.get("reported_step"),
    )


def _select_task(folder: Path, system: System, task: str) -> System:
    """Selects the lines of one task of a run."""
    path = folder / "test.tasks.txt"
    if not path.is_file():
        raise ValueError(f"{folder} has a single direction: drop --direction")
    tasks = read_lines(path)
    task = _match_task(folder, task, list(dict.fromkeys(tasks)))
    indices = [index for index, name in enumerate(tasks) if name == task]
    sides = (system.translations, system.references.lines)
    translations, lines = ([side[index] for index in indices] for side in sides)
    return replace(
        system, translations=translations, references=replace(system.references, lines=lines)
    )


def _match_task(folder: Path, task: str, names: Sequence[str]) -> str:
    """The full name of a task, which may be given by its target alone, as fr for en-fr."""
    domain, _, target = task.rpartition(":")
    same_domain = [name for name in names if name.rpartition(":")[0] == domain]
    matches = (
        [task] if task in names else [name for name in same_domain if name.endswith(f"-{target}")]
    )
    if len(matches) != 1:
        number = "several tasks" if matches else "no task"
        raise ValueError(f"{folder} has {number} {shown(task)}: choose from {', '.join(names)}")
    return matches[0]


def read_systems(
    names: Sequence[str],
    references: Path | None,
    tokenised: bool = False,
    lowercase: bool = False,
    task: str | None = None,
    recognised: bool = False,
) -> list[System]:
    """Reads all run folders and text files, which must share one test part."""
    files = [name for name in names if not Path(name).is_dir()]
    if files and references is None:
        raise ValueError(f"{files[0]} is not a run folder: a text file needs --references FILE")
    if not files and (references is not None or tokenised or lowercase or recognised):
        raise ValueError(
            "--references, --tokenised, --lowercase and --recognised are for text files, but all "
            "of these are runs"
        )
    lines = [] if references is None else read_lines(references)
    written = References(lines, tokenised, lowercase, recognised)
    systems = [
        System(name, read_lines(Path(name)), written) if name in files else read_run(Path(name))
        for name in names
    ]
    if task is not None:
        systems = [_select_task(Path(system.name), system, task) for system in systems]
    for system in systems:
        _check(system, systems[0])
    return systems


def _check(system: System, first: System) -> None:
    """Checks that a system can be scored and compared with the baseline."""
    check_as_many(
        f"translations of {system.name}",
        system.translations,
        "references",
        system.references.lines,
    )
    if system.references.lines != first.references.lines:
        raise ValueError(
            f"{system.name} and {first.name} have different references: "
            "runs on one test part are needed"
        )
    if system.kind != first.kind:
        raise ValueError(
            f"{system.name} holds {system.kind}, {first.name} {first.kind}: one kind is needed "
            "(for text files give --tokenised, --lowercase or --recognised)"
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
    if first.references.is_speech:
        for name, is_given in (("--paper", paper is not None), ("--accuracy", accuracy)):
            if is_given:
                raise ValueError(f"{name} is for translations: {first.name} holds transcripts")
    accuracy = accuracy or first.references.accuracy
    references = replace(first.references, protocol=paper, accuracy=accuracy)
    return compare_systems([system.translations for system in systems], references, resamples, seed)


def describe_untested(estimates: Mapping[str, Sequence[Estimate]]) -> list[str]:
    """Why scores, by their titles, have no p, a line for each of them that lacks one."""
    reasons = {
        f"no p of {title} where {estimate.untested}": None
        for title, systems in estimates.items()
        for estimate in systems
        if estimate.untested
    }
    return [*reasons]


def describe_steps(steps: Sequence[int | None]) -> list[str]:
    """A note on runs that were trained for different times; empty if all have one step."""
    *others, last = [f"{step:,}" for step in sorted({step for step in steps if step})] or [""]
    return [f"weights of different steps: {', '.join(others)} and {last}"] if others else []


def describe_few(number: int, pieces: str = "sentences") -> list[str]:
    """A note on intervals and p of few sentences; empty for more, and for one, which has none."""
    note = f"fewer than {FEW} {pieces}: intervals are too narrow, and p too small"
    return [note] * (1 < number < FEW)


def describe_tests(number: int, score: str = "") -> str:
    """What the p values of a table are, and how many of them there are; empty without one."""
    if not number:
        return ""
    what, tests = f"p of {score}" if score else "p", "test" if number == 1 else "tests"
    corrected = ", not corrected for their number" if number > 1 else ""
    return f"{what} is over sentences, of one run each; {number} {tests}{corrected}"
