"""Races of the rows of a benchmark, and the facts that their times depend on."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyro
import torch
from tqdm import tqdm

from latentheads.experiments.studies.benchmarks.baselines import Runner, Setting

MEMORY = {
    "cpu": "bytes saved for the backward pass, each storage counted once, weights left out",
    "cuda": "peak of allocated memory during a step above what was allocated before it",
}


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    places = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    low, middle, high = torch.tensor(values, dtype=torch.float64).quantile(places)
    return float(low), float(middle), float(high)


def race(runners: list[Runner], rounds: int, warmup: int, seed: int, bar: Any) -> None:
    """Lets the rows take turns, the order rotated from round to round."""
    for number in range(-warmup, rounds):
        gc.collect()
        for place in range(len(runners)):
            runner = runners[(place + number) % len(runners)]
            seconds = runner.timed(seed + number + warmup)
            if number >= 0:
                runner.seconds.append(seconds)
            bar.update()


def progress(steps: int) -> Any:
    """A progress line in steps, on a terminal only."""
    return tqdm(total=steps, unit="step", leave=False, disable=None)


def metadata(plan: dict[str, Any], setting: Setting) -> dict[str, Any]:
    """Everything that a number depends on."""
    cuda = setting.device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if cuda else _processor(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "pyro": pyro.__version__,
        "python": platform.python_version(),
        "memory": MEMORY[setting.device],
        "setting": asdict(setting),
        "plan": plan,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
