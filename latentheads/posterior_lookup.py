"""The posterior of a site: checks of what a guide returns, and the context that it is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyro.distributions as dist
from jaxtyping import Bool
from pyro.distributions.torch_distribution import TorchDistributionMixin
from pyro.infer.util import is_validation_enabled
from torch import Tensor

from latentheads.distributions import HeadContext, HeadVariable
from latentheads.distributions.heads import is_expandable
from latentheads.latents.alignments.distribution import (
    NOWHERE,
    Alignments,
    CategoricalParameters,
    check_parameters,
)
from latentheads.latents.alignments.transitions import later_transitions
from latentheads.layers.numeric import full_precision
from latentheads.names import ALIGNED_POSITION

__all__ = ["as_distribution", "context_of", "with_parameters"]

IMPOSSIBLE = NOWHERE / 2
"""Scores of masked positions lie below this, all others above."""


def as_distribution(site: str, posterior: Any, prior: Any) -> Any:
    """Convert what a guide returns for a site to a distribution of the prior's shape.

    A tensor becomes a ``Delta``.

    Raises:
        ValueError: It is no distribution, or one of another shape.
    """
    distribution = posterior
    if isinstance(posterior, Tensor):
        distribution = dist.Delta(posterior, event_dim=min(posterior.dim(), prior.event_dim))
    if not isinstance(distribution, TorchDistributionMixin):
        raise ValueError(
            f"site {site!r}: get_posterior must return a distribution of Pyro, such as the "
            f"prior itself, got {type(distribution).__name__}"
        )
    shape = distribution.batch_shape
    if distribution.event_shape != prior.event_shape or not is_expandable(shape, prior.batch_shape):
        raise ValueError(
            f"site {site!r}: get_posterior must return a distribution of "
            f"{_describe_shapes(prior)}, as the prior, got {_describe_shapes(distribution)}"
        )
    return distribution if shape == prior.batch_shape else distribution.expand(prior.batch_shape)


def _describe_shapes(distribution: Any) -> str:
    event_shape, batch_shape = tuple(distribution.event_shape), tuple(distribution.batch_shape)
    return f"event_shape {event_shape} and batch_shape {batch_shape}"


def context_of(site: str, prior: Any) -> HeadContext:
    """The context of a block: what it computed before its heads were sampled.

    Raises:
        ValueError: The prior is a distribution without a context.
    """
    if not isinstance(prior, HeadVariable):
        raise ValueError(
            f"site {site!r}: a prior with a separate posterior must be a HeadVariable, such as "
            f"NormalHeads, which carries the context of its block; got {type(prior).__name__}"
        )
    return prior.context


def with_parameters(prior: Alignments, parameters: CategoricalParameters) -> Alignments:
    """The distribution of a block's alignments with other parameters: a posterior.

    Positions that are masked in the prior are masked here too.

    Raises:
        ValueError: The parameters do not fit the prior, or, if Pyro's validation is enabled, mask
            all positions of a word.
    """
    site = ALIGNED_POSITION if prior.context is None else prior.context.block.site(ALIGNED_POSITION)
    check_parameters(site, parameters, prior.parameters)
    masked_keys = prior.parameters.scores <= IMPOSSIBLE
    scores = full_precision(parameters.scores).clamp_min(NOWHERE).masked_fill(masked_keys, NOWHERE)
    masked = replace(parameters, scores=scores)
    if is_validation_enabled():
        _check_masks(site, masked, masked_keys, prior.valid)
    return Alignments(masked, prior.valid, prior.below, prior.context)


def _check_masks(
    site: str,
    parameters: CategoricalParameters,
    prior_mask: Bool[Tensor, "*batch target head key"],
    valid: Bool[Tensor, "*inner target"],
) -> None:
    """Check that scores of pairs are finite, and that every real word has a position.

    Args:
        site: The sample site of the alignments, for the message.
        parameters: The posterior's parameters.
        prior_mask: True where the prior masks a position.
        valid: True at real words.

    Raises:
        ValueError: A score is minus infinity, so that there is no KL, or all positions of a word
            are masked, alone or given the heads that it is conditioned on.
    """
    counted, masked = valid[..., None] & ~prior_mask.all(-1), parameters.scores <= IMPOSSIBLE
    unreachable = (counted & masked.all(-1)).any()
    for (head, lower), pair_scores in parameters.pair_scores.items():
        if (pair_scores > IMPOSSIBLE).all():
            continue  # nothing is masked: saves a tensor of all pairs of positions of all words
        if pair_scores.isneginf().any():
            raise ValueError(
                f"site {site!r}: scores of a pair of heads must be finite: mask them by NOWHERE, "
                f"{NOWHERE:g}, for minus infinity has no KL"
            )
        index, below = head - parameters.first_head, lower - parameters.first_head
        scores, valid_words = parameters.scores[..., index, :], counted[..., index, None]
        lower_allowed = ~(masked[..., below, :] if below >= 0 else prior_mask[..., index, :])
        if parameters.chained:
            scores, valid_words, lower_allowed = (
                scores[..., 1:, :],
                valid_words[..., 1:, :],
                lower_allowed[..., :-1, :],
            )
            pair_scores = later_transitions(pair_scores)
        nowhere = (scores[..., None, :] + pair_scores <= IMPOSSIBLE).all(-1)
        unreachable |= (nowhere & lower_allowed & valid_words).any()
    if unreachable:
        raise ValueError(f"site {site!r}: scores mask all positions of a word")
