"""Whoever writes searches as the options say."""

from __future__ import annotations

from unittest import mock

import torch

from latentheads.decoding import translate
from latentheads.decoding.beam_search import beam_search
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import search
from latentheads.noise import fixed_noise
from tests.tiny import build, small_batch


def test_every_option_reaches_the_search_and_the_best_is_taken() -> None:
    model, batch = build(prior="cascaded").eval(), small_batch()
    decoding = Decoding(
        3, 0.3, num_samples=11, max_new_tokens=7, min_new_tokens=5, no_repeat_ngram_size=2
    )
    options = {"num_beams": 3, "length_penalty": 0.3, "num_samples": 2}
    rules = {"max_new_tokens": 7, "min_new_tokens": 5, "no_repeat_ngram_size": 2}
    with fixed_noise(3, torch.device("cpu")):
        expected = beam_search(model, batch, **options, **rules)
    with (
        fixed_noise(3, torch.device("cpu")),
        mock.patch.object(translate, "beam_search", autospec=True, side_effect=beam_search) as mine,
    ):
        match = search(model, batch, decoding, 2)
    mine.assert_called_once_with(model, batch, **options, **rules)
    assert match == [best.tokens for best, *_ in expected]
