"""The bound of single sentences, with diagnostics of its importance weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.batch import Batch, with_indices
from latentheads.corpora.batches import iterate_batches
from latentheads.corpora.part import Part
from latentheads.guide import ModelGuide, check_pair
from latentheads.handlers import SharedSamples
from latentheads.inference.evaluation import (
    Tasks,
    plug_in_from_terms,
    sample_terms,
    sampling_context,
)
from latentheads.model import HeadModel


@dataclass(frozen=True)
class SentenceBounds:
    """The bound of every sentence of a batch and related metrics, in nats per sentence.

    Attributes:
        tokens: Number of target tokens.
        elbo: The bound, a mean over samples, given shared latents.
        kl: Its second term, given shared latents.
        shared_kl: The KL of latents that all sentences share, one number for all of them. If it is
            above 0, ``elbo`` of a sentence is not a bound on log p(y | x). 0 if nothing is shared.
        plug_in: Log-likelihood of the plug-in network, no bound if latents have noise.
        iwae: The importance-weighted bound; None if sentences share a latent, since they then have
            common weights.
        pareto_k: Shape of the tail of the weights; NaN if unknown; None like ``iwae``.
        exact: Log p(y | x) itself; None if latents that are not summed out have noise.
        how: How the KL of each site was computed.
        varies: Whether latents that are not summed out have noise.
    """

    tokens: Float[Tensor, " batch"]
    elbo: Float[Tensor, " batch"]
    kl: Float[Tensor, " batch"]
    shared_kl: Float[Tensor, ""]
    plug_in: Float[Tensor, " batch"]
    iwae: Float[Tensor, " batch"] | None
    pareto_k: Float[Tensor, " batch"] | None
    exact: Float[Tensor, " batch"] | None
    how: dict[str, str]
    varies: bool

    @property
    def nats(self) -> Float[Tensor, " batch"]:
        """Log p(y | x) of every sentence if it is exact, else its tightest bound.

        That is IWAE, or the ELBO where sentences share a latent. Then the shared KL is divided
        among them in proportion to their tokens, so that the sum is the bound on all of them
        together.
        """
        if self.exact is not None:
            return self.exact
        if self.iwae is not None:
            return self.iwae
        return self.elbo - self.shared_kl * self.tokens / self.tokens.sum()


def sentence_bounds(
    model: HeadModel, guide: ModelGuide, batch: Batch, num_samples: int, seed: int = 0
) -> SentenceBounds:
    """Compute the bound of each sentence of a batch."""
    check_pair(model, guide)
    with sampling_context(model, guide, num_samples, seed) as shared_samples:
        return _compute_bounds(model, guide, batch.to(model.device), shared_samples, Tasks())


def part_bounds(
    model: HeadModel,
    guide: ModelGuide,
    batches: Part | Iterable[Batch],
    num_samples: int = 1,
    seed: int = 0,
) -> SentenceBounds:
    """Compute the bound of each sentence of a part, in the part's order, on the CPU.

    The samples are those of :func:`evaluate`, so that sums over sentences equal its figures, except
    for the KL of shared latents, which is reported apart.

    Args:
        model: The model.
        guide: Its guide.
        batches: A part of a corpus, or batches, each sentence once.
        num_samples: Number K of samples of the latents.
        seed: Seed of the noise.

    Example:
        >>> found = part_bounds(run.model, run.guide, run.corpus.test)
        >>> float(found.nats.sum() / found.tokens.sum())  # log p(y | x), or its bound
    """
    check_pair(model, guide)
    bounds, indices, tasks = [], [], Tasks()
    with sampling_context(model, guide, num_samples, seed) as shared_samples:
        for batch, batch_indices in with_indices(iterate_batches(batches, "batches")):
            bounds.append(
                _compute_bounds(model, guide, batch.to(model.device), shared_samples, tasks)
            )
            indices.append(batch_indices)
    return _join(bounds, torch.cat(indices).argsort(stable=True))


def _compute_bounds(
    model: HeadModel,
    guide: ModelGuide,
    batch: Batch,
    shared_samples: Sequence[SharedSamples],
    tasks: Tasks,
) -> SentenceBounds:
    tasks.note(batch)
    sampled_terms, weights = sample_terms(model, guide, batch, shared_samples)
    plug_in = plug_in_from_terms(sampled_terms[0], model, batch, guide)
    has_shared, enumeration = bool(sampled_terms[0].shared_kl), sampled_terms[0].enumeration
    varies = bool(sampled_terms[0].noisy_sites)
    evidence = sampled_terms[0].elbo if enumeration is None else enumeration.log_evidence
    return SentenceBounds(
        tokens=sampled_terms[0].tokens,
        elbo=torch.stack([sample.elbo for sample in sampled_terms]).mean(0),
        kl=torch.stack([sample.total_kl for sample in sampled_terms]).mean(0),
        shared_kl=torch.stack([tasks.sum_of(sample.shared_kl) for sample in sampled_terms]).mean(0),
        plug_in=plug_in,
        iwae=None if has_shared else weights.bound,
        pareto_k=None if has_shared else weights.pareto_k,
        exact=None if varies else evidence.double(),
        how=sampled_terms[0].how,
        varies=varies,
    )


def _join(bounds: Sequence[SentenceBounds], order: Tensor) -> SentenceBounds:
    """Concatenate the bounds of all batches, with sentences in a given order."""

    def concatenate(name: str) -> Tensor:
        return torch.cat([getattr(batch_bounds, name).cpu() for batch_bounds in bounds])[order]

    def concatenate_optional(name: str) -> Tensor | None:
        return None if getattr(bounds[0], name) is None else concatenate(name)

    return SentenceBounds(
        tokens=concatenate("tokens"),
        elbo=concatenate("elbo"),
        kl=concatenate("kl"),
        shared_kl=bounds[-1].shared_kl,  # the last: of all tasks that occurred
        plug_in=concatenate("plug_in"),
        iwae=concatenate_optional("iwae"),
        pareto_k=concatenate_optional("pareto_k"),
        exact=concatenate_optional("exact"),
        how={site: how for batch_bounds in bounds for site, how in batch_bounds.how.items()},
        varies=any(batch_bounds.varies for batch_bounds in bounds),
    )
