"""The programs as a user starts them: real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error::FutureWarning"}
TINY = ["--sentences=60", "--held_out=12", "--width=8", "--feed_forward=8", "--heads=2"]
SHORT = ["--steps", "3", "--report_every", "2", "--tokens", "128", "--samples", "2"]


def command(name: str, *words: str) -> list[str]:
    return [sys.executable, str(ROOT / "experiments" / name), *words]


def program(
    name: str, *words: str, cwd: Path = ROOT, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(name, *words),
        capture_output=True,
        text=True,
        input=text,
        cwd=cwd,
        env={**os.environ, **ENVIRONMENT},
        check=False,
    )
