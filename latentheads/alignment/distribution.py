r"""The law of a block's alignments: for every target word, the position each head points at.

Head :math:`k` of word :math:`t` takes a position :math:`z_t^k` with probability

.. math:: p(z_t^k = s \mid z_t^{<k}) \propto
          \exp\bigl(c^k_{ts} + \sum_{j<k} r^{kj}_t(z_t^j, s)\bigr),

scores of its own and one term for each head below that it reads. Heads are counted through all
blocks. Priors and posteriors are of this one form; in :mod:`latentheads.alignment.chain` a word
reads the word before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.kl import register_kl

from latentheads.distributions.heads import is_expandable
from latentheads.layers.numeric import exp, log_softmax, softmax

__all__ = [
    "NOWHERE",
    "Alignments",
    "CategoricalParameters",
    "check_answer",
    "check_parameters",
    "sample_blocks",
    "sample_position",
    "word_log_probs",
]

NOWHERE = -1e9
"""The score of a position that may not be pointed at: finite, and its probability exactly 0."""

Pair = tuple[int, int]
"""A head, and one below that it reads; in a chain the head itself, at the word before."""


@dataclass(frozen=True)
class CategoricalParameters:
    """The parameters of a law before anything is drawn.

    Attributes:
        chained: Whether a word's alignment reads that of the word before.
        scores: Of every head of the block for itself; ``NOWHERE`` where it may not point.
        pairs: What a head reads of one below, by both their numbers; for all words or each.
        first: Heads in the blocks below: the number of this block's first head.
    """

    chained: ClassVar[bool] = False
    scores: Float[Tensor, "*batch target head key"]
    pairs: Mapping[Pair, Float[Tensor, "*batch #target lower key"]] = field(default_factory=dict)
    first: int = 0

    @property
    def heads(self) -> range:
        """The numbers of the block's heads."""
        return range(self.first, self.first + self.scores.shape[-2])

    @property
    def between(self) -> Mapping[Pair, Float[Tensor, "*batch #target before key"]]:
        """All that is read of other heads, or in a chain of the word before."""
        return self.pairs

    def detached(self) -> CategoricalParameters:
        """The same parameters, detached from their graph."""
        pairs = {pair: scores.detach() for pair, scores in self.pairs.items()}
        return replace(self, scores=self.scores.detach(), pairs=pairs)

    @property
    def start(self) -> Float[Tensor, "*batch key"]:
        """Log-probabilities of the first word's positions, for one head."""
        return self.scores[..., 0, 0, :].log_softmax(-1)

    @property
    def marginals(self) -> Float[Tensor, "*batch target head key"]:
        """The probability of every position, whatever the other words'; of heads side by side."""
        return softmax(self.scores)

    def lower(self, head: int) -> list[int]:
        """The heads that a head reads."""
        return [other for one, other in self.pairs if one == head]

    def given(
        self, head: int, drawn: Int[Tensor, "*draw target lower"]
    ) -> Float[Tensor, "*out target key"]:
        """Log-probabilities of a head's positions, given those of all heads below."""
        scores = self.scores[..., head - self.first, :]
        for other in self.lower(head):
            pair = self.pairs[head, other]
            pair = pair.expand(*pair.shape[:-3], scores.shape[-2], *pair.shape[-2:])
            place = drawn[..., other, None, None].expand(*drawn.shape[:-1], 1, pair.shape[-1])
            pair = pair.expand(*drawn.shape[:-2], *pair.shape[-3:])
            scores = scores + pair.gather(-2, place)[..., 0, :]
        return log_softmax(scores)

    def table(self, head: int, heads: int) -> Float[Tensor, "*table"]:
        """Log-probabilities of a head's positions for all positions of the heads below.

        Args:
            head: Its number.
            heads: How many heads the table is over; those that the law does not read have size 1.
        """
        own = self.scores[..., head - self.first, :]
        scores = own.view(*own.shape[:-1], *(1,) * head, own.shape[-1])
        for other in self.lower(head):
            pair = self.pairs[head, other]
            between = head - other - 1
            shape = (*(1,) * other, pair.shape[-2], *(1,) * between, pair.shape[-1])
            scores = scores + pair.reshape(*pair.shape[:-2], *shape)
        found = log_softmax(scores)
        return found.view(*found.shape, *(1,) * (heads - head - 1))

    def word_log_prob(
        self, drawn: Int[Tensor, "*draw target lower"]
    ) -> Float[Tensor, "*draw target"]:
        """Log-probability of each word's alignments, given those of the blocks below.

        Args:
            drawn: Those of all heads, from the lowest.
        """
        found = torch.zeros((), dtype=self.scores.dtype, device=drawn.device)
        for head in self.heads:
            law = self.given(head, drawn)
            law = law.expand(*drawn.shape[:-1], law.shape[-1])
            found = found + law.gather(-1, drawn[..., head, None])[..., 0]
        return found

    def walk(
        self, below: Int[Tensor, "*draw target lower"], choose: Callable[[Tensor], Tensor]
    ) -> Int[Tensor, "*draw target head"]:
        """Chooses the positions of head after head, each by its law given those below.

        Args:
            below: What was drawn of the heads in the blocks below.
            choose: Takes the log-probabilities of positions, and gives one.
        """
        drawn = below
        for head in self.heads:
            law = self.given(head, drawn)
            place = choose(law.expand(*drawn.shape[:-1], law.shape[-1]))
            drawn = torch.cat([drawn, place[..., None]], -1)
        return drawn[..., self.first :]


def check_parameters(site: str, found: CategoricalParameters, prior: CategoricalParameters) -> None:
    """Refuses parameters of a posterior that are those of no law of a block's alignments.

    Args:
        site: Of the alignments, for the message.
        found: The posterior's.
        prior: Those of the block's prior.

    Raises:
        ValueError: They are none, or of other heads or positions, a head reads one that is none
            below, or a word the one before where the prior is no chain.
    """
    if not isinstance(found, CategoricalParameters):
        raise ValueError(
            f"site {site!r}: parameters must be CategoricalParameters, such as prior.pointing with "
            f"other scores, got {type(found).__name__}"
        )
    if found.first != prior.first:
        raise ValueError(
            f"site {site!r}: first must be {prior.first}, the number of the block's first head, "
            f"got {found.first}"
        )
    shape, wanted = found.scores.shape, prior.scores.shape
    one, other = shape[:-3], wanted[:-3]
    if shape[-3:] != wanted[-3:] or not (is_expandable(one, other) or is_expandable(other, one)):
        raise ValueError(
            f"site {site!r}: scores must be of sentences, words, heads and positions of shape "
            f"{tuple(wanted)}, got {tuple(shape)}"
        )
    if found.chained and not prior.chained:
        raise ValueError(
            f"site {site!r}: ChainParameters is for alignment_prior chain alone: give "
            "CategoricalParameters, for here no word's alignment reads another's"
        )
    for head, lower in found.pairs:
        if head not in found.heads or not 0 <= lower < head:
            raise ValueError(
                f"site {site!r}: pairs must be of a head of the block, of {list(found.heads)}, and "
                f"one below it, got {(head, lower)}"
            )
    for each in found.between.values():
        pairs_of_keys = each.ndim >= 3 and each.shape[-2:] == (shape[-1], shape[-1])
        if not pairs_of_keys or each.shape[-3] not in (1, shape[-3]):
            raise ValueError(
                f"site {site!r}: what a head reads of another must be of words, or 1 for all, and "
                f"pairs of positions of shape {(shape[-3], shape[-1], shape[-1])}, "
                f"got {tuple(each.shape)}"
            )


def check_answer(site: str, found: Any, prior: Alignments) -> None:
    """Refuses a posterior that is no law of a block's alignments, or counts other words.

    Args:
        site: Of the alignments, for the message.
        found: The posterior.
        prior: The block's prior.

    Raises:
        ValueError: It is another law, or a word is counted in one of the two alone: nothing would
            pay for it.
    """
    if found is prior:
        return
    if not isinstance(found, Alignments):
        raise ValueError(
            f"site {site!r}: the posterior must be Alignments, got {type(found).__name__}"
        )
    check_parameters(site, found.pointing, prior.pointing)
    if found.valid is not prior.valid and not torch.equal(found.valid, prior.valid):
        raise ValueError(f"site {site!r}: the posterior must count the prior's words, its valid")


def sample_position(law: Float[Tensor, "*batch key"]) -> Int[Tensor, "*batch"]:
    """Draws from log-probabilities: the largest of them with Gumbel noise, without a normaliser."""
    return (law - torch.empty_like(law).exponential_().log_()).argmax(-1)


class Alignments(TorchDistribution):
    """Alignments of every head of a block, one random variable a sentence.

    The event is ``target head``. Padded words count in no density.

    Args:
        pointing: The parameters.
        valid: True at the words that are counted.
        below: What was drawn of the heads in the blocks below; None in the first.
        context: What the block knew, for a posterior to read.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    support = constraints.independent(constraints.nonnegative_integer, 2)
    has_enumerate_support = True

    def __init__(
        self,
        pointing: CategoricalParameters,
        valid: Bool[Tensor, "*batch target"],
        below: Int[Tensor, "*draw target lower"] | None = None,
        context: Any = None,
    ) -> None:
        self.pointing, self.valid, self.context = pointing, valid, context
        target, heads = pointing.scores.shape[-3:-1]
        shape = pointing.scores.shape[:-3]
        if below is None:
            below = torch.zeros(*shape, target, 0, dtype=torch.long, device=valid.device)
        self.below = below
        batch = torch.broadcast_shapes(shape, below.shape[:-2])
        super().__init__(batch, torch.Size((target, heads)), validate_args=False)

    def log_prob(self, value: Int[Tensor, "*draw target head"]) -> Float[Tensor, "*out"]:
        """Sums over heads and over the words that are counted."""
        return (self.word_log_prob(value) * self.valid).sum(-1)

    def word_log_prob(
        self, value: Int[Tensor, "*draw target head"]
    ) -> Float[Tensor, "*out target"]:
        """Log-probability of the alignments of each word."""
        shape = torch.broadcast_shapes((*self.batch_shape, 1), value.shape[:-1])
        every = (self.below.expand(*shape, -1), value.expand(*shape, -1))
        return self.pointing.word_log_prob(torch.cat(every, -1))

    @property
    def mode(self) -> Int[Tensor, "*draw target head"]:
        """Each position the likeliest, given the heads below or the word before."""
        below = self.below.expand(*self.batch_shape, *self.below.shape[-2:])
        return self.pointing.walk(below, lambda law: law.argmax(-1))

    @torch.no_grad()
    def sample(self, sample_shape: torch.Size = torch.Size()) -> Int[Tensor, "*draw target head"]:
        """Draws head after head, a chain word after word; one that is not counted is drawn too."""
        shape = torch.Size(sample_shape) + self.batch_shape
        return self.pointing.walk(
            self.below.expand(*shape, *self.below.shape[-2:]), sample_position
        )

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "value *batch target head"]:
        """All alignments of a sentence, keys to the power of words times heads: for small ones.

        Raises:
            ValueError: A word is padded.
        """
        if not self.valid.all():
            raise ValueError(
                "alignments are enumerated of targets of one length: a padded word, which no "
                "density counts, would count once for every position"
            )
        target, heads = self.event_shape
        keys = self.pointing.scores.shape[-1]
        places = torch.arange(keys, device=self.valid.device)
        values = torch.cartesian_prod(*[places] * (target * heads)).view(-1, target, heads)
        values = values.view(-1, *(1,) * len(self.batch_shape), target, heads)
        return values.expand(-1, *self.batch_shape, -1, -1) if expand else values

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Alignments:
        """Puts batch dimensions in front."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        below = self.below.expand(*batch_shape, *self.below.shape[-2:])
        return Alignments(self.pointing, self.valid, below, self.context)


def sample_blocks(
    pointings: Sequence[CategoricalParameters], valid: Bool[Tensor, "*batch target"], draws: int
) -> Int[Tensor, "draw *batch target head"]:
    """Draws block after block, each given the draws below it.

    Args:
        pointings: The parameters of every block, from the lowest.
        valid: True at the words that are counted.
        draws: How many.
    """
    first, *above = pointings
    drawn = Alignments(first, valid).sample(torch.Size((draws,)))
    for pointing in above:
        drawn = torch.cat([drawn, Alignments(pointing, valid, drawn).sample()], -1)
    return drawn


def word_log_probs(
    pointings: Sequence[CategoricalParameters],
    valid: Bool[Tensor, "*batch target"],
    drawn: Int[Tensor, "draw *batch target head"],
) -> Float[Tensor, "draw *batch target"]:
    """Log-probability of every word's alignments, those of some blocks together; 0 at padding."""
    found = []
    for pointing in pointings:
        law = Alignments(pointing, valid, drawn[..., : pointing.first])
        own = drawn[..., pointing.first : pointing.first + len(pointing.heads)]
        found.append(law.word_log_prob(own) * valid)
    return torch.stack(found).sum(0)


@register_kl(Alignments, Alignments)
def _kl_of_alignments(q: Alignments, p: Alignments) -> Float[Tensor, "*batch"]:
    """The KL given the blocks below; exact for a block of one head or of heads side by side."""
    if q is p:
        return q.pointing.scores.new_zeros(q.batch_shape)
    inner = q.pointing.first
    for law in (q, p):
        if any(other >= inner for _, other in law.pointing.between):
            raise NotImplementedError("heads of one block that read each other have no closed form")
    found = torch.zeros((), dtype=q.pointing.scores.dtype, device=q.valid.device)
    for head in q.pointing.heads:
        log_q = q.pointing.given(head, q.below)
        log_p = p.pointing.given(head, p.below)
        found = found + (exp(log_q) * (log_q - log_p)).sum(-1)
    return (found * q.valid).sum(-1)
