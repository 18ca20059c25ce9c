"""Trains eight small runs and compares every number of theirs with an earlier version's.

    python -m tests.small_runs --write before.json     # before a change that must change no number
    python -m tests.small_runs --compare before.json   # after it

Compared are the numbers of ``metrics.jsonl`` and ``results.json``, the weights, and the texts that
were written: values, not their names, so that a renaming passes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from latentheads.metrics.scores import Scores
from tests.latentheads.contrib.speech.sounds import write_speech

HERE = Path(__file__).resolve().parents[1]

SIZES = (
    "--network.width 16 --network.feed_forward 24 --network.heads 2 --train.steps 12 "
    "--num_samples 4 --seed 3"
)
SENTENCES = "--data.sentences 300 --data.held_out 30"
GRAMMAR = f"--data.language velu {SENTENCES}"

RUNS = {
    "coda": f"--recipe coda {GRAMMAR}",
    "cascaded-logits": f"--recipe cascaded {GRAMMAR}",
    "mean-field": f"--recipe mean-field {GRAMMAR}",
    "autoregressive": f"--recipe autoregressive {GRAMMAR}",
    "selection": f"--recipe transformer+bernoulli --data.tasks velu,tamir {SENTENCES}",
    "marginal": f"--guide cascaded --alignments.blocks 2 --loss marginal {GRAMMAR}",
    "language-model": f"--guide cascaded --data grammar-text {SENTENCES}",
    "speech": "--data SPEECH --data.bins 7 --data.top_frequency 3800 --data.vocab_size 0 "
    "--network.speech.channels 4 --ctc .3 --recipe transformer",
}
"""The options of each run, beside its sizes."""

OF_TIME = ("per_second", "seconds", "versions", "samples")
"""Keys of numbers that no two runs share, or of options."""

DERIVED = ("truth_gap",)
"""Scores that are a difference of others."""


def numbers_of(value: Any, name: str = "") -> Iterator[str]:
    """All numbers and texts of a report, without their names; of a row its value and interval."""
    if name in DERIVED or any(part in name for part in OF_TIME):
        return
    if isinstance(value, dict) and "name" in value:  # a row of a report
        yield from numbers_of([value["value"], *value.get("interval", [])], value["name"])
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_of(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers_of(inner, name)
    else:
        yield repr(value)


def digest_of(lines: Iterator[str] | list[str]) -> str:
    """A digest of lines in any order."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def describe(out: Path) -> dict[str, Any]:
    """What is compared of one finished run."""
    results = json.loads((out / "results.json").read_text("utf-8"))
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]
    weights = load_file(out / "checkpoints" / "last.safetensors")
    texts = [path.read_text("utf-8") for path in sorted(out.glob("test.*.txt"))]
    return {
        "elbo": Scores.read(results["test"]).elbo,
        "results": digest_of([*numbers_of(results["valid"]), *numbers_of(results["test"])]),
        "metrics": digest_of(numbers_of(metrics)),
        "weights": digest_of([hashlib.sha256(t.tobytes()).hexdigest() for t in weights.values()]),
        "texts": digest_of(texts),
    }


def train_all(folder: Path) -> dict[str, Any]:
    """Trains every run in a process of its own."""
    speech, actual = write_speech(folder / "speech-corpus"), {}
    for name, options in RUNS.items():
        out = folder / name
        words = f"{options} {SIZES}".replace("SPEECH", str(speech)).split()
        command = [sys.executable, str(HERE / "experiments" / "run.py"), *words, "--out", str(out)]
        # this tree, not an installed one; the order of sums depends on the threads
        environment = os.environ | {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        actual[name] = describe(out)
        print(f"{name:18} test ELBO {actual[name]['elbo']!r}", flush=True)
    return actual


def main() -> int:
    """Writes or compares; 1 where a number has changed."""
    parser = argparse.ArgumentParser(prog="python -m tests.small_runs", description=__doc__)
    parser.add_argument("--write", type=Path, help="keep what is found in this file")
    parser.add_argument("--compare", type=Path, help="a file that was written before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = train_all(Path(folder))
    if options.write:
        options.write.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    before = json.loads(options.compare.read_text("utf-8")) if options.compare else figures
    changed = [
        f"{name}: {what}"
        for name, values in figures.items()
        for what in values
        if before[name][what] != values[what]
    ]
    print("\n".join(["changed:", *changed]) if changed else f"{len(figures)} runs, all equal")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
