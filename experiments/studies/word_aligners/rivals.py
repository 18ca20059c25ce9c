"""Word aligners of other packages, run in an environment of their own by its Python."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from latentheads.metrics.alignment import Links, read_pharaoh

RIVALS = ("eflomal", "eflomal of sil-thot", "fast_align", "hmm", "hmm+vb", "ibm4", "ibm4+vb")
"""eflomal, and models of sil-thot; vb: its variational Bayes, which fast_align has by default."""

Directions = tuple[list[Links], list[Links]]
"""The links of every line by the forward and by the backward model."""

THOT = """
import sys
import thot.alignment as ta
kind, source, target, out = sys.argv[1:]
kind, _, bayes = kind.partition("+")
STAGES = {
    "eflomal of sil-thot": [ta.EflomalAlignmentModel],
    "fast_align": [ta.FastAlignModel],
    "hmm": [ta.Ibm1AlignmentModel, ta.HmmAlignmentModel],
    "ibm4": [ta.Ibm1AlignmentModel, ta.HmmAlignmentModel, ta.Ibm3AlignmentModel,
             ta.Ibm4AlignmentModel],
}
def read(path):
    return [line.split() for line in open(path, encoding="utf-8").read().split("\\n")[:-1]]
def train(source, target):
    model = None
    for stage in STAGES[kind]:
        model = stage() if model is None else stage(model)
        if stage is STAGES[kind][0]:
            model.variational_bayes = model.variational_bayes or bool(bayes)
            for pair in zip(source, target):
                model.add_sentence_pair(*pair, 1)
        model.start_training()
        for _ in range(getattr(model, "scheduled_iterations", 5)):
            model.train()
        model.end_training()
    return model
source, target = read(source), read(target)
for name, left, right in (("forward", source, target), ("backward", target, source)):
    model = train(left, right)
    with open(f"{out}.{name}", "w") as file:
        for pair in zip(left, right):
            matrix = model.get_best_alignment(*pair)[1]
            links = [(i, j) for i in range(matrix.row_length) for j in range(matrix.column_length)
                     if matrix[i, j]]
            links = links if name == "forward" else [(j, i) for i, j in links]
            print(*(f"{i}-{j}" for i, j in links), file=file)
"""


def run_rival(
    name: str, python: Path, source: Sequence[str], target: Sequence[str]
) -> tuple[Directions, float]:
    """Aligns two texts by another package.

    Args:
        name: One of :data:`RIVALS`.
        python: The Python of an environment with eflomal and sil-thot.
        source: Lines in one language, as they are trained on.
        target: The translation of each.

    Returns:
        The links of both directions, and the CPU seconds.

    Raises:
        ValueError: The package failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / side for side in ("source", "target")]
        for path, lines in zip(paths, (source, target), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        out = Path(folder) / "links"
        before = children_seconds()
        _run(_command(name, python, paths[0], paths[1], out))
        seconds = children_seconds() - before
        links = [_read_links(Path(f"{out}.{side}")) for side in ("forward", "backward")]
    return (links[0], links[1]), seconds


def _command(name: str, python: Path, source: Path, target: Path, out: Path) -> list[str]:
    if name == "eflomal":
        links = ("-f", f"{out}.forward", "-r", f"{out}.backward")
        program = str(python.with_name("eflomal-align"))
        return [program, "-s", str(source), "-t", str(target), *links]
    return [str(python), "-c", THOT, name, str(source), str(target), str(out)]


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as reason:
        raise ValueError(f"cannot run {command[0]}: {reason.strerror}") from reason
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"{Path(command[0]).name} failed: {last}")


def children_seconds() -> float:
    """CPU seconds of all programs that were run and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _read_links(path: Path) -> list[Links]:
    return [read_pharaoh(line) for line in path.read_text().split("\n")[:-1]]
