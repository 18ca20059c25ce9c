"""A stand-in of run.py, and runs of it; ``--meet N``: it waits until N of them have begun."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from latentheads.experiments.comparison.jobs import RunJob

STAND_IN = """
import os, sys, time, pathlib
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
out = pathlib.Path(words["--out"])
beside = out.parent / "beside"
beside.mkdir(exist_ok=True)
mine = beside / out.name
mine.touch()
print("first words", flush=True)
(out / "seen").write_text(str(len(list(beside.iterdir()))))
(out / "threads").write_text(os.environ["OMP_NUM_THREADS"])
(out / "device").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
(out / "configuration").write_text(pathlib.Path(words["--config"]).read_text())
while len(list(out.parent.glob("*/configuration"))) < int(words.get("--meet", 0)):
    time.sleep(0.01)
time.sleep(float(words.get("--wait", 0)))
print("last words\\n", flush=True)
mine.unlink()
sys.exit(int(words.get("--status", 0)))
"""
PROGRAM = [sys.executable, "-S", "-c", STAND_IN]


def make(folder: Path, *words: list[str], program: Sequence[str] = PROGRAM) -> list[RunJob]:
    return [
        RunJob(f"run-{n}", folder / f"run-{n}", f"seed: {n}\n", own, program)
        for n, own in enumerate(words)
    ]
