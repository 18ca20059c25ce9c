"""Whoever writes searches as the options say."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from latentheads.decoding import translate
from latentheads.decoding.beam_search import beam_search
from latentheads.decoding.translate import Decoding, search
from latentheads.noise import fixed_noise
from tests.tiny import build, small_batch


def test_a_length_penalty_is_for_hypotheses_to_rank() -> None:
    model, batch = build(prior="cascaded").eval(), small_batch()
    one, other = (beam_search(model, batch, 1, penalty) for penalty in (0.0, 3.0))
    assert [best.tokens for best, *_ in one] == [best.tokens for best, *_ in other]
    with pytest.raises(ValueError, match=r"^length_penalty is for beam 2 or more: .*, got 3 with"):
        Decoding(length_penalty=3.0)
    searching = Decoding(4, 0.6, draws=2)
    assert searching.with_options({"beam": 1}) == Decoding(draws=2)
    assert searching.with_options({"beam": 3}) == Decoding(3, 0.6, draws=2)
    assert Decoding().with_options({"beam": 2, "length_penalty": 2.0}) == Decoding(2, 2.0)
    for changes in ({"length_penalty": 2.0}, {"beam": 1, "length_penalty": 2.0}):
        with pytest.raises(ValueError, match=r"^length_penalty is for beam 2 or more"):
            Decoding().with_options(changes)


def test_every_option_reaches_the_search_and_the_best_is_taken() -> None:
    model, batch = build(prior="cascaded").eval(), small_batch()
    decoding = Decoding(3, 0.3, draws=11, max_tokens=7, min_tokens=5, no_repeat=2)
    options = {"beam": 3, "length_penalty": 0.3, "draws": 2}
    rules = {"max_tokens": 7, "min_tokens": 5, "no_repeat": 2}
    with fixed_noise(3, torch.device("cpu")):
        expected = beam_search(model, batch, **options, **rules)
    with (
        fixed_noise(3, torch.device("cpu")),
        mock.patch.object(translate, "beam_search", autospec=True, side_effect=beam_search) as mine,
    ):
        match = search(model, batch, decoding, 2)
    mine.assert_called_once_with(model, batch, **options, **rules)
    assert match == [best.tokens for best, *_ in expected]
