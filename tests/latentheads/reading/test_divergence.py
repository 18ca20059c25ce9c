"""Divergence between heads against its definition."""

import math

import pytest
import torch

from latentheads.reading.divergence import divergence, head_divergence
from tests.tiny import attach, build, small_batch


def by_definition(p: torch.Tensor, q: torch.Tensor) -> float:
    middle = (p + q) / 2
    kl = torch.nn.functional.kl_div
    return float((kl(middle.log(), p, reduction="sum") + kl(middle.log(), q, reduction="sum")) / 2)


def test_divergence_equals_its_definition_summed_over_real_queries() -> None:
    weights = torch.softmax(torch.randn(2, 3, 5, 7), -1)
    queries = torch.ones(2, 5, dtype=torch.bool)
    queries[1, 3:] = False
    found = head_divergence(weights, queries)
    expected = sum(by_definition(weights[1, 0, t], weights[1, 2, t]) for t in range(3))
    assert float(found[1, 0, 2]) == pytest.approx(expected, abs=1e-12)


def test_divergence_is_symmetric_and_zero_on_the_diagonal() -> None:
    weights = torch.softmax(torch.randn(1, 3, 5, 7), -1)
    found = head_divergence(weights, torch.ones(1, 5, dtype=torch.bool))[0]
    assert torch.allclose(found, found.T)
    assert torch.allclose(found.diagonal(), torch.zeros(3), atol=1e-12)


def test_heads_on_different_keys_are_log_two_apart() -> None:
    weights = torch.eye(2)[None, :, None, :]
    found = head_divergence(weights, torch.ones(1, 1, dtype=torch.bool))[0]
    assert float(found[0, 1]) == pytest.approx(math.log(2))


def test_the_papers_figure_grows_with_length_and_the_normalised_one_does_not() -> None:
    model = build()
    found = divergence(model, [small_batch()])
    assert set(found.summed) == {block.site() for block in model.blocks}
    site = "encoder.0.self.logits"
    per_sentence = torch.tensor([4.0, 2.0, 5.0]).sum() / 3
    assert torch.allclose(found.summed[site], found.normalised[site] * per_sentence)


def test_noise_sets_heads_apart() -> None:
    model = build()
    plain = divergence(model, [small_batch()]).average()
    drawn = divergence(model, [small_batch()], attach("tied", model)).average()
    assert drawn > plain > 0


def test_a_model_without_latent_blocks_has_no_average() -> None:
    model = build(latent=())
    assert divergence(model, [small_batch()]).average() is None


def test_blocks_without_a_latent_are_measured_when_asked_for() -> None:
    some = build(latent=("decoder-self",))
    found = divergence(some, [small_batch()], latent=False)
    library = divergence(some, [small_batch()])
    assert len(found.summed) == 3 * len(library.summed)
    for site, matrix in library.summed.items():
        torch.testing.assert_close(found.summed[site], matrix)
        torch.testing.assert_close(found.normalised[site], library.normalised[site])
