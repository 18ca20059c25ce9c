"""Whoever writes searches as the options say."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

from latentheads.batch import EOS, Batch
from latentheads.corpora import Part, Rows, Words
from latentheads.decoding import translate
from latentheads.decoding.beam_search import beam_search
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import decode_lines, map_batches, search
from latentheads.errors import UnfinishedError
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
    greedy = [best.tokens for best, *_ in beam_search(model, batch, 1, min_new_tokens=3)]
    assert search(model, batch, Decoding(min_new_tokens=3), 0) == greedy


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_batch_beyond_memory_is_split_and_every_sentence_keeps_its_result(most: int) -> None:
    part = Part(Rows.of([[4] * (9 - index) + [EOS] for index in range(7)]), None)
    skipped: list[int] = []

    def lengths(batch: Batch) -> list[int]:
        is_longest = bool((batch.target_valid.sum(-1) == 10).any())
        if len(batch) > most or is_longest:
            raise MemoryError
        return batch.target_valid.sum(-1).tolist()

    results = map_batches(part, lengths, -1, lambda index, _: skipped.append(index))
    assert results == [-1, 9, 8, 7, 6, 5, 4]
    assert skipped == [0]
    with pytest.raises(UnfinishedError, match=r"^sentence 1: "):
        map_batches(part, lengths, -1)


def test_a_translation_is_one_line() -> None:
    words = Words(["a", "b\nc"])
    assert decode_lines(words, [[*words.encode("a")[:1], len(words) - 1, EOS]]) == ["a b c"]
