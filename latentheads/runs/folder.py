"""A run folder: what is in it, whether it may be used, and how it is written."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from latentheads.files import (
    LOCK,
    lock_folder,
    naming,
    parse_json,
    parse_yaml,
    read_json,
    read_text,
    refuse_links,
    remove_partial,
    write_text,
)
from latentheads.runs.results import EarlierVersionError, Results
from latentheads.runs.settings import complete_options

__all__ = [
    "HEADS",
    "PAGE",
    "REPORTED",
    "TENSORBOARD",
    "TEXTS",
    "WRITTEN",
    "Folder",
    "check_links",
    "read_metrics",
    "read_results",
    "unlike_names",
]

HEADS = "heads.json"
"""The file of a pruned network that names the heads that stayed."""

TEXTS = "corpus.json"
"""The file with digests of the texts of the corpus, part by part."""

PAGE = "report.html"
"""The file of a report page."""

TENSORBOARD = "tensorboard"
"""The folder of TensorBoard's files."""

REPORTED = (
    *("test.translations.txt", "test.references.txt", "test.tasks.txt", "test.alternatives.tsv"),
    *("divergence.png", "bound.png", "kl.png", "selection.png", "selection-history.png"),
    PAGE,
)
"""Files that a report may write beside ``results.json``."""

WRITTEN = (
    *("config.yaml", "metrics.jsonl", "results.json", "vocabulary.json"),
    *(HEADS, TEXTS, LOCK, *REPORTED),
)
"""The files of a run folder beside its checkpoints."""

BESIDE = (PAGE, "log.txt", "lost+found", *(f"{name}.part" for name in WRITTEN))
"""Names that a folder may hold before a run is in it, beside hidden ones and logs."""

LOGS = (".log", ".out", ".err")
"""Endings of files that a shell or a cluster writes while a run begins."""

SAFETENSORS_PART = ".tmp" + "[0-9A-Za-z]" * 6
"""What safetensors names a file before it is whole."""

MOST_METRICS = 2**30
"""Bytes of ``metrics.jsonl``: those of a selection of many heads are long."""

ALWAYS_REPORTED = ("elbo", "log_likelihood", "kl", "iwae", "plug_in")
"""Figures that every report has."""


class Folder:
    """A run folder, written file by file, each whole or not at all.

    Nothing is made or removed before :meth:`begin`.

    Args:
        path: Where.
        configuration: The run's configuration as YAML.
        overwrite: Whether another run there may be replaced.
        trusted: Classes of the reader's own that the configuration may name.

    Attributes:
        before: How many updates the run there was to have, where this one only has more of them;
            None where it is the same run, or a new one.

    Raises:
        ValueError: The folder holds something else, or cannot be written.
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
        self.before: int | None = None
        self.configuration = configuration
        self.overwrite = overwrite
        self._release: Any = None
        check_links(path)
        self.fresh = overwrite or not os.path.exists(path / "config.yaml")
        if self.fresh:
            self._refuse_strangers()
        else:
            self._refuse_another_run()
            self._refuse_lost_weights()
            self.metrics()
        if self.results is None:
            self._refuse_unwritable()
        self._seen = self._stamps()

    @property
    def last(self) -> Path:
        """The checkpoint to go on from."""
        return self.path / "checkpoints" / "last.safetensors"

    @property
    def best(self) -> Path:
        """The weights with the best metric on validation."""
        return self.path / "checkpoints" / "best.safetensors"

    @property
    def average(self) -> Path:
        """The average of the weights kept last."""
        return self.path / "checkpoints" / "average.safetensors"

    def at(self, step: int) -> Path:
        """The weights kept at a step."""
        return self.path / "checkpoints" / f"step-{step:07d}.safetensors"

    @property
    def kept(self) -> list[Path]:
        """All weights kept at some step, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*.safetensors"))

    @property
    def results(self) -> Results | None:
        """The results of a finished run; None where they are missing, broken, or lack a section.

        A run that is to have more updates is not finished.
        """
        if self.fresh or self.before is not None:
            return None
        found = read_results(self.path)
        return None if found is None or found.missing else found

    @property
    def resumable(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return not self.fresh and os.path.lexists(self.last)

    def _refuse_strangers(self) -> None:
        if not os.path.isdir(self.path) or os.path.exists(self.path / "config.yaml"):
            return
        there = sorted(
            each.name
            for each in self.path.iterdir()
            if not (each.name in BESIDE or each.name.startswith(".") or each.suffix in LOGS)
        )
        if there:
            more = f" and {len(there) - 1} more" if len(there) > 1 else ""
            raise ValueError(
                f"{self.path} is no run folder, yet holds {there[0]}{more}: choose another out"
            )

    def _refuse_another_run(self) -> None:
        path = self.path / "config.yaml"
        try:
            said = read_text(path)
            if said == self.configuration:
                return
            known = parse_yaml(said)
        except (OSError, ValueError) as reason:
            heart = " ".join(str(reason).split())
            raise ValueError(f"cannot read {path}, choose another out: {heart}") from reason
        if not isinstance(known, dict):
            raise ValueError(f"{path} is no configuration of a run: choose another out")
        both = (known, parse_yaml(self.configuration))
        before, now = (_flat(complete_options(each, self.trusted)) for each in both)
        every = before.keys() | now.keys()
        changed = sorted(k for k in every if not _same(k, before.get(k), now.get(k)))
        steps = before.get("steps")
        longer = changed == ["steps"] and type(steps) is int and steps < now["steps"]
        if longer and os.path.lexists(self.last):
            self.before = steps
        elif changed:
            shown = [
                f"{k} {_say(before.get(k))} there, {_say(now.get(k))} here" for k in changed[:3]
            ]
            more = [f"{len(changed) - 3} more"] if len(changed) > 3 else []
            raise ValueError(
                f"{self.path} holds a run with other options ({'; '.join([*shown, *more])}): "
                "choose another out or overwrite=True"
            )

    def _refuse_lost_weights(self) -> None:
        """Without a checkpoint, training would begin anew and replace weights that are whole."""
        results = os.path.lexists(self.path / "results.json")
        if results and self.results is None and not self.resumable:
            raise ValueError(
                f"{self.path} is a finished run whose results.json cannot be read, and it has no "
                "checkpoint to make them again: choose another out or overwrite=True"
            )

    def _stamps(self) -> list[tuple[int, int] | None]:
        """Stamps of the files, which change when another process writes here."""
        paths = (self.path / "config.yaml", self.path / "results.json", self.last)
        return [_stamp(path) for path in paths]

    def _refuse_unwritable(self) -> None:
        """Tries to write: root has the rights to write anywhere, and yet cannot in /proc."""
        above = self.path
        while not os.path.lexists(above) and above != above.parent:
            above = above.parent
        if not above.is_dir():
            raise ValueError(f"cannot write the run folder {self.path}: {above} is no folder")
        try:
            with tempfile.TemporaryDirectory(prefix=".writable-", dir=above):
                pass
        except OSError as reason:
            raise ValueError(
                f"cannot write the run folder {self.path}: {above} is not writable"
            ) from reason

    def begin(self, keep_until: int = 0) -> None:
        """Makes the folder, or takes it up again.

        Killed at any moment it leaves a folder that it may be called for again.

        Args:
            keep_until: Metrics of later steps are dropped: they are about to be made again.

        Raises:
            OSError: The folder cannot be written.
        """
        try:
            self._begin(keep_until)
        except OSError as reason:
            self.release()
            said = reason.strerror or reason
            raise OSError(f"cannot write the run folder {self.path}: {said}") from reason

    def _begin(self, keep_until: int) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock()
        self._refuse_changed()
        check_links(self.path)
        remove_partial(self.path, [f"{name}.part" for name in WRITTEN])
        remove_partial(self.path / "checkpoints", ["*.safetensors.part", SAFETENSORS_PART])
        try:
            self._write_first(keep_until)
        finally:
            self._seen = self._stamps()  # broken off, it may be begun again

    def _write_first(self, keep_until: int) -> None:
        """Writes what stands in a folder before its first checkpoint."""
        (self.path / "results.json").unlink(missing_ok=True)
        if keep_until == 0:
            self._forget()
        lines = [record for record in self.metrics() if record["step"] <= keep_until]
        self.write("config.yaml", self.configuration)
        self.write("metrics.jsonl", "".join(json.dumps(record) + "\n" for record in lines))
        (self.path / "checkpoints").mkdir(exist_ok=True)

    def _forget(self) -> None:
        """Removes the files of another run, where there was one."""
        left: list[Path] = []
        if (self.path / "config.yaml").exists():
            left += (self.path / "checkpoints").glob("*.safetensors")
            left += [self.path / name for name in (HEADS, *REPORTED)]
            left += (self.path / TENSORBOARD).glob("events.out.tfevents.*")
        for old in left:
            old.unlink(missing_ok=True)

    def _lock(self) -> None:
        """Keeps the folder for this run; the system frees it when the process ends."""
        self.release()
        self._release = weakref.finalize(self, os.close, lock_folder(self.path))

    def _refuse_changed(self) -> None:
        """Refuses a folder that another process has written before this one had the lock."""
        if not self.overwrite and self._stamps() != self._seen:
            said = "another process has written it meanwhile; give the same command again"
            raise OSError(errno.EBUSY, said)

    def release(self) -> None:
        """Lets another run use the folder."""
        if self._release is not None:
            self._release()

    def metrics(self) -> list[dict[str, Any]]:
        """What was noted at every evaluation; see :func:`read_metrics`."""
        return read_metrics(self.path)

    def write(self, name: str, text: str) -> None:
        """Writes a text file whole or not at all."""
        write_text(self.path / name, text)

    def write_results(self, results: dict[str, Any]) -> None:
        """Writes what the run reports."""
        self.write("results.json", json.dumps(results, indent=2) + "\n")

    def append(self, record: dict[str, Any]) -> None:
        """Adds a line to ``metrics.jsonl``, which must be there, and sees it on the disk."""
        path = self.path / "metrics.jsonl"
        with naming(path), path.open("r+", encoding="utf-8") as file:
            file.seek(0, os.SEEK_END)
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())


def check_links(folder: Path) -> None:
    """Refuses a run folder in which a link stands for a file: what it leads to is not the run's.

    Raises:
        ValueError: It names the link.
    """
    refuse_links(folder, [*WRITTEN, TENSORBOARD, "checkpoints"])
    checkpoints = folder / "checkpoints"
    if os.path.isdir(checkpoints):
        refuse_links(checkpoints, [each.name for each in checkpoints.glob("*.safetensors")])


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``; one that a kill cut short or damage spoilt is left out.

    Raises:
        ValueError: It cannot be read at all.
    """
    path = folder / "metrics.jsonl"
    try:
        lines = read_text(path, MOST_METRICS, errors="replace").split("\n")
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as reason:
        raise ValueError(f"{path} cannot be read: {reason}") from reason
    found: list[dict[str, Any]] = []
    for record in map(_read_record, lines):
        if record is not None and (not found or found[-1]["step"] < record["step"]):
            found.append(record)
    return found


def read_results(folder: Path) -> Results | None:
    """The results of a run in a folder; None where they are missing or broken.

    Raises:
        EarlierVersionError: An earlier version has written them.
    """
    path = folder / "results.json"
    try:
        return Results.read(read_json(path))
    except EarlierVersionError as reason:
        raise EarlierVersionError(f"{path}: {reason}") from None
    except (OSError, ValueError):
        return None


def unlike_names(paths: Sequence[Path]) -> list[str]:
    """Names for paths: as many of their last folders as tell them apart."""
    parts = [path.resolve().parts for path in paths]
    if len(set(parts)) < len(parts):
        raise ValueError("every run must be given once")
    for count in range(1, max(map(len, parts))):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path.resolve()) for path in paths]


def _stamp(path: Path) -> tuple[int, int] | None:
    """A stamp that changes when a file is written anew; None where there is no file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


def _read_record(line: str) -> dict[str, Any] | None:
    """A line of ``metrics.jsonl``; None where it is not whole."""
    try:
        found = parse_json(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or type(found.get("step")) is not int:
        return None
    # of a guide that learns nothing there is no objective, and no speed of training
    trained = [n for n in ("objective", "tokens_per_second") if found.get(n, 0) is not None]
    numbers = _have_numbers(found, trained)
    return found if numbers and _have_numbers(found.get("valid"), ALWAYS_REPORTED) else None


def _have_numbers(found: Any, names: Sequence[str]) -> bool:
    """Whether a mapping has a number under each name."""
    return isinstance(found, dict) and all(
        isinstance(found.get(name), (int, float)) for name in names
    )


def _same(name: str, one: Any, other: Any) -> bool:
    """Whether an option says the same: a file or folder may be named in two ways.

    A cache changes nothing of the corpus that is in it.
    """
    if one == other or name not in ("data", "start"):
        return bool(one == other) or name == "cache"
    with suppress(OSError, TypeError, ValueError):
        return os.path.samefile(one, other)
    return False


def _say(value: Any) -> str:
    """A value as a line shows it; nothing is shown as such."""
    return repr(value) if value == "" else str(value)


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat
