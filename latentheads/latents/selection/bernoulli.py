r"""Independent candidates: :math:`q(z_h = 1) = \mathrm{sigmoid}(\varphi_h)`.

The relaxation of a sample is binary Concrete (Maddison, Mnih and Teh 2017,
https://arxiv.org/abs/1611.00712; Jang, Gu and Poole 2017, https://arxiv.org/abs/1611.01144).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions.kl import register_kl
from torch.nn import functional as F

from latentheads.latents.active_heads import EnumerableSelection, sample_uniform
from latentheads.latents.network import Choice
from latentheads.latents.selection.selector import CandidateSelector


class Bernoullis(EnumerableSelection):
    """Independent Bernoulli candidates."""

    @property
    def num_choices(self) -> int:
        return int(2 ** self.logits.shape[-1])

    def _enumerate_choices(self) -> Iterator[tuple[int, ...]]:
        candidates = range(self.logits.shape[-1])
        return chain.from_iterable(combinations(candidates, n) for n in range(len(candidates) + 1))

    @property
    def mean(self) -> Float[Tensor, "*batch candidate"]:
        """``sigmoid(logits)``."""
        return self.logits.sigmoid()

    @property
    def mode(self) -> Float[Tensor, "*batch candidate"]:
        """The candidates with probability above 1/2."""
        return (self.logits > 0).to(self.logits)

    def log_prob(self, value: Float[Tensor, "*batch candidate"]) -> Float[Tensor, "*batch"]:
        return (value * self.logits - F.softplus(self.logits)).sum(-1)

    def _sample(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        u = sample_uniform(logits)
        noisy = logits + u.log() - torch.log1p(-u.clamp(max=1 - torch.finfo(u.dtype).eps))
        return (noisy > 0).to(logits), (noisy / self.temperature).sigmoid()

    def _with_logits(self, logits: Tensor) -> Bernoullis:
        return Bernoullis(logits, self._relaxation)


@register_kl(Bernoullis, Bernoullis)
def _kl_bernoullis(q: Bernoullis, p: Bernoullis) -> Float[Tensor, "*batch"]:
    r""":math:`\sum_h q_h (\varphi_h - \psi_h) - \log(1 + e^{\varphi_h}) + \log(1 + e^{\psi_h})`."""
    expected_shift = q.mean * (q.logits - p.logits)
    return (expected_shift - F.softplus(q.logits) + F.softplus(p.logits)).sum(-1)


@dataclass(frozen=True)
class BernoulliSelector(CandidateSelector):
    """Independent candidates: each has its own slot, and is active in it or not."""

    @property
    def num_slots(self) -> int:
        return self.candidates

    def distribution(
        self, logits: Float[Tensor, "*batch candidate"], temperature: float | None = 1.0
    ) -> Bernoullis:
        return Bernoullis(logits, temperature)

    def initial_logits(self, attention_type: str, like: Tensor) -> Float[Tensor, "task candidate"]:
        """Logits that give every candidate the probability H/H'."""
        probability = self.heads / self.candidates
        logit = math.log(probability / (1 - probability))
        return like.new_full((self.num_tasks(attention_type), self.candidates), logit)

    def make_choice(self, value: Float[Tensor, "*sentences candidate"]) -> Choice:
        return Choice(value)
