"""A run folder: its files, whether it can be used, and how it is written."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from latentheads.corpora.processor import Processor
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.data.base import Data
from latentheads.errors import describe_change
from latentheads.files import (
    LOCK,
    TEMPORARY_PREFIX,
    lock_folder,
    naming_file,
    read_json,
    read_text,
    reading_file,
    remove_temporary,
    write_text,
)
from latentheads.options import CLASS, flatten
from latentheads.plain import parse_json, parse_yaml
from latentheads.runs.results import Results
from latentheads.runs.settings import complete_options
from latentheads.training.trackers import PROJECT

HEADS = "heads.json"
"""The file of a pruned network that lists the remaining heads."""

TEXTS = "corpus.json"
"""The file with digests of the parts of the corpus."""

OVERWRITE = "--overwrite (overwrite=True in Python)"
"""The option of a used folder, as a command line and as Python spell it."""

START_ANEW = f"choose another out or {OVERWRITE}"
"""What to do where a folder holds another run."""

VOCABULARY = "vocabulary.json"
"""The file with the vocabularies."""

PROCESSOR = "processor.json"
"""The file with how text is encoded, its vocabularies aside."""

PAGE = "report.html"
"""The file of the report page."""

TENSORBOARD = PROJECT
"""The folder of TensorBoard's files."""

REPORT_FILES = (
    *("test.translations.txt", "test.references.txt", "test.tasks.txt", "test.alternatives.tsv"),
    *("alignments.png", "bound.png", "divergence.png", "kl.png"),
    *("selection.png", "selection-history.png"),
    PAGE,
)
"""Files that a report may write beside ``results.json``."""

RUN_FILES = (
    *("config.yaml", "metrics.jsonl", "results.json", VOCABULARY, PROCESSOR),
    *(HEADS, TEXTS, LOCK, *REPORT_FILES),
)
"""The files of a run folder beside its checkpoints."""

IGNORED_NAMES = (PAGE, "log.txt", "lost+found")
"""Files that a new run folder may contain already, besides hidden files and logs."""

LOG_SUFFIXES = (".log", ".out", ".err")
"""Suffixes of log files that a shell or a cluster may write while a run starts."""

MAX_CHANGES = 3
"""Most options of another run that an error lists."""

MAX_METRICS_BYTES = 2**30
"""Most bytes of ``metrics.jsonl``: selection of many heads makes long records."""


class Folder:
    """A run folder, whose files are written atomically.

    Nothing is written or removed before :meth:`begin`.

    Args:
        path: The folder.
        configuration: The run's configuration as YAML.
        overwrite: Whether to replace another run.
        trusted: User-defined classes that the configuration may name.

    Attributes:
        previous_steps: The number of steps of the existing run, if the configuration only
            increases it; otherwise None.

    Raises:
        ValueError: The folder contains something else, or is not writable.
    """

    def __init__(
        self,
        path: Path,
        configuration: str,
        overwrite: bool = False,
        trusted: str | None = None,
    ) -> None:
        self.path = path
        self.trusted = trusted
        self.previous_steps: int | None = None
        self.configuration = configuration
        self.overwrite = overwrite
        self._release_lock: Any = None
        self.is_new = overwrite or not os.path.exists(path / "config.yaml")
        if self.is_new:
            self._check_foreign_files()
        else:
            self._check_configuration()
            self._check_results()
        if self.results is None:
            if not self.is_new:
                self.metrics()  # an error now, and not after hours of training
            self._check_writable()
        else:
            self._remove_last_temporary()
        self._last_stamps = self._stamps()

    @property
    def last(self) -> Path:
        """The checkpoint for resuming."""
        return self.path / "checkpoints" / "last.safetensors"

    @property
    def best(self) -> Path:
        """The weights with the best validation metric."""
        return self.path / "checkpoints" / "best.safetensors"

    @property
    def average(self) -> Path:
        """The average of the last checkpoints."""
        return self.path / "checkpoints" / "average.safetensors"

    def step_checkpoint(self, step: int) -> Path:
        """The weights saved at a step."""
        return self.path / "checkpoints" / f"step-{step:07d}.safetensors"

    @property
    def step_checkpoints(self) -> list[Path]:
        """The weights saved at all steps, oldest first."""
        paths = (self.path / "checkpoints").glob("step-*.safetensors")
        return sorted(paths, key=lambda path: (len(path.name), path))

    @property
    def results(self) -> Results | None:
        """The results of a finished run; None if they are missing, invalid, or incomplete.

        A run whose number of steps is increased is not finished.
        """
        if self.is_new or self.previous_steps is not None:
            return None
        results = read_results(self.path)
        return None if results is None or results.missing else results

    @property
    def resumable(self) -> bool:
        """Whether there is a checkpoint for resuming."""
        return not self.is_new and os.path.lexists(self.last)

    def _check_foreign_files(self) -> None:
        if not os.path.isdir(self.path) or os.path.exists(self.path / "config.yaml"):
            return
        foreign = sorted(
            path.name
            for path in self.path.iterdir()
            if not (
                path.name in IGNORED_NAMES
                or path.name.startswith(".")
                or path.suffix in LOG_SUFFIXES
            )
        )
        if foreign:
            more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
            raise ValueError(
                f"{self.path} is not a run folder, but contains {foreign[0]}{more}: "
                "choose another out"
            )

    def _check_configuration(self) -> None:
        path = self.path / "config.yaml"
        try:
            text = read_text(path)
            if text == self.configuration:
                return
            configuration = dict(parse_yaml(text))
        except (OSError, TypeError, ValueError) as error:
            message = " ".join(str(error).split())
            raise ValueError(f"cannot read {path}, choose another out: {message}") from error
        configurations = (configuration, parse_yaml(self.configuration))
        old, new = (flatten(complete_options(options, self.trusted)) for options in configurations)
        names = old.keys() | new.keys()
        changed = sorted(
            name for name in names if not _is_same_value(name, old.get(name), new.get(name))
        )
        steps = old.get("train.steps")
        only_more_steps = (
            changed == ["train.steps"] and type(steps) is int and steps < new["train.steps"]
        )
        if only_more_steps and os.path.lexists(self.last):
            self.previous_steps = steps
        elif changed:
            moved = [name for name in ("data.folder", "start") if name in changed]
            cure = (
                f"; if it was only moved, correct {' and '.join(moved)} in {path}" if moved else ""
            )
            raise ValueError(
                f"{self.path} holds a run with other options "
                f"({_describe_changes(changed, old, new)}): {START_ANEW}{cure}"
            )

    def _check_results(self) -> None:
        """Checks results without a checkpoint: training would restart and replace valid weights."""
        results = os.path.lexists(self.path / "results.json")
        if results and self.results is None and not self.resumable:
            raise ValueError(
                f"{self.path} is a finished run whose results.json cannot be read, and it has no "
                f"checkpoint to make them again: {START_ANEW}"
            )

    def _stamps(self) -> list[tuple[int, int] | None]:
        """Stamps of the files, to detect that another process has written them."""
        paths = (self.path / "config.yaml", self.path / "results.json", self.last)
        return [_stamp(path) for path in paths]

    def _check_writable(self) -> None:
        """Tries to write: permissions do not show whether that is possible."""
        parent = self.path
        while not os.path.lexists(parent) and parent != parent.parent:
            parent = parent.parent
        try:
            tempfile.TemporaryFile(dir=parent).close()  # it has no name that a kill could leave
        except OSError as error:
            raise ValueError(
                f"cannot write the run folder {self.path}: {parent} is not a folder to write into"
            ) from error

    def begin(self, last_step: int = 0) -> None:
        """Creates the folder, or reopens it.

        If the process is killed at any moment, it can be called again.

        Args:
            last_step: Metrics of later steps are dropped, since they will be computed again.
        """
        try:
            self._begin(last_step)
        except OSError as error:
            self.release()
            message = error.strerror or error
            raise OSError(f"cannot write the run folder {self.path}: {message}") from error

    def _begin(self, last_step: int) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock()
        self._check_unchanged()
        self._remove_temporary()
        try:
            self._write_initial_files(last_step)
        finally:
            self._last_stamps = self._stamps()  # after an interruption it can be called again

    def _remove_temporary(self) -> None:
        for folder in (self.path, self.path / "checkpoints"):
            remove_temporary(folder)

    def _remove_last_temporary(self) -> None:
        """Removes what a process left that was killed when its last file was in its place."""
        if any(self.path.glob(f"{TEMPORARY_PREFIX}*")):
            with suppress(OSError):  # it is locked, or cannot be written
                self._lock()
                self._remove_temporary()
                self.release()

    def _write_initial_files(self, last_step: int) -> None:
        """Writes the files that a folder has before its first checkpoint."""
        (self.path / "results.json").unlink(missing_ok=True)
        if last_step == 0:
            self._remove_old_files()
        records = [record for record in self.metrics() if record["step"] <= last_step]
        self.write("config.yaml", self.configuration)
        self.write("metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records))
        (self.path / "checkpoints").mkdir(exist_ok=True)

    def _remove_old_files(self) -> None:
        """Removes the files of a previous run."""
        old_files: list[Path] = []
        if (self.path / "config.yaml").exists():
            old_files += (self.path / "checkpoints").glob("*.safetensors")
            old_files += [self.path / name for name in (HEADS, *REPORT_FILES)]
            old_files += (self.path / TENSORBOARD).glob("events.out.tfevents.*")
        for path in old_files:
            path.unlink(missing_ok=True)

    def _lock(self) -> None:
        """Locks the folder; the system releases the lock when the process ends."""
        self.release()
        self._release_lock = weakref.finalize(self, os.close, lock_folder(self.path))

    def _check_unchanged(self) -> None:
        """Checks that no other process has written the folder before this one had the lock."""
        if not self.overwrite and self._stamps() != self._last_stamps:
            message = "another process has written it meanwhile; run the same command again"
            raise OSError(errno.EBUSY, message)

    def release(self) -> None:
        """Releases the lock of the folder."""
        if self._release_lock is not None:
            self._release_lock()

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of every validation; see :func:`read_metrics`."""
        return read_metrics(self.path)

    def write(self, name: str, text: str) -> None:
        """Writes a text file atomically."""
        write_text(self.path / name, text)

    def write_results(self, results: dict[str, Any]) -> None:
        """Writes ``results.json``."""
        self.write("results.json", json.dumps(results, indent=2) + "\n")

    def append(self, record: dict[str, Any]) -> None:
        """Appends a line to the existing ``metrics.jsonl``, and syncs it to disk."""
        path = self.path / "metrics.jsonl"
        with naming_file(path), path.open("r+", encoding="utf-8") as file:
            file.seek(0, os.SEEK_END)
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Reads ``metrics.jsonl``; truncated and damaged lines are skipped."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    with reading_file(path):
        lines = read_text(path, MAX_METRICS_BYTES, errors="replace").split("\n")
    records: list[dict[str, Any]] = []
    for record in map(_read_record, lines):
        if record is not None and (not records or records[-1]["step"] < record["step"]):
            records.append(record)
    return records


def read_results(folder: Path) -> Results | None:
    """Reads the results of a run folder; None if they are missing or invalid."""
    try:
        return Results.read(read_json(folder / "results.json"))
    except (OSError, ValueError):
        return None


def read_processor(
    folder: Path, data: Data, target: Vocabulary, source: Vocabulary | None
) -> Processor:
    """Reads what encodes the text of a run; without its file the data's options describe it."""
    path = folder / PROCESSOR
    if not path.exists():
        return data.processor(target, source)
    with reading_file(path):
        return Processor.from_json(read_json(path), target, source)


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Distinct names for paths: as many of their last components as needed."""
    parts = [path.resolve().parts for path in paths]
    if len(set(parts)) < len(parts):
        raise ValueError("every run must be given once")
    counts = range(1, max(map(len, parts)) + 1)
    candidates = ([os.path.join(*folders[-count:]) for folders in parts] for count in counts)
    return next(names for names in candidates if len(set(names)) == len(names))


def _stamp(path: Path) -> tuple[int, int] | None:
    """A stamp that changes when a file is replaced; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read_record(line: str) -> dict[str, Any] | None:
    """Parses a line of ``metrics.jsonl``; None if it is incomplete."""
    try:
        record = parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and type(record.get("step")) is int else None


def _is_same_value(name: str, first: Any, second: Any) -> bool:
    """Whether two values of an option mean the same: paths may be equivalent.

    The option ``cache`` is ignored: it does not change the corpus.
    """
    if first == second or name not in ("data.folder", "data.path", "start"):
        return bool(first == second) or name == "data.cache"
    with suppress(OSError, TypeError, ValueError):
        return os.path.samefile(first, second)
    return False


def _describe_changes(changed: list[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Describes some of the options that differ: classes first, and options of one side last."""
    order = sorted(
        changed, key=lambda name: (not name.endswith(CLASS), name not in new, name not in old)
    )
    differences = [describe_change(n, old.get(n), new.get(n)) for n in order[:MAX_CHANGES]]
    hidden = len(changed) - MAX_CHANGES
    return "; ".join([*differences, *([f"{hidden} more"] if hidden > 0 else [])])
