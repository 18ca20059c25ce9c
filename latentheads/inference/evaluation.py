"""Evaluation: the evidence lower bound and related metrics.

Dropout and label smoothing are off, every KL has weight 1, and latents are sampled. Terms are
summed in float64 over a part of the corpus and divided by its target tokens once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentheads.batch import Batch, with_indices
from latentheads.checks import check_least, check_seed
from latentheads.corpora.batches import iterate_batches
from latentheads.corpora.part import Part
from latentheads.guide import ModelGuide, check_pair
from latentheads.handlers import PlugIn, SharedSamples
from latentheads.inference.bound import MIN_TAIL_SAMPLES, Importance, Terms, terms
from latentheads.inference.display import TRUE_BOUND, scores_to_html, scores_to_text
from latentheads.inference.non_finite import describe_non_finite
from latentheads.latents.handlers import WithSelection
from latentheads.latents.summed_out import SummedOut
from latentheads.metrics.scores import SCORES, Scores
from latentheads.model import HeadModel
from latentheads.names import SELECTION, latent_of
from latentheads.noise import fixed_noise
from latentheads.passes import evaluation_mode

ENTROPY_FIGURES = ("prior_gap", "prior_entropy", "posterior_entropy", "information")
"""Figures that are sums over all values of the summed latents."""

LEAK_ERRORS, LEAK_NATS = 4.0, 1e-4
"""Tolerance of a mean bound above the true log p: standard errors, if there are many sentences (if
few, those that are as rare by Student's t); and nats per sentence."""


@dataclass
class Report:
    """The bound of a part of a corpus and related metrics, in nats per target token.

    Attributes:
        elbo: The bound, a mean over samples.
        log_likelihood: Its first term, E log p(y | z, x).
        kl: Its second term, the sum over sites.
        iwae: The importance-weighted bound IWAE_K.
        iwae_k: K.
        plug_in: Log-likelihood of the plug-in network, with each latent set to one value, as heads
            to the prior mean: no bound, if latents have noise.
        tokens: Number of target tokens.
        effective_sample_size: Of the K importance weights, a mean over sentences.
        pareto_k: Share of sentences whose weights have a heavy tail (k > 0.7); None for fewer than
            30 samples.
        pareto_unknown: Share of sentences whose weights tie, so that the tail is unknown.
        kl_by_site: The KL of every site.
        how: How each site's KL was computed: tied or fixed (exactly 0), analytic, enumerated (of
            latents that are summed out) or sampled.
        truth: The true log p(y | x) of the sentences for which it is known; None if for none.
        truth_elbo: The bound on these sentences only.
        truth_sentences: Number of these sentences.
        leak: Names the score that exceeds the true log p by more than sampling error, which is
            impossible for a bound: the model then uses the target. None: there is no leak.
        sentences: Number of sentences, or of blocks of a running text.
        exact: Log p(y | x) itself, if latents are summed out or have no noise; None if others have
            noise.
        gap: The KL from the guide's posterior of summed latents to the exact one, in expectation
            over other latents.
        gap_by_site: The gap of every site that is summed out.
        prior_gap: The gap of the prior itself, which is the posterior of the guide ``tied``.
        prior_entropy: Entropy of a token's summed latents, of all heads jointly.
        posterior_entropy: The same of their exact posterior.
        information: KL(exact posterior ‖ prior) of a token.
        by_sentence: In nats of every sentence, in the order of the batches: ``elbo`` and ``exact``
            where it is known, both without the KL of latents that all sentences share, and its
            ``tokens``; for paired comparisons.
        shared_kl: The KL of latents that all sentences share, in nats.
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
    prior_gap: float | None = None
    prior_entropy: float | None = None
    posterior_entropy: float | None = None
    information: float | None = None
    by_sentence: Mapping[str, Tensor] = field(default_factory=dict, repr=False, compare=False)
    shared_kl: float = 0.0

    def perplexities(self, tokens: int | None = None) -> dict[str, float]:
        """Perplexities by name: from the bound, IWAE_K, the plug-in network, and the exact one.

        The exact one exists if the latents with noise, if any, are all summed out.

        Args:
            tokens: Number of units to normalise by, such as words; default: target tokens.
        """
        scale = self.tokens / (tokens or self.tokens)
        names = ("elbo", "iwae", "plug_in", *(("exact",) if self.exact is not None else ()))
        return {name: math.exp(min(-scale * getattr(self, name), 700.0)) for name in names}

    def scores(self) -> Scores:
        """Everything but the sites, a row each."""
        values = {name: getattr(self, name, None) for name in SCORES}
        if self.truth is not None and self.truth_elbo is not None:
            values["truth_gap"] = self.truth - self.truth_elbo
        return Scores.of(values)

    @property
    def faults(self) -> dict[str, str]:
        """Notes below the table."""
        return {} if self.leak is None else {TRUE_BOUND: self.leak}

    def __str__(self) -> str:
        return scores_to_text({"": self.scores()}, faults=self.faults)

    def _repr_html_(self) -> str:
        return scores_to_html({"": self.scores()}, faults=self.faults)


@contextmanager
def eval_no_grad(*modules: nn.Module) -> Iterator[None]:
    """Context of evaluation mode without gradients; restores the modes of all modules."""
    with evaluation_mode(*modules), torch.no_grad():
        yield


def plug_in_log_likelihood(
    model: HeadModel, batch: Batch, guide: ModelGuide | None = None
) -> Tensor:
    """Log-likelihood of every sentence under the plug-in network.

    Args:
        model: The model.
        batch: The sentences.
        guide: Its guide: the most likely selection of heads is used, if the model selects.
    """
    with PlugIn(), WithSelection(guide):
        distribution = model.token_distribution(batch)
    if isinstance(distribution, SummedOut):
        return distribution.log_evidence(batch.scored).double()
    return distribution.log_prob(batch.scored).double()


def plug_in_from_terms(sample: Terms, model: HeadModel, batch: Batch, guide: ModelGuide) -> Tensor:
    """Log-likelihood of every sentence under the plug-in network, without a pass if possible.

    If only summed latents have noise, the terms of any sample contain it.
    """
    if sample.noisy_sites:
        return plug_in_log_likelihood(model, batch, guide)
    enumeration = sample.enumeration
    return sample.log_likelihood if enumeration is None else enumeration.log_evidence.double()


def evaluate(
    model: HeadModel,
    guide: ModelGuide,
    batches: Part | Iterable[Batch],
    *,
    num_samples: int = 1,
    seed: int = 0,
    truth: Sequence[float] | None = None,
) -> Report:
    """Compute the evidence lower bound, IWAE_K and the plug-in likelihood.

    Args:
        model: The model.
        guide: Its guide.
        batches: A part of a corpus, or batches, each sentence once.
        num_samples: Number K of samples of the latents for every sentence. A network without noise
            is run once. By default 1, of which IWAE is the ELBO: ``iwae`` is comparable for equal
            ``iwae_k`` alone, and a run and :func:`latentheads.compare` report 32 samples.
        seed: Seed of the noise; the same seed gives the same noise for the same batches.
        truth: True log p(y | x) of each sentence by index, in nats or NaN. Default: the part's.

    Raises:
        FloatingPointError: A term is NaN; the message names the parameter or the site.

    Example:
        >>> report = lh.evaluate(model, guide, corpus.test, num_samples=2)
        >>> report.elbo < report.truth  # the grammar knows log p(y | x)
        True
        >>> list(report.perplexities())
        ['elbo', 'iwae', 'plug_in']
    """
    check_pair(model, guide)
    if isinstance(batches, Part):
        truth = batches.true_log_probs if truth is None else truth
    sums = _Sums()
    how: dict[str, str] = {}
    tail_shapes: list[Tensor] = []
    sampled_terms: list[Terms] = []
    tasks, tasks_with_truth = Tasks(), Tasks()
    true_log_probs = None if truth is None else torch.tensor(truth, dtype=torch.float64)
    with sampling_context(model, guide, num_samples, seed) as shared_samples:
        joint = torch.zeros(num_samples, dtype=torch.float64)
        for batch, indices in with_indices(iterate_batches(batches, "batches")):
            device_batch = batch.to(model.device)
            sampled_terms, weights = sample_terms(model, guide, device_batch, shared_samples)
            how.update(sampled_terms[0].how)
            tasks.note(batch)
            tail_shapes.append(weights.pareto_k.cpu())
            # sentences that share a latent have one weight, the product of theirs
            joint += weights.log_weights.sum(-1).cpu()
            sums.add(
                sampled_terms,
                weights,
                plug_in_from_terms(sampled_terms[0], model, device_batch, guide),
            )
            sums.add_enumeration(sampled_terms)
            if sums.is_nan:
                where = describe_non_finite(model, guide, [batch])
                raise FloatingPointError(f"the bound is NaN: {where}")
            if true_log_probs is not None:
                batch_truth = _get_true_log_probs(true_log_probs, indices)
                tasks_with_truth.note(batch, ~batch_truth.isnan())
                sums.add_true_log_probs(sampled_terms, batch_truth)
    if not sums.figures["tokens"]:
        raise ValueError("batches have no token to predict: there is nothing to evaluate")
    if sampled_terms and sampled_terms[0].shared_kl:
        sums.truth_sums["shared_kl"] = float(
            _mean(tasks_with_truth.sum_of(sample.shared_kl) for sample in sampled_terms)
        )
        tail_shapes = [_add_shared_terms(sampled_terms, tasks, joint, sums)]
    return _report(sums, how, torch.cat(tail_shapes), num_samples)


@contextmanager
def sampling_context(
    model: HeadModel, guide: ModelGuide, num_samples: int, seed: int
) -> Iterator[list[SharedSamples]]:
    """Fix the seed; yields a store of shared latents for every sample."""
    check_least({"num_samples": num_samples}, num_samples=1)
    check_seed(seed)
    with eval_no_grad(model, guide), fixed_noise(seed, model.device):
        yield [SharedSamples() for _ in range(num_samples)]


def _get_true_log_probs(true_log_probs: Tensor, indices: Tensor) -> Tensor:
    """The true log p of some sentences."""
    if (num_sentences := int(indices.max()) + 1) > len(true_log_probs):
        raise ValueError(
            f"truth must have a number for every sentence, here {num_sentences}, "
            f"got {len(true_log_probs)}"
        )
    return true_log_probs[indices]


def sample_terms(
    model: HeadModel, guide: ModelGuide, batch: Batch, shared_samples: Sequence[SharedSamples]
) -> tuple[list[Terms], Importance]:
    """Sample the latents of a batch: the terms of its bound, and the weights of all samples.

    A network without noise is run once. If only summed latents have noise, they are resampled
    without a pass of the network.

    Args:
        model: The model, in evaluation mode.
        guide: Its guide.
        batch: The sentences.
        shared_samples: The latents that all sentences share, for each sample.
    """
    first, *remaining = shared_samples
    sampled_terms = [_sample_terms(model, guide, batch, first)]
    if sampled_terms[0].noisy_sites:
        sampled_terms += [_sample_terms(model, guide, batch, shared) for shared in remaining]
    log_weights = torch.stack([sample.log_weight for sample in sampled_terms])
    enumeration = sampled_terms[0].enumeration
    if enumeration is not None and not sampled_terms[0].noisy_sites:
        log_weights = torch.cat([log_weights, enumeration.log_weights(len(remaining))])
    # without noise one weight stands for all samples
    return sampled_terms, Importance(log_weights.expand(len(shared_samples), -1))


def _sample_terms(
    model: HeadModel, guide: ModelGuide, batch: Batch, shared_samples: SharedSamples
) -> Terms:
    with shared_samples:
        return terms(model, guide, batch)


class Tasks:
    """The tasks of the sentences seen so far, for the encoder and for the decoder."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {"encoder": set(), "decoder": set()}

    def note(self, batch: Batch, mask: Bool[Tensor, " sentence"] | None = None) -> None:
        """Add the tasks of a batch, or of some of its sentences."""
        selected = torch.ones(len(batch), dtype=torch.bool) if mask is None else mask
        for side, task in (("encoder", batch.source_task), ("decoder", batch.target_task)):
            ids = torch.zeros(len(batch)) if task is None else task.cpu()
            self.seen[side].update(map(int, ids[selected].tolist()))

    def sum_of(self, values: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """Sum values of shared latents over sites and over the tasks that occur."""
        totals = [self.total(site, value) for site, value in values.items()]
        return torch.stack(totals).sum() if totals else torch.zeros((), dtype=torch.float64)

    def total(self, site: str, values: Tensor) -> Tensor:
        """Sum over the tasks that occur; the sentences do not depend on others."""
        seen = self.seen.get(site.split(".")[0])
        is_common = latent_of(site) != SELECTION or values.shape[0] == 1
        if is_common or seen is None:
            return values.sum().cpu()
        return values.cpu()[sorted(seen)].sum()


class _Totals(dict[str, float]):
    """Totals by name; 0 by default."""

    def __missing__(self, name: str) -> float:
        return 0.0

    def add(self, name: str, values: Tensor) -> None:
        """Add the values of a batch, one for each sentence."""
        self[name] += float(values.double().sum())


@dataclass
class _Sums:
    """Sums over sentences.

    Attributes:
        figures: By their names in the report.
        kl: By site.
        gaps: By site that is summed out.
        truth_sums: Figures of the sentences whose true log p(y | x) is known, by name, and their
            shared KL.
        by_sentence: The values of every batch, by name.
        shared_kl: The KL of shared latents.
        excess: The excess of figures over the true log p, by the figure's title.
        squares: Sums of squares of the excess.
        noisy_sites: The sites with noise, except summed ones.
    """

    figures: _Totals = field(default_factory=_Totals)
    kl: _Totals = field(default_factory=_Totals)
    gaps: _Totals = field(default_factory=_Totals)
    truth_sums: _Totals = field(default_factory=_Totals)
    by_sentence: dict[str, list[Tensor]] = field(default_factory=dict)
    shared_kl: float = 0.0
    excess: _Totals = field(default_factory=_Totals)
    squares: _Totals = field(default_factory=_Totals)
    noisy_sites: set[str] = field(default_factory=set)

    def add(self, sampled_terms: list[Terms], weights: Importance, plug_in: Tensor) -> None:
        """Add the bound of a batch, a mean over samples, and related metrics."""
        self.noisy_sites |= sampled_terms[0].noisy_sites
        self.figures.add("sentences", torch.ones_like(plug_in))
        self.figures.add("tokens", sampled_terms[0].tokens)
        self.figures.add("log_likelihood", _mean(sample.log_likelihood for sample in sampled_terms))
        self.figures.add("iwae", weights.bound)
        self.figures.add("effective_sample_size", weights.effective_sample_size)
        self.figures.add("plug_in", plug_in)
        for site in sampled_terms[0].kl:
            self.kl.add(site, _mean(sample.kl[site] for sample in sampled_terms))
        bounds = _mean(sample.elbo for sample in sampled_terms)
        values = {"elbo": bounds, "tokens": sampled_terms[0].tokens}
        if not self.noisy_sites:
            enumeration = sampled_terms[0].enumeration
            values["exact"] = bounds if enumeration is None else enumeration.log_evidence
        for name, nats in values.items():
            self.by_sentence.setdefault(name, []).append(nats.double().cpu())

    @property
    def is_nan(self) -> bool:
        """Whether a term of the bound, or the plug-in likelihood, is NaN."""
        figures = self.figures["log_likelihood"], self.figures["plug_in"], *self.kl.values()
        return any(map(math.isnan, figures))

    def add_enumeration(self, sampled_terms: list[Terms]) -> None:
        """Add the sums over summed latents, means over samples of others; none is below 0."""
        enumerations = [
            sample.enumeration for sample in sampled_terms if sample.enumeration is not None
        ]
        if not enumerations:
            return
        self.figures.add("exact", _mean(enumeration.log_evidence for enumeration in enumerations))
        gaps = [enumeration.gap() for enumeration in enumerations]
        for site in gaps[0]:
            self.gaps.add(site, _mean(gap[site].clamp_min(0) for gap in gaps))
        entropies = [enumeration.entropies() for enumeration in enumerations]
        for name in entropies[0]:
            self.figures.add(name, _mean(values[name].clamp_min(0) for values in entropies))

    def add_true_log_probs(self, sampled_terms: list[Terms], true_log_probs: Tensor) -> None:
        """Add the sentences whose true log p(y | x) is known."""
        is_known = ~true_log_probs.isnan()
        bounds = _mean(sample.elbo for sample in sampled_terms).cpu()
        self.truth_sums.add("sentences", is_known)
        self.truth_sums.add("tokens", sampled_terms[0].tokens.cpu()[is_known])
        self.truth_sums.add("truth", true_log_probs[is_known])
        self.truth_sums.add("elbo", bounds[is_known])
        log_probs = {"bound": bounds}
        if sampled_terms[0].enumeration is not None and not sampled_terms[0].noisy_sites:
            log_probs["exact log p"] = sampled_terms[0].enumeration.log_evidence.double().cpu()
        for name, nats in log_probs.items():
            excess = (nats - true_log_probs)[is_known]
            self.excess.add(name, excess)
            self.squares.add(name, excess.square())


def _mean(samples: Iterable[Tensor]) -> Tensor:
    """The mean over samples, in float64."""
    return torch.stack([*samples]).double().mean(0)


def _add_shared_terms(
    sampled_terms: list[Terms], tasks: Tasks, joint_log_weights: Tensor, sums: _Sums
) -> Tensor:
    """Add the terms of shared latents once; sentences then have common importance weights."""
    for site in sampled_terms[0].shared_kl:
        kl = _mean(tasks.total(site, sample.shared_kl[site]) for sample in sampled_terms)
        sums.kl.add(site, kl)
        sums.shared_kl += float(kl)
    log_ratios = torch.stack([tasks.sum_of(sample.shared_log_ratios) for sample in sampled_terms])
    importance = Importance((joint_log_weights + log_ratios)[:, None])
    effective_sample_size = float(importance.effective_sample_size) * sums.figures["sentences"]
    sums.figures.update(iwae=float(importance.bound), effective_sample_size=effective_sample_size)
    return importance.pareto_k


def _exact_figures(sums: _Sums) -> dict[str, Any]:
    """The exact log p, and other figures of summed latents, per token, by their names."""
    if not sums.gaps:
        log_likelihood = sums.figures["log_likelihood"] / sums.figures["tokens"]
        return {} if sums.noisy_sites else {"exact": log_likelihood}
    per_token = {name: nats / sums.figures["tokens"] for name, nats in sums.figures.items()}
    gaps = {site: nats / sums.figures["tokens"] for site, nats in sums.gaps.items()}
    return {
        "exact": None if sums.noisy_sites else per_token["exact"],
        "gap": sum(gaps.values()),
        "gap_by_site": gaps,
        **{name: per_token[name] for name in ENTROPY_FIGURES},
    }


def _true_log_prob_metrics(sums: _Sums) -> dict[str, Any]:
    """The true log p(y | x) per token, and the bound on the same sentences."""
    truth_sums = sums.truth_sums
    if not (num_sentences := int(truth_sums["sentences"])):
        return {}
    shared_kl = truth_sums["shared_kl"]
    return {
        "truth": truth_sums["truth"] / truth_sums["tokens"],
        "truth_elbo": (truth_sums["elbo"] - shared_kl) / truth_sums["tokens"],
        "truth_sentences": num_sentences,
        "leak": _describe_leak(sums, num_sentences, shared_kl),
    }


def _describe_leak(sums: _Sums, num_sentences: int, shared_kl: float) -> str | None:
    """Describe a figure that exceeds the true log p by more than its standard error allows."""
    if num_sentences < 2:
        return None
    for name, excess in sums.excess.items():
        mean = excess / num_sentences
        variance = sums.squares[name] / num_sentences - mean**2
        standard_error = math.sqrt(max(0.0, variance) / (num_sentences - 1))
        margin = mean - shared_kl / num_sentences
        if margin > LEAK_NATS and margin > _leak_errors(num_sentences) * standard_error:
            return (
                f"the mean {name} lies {margin:.4f} nats per sentence above the true log p, with a "
                f"standard error of {standard_error:.4f}: something conditions on what is predicted"
            )
    return None


def _leak_errors(num_sentences: int) -> float:
    """The standard errors that are as rare by Student's t as ``LEAK_ERRORS`` of many sentences."""
    from scipy import special  # slow to import

    return -float(special.stdtrit(num_sentences - 1, special.ndtr(-LEAK_ERRORS)))


def _report(sums: _Sums, how: dict[str, str], tail_shapes: Tensor, num_samples: int) -> Report:
    figures, tokens = sums.figures, sums.figures["tokens"]
    kl_by_site = {site: sums.kl[site] / tokens for site in how}
    kl = sum(kl_by_site.values())
    log_likelihood = figures["log_likelihood"] / tokens
    heavy, unknown = (
        float(mask.double().mean()) for mask in (tail_shapes > 0.7, tail_shapes.isnan())
    )
    return Report(
        elbo=log_likelihood - kl,
        log_likelihood=log_likelihood,
        kl=kl,
        iwae=figures["iwae"] / tokens,
        iwae_k=num_samples,
        plug_in=figures["plug_in"] / tokens,
        tokens=int(tokens),
        effective_sample_size=figures["effective_sample_size"] / figures["sentences"],
        pareto_k=None if num_samples < MIN_TAIL_SAMPLES else heavy,
        pareto_unknown=None if num_samples < MIN_TAIL_SAMPLES else unknown,
        kl_by_site=kl_by_site,
        how=how,
        sentences=int(figures["sentences"]),
        by_sentence={name: torch.cat(values) for name, values in sums.by_sentence.items()},
        shared_kl=sums.shared_kl,
        **_true_log_prob_metrics(sums),
        **_exact_figures(sums),
    )
