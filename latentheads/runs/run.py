"""One run: build a recipe, train it, report the true bound, write the run folder."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from tqdm import tqdm

from latentheads.batch import Batch
from latentheads.corpora import Corpus, Part, batches, windows
from latentheads.corpora.batches import collate
from latentheads.corpora.options import make_corpus
from latentheads.decoding.translate import translate_part
from latentheads.experiments.cli.errors import UnfinishedError
from latentheads.guide import ModelGuide, WithSelection
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import Report, evaluate, evaluating, fixed_noise
from latentheads.metrics.rouge import lead, rouge
from latentheads.metrics.translation import Scores, score
from latentheads.model import HeadModel
from latentheads.names import CHAINS
from latentheads.reading.divergence import divergence
from latentheads.runs.folder import HEADS, Folder
from latentheads.runs.loading import apply_pruning, make_model, read_heads, vocabularies_to_json
from latentheads.runs.report import Section, complete, finite
from latentheads.runs.settings import Settings
from latentheads.runs.warm_start import begin_with, load_start
from latentheads.selection.sharing import chosen_heads, selection_probabilities, sharing
from latentheads.training import checkpoints
from latentheads.training.checkpoints import weights
from latentheads.training.engine import Engine, Progress

__all__ = ["Run", "average", "make_accelerator"]

EVALUATION_TOKENS = 4096
DIVERGENCE_TOKENS = 512
DIVERGENCE_BLOCKS = 64
"""Batches of a running text on which heads are compared."""

AVERAGED = (
    "elbo",
    "log_likelihood",
    "kl",
    "iwae",
    "plug_in",
    "truth",
    "bleu",
    "chrf",
    "paper_bleu",
)


def make_accelerator(settings: Settings) -> Any:
    """Makes an Accelerator where there is something to do for it, else None.

    It starts the processes' group and keeps TensorBoard's file. Autocast and loss scaling stay
    with the engine: accelerate fixes one precision for a whole process.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not settings.tensorboard:
        return None
    if settings.tensorboard and find_spec("tensorboard") is None:
        raise ValueError("--tensorboard needs tensorboard: pip install tensorboard")
    from accelerate import Accelerator, DistributedDataParallelKwargs

    folders = [settings.out, *([settings.start] if settings.start else [])]
    pruned = any((folder / HEADS).exists() for folder in folders)  # what reads no head is unused
    return Accelerator(
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=pruned)],
        cpu=settings.device.type == "cpu",
        log_with="tensorboard" if settings.tensorboard else None,
        project_dir=settings.out,
    )


class Run:
    """A recipe on a corpus: weights, data order and noise from one seed.

    Args:
        settings: Everything that says what it is.
        corpus: The corpus; made from the settings when not given.
        accelerator: An ``accelerate.Accelerator``, for several processes or TensorBoard.
    """

    def __init__(
        self, settings: Settings, corpus: Corpus | None = None, accelerator: Any = None
    ) -> None:
        self.settings = settings
        self.folder = Folder(settings.out, settings.text, settings.overwrite)
        begun = None if self.folder.resumable else load_start(settings)
        self.corpus = corpus or make_corpus(settings.data, tell=print)
        self.accelerator = accelerator
        self.device = settings.device if accelerator is None else accelerator.device
        torch.manual_seed(settings.seed)
        self.model = make_model(settings, self.corpus.target, self.corpus.source).to(self.device)
        self.guide = settings.make_guide(self.model).to(self.device)
        self.heads = begun.heads if begun else self._heads()
        apply_pruning(settings.start or settings.out, self.heads, self.model, self.guide)
        choose_trained(settings, self.model, self.guide)
        training, train = settings.training, self.corpus.train
        self.engine = Engine(
            self.model,
            self.guide,
            train,
            training,
            settings.seed,
            accelerator,
        )
        self.best = -float("inf")
        self.stale = 0
        self.line: Any = None
        self.reported, self.averaged = 0, 0
        self._reports: dict[str, Report] = {}
        self._written: list[str] | None = None
        self.digest = self._digest()
        if begun:
            begin_with(begun, settings, self.corpus, self.model, self.guide)
        self.closing = settings.gates.closing(self.model, self.guide, training.steps, train.tokens)
        if self.folder.resumable:
            self._resume()
        self._probe()

    def _probe(self) -> None:
        """Computes the bound of two sentences: a guide that has none is refused before training."""
        part = self.corpus.valid
        two = collate(part, np.argsort(part.lengths)[len(part) // 2 :][:2]).to(self.device)
        with evaluating(self.model, self.guide), fixed_noise(self.settings.seed, self.device):
            terms(self.model, self.guide, two)

    @property
    def main(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.engine.rank == 0

    def headline(self) -> str:
        """Says in one line what is about to run."""
        settings, counts = self.settings, self.parameters()
        start = f"; resumed at step {self.engine.step:,}" if self.engine.step else ""
        workers = f", {self.engine.processes} processes" if self.engine.processes > 1 else ""
        train = self.corpus.train
        return (
            f"{settings.recipe}: prior {settings.prior_name}, guide {settings.guide_name}; "
            f"{counts['model']:,} + {counts['guide']:,} parameters; corpus {self.corpus.name}, "
            f"{len(train):,} {train.unit}; {self.device.type}{workers}{start}"
        )

    def parameters(self) -> dict[str, int]:
        """Counts parameters of model and guide."""
        return {
            "model": sum(p.numel() for p in self.model.parameters()),
            "guide": sum(p.numel() for p in self.guide.parameters()),
        }

    def train(self, quiet: bool = False) -> None:
        """Trains, with one live line; what stays are the weights to report on."""
        steps = self.settings.training.steps
        if self.main:
            self.folder.begin(self.engine.step)
            self._write_names()
        if self.accelerator is not None and self.settings.tensorboard:
            self.accelerator.init_trackers("tensorboard")
        with tqdm(
            total=steps,
            initial=self.engine.step,
            disable=quiet or not self.main,
            unit="step",
            dynamic_ncols=True,
        ) as self.line:
            self.engine.run(self._watch, self._checkpoint, self._tick)
        if self.main:
            self._choose()

    def release(self) -> None:
        """Ends what the processes share; the first one goes on alone."""
        if self.accelerator is not None:
            self.accelerator.end_training()

    def _tick(self, step: int) -> None:
        if self.closing is not None:
            self.closing(step)
        self.line.update(step - self.line.n)

    def _watch(self, progress: Progress) -> bool:
        """Evaluates on validation and keeps what is worth keeping; True: stop here."""
        training = self.settings.training
        report = self._evaluate(self.corpus.valid, samples=1)
        figures = report.figures()
        value = getattr(report, training.metric.replace("-", "_"))
        if not math.isfinite(value):
            raise FloatingPointError(
                f"step {progress.step}: {training.metric} on validation is not finite"
            )
        record = {**asdict(progress), "valid": figures, "kl_by_site": report.kl_by_site}
        if probabilities := selection_probabilities(self.guide):
            record["selection"] = {n: p.tolist() for n, p in probabilities.items()}
        self.folder.append(finite(record))
        self.line.set_postfix_str(
            f"bound {report.elbo:.4f} = log p {report.log_likelihood:.4f} - KL {report.kl:.4f} "
            f"nats/token, {progress.tokens_per_second:,.0f} tokens/s"
        )
        if self.accelerator is not None:
            shown = {f"valid/{k}": v for k, v in figures.items() if isinstance(v, float)}
            train = {f"train/{k}": v for k, v in asdict(progress).items() if k != "step"}
            self.accelerator.log({**shown, **train}, step=progress.step)
        self.stale += 1
        if value > self.best or self.model.pressure is not None:  # a later network is a smaller one
            self.best, self.stale = value, 0
            self._save(self.folder.best, progress.step)
        kept = max(training.keep, training.average)
        if kept:
            self._save(self.folder.at(progress.step), progress.step)
            for old in self.folder.kept[:-kept]:
                old.unlink()
        return 0 < training.patience <= self.stale

    def _write_names(self) -> None:
        """Writes what it takes to read the weights, beside the configuration."""
        self.folder.write("vocabulary.json", self._vocabularies())
        if self.heads is not None:
            self.folder.write(HEADS, json.dumps(self.heads, indent=2) + "\n")

    def _mend_folder(self) -> None:
        """Writes again what somebody has removed while this was training."""
        names = ["config.yaml", "vocabulary.json", *([] if self.heads is None else [HEADS])]
        gone = [name for name in names if not (self.folder.path / name).exists()]
        if gone:
            self.folder.write("config.yaml", self.folder.configuration)
            self._write_names()
            print(f"{self.folder.path} had lost {', '.join(gone)}: written again")

    def _save(self, path: Path, step: int) -> None:
        checkpoints.save(path, weights(model=self.model, guide=self.guide), {"step": step})

    def _checkpoint(self) -> None:
        """Saves everything to go on from; every process takes part, the first one writes."""
        tensors, facts = self.engine.state()
        if self.main:
            facts |= {"best": self.best if math.isfinite(self.best) else None, "stale": self.stale}
            facts["corpus"] = self.digest
            checkpoints.save(self.folder.last, tensors, facts)

    def _resume(self) -> None:
        tensors, facts = checkpoints.load(self.folder.last)
        try:
            self.engine.check(tensors, facts)
            self.best, self.stale = _read_record(facts)
        except ValueError as reason:
            raise ValueError(f"{self.folder.last} cannot be gone on from: {reason}") from reason
        if facts.get("corpus") != self.digest:
            raise ValueError(
                f"{self.folder.last} was trained on another text: the corpus has changed since; "
                "choose another --out or --overwrite"
            )
        checkpoints.restore(self.folder.last, tensors, model=self.model, guide=self.guide)
        self.engine.restore(tensors, facts)
        if self.engine.running and math.isfinite(self.best):
            self._forget_lost_best()

    def _forget_lost_best(self) -> None:
        """Where the best weights are lost, the next ones are the best."""
        try:
            checkpoints.load(self.folder.best)
        except ValueError as reason:
            self._print_line(f"{reason}; the best weights are looked for anew")
            self.best, self.stale = -float("inf"), 0

    def _print_line(self, line: str) -> None:
        if self.main:
            print(line, flush=True)

    def _heads(self) -> dict[str, list[int]] | None:
        """The heads that this run has, where it goes on and began with a pruned network."""
        return read_heads(self.folder.path) if self.folder.resumable else None

    def _digest(self) -> str:
        """Tells the training text and its vocabularies from others."""
        train, words = self.corpus.train, self._vocabularies()
        digest = hashlib.sha256(words.encode())
        for side in (train.targets, train.sources):
            if side is not None:
                digest.update(side.ends.tobytes())
                digest.update(np.ascontiguousarray(side.tokens).data)
        if train.task is not None:
            digest.update(",".join(task.name for task in self.corpus.tasks).encode())
            digest.update(train.task.tobytes())
        return digest.hexdigest()[:16]

    def _vocabularies(self) -> str:
        words = vocabularies_to_json(self.corpus.target, self.corpus.source)
        return json.dumps(words, ensure_ascii=False)

    def _choose(self) -> None:
        """Takes the weights to report on: the best, or the average of the last.

        Where those are lost, it takes the last ones, which it has, and says so.
        """
        average = self.settings.training.average
        path = self.folder.average if average else self.folder.best
        try:
            if average:
                self._save_average(self._whole_ones(self.folder.kept[-average:]))
            tensors, facts = checkpoints.load(path)
            checkpoints.restore(path, tensors, model=self.model, guide=self.guide)
            self.reported = checkpoints.read_step(path, facts)
        except ValueError as reason:
            self._print_line(f"{reason}; the figures are of the last weights")
            self._save(path, self.engine.step)
            self.reported, self.averaged = self.engine.step, 0

    def _save_average(self, kept: Sequence[Path]) -> None:
        facts = {"step": self.engine.step, "averaged": len(kept)}
        checkpoints.save(self.folder.average, checkpoints.average(kept), facts)
        self.averaged = len(kept)

    def _whole_ones(self, paths: Sequence[Path]) -> list[Path]:
        """Those checkpoints that can be read; others are told."""
        found = []
        for path in paths:
            try:
                checkpoints.load(path)
            except ValueError as reason:
                self._print_line(f"{reason}; it is left out of the average")
            else:
                found.append(path)
        return found

    def _evaluate(self, part: Part, samples: int) -> Report:
        return self._measure(part, batches(part, EVALUATION_TOKENS), samples)

    def translations(self) -> tuple[dict[str, Any], list[str]]:
        """Translates the test part, writes it beside its references, and scores it.

        Returns:
            The scores, and the translations.
        """
        settings, part = self.settings, self.corpus.test
        start = time.perf_counter()
        with fixed_noise(settings.seed, self.device):
            target, decoding = self.corpus.target, settings.decoding
            written = translate_part(self.model, self.guide, target, part, decoding)
        seconds, references = time.perf_counter() - start, list(part.references)
        self.folder.write("test.translations.txt", "".join(f"{line}\n" for line in written))
        self.folder.write("test.references.txt", "".join(f"{line}\n" for line in references))
        scores = asdict(self._score(written, references))
        speed = {"sentences_per_second": len(part) / seconds}
        return {**scores, **self._rouge(written), **speed}, written

    def _score(self, written: Sequence[str], references: Sequence[str]) -> Scores:
        kind = self.settings.data
        return score(written, references, kind.words, self.settings.protocol, kind.lowercase)

    def by_task(self, written: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Reports on and scores the test sentences of each task alone.

        Args:
            written: The translations of the test part.
        """
        part, found = self.corpus.test, {}
        names = [""] * len(part)
        for place, task in enumerate(self.corpus.tasks):
            places = part.places(place)
            own = part.take(places)
            report = self._evaluate(own, self.settings.samples)
            scores = self._score([written[line] for line in places], own.references)
            figures = {**report.figures(), **asdict(scores)}
            found[task.name] = {"sentences": len(own), **figures}
            for line in places:
                names[line] = task.name
        if found:
            self.folder.write("test.tasks.txt", "".join(f"{name}\n" for name in names))
        return found

    def _rouge(self, written: Sequence[str]) -> dict[str, Any]:
        """ROUGE of the test part, and of the first sentence of every source, if asked."""
        part, source = self.corpus.test, self.corpus.source
        if not self.settings.decoding.rouge or source is None or part.sources is None:
            return {}
        right = part.alternatives or [[line] for line in part.references]
        first = [lead(source.decode(row.tolist())) for row in part.sources]
        lines = ["\t".join(each) + "\n" for each in right]
        self.folder.write("test.alternatives.tsv", "".join(lines))
        leads = asdict(rouge(first, right)).items()
        return {**asdict(rouge(written, right)), **{f"lead_{name}": value for name, value in leads}}

    def perplexities(self, valid: Report, test: Report) -> list[dict[str, Any]]:
        """Perplexity of a text: by blocks or sentences, as reported, and by windows if asked."""
        data, parts = self.settings.data, {"valid": self.corpus.valid, "test": self.corpus.test}
        mode = f"blocks of {data.block}" if data.block else "sentences"
        reports = {mode: {"valid": valid, "test": test}}
        if data.context:
            mode = f"windows of {data.block}, {data.context} before each token"
            reports[mode] = {
                name: self._measure(part, windows(part, data.context, EVALUATION_TOKENS))
                for name, part in parts.items()
            }
        return [
            {
                "mode": mode,
                "part": name,
                "tokens": report.tokens,
                "iwae_k": report.iwae_k,
                "token": report.perplexities(),
                "word": report.perplexities(parts[name].words),
            }
            for mode, found in reports.items()
            for name, report in found.items()
        ]

    def _measure(self, part: Part, parts: Iterable[Batch], samples: int | None = None) -> Report:
        draws = self.settings.samples if samples is None else samples
        return evaluate(self.model, self.guide, parts, draws, self.settings.seed, part.truth)

    def selection(self) -> dict[str, Any]:
        """Which heads every task speaks with, and the share that two tasks have in common."""
        selector, mixture = self.model.selector, self.settings.data.mixture
        chosen, chances = chosen_heads(self.guide), selection_probabilities(self.guide)
        found: dict[str, Any] = {}
        for chain in CHAINS:
            blocks = [m.block.name for m in self.model.selecting if m.block.chain == chain]
            if selector is None or not set(blocks) & set(chosen):
                continue
            names: tuple[str, ...] = ("",)
            if mixture is not None and selector.tasks(chain) > 1:
                names = mixture.sources if chain.startswith("encoder") else mixture.targets
            shared = torch.stack([sharing(chosen[block]) for block in blocks]).nanmean(0)
            found[chain] = {
                "tasks": list(names),
                "chosen": {block: chosen[block].tolist() for block in blocks},
                "probabilities": {block: chances[block].tolist() for block in blocks},
                "sharing": [[_number(share) for share in row] for row in shared.tolist()],
                "by_chance": selector.heads / selector.candidates_of(chain),
            }
        return found

    def finish(self) -> dict[str, Any]:
        """Reports on validation and test, writes and returns the results, and draws the plots.

        A section that fails stands with its reason under ``missing``; all the others are written.
        """
        self._mend_folder()
        text = self.corpus.source is None
        results = self._facts()
        sections: dict[str, Section] = {
            "valid": lambda: {"valid": self._reported("valid").figures()},
            "test": self._test,
            **({"perplexity": self._perplexity} if text else {"translations": self._translated}),
            **({"tasks": self._tasks} if self.corpus.tasks else {}),
            "head divergence": self._divergence,
            "selection": lambda: {"selection": self.selection()},
            "plots": lambda: self._draw(results),
        }
        complete(results, sections, self._keep)
        self.folder.release()
        return results

    def _facts(self) -> dict[str, Any]:
        """What is known of the run without a report."""
        settings = self.settings
        speeds = [record["tokens_per_second"] for record in self.folder.metrics()]
        return {
            "recipe": settings.recipe,
            "guide": settings.guide_name,
            "select": settings.selecting.select,
            "prior": settings.prior_name,
            "corpus": self.corpus.name,
            "seed": settings.seed,
            "steps": self.engine.step,
            "reported_step": self.reported,
            "averaged": self.averaged,
            "parameters": sum(self.parameters().values()),
            "tokens_per_second": _median(speeds),
            "head_divergence": None,
            "head_divergence_by_chain": {},
            "valid": {},
            "test": {},
            "tasks": {},
            "average": {},
            "perplexity": [],
            "decoding": asdict(settings.decoding),
            "kl_by_site": {},
            "kl_how": {},
            "selection": {},
            "gates": settings.gates.facts(self.model, self.guide, self.corpus.train.tokens),
            "versions": {"torch": torch.__version__, "device": self.device.type},
        }

    def _keep(self, results: dict[str, Any]) -> None:
        self.folder.write("results.json", json.dumps(results, indent=2) + "\n")

    def _reported(self, name: Literal["valid", "test"]) -> Report:
        """The report on a part, made once."""
        if name not in self._reports:
            part = getattr(self.corpus, name)
            self._reports[name] = self._evaluate(part, self.settings.samples)
        return self._reports[name]

    def _test(self) -> dict[str, Any]:
        test = self._reported("test")
        return {"test": test.figures(), "kl_by_site": test.kl_by_site, "kl_how": test.how}

    def _perplexity(self) -> dict[str, Any]:
        valid, test = self._reported("valid"), self._reported("test")
        return {"perplexity": self.perplexities(valid, test)}

    def _translated(self) -> dict[str, Any]:
        scores, self._written = self.translations()
        return {"test": scores}

    def _tasks(self) -> dict[str, Any]:
        if self._written is None:
            raise UnfinishedError("the test part is not translated")
        tasks = self.by_task(self._written)
        return {"tasks": tasks, "average": average(tasks)}

    def _divergence(self) -> dict[str, Any]:
        """How far apart the heads are, and the plot of it."""
        from latentheads.plot.pictures import draw_divergence  # takes long to load

        shown = batches(self.corpus.valid, DIVERGENCE_TOKENS)
        blocks = DIVERGENCE_BLOCKS if self.settings.data.block else None
        with WithSelection(self.guide):
            heads = divergence(self.model, islice(shown, blocks))
        draw_divergence(heads, self.folder.path / "divergence.png")
        chains = {chain: value for chain in CHAINS if (value := heads.average(chain)) is not None}
        return {"head_divergence": heads.average(), "head_divergence_by_chain": chains}

    def _draw(self, results: dict[str, Any]) -> dict[str, Any]:
        """Draws the plots; adds nothing to the results."""
        from latentheads.plot.pictures import (  # takes long to load
            draw_bound,
            draw_kl,
            draw_selection,
            draw_selection_history,
        )

        records, path = self.folder.metrics(), self.folder.path
        draw_bound(records, path / "bound.png")
        draw_kl(results["kl_by_site"], path / "kl.png")
        if results["selection"]:
            draw_selection(results["selection"], path / "selection.png")
            draw_selection_history(records, results["selection"], path / "selection-history.png")
        return {}


def _read_record(facts: Mapping[str, Any]) -> tuple[float, int]:
    """The best value of the metric so far, and the evaluations since."""
    best, stale = facts.get("best"), facts.get("stale")
    if not isinstance(best, float | None) or type(stale) is not int:
        raise ValueError(f"best and stale must be numbers, got {best!r} and {stale!r}")
    return (-math.inf if best is None else best), stale


def choose_trained(settings: Settings, model: HeadModel, guide: ModelGuide) -> None:
    """Leaves everything as it is but what ``--train`` names; a block without heads has nothing."""
    for name, parameter in (*model.named_parameters(), *guide.named_parameters()):
        trained = settings.train == "all" or ".adapters." in name
        parameter.requires_grad_(parameter.requires_grad and trained and parameter.numel() > 0)


def average(tasks: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The mean over tasks of each figure that all of them have, every task counted alike."""
    return {
        name: math.fsum(figures[name] for figures in tasks.values()) / len(tasks)
        for name in AVERAGED
        if tasks and all(figures.get(name) is not None for figures in tasks.values())
    }


def _number(value: float) -> float | None:
    """A figure for JSON, which knows no NaN."""
    return None if math.isnan(value) else value


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
