r"""Which of a block's candidate heads speak: a vector of zeros and ones, in three laws.

For candidates :math:`h = 1 \dots H'` with logits :math:`\varphi_h`:

* :class:`Gates`: each on its own, :math:`q(z_h = 1) = \mathrm{sigmoid}(\varphi_h)`;
* :class:`Subset`: exactly H of them, :math:`q(S) = \prod_{h \in S} e^{\varphi_h} / e_H(\varphi)`
  with the elementary symmetric polynomial :math:`e_H`, the conditional Bernoulli law;
* :class:`Group`: one of each of H groups, :math:`q(z_g = j) = \mathrm{softmax}(\varphi_g)_j`.

A draw is exactly zeros and ones. Its gradient is that of a relaxation (straight through), biased,
or none; log-probabilities, divergences and marginals are exact.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations, product
from typing import Any

import torch
from jaxtyping import Float
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.kl import register_kl
from torch.nn import functional as F

__all__ = ["Countable", "Gates", "Group", "Selection", "Subset"]


class Selection(TorchDistribution):
    """How loudly the candidates of a block speak, each between zero and one; abstract.

    Args:
        logits: One number a candidate.
        temperature: Of the relaxation that gives the gradient.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    has_rsample = True

    def __init__(self, logits: Float[Tensor, "*batch candidate"], temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.logits = logits
        self.temperature = temperature
        super().__init__(logits.shape[:-1], logits.shape[-1:], validate_args=False)

    @property
    @abstractmethod
    def mean(self) -> Float[Tensor, "*batch candidate"]:
        """The probability of every candidate to be chosen."""

    @property
    def open(self) -> Float[Tensor, "*batch candidate"]:
        """The probability of every candidate to speak."""
        return self.mean

    @property
    @abstractmethod
    def mode(self) -> Float[Tensor, "*batch candidate"]:
        """The most probable choice; among equals, the lower candidates."""

    @abstractmethod
    def log_prob(self, value: Float[Tensor, "*batch candidate"]) -> Float[Tensor, "*batch"]:
        """Log-probability of a choice."""

    @abstractmethod
    def _like(self, logits: Float[Tensor, "*batch candidate"]) -> Selection:
        """The same law with other logits."""

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Selection:
        """Puts batch dimensions in front."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        return self._like(self.logits.expand(batch_shape + self.event_shape))


def _uniform(like: Tensor) -> Tensor:
    """Uniform noise inside (0, 1)."""
    tiny = torch.finfo(like.dtype).tiny
    return torch.rand(like.shape, dtype=like.dtype, device=like.device).clamp_min(tiny)


class Countable(Selection):
    """A law of zeros and ones, whose choices can all be gone through; abstract.

    Args:
        logits: One number a candidate.
        temperature: Of the relaxation that gives the gradient; the draw itself does not depend
            on it. None: a draw has no gradient.
    """

    support = constraints.independent(constraints.boolean, 1)
    has_enumerate_support = True

    def __init__(
        self, logits: Float[Tensor, "*batch candidate"], temperature: float | None = 1.0
    ) -> None:
        super().__init__(logits, 1.0 if temperature is None else temperature)
        self.has_rsample = temperature is not None

    @property
    @abstractmethod
    def number(self) -> int:
        """How many choices there are."""

    @abstractmethod
    def _every(self) -> Iterable[tuple[int, ...]]:
        """The candidates of every choice."""

    def enumerate_support(self, expand: bool = True) -> Float[Tensor, "choice *batch candidate"]:
        """Every choice once."""
        every = self.logits.new_zeros(self.number, self.logits.shape[-1])
        for row, chosen in zip(every, self._every(), strict=True):
            row[list(chosen)] = 1.0
        every = every.reshape(-1, *(1 for _ in self.batch_shape), every.shape[-1])
        return every.expand(-1, *self.batch_shape, -1) if expand else every

    @abstractmethod
    def _draw(self, logits: Float[Tensor, "*batch candidate"]) -> tuple[Tensor, Tensor]:
        """Draws a choice, and the relaxation whose gradient it takes."""

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Draws choices with a straight-through gradient, or with none."""
        hard, soft = self._draw(self.logits.expand(self._extended_shape(sample_shape)))
        return hard + (soft - soft.detach()) if self.has_rsample else hard

    @property
    def _relaxation(self) -> float | None:
        return self.temperature if self.has_rsample else None


class Gates(Countable):
    """Every candidate on its own."""

    @property
    def number(self) -> int:
        """All sets of candidates."""
        return int(2 ** self.logits.shape[-1])

    def _every(self) -> Iterator[tuple[int, ...]]:
        candidates = range(self.logits.shape[-1])
        return chain.from_iterable(combinations(candidates, n) for n in range(len(candidates) + 1))

    @property
    def mean(self) -> Float[Tensor, "*batch candidate"]:
        """``sigmoid(logits)``."""
        return self.logits.sigmoid()

    @property
    def mode(self) -> Float[Tensor, "*batch candidate"]:
        """Those more probable than not."""
        return (self.logits > 0).to(self.logits)

    def log_prob(self, value: Float[Tensor, "*batch candidate"]) -> Float[Tensor, "*batch"]:
        """Sums the log-probabilities of all candidates."""
        return (value * self.logits - F.softplus(self.logits)).sum(-1)

    def _draw(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        u = _uniform(logits)
        noisy = logits + u.log() - torch.log1p(-u.clamp(max=1 - torch.finfo(u.dtype).eps))
        return (noisy > 0).to(logits), (noisy / self.temperature).sigmoid()

    def _like(self, logits: Tensor) -> Gates:
        return Gates(logits, self._relaxation)


class Group(Countable):
    """One candidate of each group; group g holds the candidates g, g + H, g + 2H, ...

    Args:
        logits: One number a candidate.
        groups: Number of groups H; it divides the candidates.
        temperature: As in :class:`Countable`.
    """

    def __init__(
        self,
        logits: Float[Tensor, "*batch candidate"],
        groups: int,
        temperature: float | None = 1.0,
    ) -> None:
        if groups < 1 or logits.shape[-1] % groups:
            raise ValueError(f"groups must divide the {logits.shape[-1]} candidates, got {groups}")
        self.groups = groups
        super().__init__(logits, temperature)

    @property
    def number(self) -> int:
        """One of each group."""
        return int((self.logits.shape[-1] // self.groups) ** self.groups)

    def _every(self) -> Iterator[tuple[int, ...]]:
        candidates = range(self.logits.shape[-1])
        return product(*(candidates[group :: self.groups] for group in range(self.groups)))

    def _grouped(self, x: Tensor) -> Float[Tensor, "*batch member group"]:
        return x.unflatten(-1, (-1, self.groups))

    def _log_softmax(self) -> Float[Tensor, "*batch member group"]:
        return self._grouped(self.logits).log_softmax(-2)

    @property
    def mean(self) -> Float[Tensor, "*batch candidate"]:
        """``softmax(logits)`` within each group."""
        return self._log_softmax().exp().flatten(-2)

    @property
    def mode(self) -> Float[Tensor, "*batch candidate"]:
        """The most probable of each group."""
        return self._chosen(self.logits)

    def _chosen(self, scores: Tensor) -> Tensor:
        grouped = self._grouped(scores)
        best = torch.zeros_like(grouped).scatter(-2, grouped.argmax(-2, keepdim=True), 1.0)
        return best.flatten(-2)

    def log_prob(self, value: Float[Tensor, "*batch candidate"]) -> Float[Tensor, "*batch"]:
        """Sums the log-probabilities of the groups; -inf where one has not exactly one."""
        chosen = self._grouped(value)
        found = (chosen * self._log_softmax()).sum((-1, -2))
        return found.masked_fill((chosen.sum(-2) != 1).any(-1), -torch.inf)

    def _draw(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        noisy = logits - (-_uniform(logits).log()).log()
        soft = (self._grouped(noisy) / self.temperature).softmax(-2).flatten(-2)
        return self._chosen(noisy), soft

    def _like(self, logits: Tensor) -> Group:
        return Group(logits, self.groups, self._relaxation)


class Subset(Countable):
    """Exactly ``size`` candidates: the conditional Bernoulli law.

    The relaxation of a draw is its marginal probability at the temperature.

    Args:
        logits: One number a candidate.
        size: Candidates chosen, H.
        temperature: As in :class:`Countable`.
    """

    def __init__(
        self,
        logits: Float[Tensor, "*batch candidate"],
        size: int,
        temperature: float | None = 1.0,
    ) -> None:
        if not 1 <= size <= logits.shape[-1]:
            raise ValueError(f"size must lie in 1 ... {logits.shape[-1]}, got {size}")
        self.size = size
        super().__init__(logits, temperature)

    @property
    def number(self) -> int:
        """All subsets of the size."""
        return math.comb(self.logits.shape[-1], self.size)

    def _every(self) -> Iterator[tuple[int, ...]]:
        return combinations(range(self.logits.shape[-1]), self.size)

    @property
    def mean(self) -> Float[Tensor, "*batch candidate"]:
        """The exact marginals."""
        return _marginals(self.logits, self.size)

    @property
    def mode(self) -> Float[Tensor, "*batch candidate"]:
        """The candidates with the largest logits."""
        order = self.logits.argsort(dim=-1, descending=True, stable=True)
        return torch.zeros_like(self.logits).scatter(-1, order[..., : self.size], 1.0)

    @property
    def log_normaliser(self) -> Float[Tensor, "*batch"]:
        r"""``log e_H``, by the recursion :math:`e_k(1..n) = e_k(1..n-1) + w_n e_{k-1}(1..n-1)`."""
        return _symmetric(self.logits, self.size)[-1][..., -1]

    def log_prob(self, value: Float[Tensor, "*batch candidate"]) -> Float[Tensor, "*batch"]:
        """Log-probability of a subset; -inf for one of another size."""
        found = (value * self.logits).sum(-1) - self.log_normaliser
        return found.masked_fill(value.sum(-1) != self.size, -torch.inf)

    def _draw(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return self._exact(logits.detach()), _marginals(logits / self.temperature, self.size)

    def _exact(self, logits: Tensor) -> Tensor:
        """Takes or leaves one candidate after the other, given how many are still to be taken."""
        rest = _symmetric(logits.flip(-1), self.size)
        left = torch.full(logits.shape[:-1], self.size, device=logits.device)
        chosen = []
        for place, u in enumerate(_uniform(logits).unbind(-1)):
            further = logits.shape[-1] - place - 1
            without = rest[further].gather(-1, (left - 1).clamp_min(0)[..., None]).squeeze(-1)
            of_all = rest[further + 1].gather(-1, left[..., None]).squeeze(-1)
            take = (u.log() < logits[..., place] + without - of_all) & (left > 0)
            left = left - take.long()
            chosen.append(take)
        return torch.stack(chosen, -1).to(logits)

    def _like(self, logits: Tensor) -> Subset:
        return Subset(logits, self.size, self._relaxation)


def _symmetric(logits: Tensor, size: int) -> list[Float[Tensor, "*batch order"]]:
    """``log e_k`` of the first n candidates for k = 0 ... size, for every n from 0."""
    nothing = torch.finfo(logits.dtype).min / 4
    row = logits.new_full((*logits.shape[:-1], size + 1), nothing)
    row[..., 0] = 0.0
    rows = [row]
    for logit in logits.unbind(-1):
        shifted = F.pad(row[..., :-1] + logit[..., None], (1, 0), value=nothing)
        row = torch.logaddexp(row, shifted)
        rows.append(row)
    return rows


def _marginals(logits: Tensor, size: int) -> Float[Tensor, "*batch candidate"]:
    r"""``P(h in S) = w_h e_{H-1}(all others) / e_H``, the others before h times those behind it."""
    before, behind = _symmetric(logits, size), _symmetric(logits.flip(-1), size)
    found = []
    for place, logit in enumerate(logits.unbind(-1)):
        others = before[place][..., :size] + behind[-place - 2][..., :size].flip(-1)
        found.append(logit + others.logsumexp(-1) - before[-1][..., -1])
    return torch.stack(found, -1).exp()


@register_kl(Gates, Gates)
def _kl_gates(q: Gates, p: Gates) -> Float[Tensor, "*batch"]:
    r""":math:`\sum_h q_h (\varphi_h - \psi_h) - \log(1 + e^{\varphi_h}) + \log(1 + e^{\psi_h})`."""
    apart = q.mean * (q.logits - p.logits)
    return (apart - F.softplus(q.logits) + F.softplus(p.logits)).sum(-1)


@register_kl(Group, Group)
def _kl_group(q: Group, p: Group) -> Float[Tensor, "*batch"]:
    """That of one categorical law a group; from a uniform prior, ``log r`` less the entropy."""
    if q.groups != p.groups:
        raise NotImplementedError(f"no closed form from {q.groups} groups to {p.groups}")
    mine, other = q._log_softmax(), p._log_softmax()
    return (mine.exp() * (mine - other)).sum((-1, -2))


@register_kl(Subset, Subset)
def _kl_subset(q: Subset, p: Subset) -> Float[Tensor, "*batch"]:
    r""":math:`\sum_h q(h \in S)(\varphi_h - \psi_h) - \log e_H(\varphi) + \log e_H(\psi)`."""
    if q.size != p.size:
        return q.logits.new_full(q.batch_shape, math.inf)
    apart = (q.mean * (q.logits - p.logits)).sum(-1)
    return apart - q.log_normaliser + p.log_normaliser
