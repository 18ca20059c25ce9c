r"""Exactly H of H' candidates: the conditional Bernoulli distribution.

.. math:: q(S) = \prod_{h \in S} e^{\varphi_h} / e_H(\varphi)

with the elementary symmetric polynomial :math:`e_H` (Chen, Dempster and Liu 1994,
https://doi.org/10.1093/biomet/81.3.457). The gradient is that of the marginals, as in SIMPLE
(Ahmed, Zeng, Niepert and Van den Broeck 2023, https://arxiv.org/abs/2210.01941).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions.kl import register_kl
from torch.nn import functional as F

from latentheads.checks import check_within
from latentheads.latents.active_heads import EnumerableSelection, sample_uniform
from latentheads.latents.network import Choice
from latentheads.latents.selection.selector import CandidateSelector
from latentheads.latents.selector import choose_in_order


class Subset(EnumerableSelection):
    """Exactly ``size`` candidates: the conditional Bernoulli distribution.

    The relaxation of a sample is the marginal probability at the temperature.

    Args:
        logits: One logit per candidate.
        size: Number of selected candidates, H.
        temperature: As in :class:`EnumerableSelection`.
    """

    def __init__(
        self,
        logits: Float[Tensor, "*batch candidate"],
        size: int,
        temperature: float | None = 1.0,
    ) -> None:
        check_within("size", size, 1, logits.shape[-1])
        self.size = size
        super().__init__(logits, temperature)

    @property
    def num_choices(self) -> int:
        return math.comb(self.logits.shape[-1], self.size)

    def _enumerate_choices(self) -> Iterator[tuple[int, ...]]:
        return combinations(range(self.logits.shape[-1]), self.size)

    @property
    def mean(self) -> Float[Tensor, "*batch candidate"]:
        return _marginals(self.logits, self.size)

    @property
    def mode(self) -> Float[Tensor, "*batch candidate"]:
        """The candidates with the largest logits."""
        order = self.logits.argsort(dim=-1, descending=True, stable=True)
        return torch.zeros_like(self.logits).scatter(-1, order[..., : self.size], 1.0)

    @property
    def log_normaliser(self) -> Float[Tensor, "*batch"]:
        r"""``log e_H``, by the recursion :math:`e_k(1..n) = e_k(1..n-1) + w_n e_{k-1}(1..n-1)`."""
        return _symmetric_sums(self.logits, self.size)[-1][..., -1]

    def log_prob(self, value: Float[Tensor, "*batch candidate"]) -> Float[Tensor, "*batch"]:
        """Log-probability of a subset; -inf for one of another size."""
        log_prob = (value * self.logits).sum(-1) - self.log_normaliser
        return log_prob.masked_fill(value.sum(-1) != self.size, -torch.inf)

    def _sample(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return self._sample_exactly(logits.detach()), _marginals(
            logits / self.temperature, self.size
        )

    def _sample_exactly(self, logits: Tensor) -> Tensor:
        """Samples candidate by candidate, given how many are still to be selected."""
        log_sums = _symmetric_sums(logits.flip(-1), self.size)
        num_left = torch.full(logits.shape[:-1], self.size, device=logits.device)
        chosen = []
        for candidate, u in enumerate(sample_uniform(logits).unbind(-1)):
            num_later = logits.shape[-1] - candidate - 1
            # of k candidates that are left to take, this one with w e_{k-1}(later) / e_k(from here)
            num_others = (num_left - 1).clamp_min(0)
            log_later = log_sums[num_later].gather(-1, num_others[..., None]).squeeze(-1)
            log_all = log_sums[num_later + 1].gather(-1, num_left[..., None]).squeeze(-1)
            take = (u.log() < logits[..., candidate] + log_later - log_all) & (num_left > 0)
            num_left = num_left - take.long()
            chosen.append(take)
        return torch.stack(chosen, -1).to(logits)

    def _with_logits(self, logits: Tensor) -> Subset:
        return Subset(logits, self.size, self._relaxation)


def _symmetric_sums(logits: Tensor, size: int) -> list[Float[Tensor, "*batch order"]]:
    """``log e_k`` of the first n candidates for k = 0 ... size, for every n from 0."""
    # not -inf: logaddexp of two has a gradient of NaN; a quarter, so that sums do not overflow
    log_zero = torch.finfo(logits.dtype).min / 4
    row = logits.new_full((*logits.shape[:-1], size + 1), log_zero)
    row[..., 0] = 0.0
    rows = [row]
    for logit in logits.unbind(-1):
        shifted = F.pad(row[..., :-1] + logit[..., None], (1, 0), value=log_zero)
        row = torch.logaddexp(row, shifted)
        rows.append(row)
    return rows


def _marginals(logits: Tensor, size: int) -> Float[Tensor, "*batch candidate"]:
    r"""``P(h in S) = w_h e_{H-1}(others) / e_H``, from sums over those before and after h."""
    before, behind = _symmetric_sums(logits, size), _symmetric_sums(logits.flip(-1), size)
    log_marginals = []
    for candidate, logit in enumerate(logits.unbind(-1)):
        # e_{H-1} of the others: k of them before the candidate, H - 1 - k behind
        others = before[candidate][..., :size] + behind[-candidate - 2][..., :size].flip(-1)
        log_marginals.append(logit + others.logsumexp(-1) - before[-1][..., -1])
    return torch.stack(log_marginals, -1).exp()


@register_kl(Subset, Subset)
def _kl_subset(q: Subset, p: Subset) -> Float[Tensor, "*batch"]:
    r""":math:`\sum_h q(h \in S)(\varphi_h - \psi_h) - \log e_H(\varphi) + \log e_H(\psi)`."""
    if q.size != p.size:
        return q.logits.new_full(q.batch_shape, math.inf)
    # large terms cancel, and an error of the marginals is multiplied by the logits
    wide_q, wide_p = (part._with_logits(part.logits.double()) for part in (q, p))
    expected_shift = (wide_q.mean * (wide_q.logits - wide_p.logits)).sum(-1)
    kl = expected_shift - wide_q.log_normaliser + wide_p.log_normaliser
    return kl.to(q.logits.dtype)


@dataclass(frozen=True)
class SubsetSelector(CandidateSelector):
    """Exactly H of the candidates: they fill the slots in ascending order."""

    def distribution(
        self, logits: Float[Tensor, "*batch candidate"], temperature: float | None = 1.0
    ) -> Subset:
        return Subset(logits, self.heads, temperature)

    def make_choice(self, value: Float[Tensor, "*sentences candidate"]) -> Choice:
        """The selected candidates in ascending order."""
        return choose_in_order(value, self.heads)
