r"""The joint model of attention, boundaries and labels, and its expectation-maximisation.

Boundaries :math:`b` are a Markov chain; the attention of every head that is in the model is given
by its profile around them (:mod:`~latentheads.contrib.heads.boundaries.profiles`). What a labeller
calls the start of a word is :math:`y_w = b_w + s + \epsilon_w`: a shift that all words share, and a
Laplace error, which no number of heads can make smaller since they all look at one network's
boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.contrib.heads.boundaries.chain import (
    BoundaryChain,
    ChainPosterior,
    chain_posterior,
)
from latentheads.contrib.heads.boundaries.energy import energy_scores
from latentheads.contrib.heads.boundaries.profiles import Profiles, empty_counts, fit_profiles
from latentheads.contrib.heads.word_attention import WordAttention

LEAST_ERROR = 0.5
"""Smallest scale of the error of labels, in positions: boundaries are whole positions."""

JUMPS = 50.0
"""Jumps that the prior of their distribution counts as."""


@dataclass(frozen=True)
class BoundaryModel:
    """p(attention, boundaries, labels) of an example.

    Attributes:
        profiles: The profile of each head.
        chain: The prior of boundaries.
        chosen: The heads whose attention is in the model, for each kind of boundary.
        error: Scale of the Laplace error of labels, for each kind of boundary.
        shift: Labels less boundaries, in positions, for each kind of boundary.
        energy_offsets: Positions by which the energy of the sound changes later than labels do, at
            starts and at ends; None: energy is not in the model.
    """

    profiles: Profiles
    chain: BoundaryChain
    chosen: Bool[Tensor, "kind head"]
    error: Float[Tensor, " kind"]
    shift: Float[Tensor, " kind"]
    energy_offsets: Float[Tensor, " kind"] | None = None

    def emissions(
        self, attention: WordAttention, *, with_labels: bool = True
    ) -> Float[Tensor, "boundary position"]:
        """Log-likelihood of attention, energy and labels for each boundary at each position.

        Args:
            attention: Attention of an example.
            with_labels: Whether its labels are observed.
        """
        scores = attention.weights.new_zeros(self.chain.kinds, *attention.weights.shape[1:])
        for kind, chosen in enumerate(self.chosen):
            if chosen.any():  # no Fourier transform of nothing
                seen = replace(attention, weights=attention.weights[chosen])
                scores[kind] = (
                    self.profiles.select(slice(kind, kind + 1), chosen).emissions(seen)[0].sum(0)
                )
        if self.energy_offsets is not None and attention.energy is not None:
            scores = scores + energy_scores(attention.energy, self.energy_offsets)[:, None]
        if with_labels:
            scores = scores + self.label_log_probs(attention)
        return scores.transpose(0, 1).flatten(0, 1)

    def label_log_probs(self, attention: WordAttention) -> Float[Tensor, "kind word position"]:
        """Log-density of each label for a boundary anywhere; 0 where there is none."""
        distance = label_distances(self, attention)
        error = self.error[:, None, None]
        return (-distance.abs() / error - (2 * error).log()).nan_to_num(0.0)

    def posterior(self, attention: WordAttention, *, with_labels: bool = True) -> ChainPosterior:
        """The exact posterior of the boundaries of an example."""
        return chain_posterior(self.chain, self.emissions(attention, with_labels=with_labels))

    def restrict(self, views: Bool[Tensor, " head"]) -> BoundaryModel:
        """The model of some heads alone."""
        profiles = self.profiles.select(slice(None), views)
        return replace(self, profiles=profiles, chosen=self.chosen[:, views])


def label_distances(
    model: BoundaryModel, attention: WordAttention
) -> Float[Tensor, "kind word position"]:
    """Labels less shifted boundaries; not a number where there is no label."""
    labels = torch.stack([attention.starts, attention.ends])[: model.chain.kinds]
    # a boundary is somewhere in its position
    positions = torch.arange(0.5, attention.positions, dtype=labels.dtype)
    return labels[..., None] - positions - model.shift[:, None, None]


def em_step(
    model: BoundaryModel, examples: Sequence[WordAttention], prior: float = 1.0
) -> tuple[BoundaryModel, list[Float[Tensor, "kind word position"]]]:
    """One step of expectation-maximisation; log evidence plus log prior never falls.

    Args:
        model: The model before.
        examples: Examples, with or without labels.
        prior: Observations that the prior of each parameter counts as.

    Returns:
        The model after it, and the posterior of the boundaries of each example before it.
    """
    posteriors = [model.posterior(example) for example in examples]
    marginals = [posterior.marginals for posterior in posteriors]
    jumps = torch.stack([posterior.jumps for posterior in posteriors]).sum(0)
    return maximise(model, examples, marginals, jumps, prior), marginals


def maximise(
    model: BoundaryModel,
    examples: Sequence[WordAttention],
    marginals: Sequence[Float[Tensor, "kind word position"]],
    jumps: Float[Tensor, "kind jump"] | None = None,
    prior: float = 1.0,
) -> BoundaryModel:
    """The model of the highest expected log joint.

    Args:
        model: The model before.
        examples: Examples.
        marginals: Posterior of the boundaries of each.
        jumps: Expected jumps; None: their distribution stays.
        prior: Observations that the prior of each parameter counts as.
    """
    counts = empty_counts(model.profiles)
    for example, marginal in zip(examples, marginals, strict=True):
        counts.add(model.profiles, example, marginal)
    chain = model.chain
    if jumps is not None:
        observed = jumps + JUMPS * prior * chain.base.exp()
        chain = replace(chain, jumps=(observed / observed.sum(-1, keepdim=True)).log())
    error = _fit_error(model, examples, marginals, prior)
    return replace(
        model, profiles=fit_profiles(model.profiles, counts, prior), chain=chain, error=error
    )


def _fit_error(
    model: BoundaryModel,
    examples: Sequence[WordAttention],
    marginals: Sequence[Tensor],
    prior: float,
) -> Float[Tensor, " kind"]:
    """The scale of the error of labels."""
    total = torch.full_like(model.error, prior)
    number = torch.full_like(model.error, prior)
    for example, marginal in zip(examples, marginals, strict=True):
        distance = label_distances(model, example).abs()
        total = total + (marginal * distance).nansum((1, 2))
        number = number + distance[..., 0].isfinite().sum(1)
    return (total / number).clamp(min=LEAST_ERROR)
