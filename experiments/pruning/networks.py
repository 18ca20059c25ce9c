"""A run without some of its heads: reported on in a run folder, and timed against others."""

from __future__ import annotations

import copy
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from latentheads.batch import Batch
from latentheads.corpora import Corpus, Part, batches
from latentheads.decoding.translate import TOKENS
from latentheads.errors import UnfinishedError
from latentheads.files import read_json, read_text
from latentheads.guide import ModelGuide, WithSelection
from latentheads.handlers import PlugIn
from latentheads.inference.evaluation import eval_no_grad
from latentheads.metrics.scores import METRICS
from latentheads.model import Decoder
from latentheads.pruning import remove_heads
from latentheads.runs.folder import HEADS, TEXTS, Folder, read_results
from latentheads.runs.reporter import Reporter
from latentheads.runs.results import Results
from latentheads.runs.run import Run
from latentheads.runs.sections import complete, lacking
from latentheads.selection.gate_options import Gates
from latentheads.training import checkpoints

__all__ = ["Pruned", "folder_of", "networks_in", "point", "smaller", "time_all", "write_run"]

OF_THE_RUN = (
    *("recipe", "guide", "select", "prior", "corpus", "seed", "steps"),
    *("tokens_per_second", "decoding", "versions"),
)
"""Results of the run that those of a smaller network repeat."""


@dataclass
class Pruned:
    """A network after removal, and what was measured of it.

    Attributes:
        kept: The heads of every block that stay, by their places in the run's network.
        model: The smaller network.
        guide: Its guide.
        results: Its report.
        seconds: Of every timed round.
    """

    kept: dict[str, list[int]]
    model: Decoder
    guide: ModelGuide
    results: Results = field(default_factory=Results)
    seconds: list[float] = field(default_factory=list)

    @property
    def heads(self) -> int:
        """Heads that stay."""
        return sum(map(len, self.kept.values()))

    @property
    def parameters(self) -> int:
        """Parameters of model and guide."""
        return sum(p.numel() for part in (self.model, self.guide) for p in part.parameters())


def folder_of(out: Path, heads: int) -> Path:
    """The folder of a network with a number of heads."""
    return out / f"heads-{heads}"


def networks_in(out: Path) -> list[Path]:
    """The folders of the pruned networks that were written before.

    Raises:
        ValueError: Something else has the name of one.
    """
    there = sorted(path for path in out.glob("heads-*") if path.name[6:].isdecimal())
    for path in there:
        results = read_results(path)
        if results is None or results.pruned is None:
            raise ValueError(f"{path} is no pruned network: remove it, or choose another --out")
    return there


def smaller(run: Run, kept: dict[str, list[int]]) -> Pruned:
    """A copy of a run's network without all other heads."""
    model, guide = copy.deepcopy((run.model, run.guide))
    remove_heads(model, kept, guide)
    return Pruned(kept, model, guide)


def write_run(found: Pruned, run: Run, corpus: Corpus, out: Path, by: str) -> None:
    """Writes a network as a run folder, with the report that every run has.

    The bound is of a single draw of each sentence: a curve has many networks.

    Args:
        found: The network; it is given its results.
        run: The run that it comes from.
        corpus: What it is reported on.
        out: The folder.
        by: What made a head important.

    Raises:
        UnfinishedError: A section of the report failed.
    """
    settings = replace(run.settings, gates=Gates())  # they have gone into the weights
    folder = Folder(out, settings.to_yaml())
    folder.begin()
    for name in ("vocabulary.json", TEXTS):
        if (run.path / name).exists():
            folder.write(name, read_text(run.path / name))
    folder.write(HEADS, json.dumps(_places(found.kept, run.heads), indent=2) + "\n")
    weights = folder.average if settings.training.average else folder.best
    tensors = checkpoints.weights(model=found.model, guide=found.guide)
    checkpoints.save(weights, tensors, {"step": run.step, "averaged": run.averaged})
    results = _facts(found, run, by)
    settings = replace(settings, samples=1)
    reporter = Reporter(settings, found.model, found.guide, corpus, folder)
    complete(results, reporter.sections(results), folder.write_results)
    folder.release()
    found.results = Results.read(results)
    if lacks := lacking(results):
        raise UnfinishedError(f"the report on {found.heads} heads lacks {lacks}")


def _places(kept: dict[str, list[int]], before: dict[str, list[int]] | None) -> dict[str, Any]:
    """Places in the whole network, where some heads were removed before."""
    if before is None:
        return kept
    return {
        name: [before[name][place] for place in places] if name in before else places
        for name, places in kept.items()
    }


def _facts(found: Pruned, run: Run, by: str) -> dict[str, Any]:
    """What is known of a network without a report."""
    whole = read_json(run.path / "results.json")
    origin = {"run": str(run.path), "by": by, "heads": found.heads}
    new = Results(
        reported_step=run.step,
        averaged=run.averaged,
        parameters=found.parameters,
        pruned=origin,
    )
    return new.to_json() | {name: whole[name] for name in OF_THE_RUN if name in whole}


def time_all(every: Sequence[Pruned], run: Run, part: Part, rounds: int) -> None:
    """Times all networks in turns, the order rotated, after a first turn that does not count."""
    parts = [batch.to(run.model.device) for batch in batches(part, TOKENS)]
    for number in range(-1, rounds):
        for place in range(len(every)):
            found = every[(place + number) % len(every)]
            seconds = _seconds(found, run, parts)
            if number >= 0:
                found.seconds.append(seconds)


def _seconds(found: Pruned, run: Run, parts: Sequence[Batch]) -> float:
    """Time to decode the references: the same work for all, whatever they would have written."""
    model: Decoder = found.model
    beam = run.settings.decoding.beam
    start = time.perf_counter()
    for batch in parts:
        with eval_no_grad(model), PlugIn(), WithSelection(found.guide):
            state = model.begin(batch)
            for step in batch.decoder_input.split(1, -1):
                model.step(step[:, None].expand(-1, beam, -1), state)
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter() - start


def point(found: Pruned, whole: Pruned, tokens: int) -> dict[str, Any]:
    """A point of the curve.

    Args:
        found: The network.
        whole: The one that has lost nothing.
        tokens: How many were decoded to measure the speed.
    """
    ratios = [a / b for a, b in zip(whole.seconds, found.seconds, strict=True)]
    valid, test = found.results.valid, found.results.test
    scores = {name: test.get(name) for name in METRICS}
    return {
        "heads": found.heads,
        "parameters": found.parameters,
        "valid": {name: valid[name] for name in ("plug_in", "elbo", "kl")},
        "test": {name: test[name] for name in ("plug_in", "elbo", "kl")} | scores,
        "tokens_per_second": tokens / statistics.median(found.seconds),
        "speed": statistics.median(ratios),
        "kept": found.kept,
    }
