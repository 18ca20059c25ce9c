r"""The law of a block's alignments: for every target word, the position each head points at.

Head :math:`k` of word :math:`t` takes a position :math:`z_t^k` with probability

.. math:: p(z_t^k = s \mid z_t^{<k}) \propto
          \exp\bigl(c^k_{ts} + \sum_{j<k} r^{kj}_t(z_t^j, s)\bigr),

scores of its own and one term for each head below that it reads. Heads are counted through all
blocks. Priors and posteriors are of this one form; in :mod:`latentheads.alignment.chain` a word
reads the word before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.kl import register_kl

from latentheads.distributions.heads import spreads
from latentheads.layers.numeric import log_softmax

__all__ = ["NOWHERE", "Alignments", "Pointing", "check_pointing", "draw_place"]

NOWHERE = -1e9
"""The score of a position that may not be pointed at: finite, and its probability exactly 0."""

Pair = tuple[int, int]
"""A head, and one below that it reads."""


@dataclass(frozen=True)
class Pointing:
    """The parameters of a law before anything is drawn.

    Attributes:
        scores: Of every head of the block for itself; ``NOWHERE`` where it may not point.
        pairs: What a head reads of one below, by both their numbers; for all words or each.
        first: Heads in the blocks below: the number of this block's first head.
    """

    scores: Float[Tensor, "*batch target head key"]
    pairs: Mapping[Pair, Float[Tensor, "*batch #target lower key"]] = field(default_factory=dict)
    first: int = 0

    @property
    def heads(self) -> range:
        """The numbers of the block's heads."""
        return range(self.first, self.first + self.scores.shape[-2])

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


def check_pointing(site: str, found: Pointing, prior: Pointing) -> None:
    """Refuses parameters of a posterior that are those of no law of a block's alignments.

    Args:
        site: Of the alignments, for the message.
        found: The posterior's.
        prior: Those of the block's prior.

    Raises:
        ValueError: They are of other heads or positions, or a head reads one that is none below.
    """
    if found.first != prior.first:
        raise ValueError(
            f"site {site!r}: first must be {prior.first}, the number of the block's first head, "
            f"got {found.first}"
        )
    shape, wanted = found.scores.shape, prior.scores.shape
    one, other = shape[:-3], wanted[:-3]
    if shape[-3:] != wanted[-3:] or not (spreads(one, other) or spreads(other, one)):
        raise ValueError(
            f"site {site!r}: scores must be of sentences, words, heads and positions of shape "
            f"{tuple(wanted)}, got {tuple(shape)}"
        )
    steps = getattr(found, "steps", None)
    if steps is not None and shape[-2] > 1:
        raise ValueError(f"site {site!r}: a chain is of one head, and the block has {shape[-2]}")
    for head, lower in found.pairs:
        if head not in found.heads or not 0 <= lower < head:
            raise ValueError(
                f"site {site!r}: pairs must be of a head of the block, of {list(found.heads)}, and "
                f"one below it, got {(head, lower)}"
            )
    between = [*found.pairs.values(), *([] if steps is None else [steps])]
    for each in between:
        if each.shape[-2:] != (shape[-1], shape[-1]) or each.shape[-3] not in (1, shape[-3]):
            raise ValueError(
                f"site {site!r}: what a head reads of another must be of words, or 1 for all, and "
                f"pairs of positions of shape {(shape[-3], shape[-1], shape[-1])}, "
                f"got {tuple(each.shape)}"
            )


def draw_place(law: Float[Tensor, "*batch key"]) -> Int[Tensor, "*batch"]:
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
        pointing: Pointing,
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
        drawn = torch.cat(every, -1)
        found = torch.zeros((), dtype=self.pointing.scores.dtype, device=value.device)
        for head in self.pointing.heads:
            law = self.pointing.given(head, drawn)
            law = law.expand(*drawn.shape[:-1], law.shape[-1])
            found = found + law.gather(-1, drawn[..., head, None])[..., 0]
        return found

    @property
    def mode(self) -> Int[Tensor, "*draw target head"]:
        """Each head's likeliest position, given the heads below."""
        drawn = self.below
        for head in self.pointing.heads:
            place = self.pointing.given(head, drawn).argmax(-1, keepdim=True)
            drawn = torch.cat([drawn, place.expand(*drawn.shape[:-1], 1)], -1)
        return drawn[..., self.pointing.first :]

    @torch.no_grad()
    def sample(self, sample_shape: torch.Size = torch.Size()) -> Int[Tensor, "*draw target head"]:
        """Draws head after head; a word that is not counted is drawn too."""
        shape = torch.Size(sample_shape) + self.batch_shape
        drawn = self.below.expand(*shape, *self.below.shape[-2:])
        for head in self.pointing.heads:
            law = self.pointing.given(head, drawn)
            place = draw_place(law.expand(*shape, *law.shape[-2:]))
            drawn = torch.cat([drawn, place[..., None]], -1)
        return drawn[..., self.pointing.first :]

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
        return type(self)(self.pointing, self.valid, below, self.context)


@register_kl(Alignments, Alignments)
def _kl_of_alignments(q: Alignments, p: Alignments) -> Float[Tensor, "*batch"]:
    """The KL given the blocks below; exact for a block of one head or of heads side by side."""
    if q is p:
        return q.pointing.scores.new_zeros(q.batch_shape)
    inner = q.pointing.first
    for law in (q, p):
        if any(other >= inner for _, other in law.pointing.pairs) or type(law) is not Alignments:
            raise NotImplementedError("heads of one block that read each other have no closed form")
    found = torch.zeros((), dtype=q.pointing.scores.dtype, device=q.valid.device)
    for head in q.pointing.heads:
        log_q = q.pointing.given(head, q.below)
        log_p = p.pointing.given(head, p.below)
        found = found + (log_q.exp() * (log_q - log_p)).sum(-1)
    return (found * q.valid).sum(-1)
