"""What a guide may answer at a site, and what it is told there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyro.distributions as dist
from jaxtyping import Bool
from pyro.distributions.torch_distribution import TorchDistributionMixin
from pyro.infer.util import is_validation_enabled
from torch import Tensor

from latentheads.alignment.distribution import (
    NOWHERE,
    Alignments,
    CategoricalParameters,
    check_parameters,
)
from latentheads.alignment.transitions import later_steps
from latentheads.distributions import HeadContext, HeadVariable
from latentheads.distributions.heads import is_expandable
from latentheads.layers.numeric import full_precision
from latentheads.names import POINTING

__all__ = ["as_distribution", "conditioned", "context_of"]

IMPOSSIBLE = NOWHERE / 2
"""A score that no position has which may be pointed at."""


def as_distribution(site: str, answer: Any, prior: Any) -> Any:
    """What a guide answers at a site, as a law of the prior's shape; a value is a point.

    Raises:
        ValueError: It is no law, or one of another shape.
    """
    law = answer
    if isinstance(answer, Tensor):
        law = dist.Delta(answer, event_dim=min(answer.dim(), prior.event_dim))
    if not isinstance(law, TorchDistributionMixin):
        raise ValueError(
            f"site {site!r}: get_posterior must return a distribution of Pyro, such as the "
            f"prior itself, got {type(law).__name__}"
        )
    if law.event_shape != prior.event_shape or not is_expandable(
        law.batch_shape, prior.batch_shape
    ):
        raise ValueError(
            f"site {site!r}: get_posterior must return a distribution of {_say_shapes(prior)}, "
            f"as the prior, got {_say_shapes(law)}"
        )
    return law if law.batch_shape == prior.batch_shape else law.expand(prior.batch_shape)


def _say_shapes(law: Any) -> str:
    return f"event_shape {tuple(law.event_shape)} and batch_shape {tuple(law.batch_shape)}"


def context_of(site: str, prior: Any) -> HeadContext:
    """What a block knew when its heads were drawn.

    Raises:
        ValueError: The prior is a law of another library, which does not say.
    """
    if not isinstance(prior, HeadVariable):
        raise ValueError(
            f"site {site!r}: a prior whose posterior is another law must be a HeadVariable, such "
            f"as NormalHeads, which says what its block knew; got {type(prior).__name__}"
        )
    return prior.context


def conditioned(prior: Alignments, pointing: CategoricalParameters) -> Alignments:
    """A law of alignments of other parameters, in the place of a block's prior.

    Where the prior's heads may not point, these do not either, whatever their scores there.

    Raises:
        ValueError: They are those of no law of the block's alignments, or, where Pyro validates,
            leave a word that is counted no position.
    """
    site = POINTING if prior.context is None else prior.context.block.site(POINTING)
    check_parameters(site, pointing, prior.pointing)
    barred = prior.pointing.scores <= IMPOSSIBLE
    scores = full_precision(pointing.scores).clamp_min(NOWHERE).masked_fill(barred, NOWHERE)
    found = replace(pointing, scores=scores)
    if is_validation_enabled():
        _check_masks(site, found, barred, prior.valid)
    return Alignments(found, prior.valid, prior.below, prior.context)


def _check_masks(
    site: str,
    law: CategoricalParameters,
    barred: Bool[Tensor, "*batch target head key"],
    valid: Bool[Tensor, "*inner target"],
) -> None:
    """Refuses minus infinity in what a head reads, and a counted word that has nowhere to point.

    Args:
        site: Of the alignments, for the message.
        law: The posterior.
        barred: Where its heads may not point.
        valid: True at the words that are counted.

    Raises:
        ValueError: It has no KL, or a word no position, alone or given what it reads.
    """
    counted, shut = valid[..., None] & ~barred.all(-1), law.scores <= IMPOSSIBLE
    stuck = (counted & shut.all(-1)).any()
    for (head, lower), read in law.between.items():
        if (read > IMPOSSIBLE).all():
            continue  # it masks nothing: a chain makes no tensor of all words' pairs of positions
        if read.isneginf().any():
            raise ValueError(
                f"site {site!r}: what a head reads of another must be finite: mask it by NOWHERE, "
                f"{NOWHERE:g}, for minus infinity has no KL"
            )
        place, below = head - law.first, lower - law.first
        own, known = law.scores[..., place, :], counted[..., place, None]
        before = ~(shut[..., below, :] if below >= 0 else barred[..., place, :])
        if law.chained:
            own, known, before = own[..., 1:, :], known[..., 1:, :], before[..., :-1, :]
            read = later_steps(read)
        nowhere = (own[..., None, :] + read <= IMPOSSIBLE).all(-1)
        stuck |= (nowhere & before & known).any()
    if stuck:
        raise ValueError(f"site {site!r}: scores leave a word no position that it may point at")
