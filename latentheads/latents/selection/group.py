r"""One candidate of each of H groups: :math:`q(z_g = j) = \mathrm{softmax}(\varphi_g)_j`.

Samples are Gumbel-max, the relaxation is Gumbel-softmax (Maddison, Mnih and Teh 2017,
https://arxiv.org/abs/1611.00712; Jang, Gu and Poole 2017, https://arxiv.org/abs/1611.01144).
Selection from groups of heads for each language follows Gong, Tang, Pino and Li 2021,
https://arxiv.org/abs/2106.10840.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions.kl import register_kl

from latentheads.latents.active_heads import EnumerableSelection, sample_uniform
from latentheads.latents.network import Choice
from latentheads.latents.selection.selector import CandidateSelector


class Group(EnumerableSelection):
    """One candidate of each group; group g holds the candidates g, g + H, g + 2H, ...

    Args:
        logits: One logit per candidate.
        groups: Number of groups H; it divides the candidates.
        temperature: As in :class:`EnumerableSelection`.
    """

    def __init__(
        self,
        logits: Float[Tensor, "*batch candidate"],
        groups: int,
        temperature: float | None = 1.0,
    ) -> None:
        self.groups = groups
        super().__init__(logits, temperature)

    @property
    def num_choices(self) -> int:
        """The number of ways to take one candidate of each group."""
        return int((self.logits.shape[-1] // self.groups) ** self.groups)

    def _enumerate_choices(self) -> Iterator[tuple[int, ...]]:
        candidates = range(self.logits.shape[-1])
        return product(*(candidates[group :: self.groups] for group in range(self.groups)))

    def _in_groups(self, x: Tensor) -> Float[Tensor, "*batch member group"]:
        return x.unflatten(-1, (-1, self.groups))

    def _log_softmax(self) -> Float[Tensor, "*batch member group"]:
        return self._in_groups(self.logits).log_softmax(-2)

    @property
    def mean(self) -> Float[Tensor, "*batch candidate"]:
        """``softmax(logits)`` within each group."""
        return self._log_softmax().exp().flatten(-2)

    @property
    def mode(self) -> Float[Tensor, "*batch candidate"]:
        return self._best_of_groups(self.logits)

    def _best_of_groups(self, scores: Tensor) -> Tensor:
        grouped = self._in_groups(scores)
        best = torch.zeros_like(grouped).scatter(-2, grouped.argmax(-2, keepdim=True), 1.0)
        return best.flatten(-2)

    def log_prob(self, value: Float[Tensor, "*batch candidate"]) -> Float[Tensor, "*batch"]:
        """Sums the log-probabilities of the groups; -inf unless each has exactly one candidate."""
        chosen = self._in_groups(value)
        log_prob = (chosen * self._log_softmax()).sum((-1, -2))
        return log_prob.masked_fill((chosen.sum(-2) != 1).any(-1), -torch.inf)

    def _sample(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        noisy = logits - (-sample_uniform(logits).log()).log()
        soft = (self._in_groups(noisy) / self.temperature).softmax(-2).flatten(-2)
        return self._best_of_groups(noisy), soft

    def _with_logits(self, logits: Tensor) -> Group:
        return Group(logits, self.groups, self._relaxation)


@register_kl(Group, Group)
def _kl_group(q: Group, p: Group) -> Float[Tensor, "*batch"]:
    """Sums the categorical KL over groups."""
    if q.groups != p.groups:
        raise NotImplementedError(f"no closed form from {q.groups} groups to {p.groups}")
    q_log_probs, p_log_probs = q._log_softmax(), p._log_softmax()
    return (q_log_probs.exp() * (q_log_probs - p_log_probs)).sum((-1, -2))


@dataclass(frozen=True)
class GroupSelector(CandidateSelector):
    """One candidate of each of H groups: that of group g fills slot g."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.candidates % self.heads:
            raise ValueError(
                f"candidates must be a multiple of the {self.heads} heads for group, "
                f"got {self.candidates}"
            )

    def distribution(
        self, logits: Float[Tensor, "*batch candidate"], temperature: float | None = 1.0
    ) -> Group:
        return Group(logits, self.heads, temperature)

    def make_choice(self, value: Float[Tensor, "*sentences candidate"]) -> Choice:
        chosen = value.detach()
        member = chosen.unflatten(-1, (-1, self.heads)).argmax(-2)
        index = member * self.heads + torch.arange(self.heads, device=value.device)
        return Choice(value.gather(-1, index), index)
