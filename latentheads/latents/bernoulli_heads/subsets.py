r"""Distributions of the subsets of a block's heads, as tables of all of them.

The gates :math:`b \in \{0, 1\}^H` of H heads have :math:`2^H` values. Value number
:math:`\sum_h b_h 2^h` is a row of every table, so the gates of lower blocks are the lower bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import RelaxedBernoulli, constraints
from torch.distributions.kl import register_kl
from torch.nn import functional as F

from latentheads.latents.summed_out import expectation


def all_subsets(heads: int, like: Tensor) -> Float[Tensor, "subset head"]:
    """The gates of every subset of some heads; row i has the bits of i, the lowest first."""
    index = torch.arange(2**heads, device=like.device)
    bits = index[:, None] >> torch.arange(heads, device=like.device) & 1
    return bits.to(like.dtype)


def subset_index(gates: Float[Tensor, "*batch head"]) -> Int[Tensor, "*batch"]:
    """The number of each subset; the inverse of :func:`all_subsets`."""
    powers = 2 ** torch.arange(gates.shape[-1], device=gates.device)
    return (gates.long() * powers).sum(-1)


@dataclass(frozen=True)
class SubsetTable:
    """Log-probabilities of the gates of a block, given those of all lower blocks.

    Attributes:
        log_probs: One for every subset of the heads of this block and of all lower ones. They are
            normalised, as the logits of torch's ``Categorical`` are.
        heads: Heads of this block.
        first: Heads of all lower blocks.
    """

    log_probs: Float[Tensor, "*batch joint"]
    heads: int
    first: int = 0

    def __post_init__(self) -> None:
        rows = self.log_probs.unflatten(-1, (2**self.heads, 2**self.first))
        object.__setattr__(self, "log_probs", rows.log_softmax(-2).flatten(-2))

    def given(self, lower: Float[Tensor, "*sample lower"] | None) -> Float[Tensor, "*out subset"]:
        """Log-probabilities of the subsets of this block, given the gates of lower blocks."""
        # the gates of lower blocks are the lower bits
        rows = self.log_probs.unflatten(-1, (2**self.heads, 2**self.first))
        if lower is None:
            return rows[..., 0]
        index = subset_index(lower)[..., None, None]
        shape = torch.broadcast_shapes(index.shape[:-2], rows.shape[:-2])
        rows, index = rows.expand(*shape, *rows.shape[-2:]), index.expand(*shape, -1, -1)
        return rows.gather(-1, index.expand(*shape, rows.shape[-2], 1))[..., 0]

    def conditional_logits(self, head: int) -> Float[Tensor, "*batch before"]:
        """The logit of a head's gate, given every value of the gates before it."""
        # later gates, this one, those before: from the highest bits to the lowest
        rows = self.log_probs.unflatten(-1, (-1, 2, 2 ** (self.first + head))).logsumexp(-3)
        return rows[..., 1, :] - rows[..., 0, :]


def logistic_chain(
    logits: Float[Tensor, "*batch head"],
    weight: Float[Tensor, "*weights head before"],
) -> SubsetTable:
    r"""Independent or autoregressive gates of a block.

    .. math:: \mathrm{logit}\, p(b_h = 1 \mid b_{<h}) = a_h + \sum_{j < h} W_{hj} b_j

    Args:
        logits: :math:`a`.
        weight: :math:`W`, whose columns are the heads of lower blocks, then those of this one. Its
            entries for a head itself and later ones must be zero.
    """
    heads = logits.shape[-1]
    first = weight.shape[-1] - heads
    subsets = all_subsets(first + heads, logits)
    scores = logits[..., None, :] + subsets @ weight.mT
    # not softplus, which leaves out log(1 + exp(-x)) of x above 20
    log_probs = F.logsigmoid((2 * subsets[:, first:] - 1) * scores).sum(-1)
    return SubsetTable(log_probs, heads, first)


def extend_table(table: SubsetTable, heads: int) -> Float[Tensor, "*batch joint"]:
    """A table over the subsets of all heads, which does not depend on higher blocks."""
    repeats = 2 ** (heads - table.first - table.heads)
    return table.log_probs.repeat(*(1,) * (table.log_probs.ndim - 1), repeats)


def joint_table(tables: Sequence[SubsetTable]) -> Float[Tensor, "*batch joint"]:
    """Log-probabilities of the subsets of the heads of all blocks.

    Args:
        tables: The distribution of every block given lower ones, from the lowest.
    """
    heads = sum(table.heads for table in tables)
    parts = torch.broadcast_tensors(*(extend_table(table, heads) for table in tables))
    return torch.stack(parts).sum(0)


def joint_conditionals(
    log_joint: Float[Tensor, "*batch joint"], heads: Sequence[int]
) -> list[SubsetTable]:
    """The distribution of every block given lower ones, from the joint of all blocks.

    Args:
        log_joint: Log-weights of the subsets of all heads; they need not be normalised.
        heads: Heads of every block, from the lowest.
    """
    # float32 rounds log-likelihoods of hundreds of nats so much that tables would not sum to 1
    log_joint = log_joint - log_joint.detach().amax(-1, keepdim=True)
    tables: list[SubsetTable] = []
    for index, number in reversed(list(enumerate(heads))):
        first = sum(heads[:index])
        rows = log_joint.unflatten(-1, (2**number, 2**first))
        tables.insert(0, SubsetTable(log_joint, number, first))
        log_joint = rows.logsumexp(-2)
    return tables


@torch.no_grad()
def nearest_product(
    log_joint: Float[Tensor, " subset"], heads: int, rounds: int = 3
) -> Float[Tensor, " head"]:
    """Logits of independent gates near to a joint distribution, by coordinate descent.

    It starts at the marginals, and descends the KL from the product to the joint.

    Args:
        log_joint: Log-probabilities of the subsets of all heads.
        heads: Heads of all blocks.
        rounds: How often every gate is updated.
    """
    subsets = all_subsets(heads, log_joint)
    probs = log_joint.exp() @ subsets
    logits = probs.logit()
    for head in [*range(heads)] * rounds:
        # the mean-field update: log q(b_h) = E log p(b) over all other gates, up to a constant
        factors = torch.where(subsets > 0, probs, 1 - probs)
        factors[:, head] = 1
        means = (factors.prod(-1) * log_joint).view(-1, 2, 2**head).sum((0, 2))
        logits[head] = means[1] - means[0]
        probs[head] = logits[head].sigmoid()
    return logits


class HeadSubsets(TorchDistribution):
    """Which heads of a block are active in a sentence: zeros and ones.

    Args:
        table: Log-probabilities of its subsets, given lower blocks.
        lower: The gates of all lower blocks; None: there are none.
        batch_shape: Default: that of the table and of the lower gates.
        context: What a posterior is computed from; None: a posterior is given none.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    support = constraints.independent(constraints.boolean, 1)
    has_enumerate_support = True

    def __init__(
        self,
        table: SubsetTable,
        lower: Float[Tensor, "*sample lower"] | None = None,
        batch_shape: Sequence[int] | None = None,
        context: Any = None,
    ) -> None:
        self.table, self.lower, self.context = table, lower, context
        rows = table.given(lower)
        shape = torch.Size(rows.shape[:-1] if batch_shape is None else batch_shape)
        self.log_probs = rows.expand(*shape, rows.shape[-1])
        super().__init__(shape, torch.Size([table.heads]), validate_args=False)

    @property
    def subsets(self) -> Float[Tensor, "subset head"]:
        """The gates of every subset."""
        return all_subsets(self.table.heads, self.log_probs)

    @property
    def mean(self) -> Float[Tensor, "*batch head"]:
        """The probability of every head to be active."""
        return self.log_probs.exp() @ self.subsets

    @property
    def mode(self) -> Float[Tensor, "*batch head"]:
        """The most probable subset."""
        return self.subsets[self.log_probs.argmax(-1)]

    def log_prob(self, value: Float[Tensor, "*sample head"]) -> Float[Tensor, "*out"]:
        """Log-probability of a subset."""
        index = subset_index(value)
        shape = torch.broadcast_shapes(index.shape, self.batch_shape)
        rows = self.log_probs.expand(*shape, self.log_probs.shape[-1])
        return rows.gather(-1, index.expand(shape)[..., None])[..., 0]

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Float[Tensor, "*batch head"]:
        """Samples subsets."""
        with torch.no_grad():
            logits = self.log_probs.nan_to_num()  # the bound is NaN, and its error names why
            index = torch.distributions.Categorical(logits=logits).sample(sample_shape)
            return self.subsets[index]

    def enumerate_support(self, expand: bool = True) -> Float[Tensor, "subset *batch head"]:
        """Every subset once."""
        subsets = self.subsets.reshape(-1, *(1 for _ in self.batch_shape), self.table.heads)
        return subsets.expand(-1, *self.batch_shape, -1) if expand else subsets

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> HeadSubsets:
        """Adds batch dimensions in front."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        return HeadSubsets(self.table, self.lower, batch_shape, self.context)

    def with_table(self, table: SubsetTable) -> HeadSubsets:
        """The distribution of the same gates, with other probabilities."""
        return HeadSubsets(table, self.lower, self.batch_shape)


@register_kl(HeadSubsets, HeadSubsets)
def _kl_head_subsets(q: HeadSubsets, p: HeadSubsets) -> Float[Tensor, "*batch"]:
    return expectation(q.log_probs, q.log_probs - p.log_probs)


def sample_relaxed(
    blocks: Sequence[HeadSubsets], temperature: float
) -> Float[Tensor, "*batch head"]:
    r"""Samples gates between 0 and 1 of all blocks, with a gradient.

    A gate is binary Concrete (Maddison, Mnih and Teh 2017, appendix B,
    https://arxiv.org/abs/1611.00712), given the relaxed gates before it:

    .. math:: \tilde b_h = \mathrm{sigmoid}((\mathrm{logit}\, q(b_h = 1 \mid \tilde b_{<h}) +
              \log u - \log(1 - u)) / \lambda), \qquad u \sim U(0, 1)

    Between its values at zeros and ones the logit is interpolated, in each gate linearly: that of
    a logistic chain is :math:`a_h + \sum_j W_{hj} \tilde b_j`.

    Args:
        blocks: The gates of every block, from the lowest.
        temperature: :math:`\lambda`; towards 0 gates become zeros and ones.
    """
    shape, gates = torch.broadcast_shapes(*(block.batch_shape for block in blocks)), []
    weights = blocks[0].log_probs.new_ones(*shape, 1)  # of all values of the gates so far
    for table in (block.table for block in blocks):
        for head in range(table.heads):
            logit = (weights * table.conditional_logits(head)).sum(-1)
            gates.append(RelaxedBernoulli(logit.new_full((), temperature), logits=logit).rsample())
            gate = gates[-1][..., None]
            weights = torch.cat([weights * (1 - gate), weights * gate], -1)
    return torch.stack(gates, -1)
