"""A pass of alignments: what is computed once, and what anew."""

from __future__ import annotations

import torch

from latentheads.batch import Batch
from tests.latentheads.latents.alignments.models import SHAPES, aligned


def test_a_sum_is_made_once_for_its_tokens_and_anew_for_others_and_for_a_gradient(
    batch: Batch,
) -> None:
    tokens, words = aligned(SHAPES["one head"]).token_distribution(batch), batch.scored.clone()
    with torch.no_grad():
        inference = tokens.exact_inference(words)
    exact_inference = tokens.exact_inference(words)
    assert exact_inference.emissions.requires_grad
    assert not inference.emissions.requires_grad
    assert tokens.exact_inference(words) is exact_inference
    words[0, 0] += 1  # the same tensor, with another word in it
    assert torch.equal(
        tokens.exact_inference(words).emissions, tokens.exact_inference(words.clone()).emissions
    )
    assert not torch.equal(tokens.exact_inference(words).emissions, exact_inference.emissions)


def test_a_sum_is_made_anew_for_words_in_another_order_and_in_inference_mode(batch: Batch) -> None:
    tokens, words = aligned(SHAPES["one head"]).token_distribution(batch), batch.scored
    twice = words.repeat(1, 2)
    for view in (twice[:, : words.shape[1]], twice[:, ::2]):
        assert torch.equal(tokens.log_evidence(view), tokens.log_evidence(view.clone()))
    with torch.inference_mode():
        own = words.clone()
        before = tokens.log_evidence(own)
        own[0, 0] += 1
        assert not torch.equal(tokens.log_evidence(own), before)
