"""SpecAugment: what is hidden lies within the utterance, and is as much as its policy says."""

from __future__ import annotations

import torch

from latentheads.contrib.speech.spec_augment import POLICIES, SpecAugmentPolicy, apply_spec_augment

LENGTHS = torch.tensor([40, 9, 1])


def draw(policy: SpecAugmentPolicy, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return apply_spec_augment(torch.ones(3, 40, 11), LENGTHS, policy) == 0


def test_stretches_lie_within_each_utterance() -> None:
    hidden = torch.stack([draw(SpecAugmentPolicy(0, 0, 1, 8), seed) for seed in range(100)])
    rows = hidden.all(-1)
    assert torch.equal(rows, hidden.any(-1))  # all bins of a frame, or none
    lengths = rows.sum(-1)
    assert lengths[:, 0].unique().tolist() == [*range(8)]
    assert lengths[:, 1].max() == 7
    assert not lengths[:, 2].any()
    assert not rows[:, 1, 9:].any()
    assert rows[:, 0].any(0).all()  # every frame may be hidden
    assert rows[:, 1, :9].any(0).all()


def test_bands_are_as_wide_in_proportion() -> None:
    hidden = torch.stack([draw(SpecAugmentPolicy(2, 27, 0, 0), seed) for seed in range(100)])
    columns = hidden.all(-2)
    assert torch.equal(columns, hidden.any(-2))
    assert columns.sum(-1).unique().tolist() == [*range(2 * (27 * 11 // 80 - 1) + 1)]
    assert columns.any(0).all()
    assert (columns[:, 0] != columns[:, 1]).any()  # each utterance has its own


def test_the_policies_of_the_paper() -> None:
    assert {name: tuple(policy) for name, policy in POLICIES.items()} == {
        "none": (0, 0, 0, 0),
        "LB": (1, 27, 1, 100),
        "LD": (2, 27, 2, 100),
    }
    assert not draw(POLICIES["none"], 0).any()
