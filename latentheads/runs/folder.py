"""A run folder: what is in it, whether it may be used, and how it is written."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import yaml

from latentheads.runs.report import lacking

__all__ = ["HEADS", "Folder"]

HEADS = "heads.json"
"""What the folder of a pruned network says of the heads that stayed."""


class Folder:
    """A run folder, written file by file, each whole or not at all.

    Nothing is made or removed before :meth:`begin`.

    Args:
        path: Where.
        configuration: The run's configuration as YAML.
        overwrite: Whether another run there may be replaced.

    Raises:
        ValueError: The folder holds something else, or cannot be written.
    """

    def __init__(self, path: Path, configuration: str, overwrite: bool = False) -> None:
        self.path = path
        self.configuration = configuration
        self._release: Any = None
        self.fresh = overwrite or not os.path.exists(path / "config.yaml")
        if self.fresh:
            self._refuse_strangers()
        else:
            self._refuse_another_run()
        if self.results is None:
            self._refuse_unwritable()

    @property
    def last(self) -> Path:
        """The checkpoint to go on from."""
        return self.path / "checkpoints" / "last.safetensors"

    @property
    def best(self) -> Path:
        """The weights with the best metric on validation."""
        return self.path / "checkpoints" / "best.safetensors"

    def at(self, step: int) -> Path:
        """The weights kept at a step."""
        return self.path / "checkpoints" / f"step-{step:07d}.safetensors"

    @property
    def kept(self) -> list[Path]:
        """All weights kept at some step, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*.safetensors"))

    @property
    def results(self) -> dict[str, Any] | None:
        """What a finished run wrote; None where that is missing, broken, or lacks a section."""
        if self.fresh:
            return None
        try:
            found = json.loads((self.path / "results.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return found if isinstance(found, dict) and not lacking(found) else None

    @property
    def resumable(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return not self.fresh and self.last.exists()

    def _refuse_strangers(self) -> None:
        own = os.path.exists(self.path / "config.yaml")
        for name in ("metrics.jsonl", "results.json", "checkpoints"):
            if not own and os.path.exists(self.path / name):
                raise ValueError(
                    f"{self.path} is no run folder, yet holds {name}: choose another --out"
                )

    def _refuse_another_run(self) -> None:
        before, now = _flat(self._known()), _flat(yaml.safe_load(self.configuration))
        changed = sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))
        if changed:
            shown = [f"{k} {before.get(k)} there, {now.get(k)} here" for k in changed[:3]]
            more = [f"{len(changed) - 3} more"] if len(changed) > 3 else []
            raise ValueError(
                f"{self.path} holds a run with other options ({'; '.join([*shown, *more])}): "
                "choose another --out or --overwrite"
            )

    def _known(self) -> dict[str, Any]:
        """The configuration of the run that is there."""
        path = self.path / "config.yaml"
        try:
            known = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as reason:
            heart = " ".join(str(reason).split())
            raise ValueError(f"cannot read {path}, choose another --out: {heart}") from reason
        if not isinstance(known, dict):
            raise ValueError(f"{path} is no configuration of a run: choose another --out")
        return known

    def _refuse_unwritable(self) -> None:
        """Tries it: root may write anywhere by its rights, and yet not in /proc."""
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
            raise OSError(f"cannot write the run folder {self.path}: {reason.strerror}") from reason

    def _begin(self, keep_until: int) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock()
        (self.path / "results.json").unlink(missing_ok=True)
        if keep_until == 0:
            for old in (self.path / "checkpoints").glob("*.safetensors"):
                old.unlink()
            (self.path / HEADS).unlink(missing_ok=True)
        lines = [r for r in self.metrics() if r["step"] <= keep_until]
        self.write("config.yaml", self.configuration)
        self.write("metrics.jsonl", "".join(json.dumps(record) + "\n" for record in lines))
        (self.path / "checkpoints").mkdir(exist_ok=True)

    def _lock(self) -> None:
        """Keeps the folder for this run; the system frees it when the process ends."""
        self.release()
        held = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
        self._release = weakref.finalize(self, os.close, held)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise OSError(errno.EBUSY, "another process is writing it") from None

    def release(self) -> None:
        """Lets another run use the folder."""
        if self._release is not None:
            self._release()

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``; one that a kill cut short is left out."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        found = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return found

    def write(self, name: str, text: str) -> None:
        """Writes a text file whole or not at all."""
        partial = self.path / f"{name}.part"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.path / name)

    def append(self, record: dict[str, Any]) -> None:
        """Adds a line to ``metrics.jsonl``."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat
