r"""The distribution of a block's alignments: the position that each head of each word points at.

Head :math:`k` of word :math:`t` takes a position :math:`z_t^k` with probability

.. math:: p(z_t^k = s \mid z_t^{<k}) \propto
          \exp\bigl(c^k_{ts} + \sum_{j<k} r^{kj}_t(z_t^j, s)\bigr),

scores of its own and one term for each lower head that it is conditioned on. Heads are numbered
through all blocks. Priors and posteriors both have this form; in
:mod:`latentheads.latents.alignments.chain` each word is conditioned on the word before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.kl import register_kl

from latentheads.checks import check_instance
from latentheads.distributions.heads import is_expandable
from latentheads.layers.numeric import exp, log_softmax, softmax

NOWHERE = -1e9
"""The score of a masked position: finite, so that gradients are, and its probability exactly 0."""

Pair = tuple[int, int]
"""A head and a lower head that it is conditioned on; in a chain itself, at the previous word."""


@dataclass(frozen=True)
class CategoricalParameters:
    """The parameters of the alignments of a block: categorical distributions over positions.

    Attributes:
        chained: Whether a word's alignment is conditioned on that of the previous word.
        scores: The logits of each head of the block; ``NOWHERE`` where a position is masked.
        pairs: Logits for each pair of a head's position and a lower head's, by both their numbers;
            shared by all words or one for each.
        first_head: The number of the block's first head: the number of heads in lower blocks.
    """

    chained: ClassVar[bool] = False
    scores: Float[Tensor, "*batch target head key"]
    pairs: Mapping[Pair, Float[Tensor, "*pairs #target lower key"]] = field(default_factory=dict)
    first_head: int = 0

    @property
    def heads(self) -> range:
        """The numbers of the block's heads."""
        return range(self.first_head, self.first_head + self.scores.shape[-2])

    @property
    def pair_scores(self) -> Mapping[Pair, Float[Tensor, "*batch #target before key"]]:
        """Logits that couple a head with others, or in a chain with the previous word."""
        return self.pairs

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient can reach the parameters."""
        tensors = self.scores, *self.pair_scores.values()
        return any(tensor.requires_grad for tensor in tensors)

    def detached(self) -> CategoricalParameters:
        """The same parameters, detached from their graph."""
        pairs = {pair: scores.detach() for pair, scores in self.pairs.items()}
        return replace(self, scores=self.scores.detach(), pairs=pairs)

    def with_tensors(self, tensors: Iterator[Tensor]) -> CategoricalParameters:
        """The same parameters of other numbers: the next scores, and those of each pair."""
        scores = next(tensors)
        return replace(self, scores=scores, pairs={pair: next(tensors) for pair in self.pairs})

    @property
    def initial_log_probs(self) -> Float[Tensor, "*batch key"]:
        """Log-probabilities of the first word's positions, of a block of one head."""
        return self.scores[..., 0, 0, :].log_softmax(-1)

    @property
    def marginals(self) -> Float[Tensor, "*batch target head key"]:
        """The probability of every position; exact for heads that are independent."""
        return softmax(self.scores)

    def parents(self, head: int) -> list[int]:
        """The heads that a head is conditioned on."""
        return [lower for upper, lower in self.pairs if upper == head]

    def conditional_log_probs(
        self, head: int, positions: Int[Tensor, "*sample target lower"]
    ) -> Float[Tensor, "*out target key"]:
        """Log-probabilities of a head's positions, given those of all lower heads."""
        scores = self.scores[..., head - self.first_head, :]
        for parent in self.parents(head):
            pair_scores = self.pairs[head, parent]
            # gather broadcasts nothing: samples and words share a matrix without a copy
            shape = (*positions.shape[:-1], *pair_scores.shape[-2:])
            row = positions[..., parent, None, None].expand(*shape[:-2], 1, shape[-1])
            scores = scores + pair_scores.expand(shape).gather(-2, row)[..., 0, :]
        return log_softmax(scores)

    def log_prob_table(self, head: int, heads: int) -> Float[Tensor, "*table"]:
        """Log-probabilities of a head's positions for all positions of the lower heads.

        Args:
            head: Its number.
            heads: Number of heads of the table. Heads that this one is not conditioned on have
                dimensions of size 1.
        """
        # a dimension of the table for each head's positions, of size 1 where they do not matter
        own_scores = self.scores[..., head - self.first_head, :]
        scores = own_scores.view(*own_scores.shape[:-1], *(1,) * head, own_scores.shape[-1])
        for parent in self.parents(head):
            pair_scores = self.pairs[head, parent]
            num_between = head - parent - 1
            shape = (
                *(1,) * parent,
                pair_scores.shape[-2],
                *(1,) * num_between,
                pair_scores.shape[-1],
            )
            scores = scores + pair_scores.reshape(*pair_scores.shape[:-2], *shape)
        log_probs = log_softmax(scores)
        return log_probs.view(*log_probs.shape, *(1,) * (heads - head - 1))

    def word_log_prob(
        self, positions: Int[Tensor, "*sample target lower"]
    ) -> Float[Tensor, "*sample target"]:
        """Log-probability of each word's alignments, given those of lower blocks."""
        total = torch.zeros((), dtype=self.scores.dtype, device=positions.device)
        for head in self.heads:
            log_probs = self.conditional_log_probs(head, positions)
            log_probs = log_probs.expand(*positions.shape[:-1], log_probs.shape[-1])
            total = total + log_probs.gather(-1, positions[..., head, None])[..., 0]
        return total

    def choose_sequentially(
        self, below: Int[Tensor, "*sample target lower"], choose: Callable[[Tensor], Tensor]
    ) -> Int[Tensor, "*sample target head"]:
        """Choose positions head by head, each given those of the lower heads.

        Args:
            below: The positions of the heads in lower blocks.
            choose: A function from the log-probabilities of positions to one position, for example
                an argmax or a sample.
        """
        positions = below
        for head in self.heads:
            log_probs = self.conditional_log_probs(head, positions)
            position = choose(log_probs.expand(*positions.shape[:-1], log_probs.shape[-1]))
            positions = torch.cat([positions, position[..., None]], -1)
        return positions[..., self.first_head :]


def check_parameters(
    site: str, parameters: CategoricalParameters, prior: CategoricalParameters
) -> None:
    """Check that a posterior's parameters fit the prior of a block.

    Raises:
        ValueError: They have other heads or positions, a head is conditioned on one
            that is not below it, or a word on the previous word where the prior is not a chain.
    """
    if parameters.first_head != prior.first_head:
        raise ValueError(
            f"site {site!r}: first_head must be {prior.first_head}, the number of the "
            f"block's first head, got {parameters.first_head}"
        )
    shape, prior_shape = parameters.scores.shape, prior.scores.shape
    batch_shape, prior_batch_shape = shape[:-3], prior_shape[:-3]
    if shape[-3:] != prior_shape[-3:] or not (
        is_expandable(batch_shape, prior_batch_shape)
        or is_expandable(prior_batch_shape, batch_shape)
    ):
        raise ValueError(
            f"site {site!r}: scores must be of sentences, words, heads and positions of shape "
            f"{tuple(prior_shape)}, got {tuple(shape)}"
        )
    if parameters.chained and not prior.chained:
        raise ValueError(
            f"site {site!r}: ChainParameters is for prior chain alone: give "
            "CategoricalParameters, since here words are independent"
        )
    for head, lower in parameters.pairs:
        if head not in parameters.heads or not 0 <= lower < head:
            raise ValueError(
                f"site {site!r}: pairs must be of a head of the block, of "
                f"{list(parameters.heads)}, and one below it, got {(head, lower)}"
            )
    for scores in parameters.pair_scores.values():
        pairs_of_keys = scores.ndim >= 3 and scores.shape[-2:] == (shape[-1], shape[-1])
        if not pairs_of_keys or scores.shape[-3] not in (1, shape[-3]):
            raise ValueError(
                f"site {site!r}: scores of a pair of heads must be of words, or 1 for all, and "
                f"pairs of positions of shape {(shape[-3], shape[-1], shape[-1])}, "
                f"got {tuple(scores.shape)}"
            )


def check_posterior(site: str, posterior: Any, prior: Alignments) -> None:
    """Check that a posterior is a distribution of the block's alignments, with the same mask.

    Raises:
        ValueError: It is another distribution, or its padding mask differs, so that the KL would
            leave some words out.
    """
    if posterior is prior:
        return
    check_instance(f"site {site!r}: the posterior", posterior, Alignments, "Alignments")
    check_parameters(site, posterior.parameters, prior.parameters)
    if posterior.valid is not prior.valid and not torch.equal(posterior.valid, prior.valid):
        raise ValueError(f"site {site!r}: the posterior must count the prior's words, its valid")


def sample_position(log_probs: Float[Tensor, "*batch key"]) -> Int[Tensor, "*batch"]:
    """Sample positions by the Gumbel-max trick, which needs no normaliser."""
    return (log_probs - torch.empty_like(log_probs).exponential_().log_()).argmax(-1)


class Alignments(TorchDistribution):
    """Alignments of every head of a block: one random variable for each sentence.

    The event is ``target head``. Padding does not count in the log-density.

    Args:
        parameters: The parameters.
        valid: True at real tokens.
        below: The positions of the heads in lower blocks; None in the first block.
        context: What the block computed, for a posterior to condition on.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    support = constraints.independent(constraints.nonnegative_integer, 2)
    has_enumerate_support = True

    def __init__(
        self,
        parameters: CategoricalParameters,
        valid: Bool[Tensor, "*batch target"],
        below: Int[Tensor, "*sample target lower"] | None = None,
        context: Any = None,
    ) -> None:
        self.parameters, self.valid, self.context = parameters, valid, context
        target, heads = parameters.scores.shape[-3:-1]
        shape = parameters.scores.shape[:-3]
        if below is None:
            below = torch.zeros(*shape, target, 0, dtype=torch.long, device=valid.device)
        self.below = below
        batch = torch.broadcast_shapes(shape, below.shape[:-2])
        super().__init__(batch, torch.Size((target, heads)), validate_args=False)

    def log_prob(self, value: Int[Tensor, "*sample target head"]) -> Float[Tensor, "*out"]:
        """Log-probability of a sentence's alignments: the sum over heads and real words."""
        return (self.word_log_prob(value) * self.valid).sum(-1)

    def word_log_prob(
        self, value: Int[Tensor, "*sample target head"]
    ) -> Float[Tensor, "*out target"]:
        """Log-probability of the alignments of each word."""
        shape = torch.broadcast_shapes((*self.batch_shape, 1), value.shape[:-1])
        positions = (self.below.expand(*shape, -1), value.expand(*shape, -1))
        return self.parameters.word_log_prob(torch.cat(positions, -1))

    @property
    def mode(self) -> Int[Tensor, "*sample target head"]:
        """Greedy choice: each position is the likeliest given the lower heads or previous word."""
        below = self.below.expand(*self.batch_shape, *self.below.shape[-2:])
        return self.parameters.choose_sequentially(below, lambda log_probs: log_probs.argmax(-1))

    @torch.no_grad()
    def sample(self, sample_shape: torch.Size = torch.Size()) -> Int[Tensor, "*sample target head"]:
        """Sample head by head, a chain word by word, padding included."""
        shape = torch.Size(sample_shape) + self.batch_shape
        return self.parameters.choose_sequentially(
            self.below.expand(*shape, *self.below.shape[-2:]), sample_position
        )

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "value *batch target head"]:
        """All alignments of a sentence: keys ** (words * heads), so for short ones only.

        Raises:
            ValueError: There is padding.
        """
        if not self.valid.all():
            raise ValueError(
                "alignments can be enumerated only for targets of equal length: padding, which no "
                "density counts, would be counted once for every position"
            )
        target, heads = self.event_shape
        num_keys = self.parameters.scores.shape[-1]
        positions = torch.arange(num_keys, device=self.valid.device)
        values = torch.cartesian_prod(*[positions] * (target * heads)).view(-1, target, heads)
        values = values.view(-1, *(1,) * len(self.batch_shape), target, heads)
        return values.expand(-1, *self.batch_shape, -1, -1) if expand else values

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Alignments:
        """Add batch dimensions in front."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        below = self.below.expand(*batch_shape, *self.below.shape[-2:])
        return Alignments(self.parameters, self.valid, below, self.context)


def sample_blocks(
    parameters: Sequence[CategoricalParameters],
    valid: Bool[Tensor, "*valid target"],
    num_samples: int,
) -> Int[Tensor, "sample *batch target head"]:
    """Sample block by block, each given the samples of the lower blocks."""
    first, *above = parameters
    positions = Alignments(first, valid).sample(torch.Size((num_samples,)))
    for block_parameters in above:
        positions = torch.cat(
            [positions, Alignments(block_parameters, valid, positions).sample()], -1
        )
    return positions


def word_log_probs(
    parameters: Sequence[CategoricalParameters],
    valid: Bool[Tensor, "*batch target"],
    positions: Int[Tensor, "sample *batch target head"],
) -> Float[Tensor, "sample *batch target"]:
    """Log-probability of each word's alignments, summed over blocks; 0 at padding."""
    log_probs = []
    for block_parameters in parameters:
        distribution = Alignments(
            block_parameters, valid, positions[..., : block_parameters.first_head]
        )
        block_positions = positions[
            ...,
            block_parameters.first_head : block_parameters.first_head + len(block_parameters.heads),
        ]
        log_probs.append(distribution.word_log_prob(block_positions) * valid)
    return torch.stack(log_probs).sum(0)


@register_kl(Alignments, Alignments)
def _kl_of_alignments(q: Alignments, p: Alignments) -> Float[Tensor, "*batch"]:
    """The KL given the lower blocks; exact if the heads of the block are independent."""
    if q is p:
        return q.parameters.scores.new_zeros(q.batch_shape)
    first_head = q.parameters.first_head
    for distribution in (q, p):
        if any(parent >= first_head for _, parent in distribution.parameters.pair_scores):
            raise NotImplementedError("dependent heads of one block have no closed form")
    kl = torch.zeros((), dtype=q.parameters.scores.dtype, device=q.valid.device)
    for head in q.parameters.heads:
        log_q = q.parameters.conditional_log_probs(head, q.below)
        log_p = p.parameters.conditional_log_probs(head, p.below)
        kl = kl + (exp(log_q) * (log_q - log_p)).sum(-1)
    return (kl * q.valid).sum(-1)
