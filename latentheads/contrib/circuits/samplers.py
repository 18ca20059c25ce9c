r"""Subsets of more heads than a table holds: Gibbs sampling, and sequential Monte Carlo.

Both take the log-density of subsets up to a constant, :class:`SubsetDensity`, and blocks of heads,
such as those of a layer, whose subsets are few enough to enumerate.

:func:`gibbs` samples a block given all other heads, exactly. :func:`smc` begins with a product of
exact tables of blocks, each with all other heads kept, and tempers it to the posterior; its moves
propose a block from its table, which needs one evaluation instead of all of a block's, and flip
single heads. It also estimates the evidence (Del Moral, Doucet and Jasra 2006,
https://arxiv.org/abs/cond-mat/0212648): exactly in the limit of many particles, as temperatures are
chosen by the particles themselves; at fixed ones it would be without bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.checks import check_fraction, check_least, check_list, check_seed
from latentheads.contrib.circuits.scorer import SubsetScorer
from latentheads.errors import shown
from latentheads.frames import make_frame
from latentheads.latents.bernoulli_heads.options import MAX_SUBSETS, check_temperature_and_rate
from latentheads.latents.bernoulli_heads.subsets import all_subsets, subset_index

if TYPE_CHECKING:
    import pandas as pd

Density = Callable[[Float[Tensor, "subset head"]], Float[Tensor, " subset"]]
"""The log-density of subsets, up to a constant."""

UNIFORM = 0.2
"""Weight of a uniform distribution in proposals, so that no subset of a block is out of reach."""


@dataclass(frozen=True)
class SubsetDensity:
    """log p(b) plus the log-likelihood of the prompts, at a temperature.

    Attributes:
        scorer: The log-likelihood of every prompt with a subset.
        penalty: Log-likelihood of a prompt that a head has to add.
        tau: The temperature.
        rate: The prior probability of a head.
    """

    scorer: SubsetScorer
    penalty: float
    tau: float
    rate: float = 0.5

    def __post_init__(self) -> None:
        check_least({"penalty": self.penalty}, penalty=0.0)
        check_temperature_and_rate(self.tau, self.rate)

    def __call__(self, gates: Float[Tensor, "subset head"]) -> Float[Tensor, " subset"]:
        """The log-density of subsets, up to a constant."""
        rows, sizes = self.scorer(gates), gates.double().sum(-1)
        log_likelihood = rows.sum(-1) - self.penalty * rows.shape[1] * sizes
        prior = sizes * math.log(self.rate) + (gates.shape[1] - sizes) * math.log1p(-self.rate)
        return prior + log_likelihood / self.tau


@dataclass(frozen=True, repr=False)
class SampledSubsets:
    """Samples of a posterior over subsets.

    Attributes:
        gates: The subsets; of several chains those of all chains after each sweep.
        weights: The weight of each; they sum to 1.
        log_evidence: The estimate of the log of the density's sum; None: of Gibbs sampling.
        acceptance: The share of accepted proposals.
        temperatures: Powers of the likelihood that the samples went through.
        chains: Number of chains of Gibbs sampling.
        labels: The label of every head, such as L9H6; of a density that names none its number.
    """

    gates: Float[Tensor, "sample head"]
    weights: Float[Tensor, " sample"]
    log_evidence: float | None = None
    acceptance: float = 1.0
    temperatures: tuple[float, ...] = (1.0,)
    chains: int = 1
    labels: Sequence[str] = ()

    def __repr__(self) -> str:
        samples, heads = self.gates.shape
        evidence = "" if self.log_evidence is None else f"log evidence {self.log_evidence:.3f}, "
        pairs = zip(self.labels or range(heads), self.inclusion.tolist(), strict=True)
        inclusion = ", ".join(f"{label} {probability:.3f}" for label, probability in pairs)
        return (
            f"SampledSubsets({samples:,} samples of {heads} heads, {evidence}"
            f"acceptance {self.acceptance:.2f}; inclusion {inclusion})"
        )

    def to_frame(self) -> pd.DataFrame:
        """A row for each sample: its weight, and the gate of each head by its label."""
        gates = dict(zip(self.labels or range(self.gates.shape[1]), self.gates.mT, strict=True))
        return make_frame({"weight": self.weights} | gates, "sample")

    @property
    def by_chain(self) -> Float[Tensor, "chain sweep head"]:
        """The subsets of each chain, to compare the means of chains by."""
        return self.gates.unflatten(0, (-1, self.chains)).transpose(0, 1)

    @property
    def inclusion(self) -> Float[Tensor, " head"]:
        """The probability of every head."""
        return self.weights @ self.gates

    @property
    def covariance(self) -> Float[Tensor, "head head"]:
        """Covariance of the gates."""
        centred = self.gates - self.inclusion
        return (centred * self.weights[:, None]).mT @ centred


def block_tables(
    density: Density, blocks: Sequence[Sequence[int]]
) -> list[Float[Tensor, " subset"]]:
    """The exact distribution of each block's subsets, with all other heads kept.

    Args:
        density: The log-density.
        blocks: The heads of each block.
    """
    _check_blocks(density, blocks)
    heads = sum(map(len, blocks))
    tables = []
    for block in blocks:
        subsets = all_subsets(len(block), torch.empty((), dtype=torch.float64))
        gates = subsets.new_ones(len(subsets), heads)
        gates[:, list(block)] = subsets
        tables.append(_checked(density(gates)).log_softmax(-1))
    return tables


def gibbs(
    density: Density,
    blocks: Sequence[Sequence[int]],
    sweeps: int = 100,
    chains: int = 4,
    burn_in: int = 10,
    seed: int = 0,
    start: Float[Tensor, " head"] | None = None,
) -> SampledSubsets:
    """Samples every block given all other heads, in turn; a block of k heads has 2^k evaluations.

    Heads of several blocks that are needed together can keep a chain where it began: compare
    chains (``samples.by_chain.mean(1)``), those from other subsets, or :func:`smc`.

    Args:
        density: The log-density.
        blocks: The heads of each block; all together are the heads.
        sweeps: Sweeps over all blocks that are kept.
        chains: Number of chains.
        burn_in: Sweeps before.
        seed: The seed.
        start: The subset that all chains begin with, such as all heads; None: at random.
    """
    sizes = {"sweeps": sweeps, "chains": chains, "burn_in": burn_in}
    check_least(sizes, sweeps=1, chains=1, burn_in=0)
    _check_blocks(density, blocks)
    generator, heads = _generator(seed), sum(map(len, blocks))
    gates = torch.rand(chains, heads, generator=generator).round().double()
    if start is not None:
        if start.shape != (heads,) or not ((start == 0) | (start == 1)).all():
            raise ValueError(
                f"start must be a 0 or 1 for each of {heads} heads, got {shown(start.tolist())}"
            )
        gates = start.double().expand(chains, heads)
    samples = []
    for sweep in range(burn_in + sweeps):
        for block in blocks:
            subsets = all_subsets(len(block), gates)
            proposals = gates.repeat_interleave(len(subsets), 0)
            proposals[:, list(block)] = subsets.repeat(chains, 1)
            probs = _checked(density(proposals).view(chains, -1)).softmax(-1)
            gates = gates.clone()
            gates[:, list(block)] = subsets[_sample(probs, generator)]
        if sweep >= burn_in:
            samples.append(gates)
    every = torch.cat(samples)
    weights = every.new_full((len(every),), 1 / len(every))
    return SampledSubsets(every, weights, chains=chains, labels=_labels(density))


def smc(
    density: Density,
    blocks: Sequence[Sequence[int]],
    particles: int = 100,
    moves: int = 2,
    tables: Sequence[Tensor] | None = None,
    threshold: float = 0.8,
    seed: int = 0,
) -> SampledSubsets:
    """Tempers a product of exact tables of blocks to the posterior.

    Args:
        density: The log-density.
        blocks: The heads of each block; all together are the heads.
        particles: Number of subsets.
        moves: Proposals of every block, and flips of single heads, at every temperature.
        tables: What :func:`block_tables` returned; None: they are computed.
        threshold: Share of the particles that is effective at the next temperature.
        seed: The seed.
    """
    check_least({"particles": particles, "moves": moves}, particles=2, moves=1)
    check_fraction("threshold", threshold)
    _check_blocks(density, blocks)
    generator = _generator(seed)
    exact = block_tables(density, blocks) if tables is None else tables
    start = _ProductOfTables(blocks, [_flatten(table) for table in exact])
    gates = start.sample(particles, generator)
    target, initial = _checked(density(gates)), start(gates)
    log_evidence, power, powers = 0.0, 0.0, [0.0]
    accepted, proposed = 0, 0
    while power < 1:
        ratio = target - initial
        step = _next_step(ratio, 1 - power, threshold * particles)
        increments = step * ratio
        log_evidence += float(increments.logsumexp(0)) - math.log(particles)
        power = 1.0 if power + step >= 1 - 1e-12 else power + step
        powers.append(power)
        keep = _resample(increments.softmax(0), generator)
        gates, target, initial = gates[keep], target[keep], initial[keep]
        for _ in range(moves):
            for number in range(len(blocks) + 1):
                if number < len(blocks):
                    proposal = start.sample_block(gates, number, generator)
                    correction = start.block_log_prob(gates, number)
                    correction = correction - start.block_log_prob(proposal, number)
                else:
                    proposal, correction = _flip(gates, generator), torch.zeros(())
                new_target, new_initial = density(proposal), start(proposal)
                change = power * (new_target - target) + (1 - power) * (new_initial - initial)
                uniform = torch.rand(particles, generator=generator, dtype=torch.float64)
                accept = uniform.log() < change + correction
                gates = torch.where(accept[:, None], proposal, gates)
                target = torch.where(accept, new_target, target)
                initial = torch.where(accept, new_initial, initial)
                accepted, proposed = accepted + int(accept.sum()), proposed + particles
    weights = gates.new_full((particles,), 1 / particles)
    share, labels = accepted / proposed, _labels(density)
    return SampledSubsets(gates, weights, log_evidence, share, tuple(powers), labels=labels)


def _labels(density: Density) -> list[str]:
    """The labels of the heads of a density that has a scorer."""
    return density.scorer.labels if isinstance(density, SubsetDensity) else []


class _ProductOfTables:
    """Independent blocks, each with a table of its subsets."""

    def __init__(self, blocks: Sequence[Sequence[int]], tables: Sequence[Tensor]) -> None:
        self.blocks, self.tables = [list(block) for block in blocks], tables

    def __call__(self, gates: Float[Tensor, "sample head"]) -> Float[Tensor, " sample"]:
        parts = [self.block_log_prob(gates, number) for number in range(len(self.blocks))]
        return torch.stack(parts).sum(0)

    def block_log_prob(
        self, gates: Float[Tensor, "sample head"], number: int
    ) -> Float[Tensor, " sample"]:
        return self.tables[number][subset_index(gates[:, self.blocks[number]])]

    def sample(self, samples: int, generator: torch.Generator) -> Float[Tensor, "sample head"]:
        gates = self.tables[0].new_ones(samples, sum(map(len, self.blocks)))
        for number in range(len(self.blocks)):
            gates = self.sample_block(gates, number, generator)
        return gates

    def sample_block(
        self, gates: Float[Tensor, "sample head"], number: int, generator: torch.Generator
    ) -> Float[Tensor, "sample head"]:
        block, table = self.blocks[number], self.tables[number]
        index = _sample(table.exp().expand(len(gates), -1), generator)
        gates = gates.clone()
        gates[:, block] = all_subsets(len(block), table)[index]
        return gates


def _flatten(table: Float[Tensor, " subset"]) -> Float[Tensor, " subset"]:
    """A table with some of a uniform distribution."""
    probs = (1 - UNIFORM) * table.double().exp() + UNIFORM / len(table)
    return probs.log()


def _flip(gates: Tensor, generator: torch.Generator) -> Tensor:
    """Every subset with one head changed."""
    head = torch.randint(gates.shape[1], (len(gates), 1), generator=generator)
    return gates.scatter(1, head, 1 - gates.gather(1, head))


def _next_step(ratio: Float[Tensor, " sample"], most: float, effective: float) -> float:
    """The largest step of the power that leaves ``effective`` particles, by bisection."""

    def size(step: float) -> float:
        return 1 / float((step * ratio).softmax(0).square().sum())

    if size(most) >= effective:
        return most
    low, high = 0.0, most
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if size(middle) >= effective else (low, middle)
    return high


def _resample(
    weights: Float[Tensor, " sample"], generator: torch.Generator
) -> Int[Tensor, " sample"]:
    """Indices of particles, by systematic resampling."""
    number = len(weights)
    start = torch.rand((), generator=generator, dtype=weights.dtype)
    points = (torch.arange(number) + start) / number
    return torch.searchsorted(weights.cumsum(0), points).clamp_max(number - 1)


def _checked(log_density: Float[Tensor, "*row subset"]) -> Float[Tensor, "*row subset"]:
    """Checks that a subset of each row has a finite log-density, and none is NaN."""
    if not log_density.amax(-1).isfinite().all():
        raise ValueError(
            "density must be finite for a subset of each block beside the other heads: in gibbs "
            "those of start or of the last sample, else all"
        )
    return log_density


def _sample(probs: Float[Tensor, "row value"], generator: torch.Generator) -> Int[Tensor, " row"]:
    return torch.multinomial(probs, 1, generator=generator)[:, 0]


def _generator(seed: int) -> torch.Generator:
    check_seed(seed)
    return torch.Generator().manual_seed(seed)


def _check_blocks(density: Density, blocks: Sequence[Sequence[int]]) -> None:
    """Checks a density of subsets, and that blocks hold every head once, and few enough."""
    if isinstance(density, SubsetScorer):
        raise ValueError("density must be of subsets, as SubsetDensity(scorer, penalty, tau)")
    check_list("blocks", blocks)
    for block in blocks:
        check_list("each of blocks", block)
    heads = sum(map(len, blocks))
    if sorted(head for block in blocks for head in block) != list(range(heads)) or not heads:
        raise ValueError(f"blocks must hold every head once, got {[list(b) for b in blocks]}")
    if (most := max(map(len, blocks))) > math.log2(MAX_SUBSETS):
        raise ValueError(f"a block has at most {math.log2(MAX_SUBSETS):.0f} heads, got {most}")
