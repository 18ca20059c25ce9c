"""What a machine needs beside the checkout where it reaches nothing: corpora, and wheels."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["MOST", "pack", "size_of"]

MOST = 60 * 2**20
"""Bytes that are easily carried to such a machine."""


def pack(folder: Path, data: Path | None, wheels: Sequence[str] = ()) -> dict[str, int]:
    """Gathers everything, and says how many bytes each part has.

    Args:
        folder: Where to; what is there of an earlier time is replaced.
        data: A folder of corpora.
        wheels: Packages that the machine lacks, as ``pip download`` takes them, with what they need
            in turn left out: for the machine's Python, this one.

    Raises:
        OSError: Something cannot be read or written, or pip fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if data is not None:
        shutil.rmtree(folder / "data", ignore_errors=True)
        shutil.copytree(data, folder / "data")
    if wheels:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run([*command, "-d", str(folder / "wheels"), *wheels], check=False)
        if done.returncode:
            raise OSError(f"pip download of {', '.join(wheels)} ended with {done.returncode}")
    return {each.name: size_of(each) for each in sorted(folder.iterdir())}


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files)
