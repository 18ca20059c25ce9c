"""Boundaries of words as a Markov chain over positions, summed out exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.frames import make_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class BoundaryChain:
    """A chain of boundaries: the first, and the jump from each to the next.

    Where boundaries are starts alone, all jumps have one distribution; where they are start and end
    of each word in turn, durations have the first and pauses the second.

    Attributes:
        jumps: Log-probability of each jump, a row for each kind of boundary.
        base: Log-probability of each jump before any example was seen.
        least: The first jump of a row, such as -3 where boundaries may go back.
    """

    jumps: Float[Tensor, "kind jump"]
    base: Float[Tensor, "kind jump"]
    least: int = 0

    @property
    def kinds(self) -> int:
        """Kinds of boundaries."""
        return len(self.jumps)

    def transitions(self, positions: int) -> Float[Tensor, "kind from to"]:
        """Probability of the next position given the last one; mass beyond the end is dropped."""
        start = torch.eye(positions, dtype=self.jumps.dtype, device=self.jumps.device)
        return torch.stack([self.advance(start, kind) for kind in range(self.kinds)])

    def advance(
        self, probs: Float[Tensor, "*batch position"], kind: int
    ) -> Float[Tensor, "*batch position"]:
        """The distribution of the next boundary, given that of one."""
        kernel = self.jumps[kind].exp()
        before = len(kernel) - 1 + self.least
        padded = F.pad(probs.reshape(-1, 1, probs.shape[-1]), (before, -self.least))
        return F.conv1d(padded, kernel.flip(0)[None, None]).view_as(probs)


def log_evidence(
    chain: BoundaryChain, emissions: Float[Tensor, "boundary position"]
) -> Float[Tensor, ""]:
    """Log of the sum over all paths of prior times emissions.

    Args:
        chain: The prior.
        emissions: Log-likelihood of each boundary at each position; kinds take turns.
    """
    boundaries, positions = emissions.shape
    # a scaled sum is much faster than one of logarithms, and exact enough in double precision
    scales = emissions.amax(-1)
    factors = (emissions - scales[:, None]).exp()
    forward = factors[0] / positions
    total = scales.sum()
    for index in range(1, boundaries):
        scale = forward.sum()
        total = total + scale.log()
        forward = chain.advance(forward / scale, (index - 1) % chain.kinds) * factors[index]
    return total + forward.sum().log()


@dataclass(frozen=True)
class ChainPosterior:
    """The exact posterior of the boundaries of an example.

    Attributes:
        log_evidence: Log of the sum over all paths.
        marginals: Probability of each position, for every boundary by kind and word.
        jumps: Expected number of each jump, a row for each kind of boundary.
    """

    log_evidence: Float[Tensor, ""]
    marginals: Float[Tensor, "kind word position"]
    jumps: Float[Tensor, "kind jump"]


def chain_posterior(
    chain: BoundaryChain, emissions: Float[Tensor, "boundary position"]
) -> ChainPosterior:
    """The exact posterior of the boundaries.

    Args:
        chain: The prior.
        emissions: Log-likelihood of each boundary at each position; kinds take turns.

    Raises:
        ValueError: No path has a probability above 0.
    """
    # the gradient of the evidence is the posterior: the backward algorithm is backpropagation
    with torch.inference_mode(False), torch.enable_grad():
        scores = emissions.detach().clone().requires_grad_()  # no tensor of inference mode
        log_probs = chain.jumps.detach().clone().requires_grad_()
        evidence = log_evidence(replace(chain, jumps=log_probs), scores)
        if not evidence.isfinite():  # labels that no path comes near
            last = chain.least + chain.jumps.shape[-1] - 1
            raise ValueError(
                f"no path has these boundaries: from each to the next the chain jumps {chain.least}"
                f" to {last} positions, and labels are in another order or further apart"
            )
        marginals, jumps = torch.autograd.grad(
            evidence, (scores, log_probs), allow_unused=True, materialize_grads=True
        )
    by_kind = marginals.unflatten(0, (-1, chain.kinds)).transpose(0, 1)
    return ChainPosterior(evidence.detach(), by_kind, jumps)


def monotone_chain(
    means: Sequence[float], spread: float = 0.6, reach: float = 30.0
) -> BoundaryChain:
    """A chain whose boundaries never go back: its jumps are log-normal.

    Args:
        means: Median jump of each kind of boundary, in positions.
        spread: Standard deviation of the logarithm of a jump.
        reach: The largest jump, in medians of the longest.
    """
    jumps = torch.arange(math.ceil(max(means) * reach), dtype=torch.float64)
    medians = torch.tensor(means, dtype=torch.float64)[:, None]
    # a jump of 0 is possible, or a quick word could leave no path
    distance = ((jumps + 0.5) / (medians + 0.5)).log() / spread
    base = (-0.5 * distance**2 - (jumps + 0.5).log()).log_softmax(-1)
    return BoundaryChain(base, base)


def jump_chain(reach: int = 20, step: float = 1.0, spread: float = 2.0) -> BoundaryChain:
    """A chain for text, whose words may go back: jumps are Laplace around one word ahead.

    Args:
        reach: The largest jump in each direction, in words.
        step: The likeliest jump.
        spread: Scale of the Laplace distribution.
    """
    jumps = torch.arange(-reach, reach + 1, dtype=torch.float64)
    base = (-(jumps - step).abs() / spread).log_softmax(-1)[None]
    return BoundaryChain(base, base, -reach)


def medians(marginals: Float[Tensor, "word position"]) -> Float[Tensor, " word"]:
    """The median of each boundary, whose probability is spread evenly within each position."""
    return quantiles(marginals, torch.tensor([0.5], dtype=marginals.dtype))[0]


def quantiles(
    marginals: Float[Tensor, "word position"], levels: Float[Tensor, " level"]
) -> Float[Tensor, "level word"]:
    """Quantiles of boundaries, whose probability is spread evenly within each position.

    Args:
        marginals: Probability of each position.
        levels: Probabilities, such as .05 and .95.
    """
    below = F.pad(marginals.cumsum(-1), (1, 0))
    below = below / below[:, -1:]
    index = torch.searchsorted(below, levels.expand(len(below), -1).contiguous())
    index = index.clamp(1, marginals.shape[-1])
    low, high = below.gather(-1, index - 1), below.gather(-1, index)
    # linear within a position; 0 / 0 where it has no probability, whose middle is as good as any
    share = ((levels - low) / (high - low)).nan_to_num(0.5).clamp(0, 1)
    return (index - 1 + share).mT


FINE = 4
"""Parts of a position in which an error is added."""


def noisy_quantiles(
    marginals: Float[Tensor, "word position"], error: float, levels: Float[Tensor, " level"]
) -> Float[Tensor, "level word"]:
    """Quantiles of boundaries plus a Laplace error.

    Args:
        marginals: Probability of each position.
        error: Scale of the error, in positions.
        levels: Probabilities, such as .05 and .95.
    """
    reach = math.ceil(8 * error)  # beyond it a Laplace error has a probability of e^-8
    fine = marginals.repeat_interleave(FINE, -1)
    offsets = torch.arange(-reach * FINE, reach * FINE + 1) / FINE
    kernel = (-offsets.abs() / error).softmax(-1).to(marginals)
    # twice the reach: once for the sum's own support, once for what the convolution cuts off
    padded = F.pad(fine[:, None], (2 * reach * FINE,) * 2)
    smeared = F.conv1d(padded, kernel[None, None])[:, 0]
    return quantiles(smeared, levels) / FINE - reach


@dataclass(frozen=True)
class BoundaryTimes:
    """When words start, or end: medians, and intervals.

    Attributes:
        median: The median of each boundary, in seconds or positions.
        low: The lower end of its interval.
        high: The upper end of its interval.
    """

    median: Float[Tensor, " word"]
    low: Float[Tensor, " word"]
    high: Float[Tensor, " word"]

    def to_frame(self) -> pd.DataFrame:
        """A row for each word: median, low and high."""
        return make_frame(vars(self), "word")
