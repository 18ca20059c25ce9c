"""Whoever writes searches as the options say."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from latentheads.decoding import translate
from latentheads.decoding.beam_search import beam_search
from latentheads.decoding.translate import Decoding, search
from latentheads.inference.evaluation import fixed_noise
from tests.tiny import build, small_batch


@pytest.mark.parametrize("draws", [0, 2])
def test_every_option_of_a_search_is_heard(draws: int) -> None:
    model, batch = build(prior="cascaded").eval(), small_batch()
    rules = {"limit": 7, "least": 5, "no_repeat": 2}
    with fixed_noise(3, torch.device("cpu")):
        expected = beam_search(model, batch, 3, 0.3, draws, **rules)
    decoding = Decoding(3, 0.3, draws=11, max_tokens=7, min_tokens=5, no_repeat=2)
    with fixed_noise(3, torch.device("cpu")):
        found = search(model, batch, decoding, draws)
    assert found == [best.tokens for best, *_ in expected]
    assert {len(tokens) for tokens in found} <= {5, 6, 7}


def test_every_option_reaches_the_search_by_its_name() -> None:
    model, batch = build(), small_batch()
    decoding = Decoding(3, 0.3, draws=11, max_tokens=7, min_tokens=5, no_repeat=2)
    with mock.patch.object(translate, "beam_search", autospec=True, return_value=[]) as searching:
        search(model, batch, decoding, 4)
    options = {"beam": 3, "length_penalty": 0.3, "draws": 4}
    rules = {"limit": 7, "least": 5, "no_repeat": 2}
    searching.assert_called_once_with(model, batch, **options, **rules)
