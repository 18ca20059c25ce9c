"""A pass of alignments: what is computed once, and what anew."""

from __future__ import annotations

import torch

from latentheads.batch import Batch
from tests.latentheads.latents.alignments.models import SHAPES, aligned


def test_a_sum_is_made_once_for_its_tokens_and_anew_for_others_and_for_a_gradient(
    batch: Batch,
) -> None:
    law, words = aligned(SHAPES["one head"]).token_distribution(batch), batch.scored.clone()
    with torch.no_grad():
        known = law.exact_inference(words)
    found = law.exact_inference(words)
    assert found.emissions.requires_grad
    assert not known.emissions.requires_grad
    assert law.exact_inference(words) is found
    words[0, 0] += 1  # the same tensor, with another word in it
    assert torch.equal(
        law.exact_inference(words).emissions, law.exact_inference(words.clone()).emissions
    )
    assert not torch.equal(law.exact_inference(words).emissions, found.emissions)
