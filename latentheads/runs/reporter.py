"""The report of a trained run, section by section: bounds, translations, selected heads.

Further sections, such as figures, are entry points of installed packages; see
:data:`latentheads.plugins.REPORT_SECTIONS`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any, Literal

import torch

from latentheads.batch import Batch
from latentheads.console import show_progress
from latentheads.corpora.batches import TOKENS, batch_indices, batches, collate, windows
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.part import Part
from latentheads.corpora.vocabulary import Words
from latentheads.decoding.translate import translate_part
from latentheads.errors import UnfinishedError, one_line_message
from latentheads.guide import ModelGuide
from latentheads.inference.display import TRUE_BOUND
from latentheads.inference.evaluation import Report, evaluate
from latentheads.latents.selection.sharing import (
    chosen_heads,
    overlap_by_chance,
    overlap_coefficient,
    selection_probabilities,
)
from latentheads.metrics.compared import COMPARED
from latentheads.metrics.rouge import first_sentence
from latentheads.metrics.scores import Scores
from latentheads.model import Decoder
from latentheads.names import ATTENTION_TYPES, side_of
from latentheads.noise import fixed_noise
from latentheads.plugins import PACKAGE, REPORT_SECTIONS, find_entry_points, package_of
from latentheads.runs.folder import Folder
from latentheads.runs.results import NAMES, Section, to_values
from latentheads.runs.scoring import score_ctc, score_outputs, score_summaries
from latentheads.runs.settings import Settings


class Reporter:
    """Makes the sections of a run's report.

    Args:
        settings: Everything that defines the run.
        model: The model, with the weights to report on.
        guide: Its guide.
        corpus: The corpus.
        folder: Where translations and figures are written.

    Attributes:
        results: What the report holds so far, by name; sections that come later may read it.
    """

    def __init__(
        self, settings: Settings, model: Decoder, guide: ModelGuide, corpus: Corpus, folder: Folder
    ) -> None:
        self.settings, self.model, self.guide = settings, model, guide
        self.corpus, self.folder = corpus, folder
        self.results: dict[str, Any] = {}
        self._reports: dict[str, Report] = {}
        self._written: list[str] | None = None

    def sections(self, results: dict[str, Any]) -> dict[str, Section]:
        """All sections by their names, in their order: first the library's, then those added."""
        self.results = results
        text = self.corpus.source is None
        own: dict[str, Section] = {
            "valid": lambda: {"valid": self._reported("valid").scores().to_json()},
            "test": self._test,
            **(
                {"perplexity": lambda: {"perplexity": self.perplexities()}}
                if text
                else {"translations": self._translations}
            ),
            **({"tasks": self._tasks} if self.corpus.tasks else {}),
            "selection": lambda: {"selection": self.selection()},
        }
        points = find_entry_points(REPORT_SECTIONS, [*own, TRUE_BOUND])
        added = {name: partial(self._add, point) for name, point in points.items()}
        return {**own, **added, TRUE_BOUND: self._check_truth}

    def _add(self, point: EntryPoint) -> Mapping[str, Any]:
        """Makes a section that a package adds; what cannot be loaded fails as a section does.

        Raises:
            UnfinishedError: A package other than this library has no such section; it is named.
        """
        package = package_of(point)
        if package == PACKAGE:
            section: Mapping[str, Any] = point.load()(self)
            return section
        try:
            values = to_values(point.load()(self))
            for name in sorted(values.keys() & (NAMES | self.results.keys())):
                raise ValueError(f"the report has {name} already: choose another name")
        except Exception as reason:
            raise UnfinishedError(f"package {package}: {one_line_message(reason)}") from reason
        return values

    def _translations(self) -> dict[str, Any]:
        """The scores of translations, or why there are none."""
        if self.model.undecodable:
            return {"not_translated": self.model.undecodable}
        return {"test": self.translations().to_json()}

    def translations(self) -> Scores:
        """Translates the test part, writes it beside its references, and returns its scores."""
        settings, part = self.settings, self.corpus.test
        start = time.perf_counter()
        with fixed_noise(settings.seed, self.model.device):
            target, decoding = self.corpus.target, settings.decode
            written = translate_part(self.model, self.guide, target, part, decoding)
        seconds, references = time.perf_counter() - start, [*map(_in_one_line, part.references)]
        self.folder.write("test.translations.txt", "".join(f"{line}\n" for line in written))
        self.folder.write("test.references.txt", "".join(f"{line}\n" for line in references))
        scores = score_outputs(settings, written, references)
        speed = Scores.of({"sentences_per_second": len(part) / seconds})
        ctc_scores = score_ctc(settings, self.model, self.guide, self.corpus)
        self._written = written
        return scores | self._rouge(written) | speed | ctc_scores

    def by_task(self, written: Sequence[str] | None) -> dict[str, Scores]:
        """Reports on the test sentences of each task alone, and scores what was written."""
        part = self.corpus.test
        scores_by_task: dict[str, Scores] = {}
        names = [""] * len(part)
        for task_index, task in enumerate(self.corpus.tasks):
            indices = part.indices_of_task(task_index)
            if not len(indices):
                continue
            task_part = part.take(indices)
            report = self._measure(task_part, batches(task_part, TOKENS, shuffle=False))
            scores_by_task[task.name] = report.scores()
            if written is not None:
                lines = [written[line] for line in indices]
                scores = score_outputs(self.settings, lines, task_part.references)
                scores_by_task[task.name] |= scores
            for line in indices:
                names[line] = task.name
        if scores_by_task:
            self.folder.write("test.tasks.txt", "".join(f"{name}\n" for name in names))
        return scores_by_task

    def _rouge(self, written: Sequence[str]) -> Scores:
        """ROUGE of the test part, and of the first sentence of every source, if asked."""
        part, source = self.corpus.test, self.corpus.source
        if not self.settings.decode.rouge or source is None or part.sources is None:
            return Scores()
        right = part.alternatives or [[line] for line in part.references]
        first = [first_sentence(source.decode(row.tolist())) for row in part.sources]
        lines = [_in_one_line("\t".join(references)) + "\n" for references in right]
        self.folder.write("test.alternatives.tsv", "".join(lines))
        return score_summaries(written, first, right)

    def perplexities(self) -> list[dict[str, Any]]:
        """Perplexity of a text: by blocks or sentences, as reported, and by windows if asked."""
        processor = self.corpus.processor
        parts = {"valid": self.corpus.valid, "test": self.corpus.test}
        mode = f"blocks of {processor.block_size}" if processor.block_size else "sentences"
        reports = {mode: {"valid": self._reported("valid"), "test": self._reported("test")}}
        if processor.context:
            mode = f"windows of {processor.block_size}, {processor.context} before each token"
            reports[mode] = {
                name: self._measure(part, windows(part, processor.context, TOKENS))
                for name, part in parts.items()
            }
        heads = self.model.output_heads
        if heads is not None and 0 < processor.block_size < heads.reach_across_blocks:
            mode = f"{mode}, heads point {heads.reach_across_blocks:,} tokens back"
            reports[mode] = {}
            for name, part in parts.items():
                with heads.across_blocks():
                    text = windows(part, processor.context, TOKENS)
                    reports[mode][name] = self._measure(part, text)
        return [
            {
                "mode": mode,
                "part": name,
                "tokens": report.tokens,
                "iwae_k": report.iwae_k,
                "token": report.perplexities(),
                "word": self._by_word(parts[name], report),
            }
            for mode, reports_by_part in reports.items()
            for name, report in reports_by_part.items()
        ]

    def _by_word(self, part: Part, report: Report) -> dict[str, float]:
        """Perplexities by word; none where words were not counted and tokens are no words."""
        has_words = part.words is not None or isinstance(self.corpus.target, Words)
        return report.perplexities(part.words) if has_words else {}

    def _measure(self, part: Part, parts: Iterable[Batch], total: int | None = None) -> Report:
        return evaluate(
            self.model,
            self.guide,
            show_progress(parts, "evaluating", "batch", total),
            num_samples=self.settings.num_samples,
            seed=self.settings.seed,
            truth=part.true_log_probs,
        )

    def selection(self) -> dict[str, Any]:
        """The active heads of every task, and the overlap of each pair of tasks."""
        selector, mixture = self.model.selector, self.settings.data.mixture
        chosen, probabilities = chosen_heads(self.guide), selection_probabilities(self.guide)
        selection_by_type: dict[str, Any] = {}
        for attention_type in ATTENTION_TYPES:
            blocks = [
                module.block.name
                for module in self.model.selecting_blocks
                if module.block.attention_type == attention_type
            ]
            if selector is None or not set(blocks) & set(chosen):
                continue
            names: tuple[str, ...] = ("",)
            if mixture is not None and selector.num_tasks(attention_type) > 1:
                names = mixture.sources if side_of(attention_type) == "encoder" else mixture.targets
            overlaps = [overlap_coefficient(chosen[block]) for block in blocks]
            by_chance = torch.stack([overlap_by_chance(chosen[block]) for block in blocks]).mean(0)
            pairs = torch.triu_indices(len(names), len(names), min(1, len(names) - 1))
            selection_by_type[attention_type] = {
                "tasks": list(names),
                "chosen": {block: chosen[block].tolist() for block in blocks},
                "probabilities": {block: probabilities[block].tolist() for block in blocks},
                "sharing": torch.stack(overlaps).nanmean(0).tolist(),
                "by_chance": float(by_chance[*pairs].mean()),
            }
        return selection_by_type

    def _reported(self, name: Literal["valid", "test"]) -> Report:
        """The report on a part, made once."""
        if name not in self._reports:
            part = getattr(self.corpus, name)
            groups = batch_indices(part, TOKENS)
            ordered = (collate(part, group) for group in groups)  # frames of all would fill memory
            self._reports[name] = self._measure(part, ordered, len(groups))
        return self._reports[name]

    def _test(self) -> dict[str, Any]:
        test = self._reported("test")
        return {
            "test": test.scores().to_json(),
            "kl_by_site": test.kl_by_site,
            "gap_by_site": test.gap_by_site,
            "kl_how": test.how,
        }

    def _check_truth(self) -> dict[str, Any]:
        """Raises the alarm where a mean bound lies above the truth; adds nothing to the results."""
        for name, report in ("valid", self._reported("valid")), ("test", self._reported("test")):
            if report.leak is not None:
                raise ValueError(f"{name}: {report.leak}")
        return {}

    def _tasks(self) -> dict[str, Any]:
        if self._written is None and not self.model.undecodable:
            raise UnfinishedError("the test part is not translated")
        tasks = self.by_task(self._written)
        rows = {name: scores.to_json() for name, scores in tasks.items()}
        return {"tasks": rows, "average": average(tasks).to_json()}

    @property
    def title(self) -> str:
        """The title of every figure of the run."""
        return self.settings.title_of(self.corpus.name)


def _in_one_line(text: str) -> str:
    """A text as a line of a file; cells of tables, and published summaries, may hold newlines."""
    return text.replace("\n", " ")


def average(tasks: Mapping[str, Scores]) -> Scores:
    """The mean over tasks of each score that all of them have, every task counted alike."""
    every = [*tasks.values()]
    return Scores.of(
        {
            name: math.fsum(scores[name] for scores in every) / len(every)  # type: ignore[misc]
            for name in (*COMPARED, "truth")
            if every and all(scores.get(name) is not None for scores in every)
        }
    )
