"""Evaluation: the true bound and everything printed beside it.

Dropout off, label smoothing off, every KL with weight 1, noise on; summed over a part of the corpus
in float64 and divided by its target tokens once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentheads.alignment.aligner import AlignedTokens
from latentheads.batch import Batch, with_places
from latentheads.checks import check_least, check_seed
from latentheads.corpora import Part
from latentheads.corpora.batches import iterate_batches
from latentheads.guide import ModelGuide, WithSelection, check_pair
from latentheads.handlers import PlugIn, SharedSamples, evaluation_mode
from latentheads.inference.bound import TAIL_DRAWS, Importance, Terms, terms
from latentheads.inference.display import TRUE_BOUND, figures_to_html, figures_to_text
from latentheads.model import HeadModel
from latentheads.names import SELECTION, latent_of
from latentheads.noise import fixed_noise

__all__ = [
    "Report",
    "Tasks",
    "draw_terms",
    "evaluate",
    "evaluating",
    "plug_in_beside",
    "plug_in_log_likelihood",
]

OF_SUMS = ("prior_entropy", "posterior_entropy", "information")
"""Figures of the sums over all alignments."""

OF_ALIGNMENTS = ("exact", "gap", *OF_SUMS)
"""Figures of a model with alignments alone."""

LEAK_ERRORS, LEAK_NATS = 4.0, 1e-4
"""How far a mean bound may lie above the truth: in standard errors, and in nats a sentence."""


@dataclass
class Report:
    """The bound of a part of a corpus and its company, in nats a target token.

    Attributes:
        elbo: The bound, a mean over the draws.
        log_likelihood: Its first term, E log p(y | z, x).
        kl: Its second term, the sum over sites.
        iwae: The tighter bound IWAE_K.
        iwae_k: K.
        plug_in: Exact log-likelihood of the deterministic network: another model, no bound.
        tokens: Target tokens.
        effective_sample_size: Of the K importance weights, mean over sentences.
        pareto_k: Share of sentences whose weights have a tail too heavy to trust (k > 0.7); None
            for fewer than 25 draws.
        pareto_unknown: Share of sentences whose weights tie so that their tail is not known: they
            are neither trusted nor among those above.
        kl_by_site: The KL of every site.
        how: How each site's KL was computed: tied or fixed (exactly 0), analytic, enumerated (of
            alignments) or sampled.
        truth: The exact log p(y | x) of the sentences that it is known of; None if of none.
        truth_elbo: The bound on these sentences alone, to be compared with it.
        truth_sentences: How many they are.
        leak: Names the figure that lies above the truth by more than sampling error, which no bound
            does: then a target is read that is not paid for. None: there is none.
        sentences: All sentences, or blocks of a running text.
        exact: Log p(y | x) itself, summed over all alignments; None where other heads are drawn.
        gap: What the bound lacks of it: the KL from the guide's posterior of alignments to the
            exact one; with other heads that are drawn, a mean over them.
        gap_by_site: That of every block of alignments.
        prior_entropy: Of the alignments of a word, all heads together.
        posterior_entropy: The same given the word, exact.
        information: KL from the exact posterior to the prior: what a word says of its alignments.
    """

    elbo: float
    log_likelihood: float
    kl: float
    iwae: float
    iwae_k: int
    plug_in: float
    tokens: int
    effective_sample_size: float
    pareto_k: float | None
    pareto_unknown: float | None
    kl_by_site: dict[str, float] = field(default_factory=dict)
    how: dict[str, str] = field(default_factory=dict)
    truth: float | None = None
    truth_elbo: float | None = None
    truth_sentences: int = 0
    leak: str | None = None
    sentences: int = 0
    exact: float | None = None
    gap: float | None = None
    gap_by_site: dict[str, float] = field(default_factory=dict)
    prior_entropy: float | None = None
    posterior_entropy: float | None = None
    information: float | None = None

    def perplexities(self, tokens: int | None = None) -> dict[str, float]:
        """Perplexity from the bound, from IWAE_K, from the plug-in network, and the exact one.

        Each has its name; the exact one is known of a model with alignments alone.

        Args:
            tokens: Units of the text to divide by, such as its words; its tokens when not given.
        """
        share = self.tokens / (tokens or self.tokens)
        names = ("elbo", "iwae", "plug_in", *(("exact",) if self.exact is not None else ()))
        return {name: math.exp(min(-share * getattr(self, name), 700.0)) for name in names}

    def figures(self) -> dict[str, Any]:
        """Everything but the sites, ready for JSON."""
        left_out = ["kl_by_site", "how", "gap_by_site", "leak"]
        left_out += [] if self.gap is not None else OF_ALIGNMENTS
        return {k: v for k, v in asdict(self).items() if k not in left_out}

    @property
    def faults(self) -> dict[str, str]:
        """What is shown below its table."""
        return {} if self.leak is None else {TRUE_BOUND: self.leak}

    def __str__(self) -> str:
        return figures_to_text({"": self.figures()}, faults=self.faults)

    def _repr_html_(self) -> str:
        return figures_to_html({"": self.figures()}, faults=self.faults)


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Puts modules in evaluation mode, gradients off, and back again."""
    with evaluation_mode(*modules), torch.no_grad():
        yield


def plug_in_log_likelihood(
    model: HeadModel, batch: Batch, guide: ModelGuide | None = None
) -> Tensor:
    """Log-likelihood of every sentence under the plug-in network.

    Args:
        model: The model.
        batch: The sentences.
        guide: Whose likeliest selection of heads is used, where the model selects.
    """
    with PlugIn(), WithSelection(guide):
        law = model.law(batch)
    if isinstance(law, AlignedTokens):
        return law.summed(batch.scored).log_evidence.double()
    return law.log_prob(batch.scored).double()


def plug_in_beside(draw: Terms, model: HeadModel, batch: Batch, guide: ModelGuide) -> Tensor:
    """Log-likelihood of every sentence under the plug-in network, beside a draw of the heads.

    Where nothing but alignments has noise that network was drawn, and is not run again.

    Args:
        draw: The terms of the bound of the batch.
        model: The model.
        batch: The sentences.
        guide: Its guide.
    """
    if draw.varying:
        return plug_in_log_likelihood(model, batch, guide)
    return draw.log_likelihood if draw.summed is None else draw.summed.log_evidence.double()


def evaluate(
    model: HeadModel,
    guide: ModelGuide,
    batches: Part | Iterable[Batch],
    samples: int = 1,
    seed: int = 0,
    truth: Sequence[float] | None = None,
) -> Report:
    """Computes the true bound, IWAE_K and the plug-in likelihood.

    Args:
        model: The model.
        guide: Its guide.
        batches: A part of a corpus, or batches, each sentence once.
        samples: Draws K of the latents for every sentence; a network without noise is run once.
        seed: Of the noise; the same seed gives the same noise for the same batches.
        truth: Exact log p(y | x) of every sentence of the part in nats, by its place; NaN where it
            is not known. A part says its own.

    Example:
        >>> report = lh.evaluate(model, guide, corpus.test, samples=2)
        >>> report.elbo < report.truth  # the grammar knows log p(y | x)
        True
        >>> list(report.perplexities())
        ['elbo', 'iwae', 'plug_in']
    """
    check_pair(model, guide)
    if isinstance(batches, Part):
        truth = batches.true_log_probs if truth is None else truth
    check_least({"samples": samples}, samples=1)
    check_seed(seed)
    device = model.device
    sums = _Sums()
    how: dict[str, str] = {}
    tails: list[Tensor] = []
    held = [SharedSamples() for _ in range(samples)]
    joint = torch.zeros(samples, dtype=torch.float64)
    draws: list[Terms] = []
    tasks, known_tasks = Tasks(), Tasks()
    exact = None if truth is None else torch.tensor(truth, dtype=torch.float64)
    with evaluating(model, guide), fixed_noise(seed, device):
        for batch, places in with_places(iterate_batches(batches, "batches")):
            here = batch.to(device)
            draws, weights = draw_terms(model, guide, here, held)
            how.update(draws[0].how)
            tasks.note(batch)
            tails.append(weights.pareto_k.cpu())
            joint += weights.log_weights.sum(-1).cpu()
            sums.add(draws, weights, plug_in_beside(draws[0], model, here, guide))
            sums.add_alignments(draws)
            if exact is not None:
                known = _find_truth(exact, places)
                known_tasks.note(batch, ~known.isnan())
                sums.add_known(draws, known)
    if not sums.figures["tokens"]:
        raise ValueError("batches have no token to predict: there is nothing to evaluate")
    if draws and draws[0].shared_kl:
        sums.known["shared_kl"] = float(_mean(known_tasks.sum_of(draw.shared_kl) for draw in draws))
        tails = [_share(draws, tasks, joint, sums)]
    return _report(sums, how, torch.cat(tails), samples)


def _find_truth(exact: Tensor, places: Tensor) -> Tensor:
    """The exact log p of the sentences at some places, where it is known."""
    if (needed := int(places.max()) + 1) > len(exact):
        raise ValueError(
            f"truth must have a number for every sentence, here {needed}, got {len(exact)}"
        )
    return exact[places]


def draw_terms(
    model: HeadModel, guide: ModelGuide, batch: Batch, held: Sequence[SharedSamples]
) -> tuple[list[Terms], Importance]:
    """Draws the latents of a batch: the terms of its bound, and the weights of all draws.

    A network without noise is run once; where alignments alone are drawn, they are drawn anew
    without a pass.

    Args:
        model: The model, in evaluation mode.
        guide: Its guide.
        batch: The sentences.
        held: Of each draw, what all sentences share.
    """
    once = _drawn(model, guide, batch, held[0])
    further = held[1:] if once.varying else []
    draws = [once, *(_drawn(model, guide, batch, keep) for keep in further)]
    log_weights = torch.stack([draw.log_weight for draw in draws])
    if once.summed is not None and not once.varying:
        again = once.summed.log_weights(len(held) - 1)
        log_weights = torch.cat([log_weights, again])
    return draws, Importance(log_weights.expand(len(held), -1))


def _drawn(model: HeadModel, guide: ModelGuide, batch: Batch, held: SharedSamples) -> Terms:
    with held:
        return terms(model, guide, batch)


class Tasks:
    """The tasks of the sentences seen so far, for the encoder and for the decoder."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {"encoder": set(), "decoder": set()}

    def note(self, batch: Batch, chosen: Bool[Tensor, " sentence"] | None = None) -> None:
        """Adds the tasks of a batch, or of some of its sentences."""
        some = torch.ones(len(batch), dtype=torch.bool) if chosen is None else chosen
        for side, task in (("encoder", batch.source_task), ("decoder", batch.target_task)):
            each = torch.zeros(len(batch)) if task is None else task.cpu()
            self.seen[side].update(map(int, each[some].tolist()))

    def sum_of(self, values: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """The sum over sites of what all sentences share, of the tasks that occur."""
        found = [self.total(site, each) for site, each in values.items()]
        return torch.stack(found).sum() if found else torch.zeros((), dtype=torch.float64)

    def total(self, site: str, values: Tensor) -> Tensor:
        """The sum over the tasks that occur; the sentences depend on no other."""
        own = self.seen.get(site.split(".")[0])
        for_all = latent_of(site) != SELECTION or values.shape[0] == 1
        if for_all or own is None:
            return values.sum().cpu()
        return values.cpu()[sorted(own)].sum()


class _Totals(dict[str, float]):
    """Totals by name; 0 of what was not met."""

    def __missing__(self, name: str) -> float:
        return 0.0

    def add(self, name: str, values: Tensor) -> None:
        """Adds what a batch gives, one number a sentence."""
        self[name] += float(values.double().sum())


@dataclass
class _Sums:
    """Everything that adds up over sentences.

    Attributes:
        figures: By their names in the report.
        kl: Of every site.
        gaps: Of every block of alignments.
        known: Of the sentences whose exact log p(y | x) is known, by the names of the figures, and
            the KL that these share.
        excess: How far a figure lies above that, by the figure's name in words.
        squares: The squares of the same.
        varying: The sites that have noise, but for alignments that are summed.
    """

    figures: _Totals = field(default_factory=_Totals)
    kl: _Totals = field(default_factory=_Totals)
    gaps: _Totals = field(default_factory=_Totals)
    known: _Totals = field(default_factory=_Totals)
    excess: _Totals = field(default_factory=_Totals)
    squares: _Totals = field(default_factory=_Totals)
    varying: set[str] = field(default_factory=set)

    def add(self, draws: list[Terms], weights: Importance, plug_in: Tensor) -> None:
        """Adds the bound of a batch, a mean over its draws, and what stands beside it."""
        self.varying |= draws[0].varying
        self.figures.add("sentences", torch.ones_like(plug_in))
        self.figures.add("tokens", draws[0].tokens)
        self.figures.add("log_likelihood", _mean(draw.log_likelihood for draw in draws))
        self.figures.add("iwae", weights.bound)
        self.figures.add("effective_sample_size", weights.effective_sample_size)
        self.figures.add("plug_in", plug_in)
        for site in draws[0].kl:
            self.kl.add(site, _mean(draw.kl[site] for draw in draws))

    def add_alignments(self, draws: list[Terms]) -> None:
        """Adds the sums over alignments, each a mean over the draws of other heads."""
        found = [draw.summed for draw in draws if draw.summed is not None]
        if not found:
            return
        self.figures.add("exact", _mean(each.log_evidence for each in found))
        gaps = [each.gap() for each in found]
        for site in gaps[0]:
            self.gaps.add(site, _mean(gap[site] for gap in gaps))
        for name in OF_SUMS:
            self.figures.add(name, _mean(getattr(each.summed, name) for each in found))

    def add_known(self, draws: list[Terms], truth: Tensor) -> None:
        """Adds the sentences whose exact log p(y | x) is known."""
        known = ~truth.isnan()
        bounds = _mean(draw.elbo for draw in draws).cpu()
        self.known.add("sentences", known)
        self.known.add("tokens", draws[0].tokens.cpu()[known])
        self.known.add("truth", truth[known])
        self.known.add("elbo", bounds[known])
        above = {"bound": bounds}
        if draws[0].summed is not None and not draws[0].varying:
            above["exact log p"] = draws[0].summed.log_evidence.double().cpu()
        for name, nats in above.items():
            excess = (nats - truth)[known]
            self.excess.add(name, excess)
            self.squares.add(name, excess.square())


def _mean(draws: Iterable[Tensor]) -> Tensor:
    """The mean over draws, in float64."""
    return torch.stack([*draws]).double().mean(0)


def _share(draws: list[Terms], tasks: Tasks, joint: Tensor, sums: _Sums) -> Tensor:
    """Adds the terms that all sentences share, once; their draws are weighed together."""
    for site in draws[0].shared_kl:
        sums.kl.add(site, _mean(tasks.total(site, draw.shared_kl[site]) for draw in draws))
    ratios = torch.stack([tasks.sum_of(draw.shared_log_ratios) for draw in draws])
    together = Importance((joint + ratios)[:, None])
    alike = float(together.effective_sample_size) * sums.figures["sentences"]
    sums.figures.update(iwae=float(together.bound), effective_sample_size=alike)
    return together.pareto_k


def _alignments(sums: _Sums) -> dict[str, Any]:
    """The sums of alignments divided by the tokens, by the names of the report."""
    if not sums.gaps:
        return {}
    a_token = {name: nats / sums.figures["tokens"] for name, nats in sums.figures.items()}
    gaps = {site: nats / sums.figures["tokens"] for site, nats in sums.gaps.items()}
    return {
        "exact": None if sums.varying else a_token["exact"],
        "gap": sum(gaps.values()),
        "gap_by_site": gaps,
        **{name: a_token[name] for name in OF_SUMS},
    }


def _truth(sums: _Sums) -> dict[str, Any]:
    """The exact log p(y | x) a token, beside the bound on the same sentences."""
    known = sums.known
    if not (number := int(known["sentences"])):
        return {}
    of_all = known["shared_kl"]
    return {
        "truth": known["truth"] / known["tokens"],
        "truth_elbo": (known["elbo"] - of_all) / known["tokens"],
        "truth_sentences": number,
        "leak": _find_leak(sums, number, of_all),
    }


def _find_leak(sums: _Sums, number: int, of_all: float) -> str | None:
    """Says what lies above the truth by more than its standard error over sentences allows."""
    if number < 2:
        return None
    for name, excess in sums.excess.items():
        mean = excess / number
        spread = sums.squares[name] / number - mean**2
        error = math.sqrt(max(0.0, spread) / (number - 1))
        above = mean - of_all / number
        if above > max(LEAK_NATS, LEAK_ERRORS * error):
            return (
                f"the mean {name} lies {above:.4f} nats a sentence above the true log p, with a "
                f"standard error of {error:.4f}: something reads what is predicted"
            )
    return None


def _report(sums: _Sums, how: dict[str, str], tails: Tensor, samples: int) -> Report:
    figures, tokens = sums.figures, sums.figures["tokens"]
    kl_by_site = {site: sums.kl[site] / tokens for site in how}
    kl = sum(kl_by_site.values())
    log_likelihood = figures["log_likelihood"] / tokens
    heavy, unknown = (float(found.double().mean()) for found in (tails > 0.7, tails.isnan()))
    return Report(
        elbo=log_likelihood - kl,
        log_likelihood=log_likelihood,
        kl=kl,
        iwae=figures["iwae"] / tokens,
        iwae_k=samples,
        plug_in=figures["plug_in"] / tokens,
        tokens=int(tokens),
        effective_sample_size=figures["effective_sample_size"] / figures["sentences"],
        pareto_k=None if samples < TAIL_DRAWS else heavy,
        pareto_unknown=None if samples < TAIL_DRAWS else unknown,
        kl_by_site=kl_by_site,
        how=how,
        sentences=int(figures["sentences"]),
        **_truth(sums),
        **_alignments(sums),
    )
