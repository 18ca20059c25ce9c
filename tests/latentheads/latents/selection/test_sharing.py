"""Shared heads, counted by hand."""

from __future__ import annotations

from itertools import combinations, product
from math import nan
from statistics import mean

import pytest
import torch

from latentheads.guides import Tied
from latentheads.latents.gates.hard_gates import Gating
from latentheads.latents.selection.sharing import (
    chosen_heads,
    overlap_by_chance,
    overlap_coefficient,
    selection_probabilities,
)
from latentheads.latents.selection.strategies import make_selector
from latentheads.latents.selector import LatentSelector
from latentheads.models import Translation
from tests.tiny import SOURCE_TYPES, TARGET_TYPES, build, sizes


def test_what_two_tasks_share_is_counted_by_the_smaller_set() -> None:
    chosen = torch.tensor([[1.0, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
    expected = torch.tensor([[1.0, 0.5, nan], [0.5, 1, nan], [nan, nan, nan]])
    torch.testing.assert_close(overlap_coefficient(chosen), expected, equal_nan=True)
    random_pairs = product(combinations(range(5), 2), combinations(range(5), 3))
    by_chance = [len({*one} & {*other}) / 2 for one, other in random_pairs]
    assert overlap_by_chance(chosen)[0, 1].item() == pytest.approx(mean(by_chance))


def test_a_guide_tells_its_selections_by_block() -> None:
    selector = make_selector("group", 3, 6, ("decoder-self",), targets=2)
    model = Translation(SOURCE_TYPES, TARGET_TYPES, sizes(), latents=[selector])
    guide = Tied(model)
    with torch.no_grad():
        family = guide.selections["decoder_1_self"]
        wanted = torch.tensor([[3.0, 0, 0, 0, 1, 1], [0, 1, 1, 3, 0, 0]])
        family.weight.copy_(wanted / LatentSelector.gain)
    assert list(chosen_heads(guide)) == ["decoder.0.self", "decoder.1.self"]
    decoder_1_self = chosen_heads(guide)["decoder.1.self"]
    assert decoder_1_self.tolist() == [[1, 0, 0, 0, 1, 1], [0, 1, 1, 1, 0, 0]]
    probabilities = selection_probabilities(guide)["decoder.1.self"]
    torch.testing.assert_close(probabilities[0, 0], torch.tensor(3.0).sigmoid())
    assert overlap_coefficient(decoder_1_self)[0, 1] == 0


def test_a_gate_that_is_half_open_speaks() -> None:
    gates = Gating(3, ("decoder-self",))
    types = SOURCE_TYPES, TARGET_TYPES
    guide = Tied(Translation(*types, sizes(), latents=[gates]))
    family = guide.selections["decoder_1_self"]
    family.weight.data = torch.tensor([[-4.0, -0.5, 4.0]]) / family.gain
    assert chosen_heads(guide)["decoder.1.self"].tolist() == [[0, 1, 1]]
    probabilities = selection_probabilities(guide)["decoder.1.self"]
    torch.testing.assert_close(probabilities, family().open)


def test_a_guide_without_a_selection_tells_none() -> None:
    assert chosen_heads(Tied(build())) == {}
