"""CPU and wall seconds of the aligner, and of eflomal or of workers, in turn on the same lines."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from latentheads.contrib.align.aligner import infer_posteriors, train_aligner
from latentheads.contrib.align.api import align, start_alignment
from latentheads.contrib.align.symmetrization import select_links
from latentheads.contrib.align.tokenization import TokenizedLine
from latentheads.experiments.studies.word_aligners.rivals import children_seconds, run_rival
from latentheads.metrics.alignment import Links

ROUNDS = 3
"""How often both are run, in turn."""

Clock = Callable[[], float]
Text = tuple[Sequence[str], Sequence[str]]


class _Timer:
    """Collects CPU and wall seconds of steps by name, one value a round."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[tuple[float, float]]] = {}

    def time(self, name: str, step: Callable[[], Any]) -> Any:
        """Runs a step."""
        clocks: tuple[Clock, ...] = _cpu_seconds, time.perf_counter
        before = [clock() for clock in clocks]
        result = step()
        cpu, wall = (clock() - begin for clock, begin in zip(clocks, before, strict=True))
        self.seconds.setdefault(name, []).append((cpu, wall))
        return result


def _cpu_seconds() -> float:
    return time.process_time() + children_seconds()


def measure_speed(
    text: Text, new: Text, python: Path, report: Callable[[str], None]
) -> dict[str, Any]:
    """Seconds of training and of aligning, and sentence pairs a CPU second.

    eflomal aligns by sampling, and does not train apart from that.

    Args:
        text: The lines to train on, which are aligned too.
        new: Further lines, aligned by the trained aligner.
        python: The Python of an environment with eflomal.
        report: Called with a line for each round.
    """
    timer = _Timer()
    for turn in range(ROUNDS):
        _time_own(timer, text, new)
        timer.time("eflomal", lambda: run_rival("eflomal", python, *text))
        report(f"round {turn + 1}: { ({name: s[-1] for name, s in timer.seconds.items()}) }")
    sizes = {"aligning new lines": len(new[0])}
    return {
        name: _summarise(seconds, sizes.get(name, len(text[0])))
        for name, seconds in timer.seconds.items()
    } | {"ratio_to_eflomal": _ratios(timer.seconds)}


def _time_own(timer: _Timer, text: Text, new: Text) -> None:
    """Times the aligner once."""
    pairs = [(left.split(), right.split()) for left, right in zip(*text, strict=True)]
    of_words = TokenizedLine.of_words
    lines = [(of_words(left), of_words(right)) for left, right in pairs]
    aligner, trained = timer.time("training", lambda: train_aligner(pairs))
    posteriors = infer_posteriors(trained.bitext.batches, trained.models, lines)
    timer.time("aligning", lambda: [*map(select_links, posteriors)])
    timer.time("aligning new lines", lambda: align(*new, aligner=aligner).links)


def measure_workers(text: Text, workers: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Seconds of training and aligning by one process and by several, and how far links differ.

    Args:
        text: The lines to train on, which are aligned.
        workers: The number of processes.
        report: Called with a line for each round.
    """
    timer, links = _Timer(), dict[int, list[Links]]()
    for turn in range(ROUNDS):
        for number in (1, workers):
            links[number] = timer.time(f"workers {number}", partial(_align, text, number))
        report(f"round {turn + 1}: { ({name: s[-1] for name, s in timer.seconds.items()}) }")
    rounds = zip(*timer.seconds.values(), strict=True)
    differing = sum(one != other for one, other in zip(links[1], links[workers], strict=True))
    return {
        **{name: _summarise(seconds, len(text[0])) for name, seconds in timer.seconds.items()},
        "wall_ratio": _median_and_range([several[1] / one[1] for one, several in rounds]),
        "lines_with_other_links": differing,
    }


def _align(text: Text, workers: int) -> list[Links]:
    return [*map(select_links, start_alignment(*text, workers=workers).posteriors)]


def _summarise(seconds: Sequence[tuple[float, float]], pairs: int) -> dict[str, Any]:
    cpu, wall = zip(*seconds, strict=True)
    return {
        "pairs": pairs,
        "cpu_seconds": _median_and_range(cpu),
        "wall_seconds": _median_and_range(wall),
        "pairs_per_cpu_second": round(pairs / statistics.median(cpu), 1),
    }


def _ratios(seconds: dict[str, list[tuple[float, float]]]) -> list[float]:
    """CPU seconds of training and aligning over those of eflomal, round by round."""
    rounds = zip(*(seconds[name] for name in ("training", "aligning", "eflomal")), strict=True)
    return _median_and_range([(train[0] + run[0]) / other[0] for train, run, other in rounds])


def _median_and_range(values: Sequence[float]) -> list[float]:
    return [round(float(x), 3) for x in (statistics.median(values), min(values), max(values))]
