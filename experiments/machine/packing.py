"""Packs what a machine without a network needs beside the checkout: corpora and wheels."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["MOST", "pack", "size_of"]

MOST = 60 * 2**20
"""Bytes that are easily carried to such a machine."""

PARTS = ("data", "wheels")
BESIDE = ".data-"


def pack(folder: Path, data: Path | None, wheels: Sequence[str] = ()) -> dict[str, int]:
    """Gathers everything, and says how many bytes each part has.

    Args:
        folder: Where to; what is there of an earlier time is replaced; nothing else may be there.
        data: A folder of corpora.
        wheels: Packages that the machine lacks, as ``pip download`` takes them, with what they need
            in turn left out: for the machine's Python, this one.

    Raises:
        OSError: Something cannot be read or written, or pip fails.
        ValueError: The folder is one that may not be replaced.
    """
    _refuse_others(folder, data)
    folder.mkdir(parents=True, exist_ok=True)
    if data is not None:
        _replace_copy(data, folder / "data")
    if wheels:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run([*command, "-d", str(folder / "wheels"), *wheels], check=False)
        if done.returncode:
            raise OSError(f"pip download of {', '.join(wheels)} ended with {done.returncode}")
    return {each.name: size_of(each) for each in sorted(folder.iterdir())}


def _refuse_others(folder: Path, data: Path | None) -> None:
    """What is packed may replace neither the corpora nor what no earlier time has packed."""
    if data is not None:
        own, source = (folder / "data").resolve(), data.resolve()
        if own.is_relative_to(source) or source.is_relative_to(own):
            raise ValueError(f"--pack {folder}: its data and --data {data} are not apart")
    names = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    others = [name for name in names if name not in PARTS and not name.startswith(BESIDE)]
    if others:
        raise ValueError(f"--pack {folder}: choose a folder without {others[0]!r}, an empty one")


def _replace_copy(source: Path, target: Path) -> None:
    """Copies a folder beside its place first, so that a copy that fails replaces nothing."""
    with tempfile.TemporaryDirectory(prefix=BESIDE, dir=target.parent) as beside:
        new = shutil.copytree(source, Path(beside) / "new")
        if target.exists() or target.is_symlink():
            target.rename(Path(beside) / "old")
        new.rename(target)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files)
