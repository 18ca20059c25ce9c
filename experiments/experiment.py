"""One run: build a recipe, train it, report the true bound, write the run folder."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from command import Data, Settings
from pictures import draw_bound, draw_divergence, draw_kl
from safetensors.torch import load_model, save_model
from tqdm import tqdm

from latentheads.corpora import Corpus, Part, batches, forever
from latentheads.corpora.corpus import grammar, grammar_sources, pydoc_prose
from latentheads.decoding import greedy
from latentheads.divergence import divergence
from latentheads.evaluation import Report, evaluate, evaluating
from latentheads.training import Progress, train
from models import HeadModel, LanguageModel, Translation

__all__ = ["Outcome", "Run", "make_corpus"]

EVALUATION_TOKENS = 4096


def make_corpus(data: Data) -> Corpus:
    """Makes the corpus that the options name."""
    if data.data == "pydoc":
        return pydoc_prose()
    if data.task == "language-model":
        return grammar_sources(data.sentences, data.held_out)
    return grammar(data.sentences, data.held_out, data.language)


def make_model(settings: Settings, corpus: Corpus) -> HeadModel:
    """Makes the network with its priors, for the corpus's vocabularies."""
    target, prior, network = len(corpus.target), settings.prior, settings.network
    smoothing = settings.label_smoothing
    if corpus.source is None:
        return LanguageModel(target, prior, network, settings.latent, label_smoothing=smoothing)
    source, latent = len(corpus.source), settings.latent
    return Translation(source, target, prior, network, latent, label_smoothing=smoothing)


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind, besides its files.

    Attributes:
        results: The contents of ``results.json``.
        report: The report on the test part.
    """

    results: dict[str, Any]
    report: Report


class Folder:
    """A run folder, written file by file.

    Args:
        path: Where; made if need be.
        overwrite: Whether a finished run there may be replaced.
    """

    def __init__(self, path: Path, overwrite: bool) -> None:
        self.path = path
        try:
            (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        except OSError as reason:
            raise ValueError(f"cannot write the run folder {path}: {reason.strerror}") from reason
        if not os.access(path, os.W_OK):
            raise ValueError(f"cannot write the run folder {path}: Permission denied")
        if (path / "results.json").exists() and not overwrite:
            raise ValueError(f"{path} holds a finished run: choose another --out or --overwrite")
        for name in ("metrics.jsonl", "results.json"):
            (path / name).unlink(missing_ok=True)

    def write(self, name: str, text: str) -> None:
        """Writes a text file whole or not at all."""
        partial = self.path / f"{name}.part"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.path / name)

    def append(self, record: dict[str, Any]) -> None:
        """Adds a line to ``metrics.jsonl``."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def save(self, name: str, **modules: torch.nn.Module) -> None:
        """Saves modules as a checkpoint, each file whole or not at all."""
        folder = self.path / "checkpoints" / name
        folder.mkdir(exist_ok=True)
        for module_name, module in modules.items():
            partial = folder / f"{module_name}.part"
            save_model(module, str(partial))
            partial.replace(folder / f"{module_name}.safetensors")

    def load(self, name: str, **modules: torch.nn.Module) -> None:
        """Loads modules from a checkpoint."""
        for module_name, module in modules.items():
            load_model(module, self.path / "checkpoints" / name / f"{module_name}.safetensors")


class Run:
    """A recipe on a corpus: weights, data order and noise from one seed.

    Args:
        settings: Everything that says what it is.
        corpus: The corpus; made from the settings when not given.
    """

    def __init__(self, settings: Settings, corpus: Corpus | None = None) -> None:
        self.settings = settings
        self.folder = Folder(settings.out, settings.overwrite)
        self.corpus = corpus or make_corpus(settings.data)
        torch.manual_seed(settings.seed)
        self.model = make_model(settings, self.corpus).to(settings.device)
        self.guide = settings.make_guide(self.model).to(settings.device)
        self.best = -float("inf")
        self.speeds: list[float] = []

    def headline(self) -> str:
        """Says in one line what is about to run."""
        settings, counts = self.settings, self.parameters()
        return (
            f"{settings.recipe}: prior {settings.prior_name}, guide {settings.guide_name}; "
            f"{counts['model']:,} + {counts['guide']:,} parameters; corpus {self.corpus.name}, "
            f"{len(self.corpus.train):,} sentences; {settings.device}"
        )

    def parameters(self) -> dict[str, int]:
        """Counts parameters of model and guide."""
        return {
            "model": sum(p.numel() for p in self.model.parameters()),
            "guide": sum(p.numel() for p in self.guide.parameters()),
        }

    def train(self, quiet: bool = False) -> None:
        """Trains, with one live line; keeps the weights with the best bound on validation."""
        settings = self.settings
        self.folder.write("config.yaml", settings.text)
        self._write_vocabularies()
        torch.manual_seed(settings.seed)
        data = forever(self.corpus.train, settings.training.tokens, settings.seed)
        with tqdm(
            total=settings.training.steps, disable=quiet, unit="step", dynamic_ncols=True
        ) as line:
            train(
                self.model,
                self.guide,
                _counted(data, line),
                settings.training,
                lambda progress: self._watch(progress, line),
            )
            line.update(settings.training.steps - line.n)
        self.folder.save("last", model=self.model, guide=self.guide)
        self.folder.load("best", model=self.model, guide=self.guide)

    def _watch(self, progress: Progress, line: Any) -> None:
        report = self._evaluate(self.corpus.valid, samples=1)
        self.speeds.append(progress.tokens_per_second)
        figures = report.figures()
        self.folder.append({**asdict(progress), "valid": figures, "kl_by_site": report.kl_by_site})
        line.set_postfix_str(
            f"bound {report.elbo:.4f} = log p {report.log_likelihood:.4f} - KL {report.kl:.4f} "
            f"nats/token, {progress.tokens_per_second:,.0f} tokens/s"
        )
        if report.elbo > self.best:
            self.best = report.elbo
            self.folder.save("best", model=self.model, guide=self.guide)

    def _evaluate(self, part: Part, samples: int) -> Report:
        truth = None if part.truth is None else sum(part.truth)
        parts = batches(part, EVALUATION_TOKENS)
        return evaluate(self.model, self.guide, parts, samples, self.settings.seed, truth)

    def _write_vocabularies(self) -> None:
        words = {"target": self.corpus.target.to_json()}
        if self.corpus.source is not None:
            words["source"] = self.corpus.source.to_json()
        self.folder.write("vocabulary.json", json.dumps(words, ensure_ascii=False))

    def bleu(self) -> dict[str, Any]:
        """Translates the test part with the plug-in network and scores it."""
        part, target = self.corpus.test, self.corpus.target
        lines: dict[int, str] = {}
        with evaluating(self.model):
            for batch in batches(part, EVALUATION_TOKENS):
                rows = greedy(self.model, batch.to(self.settings.device))
                places = batch.sentences.tolist()
                lines.update(
                    (place, target.decode(row)) for place, row in zip(places, rows, strict=True)
                )
        translations = [lines[place] for place in range(len(part))]
        self.folder.write("test.translations.txt", "\n".join(translations) + "\n")
        metric = sacrebleu.BLEU(tokenize="none", force=True)
        score = metric.corpus_score(translations, [part.references]).score
        return {"bleu": score, "signature": str(metric.get_signature())}

    def finish(self) -> Outcome:
        """Reports on validation and test and writes results and plots."""
        settings = self.settings
        valid = self._evaluate(self.corpus.valid, settings.samples)
        test = self._evaluate(self.corpus.test, settings.samples)
        scores = {} if self.corpus.source is None else self.bleu()
        heads = divergence(self.model, batches(self.corpus.valid, 512))
        results = {
            "recipe": settings.recipe,
            "guide": settings.guide_name,
            "prior": settings.prior_name,
            "corpus": self.corpus.name,
            "seed": settings.seed,
            "parameters": sum(self.parameters().values()),
            "tokens_per_second": _median(self.speeds),
            "head_divergence": heads.average(),
            "valid": valid.figures(),
            "test": {**test.figures(), **scores},
            "kl_by_site": test.kl_by_site,
            "kl_how": test.how,
            "versions": {"torch": torch.__version__, "device": str(settings.device)},
        }
        self.folder.write("results.json", json.dumps(results, indent=2) + "\n")
        draw_bound(self.folder.path / "metrics.jsonl", self.folder.path / "bound.png")
        draw_kl(test.kl_by_site, self.folder.path / "kl.png")
        draw_divergence(heads, self.folder.path / "divergence.png")
        return Outcome(results, test)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def _counted(data: Any, line: Any) -> Any:
    """Passes batches on and moves the progress line."""
    for place, batch in enumerate(data):
        if place:
            line.update()
        yield batch
