"""The bound of single sentences, beside what its draws are worth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.batch import Batch, with_places
from latentheads.checks import check_least, check_seed
from latentheads.corpora import Part
from latentheads.corpora.batches import iterate_batches
from latentheads.guide import ModelGuide, check_pair
from latentheads.handlers import SharedSamples
from latentheads.inference.evaluation import Tasks, draw_terms, evaluating, plug_in_beside
from latentheads.model import HeadModel
from latentheads.noise import fixed_noise

__all__ = ["SentenceBounds", "part_bounds", "sentence_bounds"]


@dataclass(frozen=True)
class SentenceBounds:
    """The bound of every sentence of a batch and its company, in nats a sentence.

    Attributes:
        tokens: Target tokens.
        elbo: The bound, a mean over the draws, given what all sentences share.
        kl: Its second term, the same given.
        shared_kl: The KL of what all sentences share, once for all of them, one number: with it
            above 0 the bound of a sentence is none of log p(y | x). 0 where nothing is shared.
        plug_in: Log-likelihood of the plug-in network, no bound.
        iwae: The tighter bound; None where all sentences share a latent: they are then weighed
            together.
        pareto_k: Shape of the tail of the weights; NaN where it is not known; None as above.
        exact: Log p(y | x) itself; None where something besides alignments is drawn.
        how: How the KL of each site was computed.
        varies: Whether something besides alignments has noise: two draws of the heads may differ.
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
        """What is known of log p(y | x) of every sentence: itself, or its bound where that varies.

        Of a KL that all sentences share each bears what its tokens are of all: the sum is the bound
        on all of them together.
        """
        if self.exact is not None:
            return self.exact
        return self.elbo - self.shared_kl * self.tokens / self.tokens.sum()


def sentence_bounds(
    model: HeadModel, guide: ModelGuide, batch: Batch, samples: int, seed: int = 0
) -> SentenceBounds:
    """Computes the bound of each sentence, as :func:`evaluate` does of a part.

    Args:
        model: The model.
        guide: Its guide.
        batch: The sentences.
        samples: Draws K of the latents.
        seed: Of the noise.
    """
    with _drawing(model, guide, samples, seed) as held:
        return _draw_bounds(model, guide, batch.to(model.device), held, Tasks())


def part_bounds(
    model: HeadModel,
    guide: ModelGuide,
    batches: Part | Iterable[Batch],
    samples: int = 1,
    seed: int = 0,
) -> SentenceBounds:
    """Computes the bound of each sentence of a part, in the part's order, on the processor.

    The draws are those of :func:`evaluate`: sums over the sentences are its figures, but that what
    they share, which counts once, stands apart.

    Args:
        model: The model.
        guide: Its guide.
        batches: A part of a corpus, or batches, each sentence once.
        samples: Draws K of the latents.
        seed: Of the noise.

    Example:
        >>> found = part_bounds(run.model, run.guide, run.corpus.test)
        >>> float(found.nats.sum() / found.tokens.sum())  # log p(y | x), or its bound
    """
    found, places, tasks = [], [], Tasks()
    with _drawing(model, guide, samples, seed) as held:
        for batch, own in with_places(iterate_batches(batches, "batches")):
            found.append(_draw_bounds(model, guide, batch.to(model.device), held, tasks))
            places.append(own)
    return _join(found, torch.cat(places).argsort(stable=True))


@contextmanager
def _drawing(
    model: HeadModel, guide: ModelGuide, samples: int, seed: int
) -> Iterator[list[SharedSamples]]:
    """Checks a pair and draws from a seed; gives what all sentences share of every draw."""
    check_pair(model, guide)
    check_least({"samples": samples}, samples=1)
    check_seed(seed)
    with evaluating(model, guide), fixed_noise(seed, model.device):
        yield [SharedSamples() for _ in range(samples)]


def _draw_bounds(
    model: HeadModel,
    guide: ModelGuide,
    batch: Batch,
    held: Sequence[SharedSamples],
    tasks: Tasks,
) -> SentenceBounds:
    tasks.note(batch)
    draws, weights = draw_terms(model, guide, batch, held)
    plug_in = plug_in_beside(draws[0], model, batch, guide)
    shared, known = bool(draws[0].shared_kl), draws[0].summed
    varies = bool(draws[0].varying)
    return SentenceBounds(
        tokens=draws[0].tokens,
        elbo=torch.stack([draw.elbo for draw in draws]).mean(0),
        kl=torch.stack([draw.total_kl for draw in draws]).mean(0),
        shared_kl=torch.stack([tasks.sum_of(draw.shared_kl) for draw in draws]).mean(0),
        plug_in=plug_in,
        iwae=None if shared else weights.bound,
        pareto_k=None if shared else weights.pareto_k,
        exact=None if varies or known is None else known.log_evidence.double(),
        how=draws[0].how,
        varies=varies,
    )


def _join(found: Sequence[SentenceBounds], order: Tensor) -> SentenceBounds:
    """The bounds of all batches as those of one, its sentences in an order."""

    def every(name: str) -> Tensor:
        return torch.cat([getattr(each, name).cpu() for each in found])[order]

    def known(name: str) -> Tensor | None:
        return None if getattr(found[0], name) is None else every(name)

    return SentenceBounds(
        tokens=every("tokens"),
        elbo=every("elbo"),
        kl=every("kl"),
        shared_kl=found[-1].shared_kl,  # of all tasks that occurred
        plug_in=every("plug_in"),
        iwae=known("iwae"),
        pareto_k=known("pareto_k"),
        exact=known("exact"),
        how={site: how for each in found for site, how in each.how.items()},
        varies=any(each.varies for each in found),
    )
