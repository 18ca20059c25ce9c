"""Pruned networks of a run: their run folders, reports and decoding times."""

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
from latentheads.corpora.batches import batches
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.part import Part
from latentheads.decoding.translate import TOKENS
from latentheads.errors import UnfinishedError
from latentheads.experiments.cli.outputs import check_no_run
from latentheads.files import read_json, read_text
from latentheads.guide import ModelGuide
from latentheads.handlers import PlugIn
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.handlers import WithSelection
from latentheads.metrics.compared import METRICS
from latentheads.model import Decoder
from latentheads.packages import package_versions
from latentheads.pruning import all_heads, remove_heads
from latentheads.runs.folder import (
    HEADS,
    PROCESSOR,
    RUN_FILES,
    TEXTS,
    VOCABULARY,
    Folder,
    read_results,
)
from latentheads.runs.reporter import Reporter
from latentheads.runs.results import Results, complete, lacking
from latentheads.runs.run import Run
from latentheads.training import checkpoints
from latentheads.training.progress import ProgressDisplay

COPIED_RESULTS = (
    *("recipe", "guide", "select", "prior", "corpus", "seed", "steps"),
    *("tokens_per_second", "decoding"),
)
"""Results of the run that are copied to those of a pruned network."""


@dataclass
class Pruned:
    """What a pruned network is, and its results, without its weights.

    Attributes:
        kept: The remaining heads of every block, by their indices in the run's network.
        parameters: Number of parameters of model and guide.
        results: Its report.
        seconds: The time of every round.
    """

    kept: dict[str, list[int]]
    parameters: int
    results: Results = field(default_factory=Results)
    seconds: list[float] = field(default_factory=list)

    @property
    def heads(self) -> int:
        """Number of remaining heads."""
        return sum(map(len, self.kept.values()))


def pruned_folder(out: Path, heads: int) -> Path:
    """The run folder of the network with this number of heads."""
    return out / f"heads-{heads}"


def pruned_networks(out: Path) -> list[Path]:
    """The run folders of existing pruned networks."""
    folders = sorted(path for path in out.glob("heads-*") if path.name[6:].isdecimal())
    folders = [path for path in folders if any((path / name).exists() for name in RUN_FILES)]
    for path in folders:
        results = read_results(path)
        if results is None or results.pruned is None:
            raise ValueError(f"{path} is not a pruned network: remove it, or choose another --out")
    return folders


def make_pruned(run: Run, remaining: dict[str, list[int]]) -> tuple[Decoder, ModelGuide]:
    """Copies a run's model and guide, and removes all but the remaining heads."""
    model, guide = copy.deepcopy((run.model, run.guide))
    remove_heads(model, remaining, guide)
    return model, guide


def write_run(kept: dict[str, list[int]], run: Run, corpus: Corpus, out: Path, by: str) -> Pruned:
    """Writes the network with the heads that are kept as a run folder with a report.

    The bound is estimated with a single sample per sentence, since a curve has many networks.

    Args:
        kept: The heads that remain, as ``all_heads`` lists them; a block that is not named keeps
            all. Of a pruned run by their indices in it.
        run: The run, whose weights stay; gates are folded into them before.
        corpus: Its corpus.
        out: The folder, in which there is no run yet.
        by: How the heads were chosen, for ``results.json``.
    """
    check_no_run(out, "out")
    model, guide = make_pruned(run, kept)
    heads = all_heads(run.model) | kept
    kept = {name: sorted({*indices}) for name, indices in heads.items()}
    network = Pruned(kept, sum(p.numel() for part in (model, guide) for p in part.parameters()))
    latents = [latent for latent in run.settings.latents if not latent.is_foldable]
    settings = replace(run.settings, latents=tuple(latents))  # gates are folded into the weights
    folder = Folder(out, settings.to_yaml())
    folder.begin()
    for name in (VOCABULARY, PROCESSOR, TEXTS):
        if (run.path / name).exists():
            folder.write(name, read_text(run.path / name))
    folder.write(HEADS, json.dumps(_original_indices(network.kept, run.heads), indent=2) + "\n")
    weights = folder.average if settings.train.average else folder.best
    tensors = checkpoints.weights(model=model, guide=guide)
    checkpoints.save(weights, tensors, {"step": run.step, "averaged": run.averaged})
    results = _facts(network, run, by)
    settings = replace(settings, num_samples=1)
    reporter = Reporter(settings, model, guide, corpus, folder)
    complete(results, reporter.sections(results), folder.write_results)
    folder.release()
    network.results = Results.read(results)
    if missing := lacking(results):
        raise UnfinishedError(f"the report on {network.heads} heads has no {missing}")
    return network


def _original_indices(
    kept: dict[str, list[int]], remaining: dict[str, list[int]] | None
) -> dict[str, Any]:
    """Indices in the unpruned network, if some heads were removed before."""
    if remaining is None:
        return kept
    return {
        name: [remaining[name][index] for index in indices] if name in remaining else indices
        for name, indices in kept.items()
    }


def _facts(network: Pruned, run: Run, by: str) -> dict[str, Any]:
    """The results of a network that need no evaluation."""
    run_results = read_json(run.path / "results.json")
    computed = {"threads": str(torch.get_num_threads()), "device": run.model.device.type}
    versions = run_results.get("versions", {}) | package_versions() | computed
    origin = {"run": str(run.path), "by": by, "heads": network.heads}
    results = Results(
        reported_step=run.step,
        averaged=run.averaged,
        parameters=network.parameters,
        versions=versions,
        pruned=origin,
    )
    return results.to_json() | {
        name: run_results[name] for name in COPIED_RESULTS if name in run_results
    }


def time_all(networks: Sequence[Pruned], run: Run, part: Part, rounds: int) -> None:
    """Measures the decoding time of all networks in rotating order, after a warm-up round."""
    all_batches = [batch.to(run.model.device) for batch in batches(part, TOKENS, shuffle=False)]
    with ProgressDisplay((rounds + 1) * len(networks), unit="timing") as progress:
        for number in range(-1, rounds):
            for index in range(len(networks)):
                network = networks[(index + number) % len(networks)]
                seconds = _seconds(network, run, all_batches)
                if number >= 0:
                    network.seconds.append(seconds)
                progress.advance(progress.done + 1)


def _seconds(network: Pruned, run: Run, all_batches: Sequence[Batch]) -> float:
    """The time for decoding the references, which is the same work for all networks."""
    model, guide = make_pruned(run, network.kept)  # anew: all at once would fill the memory
    beam = run.settings.decode.num_beams
    start = time.perf_counter()
    for batch in all_batches:
        with eval_no_grad(model), PlugIn(), WithSelection(guide):
            state = model.begin(batch)
            for step in batch.decoder_input.split(1, -1):
                model.step(step[:, None].expand(-1, beam, -1), state)
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter() - start


def curve_point(network: Pruned, whole: Pruned, tokens: int) -> dict[str, Any]:
    """A point of the curve.

    Its tokens per second are those of the whole network, times its speed. This is the median of the
    ratios within rounds, in which the load of the machine cancels.
    """
    ratios = [a / b for a, b in zip(whole.seconds, network.seconds, strict=True)]
    speed = statistics.median(ratios)
    valid, test = network.results.valid, network.results.test
    scores = {name: test.get(name) for name in METRICS}
    bounds = ("exact", "plug_in", "elbo", "kl")
    return {
        "heads": network.heads,
        "parameters": network.parameters,
        "valid": {name: valid.get(name) for name in bounds},
        "test": {name: test.get(name) for name in bounds} | scores,
        "tokens_per_second": speed * tokens / statistics.median(whole.seconds),
        "speed": speed,
        "kept": network.kept,
    }
