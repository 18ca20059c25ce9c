r"""Gradients of a selection of heads without a relaxation: by comparing alternatives.

The objective of a batch is, for every sentence s, that of a selection z, :math:`f_s(z)`, less the
KL of the selection, which is exact and needs no sample. Given the network's other noise the
selections of tasks are independent, so a sentence has the probability :math:`q_s(z)` of the
selections of its own tasks.

The leave-one-out baseline is due to Mnih and Rezende 2016,
https://arxiv.org/abs/1602.06725, and Kool, van Hoof and Welling 2019,
https://openreview.net/forum?id=r1lgTGL5DE.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, cast

import torch
from jaxtyping import Float
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from latentheads.batch import Batch
from latentheads.checks import check_least
from latentheads.guide import ModelGuide, check_own_model
from latentheads.handlers import SharedSamples
from latentheads.inference.bound import closed_form
from latentheads.inference.objective import Head_ELBO, scored
from latentheads.latents.active_heads import EnumerableSelection, Selection
from latentheads.latents.selection.gradients import SelectionGradient
from latentheads.latents.selector import SelectionFamily
from latentheads.names import SENTENCES
from latentheads.options import options_class

MOST = 64
"""Most joint choices of all blocks that are enumerated at each step."""


class Alternatives(Head_ELBO):
    """An objective that runs the network once for each of several selections; abstract.

    All passes of a batch share their other noise, dropout and heads: only the selection
    differs. The weights get the gradient of the mean over selections.

    Args:
        **options: Those of :class:`~latentheads.inference.objective.Head_ELBO`, without free bits,
            which act on sums over sentences, and without vectorised particles.
    """

    relaxes = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name in ("free_bits", "vectorize_particles"):
            if getattr(self, name):
                raise ValueError(f"{name} needs selection.strategy.gradient straight-through")

    def check_pair(self, model: Any, guide: ModelGuide) -> None:
        """Raises an error for a selection whose choices have no probability mass."""
        self.check([family() for family in guide.find_posteriors(SelectionFamily).values()])

    def check(self, distributions: Sequence[Selection]) -> None:
        """Raises an error for distributions whose choices have no probability mass.

        Raises:
            ValueError: A distribution is not enumerable, such as that of gates.
        """
        if not all(isinstance(distribution, EnumerableSelection) for distribution in distributions):
            raise ValueError(
                "gates are learned by Head_ELBO(analytic=True), not by " + type(self).__name__
            )

    @abstractmethod
    def _alternatives(
        self, distributions: Mapping[str, EnumerableSelection]
    ) -> list[dict[str, Tensor]]:
        """Selections to compare: a value for each site."""

    @abstractmethod
    def _mean(
        self,
        objective: Float[Tensor, "alternative sentence"],
        log_q: Float[Tensor, "alternative sentence"],
    ) -> Float[Tensor, ""]:
        """The mean of the objective over selections, with its gradients."""

    def differentiable_loss(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Tensor:
        check_own_model(model, guide)
        if model.is_summed_out:
            raise ValueError(
                f"{type(self).__name__} weighs selections by sampled sentences, and a latent is "
                "summed out: use Head_ELBO, which learns selections straight-through"
            )
        batch = cast(Batch, (*args, *kwargs.values())[0])
        particles = [self._particle(model, guide, batch) for _ in range(self.num_particles)]
        return torch.stack(particles).sum() / self.num_particles

    def _particle(self, model: Any, guide: Any, batch: Batch) -> Tensor:
        """The objective for one sample of all other noise."""
        families = guide.find_posteriors(SelectionFamily)
        distributions = {site: family() for site, family in families.items()}
        self.check(list(distributions.values()))
        alternatives = self._alternatives(distributions)
        with _same_noise(batch.target.device) as again:
            objective = torch.stack(
                [self._sentences(model, guide, batch, chosen) for chosen in again(alternatives)]
            )
        log_q = torch.stack([_log_q(distributions, chosen, batch) for chosen in alternatives])
        return -self._mean(objective, log_q)

    def _sentences(
        self, model: Any, guide: Any, batch: Batch, chosen: Mapping[str, Tensor]
    ) -> Float[Tensor, " sentence"]:
        """Scaled log-likelihood of every sentence less the weighted KL of all latents.

        Terms of latents shared by all sentences are divided equally among the sentences.
        """
        with SharedSamples(chosen):
            model_trace, guide_trace = self._get_trace(model, guide, (batch,), {})
        sites, posteriors = (
            [site for site in trace.nodes.values() if site["type"] == "sample"]
            for trace in (model_trace, guide_trace)
        )
        terms = [(site, scored(site)) for site in sites if site["is_observed"]]
        terms += [
            (site, -self.kl_weight * self.kl(model_trace, site))
            for site in posteriors
            if not self.tied(model_trace, site)
        ]
        objective = torch.zeros(len(batch), device=batch.target.device)
        for site, term in terms:
            is_per_sentence = SENTENCES in {frame.name for frame in site["cond_indep_stack"]}
            objective = objective + (term if is_per_sentence else term.sum() / len(batch))
        return objective

    def _kl(self, prior: Any, site: dict[str, Any]) -> Tensor:
        """The scaled KL of a site; that of a selection needs no sample."""
        if not isinstance(site["fn"], EnumerableSelection):
            return super()._kl(prior, site)
        kl: Tensor = scale_and_mask(closed_form(site["fn"], prior), site["scale"], site["mask"])
        return kl


def _log_q(
    distributions: Mapping[str, EnumerableSelection], chosen: Mapping[str, Tensor], batch: Batch
) -> Float[Tensor, " sentence"]:
    """Log-probability of the selection of each sentence's tasks."""
    log_q = torch.zeros((), device=batch.target.device)
    for site, distribution in distributions.items():
        task = batch.task_of(site)
        by_task = distribution.log_prob(chosen[site])
        log_q = log_q + (by_task[0] if task is None else by_task[task])
    return log_q.expand(len(batch))


@contextmanager
def _same_noise(device: torch.device) -> Iterator[Any]:
    """Yields an iterator that restores the random state before each item."""
    cuda = device.type == "cuda"
    states = torch.get_rng_state(), torch.cuda.get_rng_state(device) if cuda else None

    def again(items: list[Any]) -> Iterator[Any]:
        for item in items:
            torch.set_rng_state(states[0])
            if states[1] is not None:
                torch.cuda.set_rng_state(states[1], device)
            yield item

    yield again


class Enumerated_ELBO(Alternatives):
    r"""The exact mean over all selections, by enumeration.

    .. math:: \sum_s \sum_z q_s(z) f_s(z) - \mathrm{KL}.
    """

    def check(self, distributions: Sequence[Selection]) -> None:
        """Raises an error if there are too many choices to enumerate.

        Raises:
            ValueError: There are more than ``MOST``, or a distribution is not enumerable.
        """
        super().check(distributions)
        number = math.prod(
            cast(EnumerableSelection, distribution).num_choices for distribution in distributions
        )
        if number > MOST:
            raise ValueError(
                "selection.strategy.gradient enumerate goes through all choices of all blocks "
                f"together: at most {MOST}, not {number}; score takes any number"
            )

    def _alternatives(
        self, distributions: Mapping[str, EnumerableSelection]
    ) -> list[dict[str, Tensor]]:
        supports = (distribution.enumerate_support() for distribution in distributions.values())
        return [dict(zip(distributions, choice, strict=True)) for choice in product(*supports)]

    def _mean(
        self,
        objective: Float[Tensor, "alternative sentence"],
        log_q: Float[Tensor, "alternative sentence"],
    ) -> Float[Tensor, ""]:
        return (log_q.exp() * objective).sum()


class ScoreFunction_ELBO(Alternatives):
    r"""The score-function estimator with K samples and a leave-one-out baseline.

    .. math:: \frac1K \sum_k \sum_s f_s(z_k) + \log q_s(z_k)
              \Bigl[f_s(z_k) - \tfrac1{K-1}\sum_{j \ne k} f_s(z_j)\Bigr] - \mathrm{KL},

    no gradient through the bracket: unbiased, and a sentence weighs on its own tasks alone.

    Args:
        num_samples: K.
        **options: Those of :class:`Alternatives`.
    """

    def __init__(self, num_samples: int = 2, **options: Any) -> None:
        super().__init__(**options)
        check_least({"num_samples": num_samples}, num_samples=2)
        self.num_samples = num_samples

    def _alternatives(
        self, distributions: Mapping[str, EnumerableSelection]
    ) -> list[dict[str, Tensor]]:
        with torch.no_grad():
            return [
                {site: distribution.sample() for site, distribution in distributions.items()}
                for _ in range(self.num_samples)
            ]

    def _mean(
        self,
        objective: Float[Tensor, "alternative sentence"],
        log_q: Float[Tensor, "alternative sentence"],
    ) -> Float[Tensor, ""]:
        reward = objective.detach()
        others = (reward.sum(0) - reward) / (self.num_samples - 1)
        credit = (log_q - log_q.detach()) * (reward - others)
        return (objective + credit).sum() / self.num_samples


@options_class()
class ScoreFunction(SelectionGradient):
    """By the scores of two samples a batch: unbiased, at twice the work of the network."""

    objective = ScoreFunction_ELBO

    def temperature_at(self, step: int, steps: int) -> None:
        return


@options_class()
class Enumeration(SelectionGradient):
    """From all choices of all blocks: exact, where they are few."""

    objective = Enumerated_ELBO

    def temperature_at(self, step: int, steps: int) -> None:
        return
