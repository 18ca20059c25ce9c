"""Greedy decoding against full re-computation."""

import pytest
import torch

from latentheads import Batch, PlugIn
from latentheads.batch import BOS, EOS, PAD, pad
from latentheads.decoding import greedy
from tests.tiny import build, rows, small_batch


@pytest.mark.parametrize("prior", ["delta", "residual", "independent", "cascaded", "released"])
def test_greedy_equals_full_recomputation(prior: str) -> None:
    model = build(prior=prior).eval()
    batch = small_batch()
    found = greedy(model, batch, limit=6)
    for place in range(len(batch)):
        assert found[place] == slowly(model, rows(batch, [place]), 6)


@torch.no_grad()
def slowly(model: torch.nn.Module, batch: Batch, limit: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < limit and (not tokens or tokens[-1] != EOS):
        grown = Batch(pad([[*tokens, UNSEEN]]), batch.source)
        with PlugIn():
            logits = model.predict(model.states(grown))[0, -1]
        logits[[PAD, BOS]] = -torch.inf
        tokens.append(int(logits.argmax()))
    return tokens


UNSEEN = 3


def test_a_finished_sentence_stays_finished() -> None:
    model = build().eval()
    for row in greedy(model, small_batch(), limit=8):
        assert EOS not in row[:-1]
        assert len(row) <= 8


def test_a_language_model_continues_from_nothing() -> None:
    model = build("language-model").eval()
    first, second, _ = greedy(model, small_batch(), limit=4)
    assert first == second
