"""A run without some of its heads: measured, timed against others, written as a run folder."""

from __future__ import annotations

import copy
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from latentheads.batch import Batch
from latentheads.corpora import Part, batches
from latentheads.decoding.translate import TOKENS, translate_part
from latentheads.effects import PlugIn
from latentheads.files import read_json, read_text, read_yaml
from latentheads.guide import ModelGuide, WithSelection
from latentheads.inference.evaluation import TOKENS as EVALUATED
from latentheads.inference.evaluation import evaluate, evaluating, fixed_noise
from latentheads.metrics.scores import SCORES
from latentheads.model import Decoder
from latentheads.pruning import remove_heads
from latentheads.runs.folder import HEADS, TEXTS, Folder, read_results
from latentheads.runs.report import finite
from latentheads.runs.run import Run
from latentheads.runs.scoring import score_written
from latentheads.selection.gate_options import Gates
from latentheads.training import checkpoints

__all__ = [
    "Pruned",
    "folder_of",
    "measure",
    "networks_in",
    "point",
    "smaller",
    "time_all",
    "write_run",
]

BY_SITE = ("kl_by_site", "gap_by_site", "how")
"""What is measured of every site, beside the figures of a part."""


@dataclass
class Pruned:
    """A network after removal, and what was measured of it.

    Attributes:
        kept: The heads of every block that stay, by their places in the run's network.
        model: The smaller network.
        guide: Its guide.
        valid: The bound and its company on validation.
        test: The same on test, and scores where it was translated.
        lines: Translations of the test part.
        seconds: Of every timed round.
    """

    kept: dict[str, list[int]]
    model: Decoder
    guide: ModelGuide
    valid: dict[str, Any] = field(default_factory=dict)
    test: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
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
    """Where a network of so many heads is written."""
    return out / f"heads-{heads}"


def networks_in(out: Path) -> list[Path]:
    """The folders of the pruned networks that were written before.

    Raises:
        ValueError: Something else has the name of one.
    """
    there = sorted(path for path in out.glob("heads-*") if path.name[6:].isdecimal())
    for path in there:
        results = read_results(path)
        if results is None and _is_broken_off(path):
            continue
        if results is None or results.pruned is None:
            raise ValueError(f"{path} is no pruned network: remove it, or choose another --out")
    return there


def _is_broken_off(path: Path) -> bool:
    """Whether a pruned network was begun here and not finished: nothing was ever trained."""
    metrics, last = path / "metrics.jsonl", path / "checkpoints" / "last.safetensors"
    return metrics.is_file() and not metrics.stat().st_size and not last.exists()


def smaller(run: Run, kept: dict[str, list[int]]) -> Pruned:
    """A copy of a run's network without all other heads."""
    model, guide = copy.deepcopy((run.model, run.guide))
    remove_heads(model, kept, guide)
    return Pruned(kept, model, guide)


def measure(found: Pruned, run: Run, valid: Part, test: Part, seed: int) -> None:
    """Evaluates a network on validation and test, and translates the latter."""
    for part, figures in ((valid, found.valid), (test, found.test)):
        parts = batches(part, EVALUATED)
        report = evaluate(found.model, found.guide, parts, 1, seed, part.truth)
        figures |= report.figures() | {name: getattr(report, name) for name in BY_SITE}
    if run.source is None:
        return
    start = time.perf_counter()
    with fixed_noise(seed, run.model.device):
        decoding = run.settings.decoding
        found.lines = translate_part(found.model, found.guide, run.target, test, decoding)
    speed = len(test) / (time.perf_counter() - start)
    scores = score_written(run.settings, found.lines, list(test.references))
    found.test |= {**scores, "sentences_per_second": speed}


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
        with evaluating(model), PlugIn(), WithSelection(found.guide):
            state = model.begin(batch)
            for step in batch.fed.split(1, -1):
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
    scores = {name: found.test.get(name) for name in SCORES}
    return {
        "heads": found.heads,
        "parameters": found.parameters,
        "valid": {name: found.valid[name] for name in ("plug_in", "elbo", "kl")},
        "test": {name: found.test[name] for name in ("plug_in", "elbo", "kl")} | scores,
        "tokens_per_second": tokens / statistics.median(found.seconds),
        "speed": statistics.median(ratios),
        "kept": found.kept,
    }


def write_run(out: Path, run: Run, found: Pruned, references: Sequence[str], by: str) -> None:
    """Writes a pruned network as a run folder; what was there is replaced."""
    folder = Folder(out, _without_gates(run.path / "config.yaml"), overwrite=True)
    folder.begin()
    for name in ("vocabulary.json", TEXTS):
        if (run.path / name).exists():
            folder.write(name, read_text(run.path / name))
    folder.write(HEADS, json.dumps(_places(found.kept, run.heads), indent=2) + "\n")
    reported = "average" if run.settings.training.average else "best"
    tensors = checkpoints.weights(model=found.model, guide=found.guide)
    checkpoints.save(out / "checkpoints" / f"{reported}.safetensors", tensors, {"step": run.step})
    if found.lines:
        for name, lines in (("translations", found.lines), ("references", references)):
            folder.write(f"test.{name}.txt", "".join(f"{line}\n" for line in lines))
    results = _results(run, found)
    results["pruned"] = {"run": str(run.path), "by": by, "heads": found.heads}
    folder.write("results.json", json.dumps(finite(results), indent=2) + "\n")
    folder.release()


def _without_gates(configuration: Path) -> str:
    """A run's configuration after its gates have gone into its weights."""
    known = read_yaml(configuration)
    return yaml.safe_dump({**known, **asdict(Gates())}, sort_keys=False, allow_unicode=True)


def _places(kept: dict[str, list[int]], before: dict[str, list[int]] | None) -> dict[str, Any]:
    """Places in the whole network, where some heads were removed before."""
    if before is None:
        return kept
    return {
        name: [before[name][place] for place in places] if name in before else places
        for name, places in kept.items()
    }


def _results(run: Run, found: Pruned) -> dict[str, Any]:
    """What a run says of itself, with the figures of the smaller network."""
    results = read_json(run.path / "results.json")
    results.pop("missing", None)  # what the run's own report lacks
    valid, test = dict(found.valid), dict(found.test)
    for name in BY_SITE:
        valid.pop(name)
    kl, gap, how = (test.pop(name) for name in BY_SITE)
    return results | {
        "reported_step": run.step,
        "parameters": found.parameters,
        "head_divergence": None,
        "head_divergence_by_chain": {},
        "valid": valid,
        "test": test,
        "tasks": {},
        "average": {},
        "perplexity": [],
        "kl_by_site": kl,
        "gap_by_site": gap,
        "kl_how": how,
        "selection": {},
        "gates": None,
    }
