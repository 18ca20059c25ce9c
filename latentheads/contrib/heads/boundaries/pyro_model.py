"""The same joint model as a Pyro model: boundaries and which heads follow are sample sites.

:class:`~latentheads.contrib.heads.boundaries.model.BoundaryModel` sums them out exactly. Here they
may be conditioned on, sampled, or given a guide of one's own.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyro
import torch
from jaxtyping import Float
from pyro import distributions as dist
from pyro.distributions import TorchDistribution, constraints
from torch import Tensor

from latentheads.contrib.heads.boundaries.energy import energy_scores
from latentheads.contrib.heads.boundaries.model import BoundaryModel
from latentheads.contrib.heads.word_attention import WordAttention

KINDS = ("start", "end")


class AttentionDraws(TorchDistribution):
    """The attention of a word as samples of positions, in nats above those of the background.

    Args:
        log_ratio: Log-likelihood of one sample under the head's profile, less that of background.
        follows: Whether the head follows the word; else the samples are background.
        counts: Samples that the attention counts as.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.real_vector

    def __init__(self, log_ratio: Tensor, follows: Tensor, counts: float) -> None:
        self.log_ratio, self.follows, self.counts = log_ratio, follows, counts
        shape = torch.broadcast_shapes(log_ratio.shape, follows.shape)
        super().__init__(shape, torch.Size([0]), validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-likelihood; the value itself is in ``log_ratio`` already."""
        return self.follows * self.counts * self.log_ratio


def attention_model(
    model: BoundaryModel,
    attention: WordAttention,
    *,
    with_labels: bool = True,
    shift_scale: float | None = None,
) -> None:
    """Samples the boundaries of an example, and observes its attention and labels.

    Sites: ``start_0``, ``end_0``, ... are positions, ``follows_start_0_3`` whether head 3 follows
    the start of word 0, ``label_start_0`` its label; ``shift_start`` the shift of labels, if
    ``shift_scale`` is given.

    Args:
        model: Profiles and prior.
        attention: Attention of an example.
        with_labels: Whether its labels are observed.
        shift_scale: Standard deviation of the shift around that of the model, in positions; None:
            the shift is known.
    """
    ratios = model.profiles.log_ratios(attention)
    labels = (attention.starts, attention.ends)
    kinds = KINDS[: model.chain.kinds]
    shifts = dict(zip(kinds, model.shift))
    if shift_scale is not None:
        for kind, shift in shifts.items():
            shifts[kind] = pyro.sample(f"shift_{kind}", dist.Normal(shift, shift_scale))
    energy = None
    if model.energy_offsets is not None and attention.energy is not None:
        energy = energy_scores(attention.energy, model.energy_offsets)
    prior = torch.full((attention.positions,), 1 / attention.positions, dtype=ratios.dtype)
    transitions = model.chain.transitions(attention.positions)
    for word in range(ratios.shape[2]):
        for index, kind in enumerate(kinds):
            boundary = pyro.sample(f"{kind}_{word}", dist.Categorical(_with_beyond(prior)))
            is_within = boundary < attention.positions
            position = boundary.clamp(max=attention.positions - 1)
            # a path that leaves the example has no likelihood
            pyro.factor(f"within_{kind}_{word}", is_within.to(ratios.dtype).log())
            if energy is not None:
                pyro.factor(f"energy_{kind}_{word}", energy[index][position])
            for head in model.chosen[index].nonzero()[:, 0].tolist():
                ratio = ratios[index, head, word][position]
                _observe(model, f"{kind}_{word}_{head}", (index, head), ratio)
            label = labels[index][word]
            if with_labels and label.isfinite():
                location = position + 0.5 + shifts[kind]
                pyro.sample(
                    f"label_{kind}_{word}", dist.Laplace(location, model.error[index]), obs=label
                )
            prior = transitions[index, position]


def _observe(model: BoundaryModel, name: str, at: tuple[int, int], ratio: Tensor) -> None:
    """Samples whether a head follows, and observes its attention."""
    follows = pyro.sample(f"follows_{name}", dist.Bernoulli(model.profiles.follows[at]))
    draws = AttentionDraws(ratio, follows, model.profiles.counts)
    pyro.sample(f"attention_{name}", draws, obs=ratio.new_empty(0))


def _with_beyond(
    probs: Float[Tensor, "*batch position"],
) -> Float[Tensor, "*batch position_or_beyond"]:
    """Adds what no position has: that the next boundary is beyond the end."""
    beyond = (1 - probs.sum(-1, keepdim=True)).clamp(min=0)
    return torch.cat([probs, beyond], -1)
