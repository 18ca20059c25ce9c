"""A mixture of passes in decoding."""

from __future__ import annotations

import torch

import latentheads as lh
from latentheads.latents.mixture import PassMixture

LOG_PRIOR = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()


def mixture(sentences: int = 2) -> PassMixture:
    return PassMixture(LOG_PRIOR, {"decoder.0.self": torch.eye(3).double()}, sentences)


def test_every_sentence_is_repeated_for_all_components() -> None:
    batch = lh.Batch.of([[5, 2], [6, 2]], [[7, 2], [8, 2]], index=[3, 4], corpus_size=9)
    rows = mixture().expand_batch(batch)
    assert rows.target[:, 0].tolist() == [5, 5, 5, 6, 6, 6]
    assert rows.source is not None
    assert rows.source[:, 0].tolist() == [7, 7, 7, 8, 8, 8]
    assert (rows.index, rows.size) == (None, 6)
    gates = mixture().choices()["decoder.0.self"].weight
    assert torch.equal(gates, torch.eye(3).double().repeat(2, 1))
    assert mixture().expand_index(torch.tensor([1, 0])).tolist() == [3, 4, 5, 0, 1, 2]


def test_weights_are_bayes_rule_after_each_token() -> None:
    state, tokens = mixture(), torch.tensor([[0, 2, 1], [0, 0, 3]])
    scores = torch.randn(6, 3, 5, dtype=torch.float64)
    mixed = torch.cat(
        [state.mix(scores[:, :2], tokens[:, :2]), state.mix(scores[:, 2:], tokens[:, 2:])], 1
    )
    probs = scores.softmax(-1).view(2, 3, 3, 5)
    prior = LOG_PRIOR.exp()
    for sentence in range(2):
        weights = prior
        for position in range(3):
            if position:
                weights = weights * probs[sentence, :, position - 1, tokens[sentence, position]]
            expected = (weights / weights.sum()) @ probs[sentence, :, position]
            torch.testing.assert_close(mixed[sentence, position].exp(), expected)


def test_hypotheses_have_their_own_weights() -> None:
    state = mixture(1)
    tokens = torch.tensor([[[0], [0]]])
    state.mix(torch.randn(3, 2, 1, 5).double(), tokens)
    state.mix(torch.randn(3, 2, 1, 5).double(), torch.tensor([[[1], [3]]]))
    assert state.log_weights is not None
    before = state.log_weights
    assert before.shape == (1, 2, 3)
    state.select(lambda tensor: tensor[:, [1, 1, 0]])
    assert torch.equal(state.log_weights, before[:, [1, 1, 0]])
    assert state.log_probs is not None
    assert state.log_probs.shape == (1, 3, 3, 5)
