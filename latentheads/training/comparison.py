"""Compares several guides of one model on the same corpus."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Unpack

from latentheads.checks import check_choice, check_least, check_list, check_not_empty, check_seed
from latentheads.corpora.corpus import Corpus, check_corpus
from latentheads.errors import naming
from latentheads.guide import ModelGuide, check_pair
from latentheads.inference.evaluation import Report, evaluate
from latentheads.metrics.likelihood import compare_likelihoods
from latentheads.metrics.resampling import Estimate
from latentheads.metrics.scores import ROUNDING, SCORES, is_below_prior
from latentheads.model import HeadModel
from latentheads.passes import frozen_parameters
from latentheads.training.fit import fit_pair, read_options
from latentheads.training.losses import LossLike, instance_of
from latentheads.training.options import FitKwargs

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {
    **{name: SCORES[name].heading for name in ("elbo", "kl", "exact", "gap", "prior_gap", "iwae")},
    "seconds": "seconds",
}


@dataclass(frozen=True, repr=False)
class Comparison:
    """The results of each guide, by its name.

    Attributes:
        reports: The ELBO and its terms on the test part.
        seconds: Training time.
        guides: The trained guides.
        one_model: Whether all guides share one model: then the highest ELBO is the tightest.
    """

    reports: dict[str, Report]
    seconds: dict[str, float]
    guides: dict[str, ModelGuide]
    one_model: bool

    @property
    def compared(self) -> str:
        """What :attr:`differences` are of: the ELBO of one model, else the exact log p if known."""
        all_exact = all("exact" in report.by_sentence for report in self.reports.values())
        return "exact" if all_exact and not self.one_model else "elbo"

    @cached_property
    def differences(self) -> dict[str, Estimate]:
        """The difference of each later guide to the first, by paired bootstrap over sentences.

        The noise of the latents of a sentence is part of the interval. That of latents which all
        sentences share is not, nor is how guides of other seeds differ: an interval that excludes 0
        shows a difference of these trained guides, not of their kinds.
        """
        return self._differences_to(next(iter(self.reports)), self.compared)

    def _differences_to(self, baseline: str, name: str) -> dict[str, Estimate]:
        guides = [baseline, *(guide for guide in self.reports if guide != baseline)]
        reports = [self.reports[guide] for guide in guides]
        tokens = [report.by_sentence["tokens"].numpy() for report in reports]
        nats = [
            report.by_sentence[name].numpy() - report.shared_kl * numbers / numbers.sum()
            for report, numbers in zip(reports, tokens, strict=True)
        ]
        estimates = [likelihood.difference for likelihood in compare_likelihoods(nats, tokens)]
        return {
            guide: estimate
            for guide, estimate in zip(guides, estimates, strict=True)
            if estimate is not None
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per guide, in nats per target token; empty columns are dropped.

        Behind the scores stand the difference to the first guide and its 95 % interval.
        """
        import pandas as pd  # takes long to load

        rows = {}
        for name, report in self.reports.items():
            values = {**report.scores(), "seconds": self.seconds[name]}
            row = {title: values.get(key) for key, title in COLUMNS.items()}
            if (difference := self.differences.get(name)) is not None:
                ends = difference.score, difference.low, difference.high
                row |= dict(zip(self._difference_columns, ends, strict=True))
            rows[name] = row
        table = pd.DataFrame.from_dict(rows, orient="index").astype(float)
        iwae = f"IWAE, K = {next(iter(self.reports.values())).iwae_k}"
        return table.dropna(axis=1, how="all").rename(columns={"IWAE": iwae})

    @property
    def _difference_columns(self) -> tuple[str, str, str]:
        first = next(iter(self.reports))
        return f"{SCORES[self.compared].heading} less {first}'s", "from", "to"

    @property
    def note(self) -> str:
        """How the rows may be compared, and which bounds are below the prior's."""
        note = (
            "nats per target token; all rows bound one model, IWAE but for sampling error"
            if self.one_model
            else "nats per target token; each row has a model of its own: exact log p and IWAE "
            "compare models, and a difference of ELBOs is none of tightness"
        )
        number = next(iter(self.reports.values())).sentences
        if self.differences and number > 1:
            note += f"; differences with 95 % intervals, bootstrap over {number:,} sentences"
            if self._shares_latents:
                note += ", without the noise of the latents that these share"
            note += "; guides of other seeds may differ by more"
        below = ", ".join(self._below_prior())
        return f"{note}; below the bound of the prior: {below}" if below else note

    def _below_prior(self) -> Iterator[str]:
        """The guides of one model whose bound is below the prior's by more than sampling error."""
        tied = next((name for name, guide in self.guides.items() if guide.is_tied), None)
        differences = {}
        if tied is not None and self.one_model and not self._shares_latents:
            differences = self._differences_to(tied, "elbo")
        for name, report in self.reports.items():
            if report.exact is not None or name not in differences:
                is_below = is_below_prior(report.scores())
            else:
                is_below = differences[name].high < -ROUNDING
            if is_below:
                yield name

    @property
    def _shares_latents(self) -> bool:
        """Whether sentences share a latent, whose noise no interval over sentences has."""
        return any(report.shared_kl > 0 for report in self.reports.values())

    def _rounded(self) -> pd.DataFrame:
        return self.to_frame().round(4) + 0.0  # no negative zeros

    def __str__(self) -> str:
        return f"{self._rounded().to_string()}\n{self.note}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"{self._rounded().to_html()}<p>{self.note}</p>"


def compare(
    model: HeadModel,
    guides: Mapping[str, ModelGuide] | Sequence[ModelGuide],
    corpus: Corpus,
    *,
    train: Literal["guide", "all", "none"] = "guide",
    num_samples: int = 32,
    seed: int = 0,
    quiet: bool = True,
    loss: LossLike = "Head_ELBO",
    **training: Unpack[FitKwargs],
) -> Comparison:
    """Trains several guides of a model, and evaluates each on the test part.

    Args:
        model: The model.
        guides: Its guides, by name or as a list; a guide without parameters is not trained.
        corpus: The corpus: training part, validation part for the best weights, and test part.
        train: ``guide`` trains each guide while the model is frozen; ``all`` trains each guide with
            its own copy of the model; ``none`` trains nothing.
        num_samples: Samples per sentence in the evaluation, K of IWAE.
        seed: Seed of data order and noise, the same for all guides.
        quiet: Show no progress.
        loss: As for :func:`latentheads.fit`.
        **training: Options of :func:`latentheads.fit`, such as ``steps``.

    Raises:
        ValueError: There are no guides, or a guide belongs to another model, or an option is
            unknown.

    Example:
        >>> guides = {"prior": Tied(model), "mean-field": MeanField(model)}
        >>> comparison = lh.compare(model, guides, corpus, steps=2, num_samples=2)
        >>> list(comparison.to_frame().index)
        ['prior', 'mean-field']
    """
    check_corpus(corpus)
    check_choice("train", train, ("guide", "all", "none"))
    check_least({"num_samples": num_samples}, num_samples=1)
    check_seed(seed)
    options = read_options(training | {"loss": loss}, cuts=True)
    set_options = [*training, *(["loss"] if loss != "Head_ELBO" else [])]
    if set_options and train == "none":
        raise ValueError(f"{min(set_options)} has no effect here: train is none")
    guides_by_name = _name_guides(guides, model)
    reports: dict[str, Report] = {}
    seconds: dict[str, float] = {}
    trained: dict[str, ModelGuide] = {}
    for name, original in guides_by_name.items():
        pair = model, original
        trained_model, guide = deepcopy(pair) if train == "all" else pair
        start = time.perf_counter()
        with nullcontext() if train == "all" else frozen_parameters(trained_model):
            parameters = (*trained_model.parameters(), *guide.parameters())
            if train != "none" and any(parameter.requires_grad for parameter in parameters):
                fit_pair(
                    trained_model,
                    guide,
                    corpus.train,
                    corpus.valid,
                    options,
                    instance_of(loss),
                    seed=seed,
                    quiet=quiet,
                    refuses_unused=False,
                )
        seconds[name] = time.perf_counter() - start
        reports[name] = evaluate(
            trained_model, guide, corpus.test, num_samples=num_samples, seed=seed
        )
        trained[name] = guide
    return Comparison(reports, seconds, trained, train != "all")


def _name_guides(guides: Any, model: HeadModel) -> dict[str, ModelGuide]:
    """The guides by name; those of a list are named by class, and numbered if the class repeats."""
    if isinstance(guides, Mapping):
        guides_by_name = dict(guides)
    else:
        check_list("guides", guides)
        class_names = [
            guide.__name__ if isinstance(guide, type) else type(guide).__name__ for guide in guides
        ]
        names = [
            class_name
            if class_names.count(class_name) == 1
            else f"{class_name} {class_names[: index + 1].count(class_name)}"
            for index, class_name in enumerate(class_names)
        ]
        guides_by_name = dict(zip(names, guides, strict=True))
    check_not_empty("guides", guides_by_name)
    for name, guide in guides_by_name.items():
        with naming(f"guide {name!r}"):
            check_pair(model, guide)
    return guides_by_name
