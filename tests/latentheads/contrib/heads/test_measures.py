"""Entropy, confidence and cosine against cases computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from latentheads.batch import BOS, EOS, Batch
from latentheads.contrib.heads import (
    Recording,
    attention_tokens,
    gradient_importance,
    head_confidence,
    head_cosine,
    head_entropy,
    measure,
    record_heads,
    relevance,
)
from latentheads.corpora import Part, Rows, batches
from latentheads.handlers import PlugIn
from tests.tiny import HEADS, KINDS, SOURCES, TARGETS, attach, build, padded, rows, small_batch
from tests.typechecking import unchecked


def test_entropy_of_a_uniform_head_is_the_logarithm_and_of_a_sure_one_zero() -> None:
    weights = torch.tensor([[0.25] * 4, [0.0, 1.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])[None, :, None]
    entropy = head_entropy(weights, torch.ones(1, 1).bool())[0]
    assert torch.allclose(entropy, torch.tensor([math.log(4), 0.0, math.log(2)]))


def test_entropy_leaves_out_padded_queries() -> None:
    weights = torch.softmax(torch.randn(2, 3, 5, 7), -1)
    queries = torch.tensor([[True] * 5, [True, True, False, False, False]])
    entropies = head_entropy(weights, queries)[1, 2]
    expected = -sum(float(w * w.log()) for t in range(2) for w in weights[1, 2, t])
    assert float(entropies) == pytest.approx(expected)


def test_confidence_with_and_without_a_key_and_a_query() -> None:
    weights = torch.tensor([[0.2, 0.1, 0.7], [0.6, 0.3, 0.1], [0.0, 0.1, 0.9]])[None, None]
    every, first_two = torch.ones(1, 3).bool(), torch.tensor([[True, True, False]])
    assert float(head_confidence(weights, every, every)) == pytest.approx(0.7 + 0.6 + 0.9)
    assert float(head_confidence(weights, every, first_two)) == pytest.approx(0.2 + 0.6 + 0.1)
    assert float(head_confidence(weights, first_two, every)) == pytest.approx(0.7 + 0.6)
    assert float(head_confidence(weights, first_two, first_two)) == pytest.approx(0.2 + 0.6)


def test_cosine_of_parallel_opposed_orthogonal_and_silent_heads() -> None:
    one_query = torch.tensor([[3.0, 4.0], [6.0, 8.0], [-0.3, -0.4], [-4.0, 3.0], [0.0, 0.0]])
    outputs = torch.stack([one_query, one_query, torch.randn(5, 2)], 1)[None]
    cosine = head_cosine(outputs, torch.tensor([[True, True, False]]))[0]
    expected = [2.0, 2.0, -2.0, 0.0, 0.0]
    assert torch.allclose(cosine[0], torch.tensor(expected), atol=1e-12)
    assert torch.allclose(cosine, cosine.T)
    assert torch.allclose(cosine.diagonal(), torch.tensor([2.0, 2.0, 2.0, 2.0, 0.0]))


def test_the_sides_of_a_chain() -> None:
    batch = small_batch()
    assert batch.source is not None
    inner = attention_tokens(batch, "decoder-self")
    assert inner.queries.equal(batch.decoder_input)
    assert not (inner.counted_queries() & (batch.decoder_input == BOS)).any()
    assert inner.counted_queries("key").equal(batch.target_valid)
    cross = attention_tokens(batch, "decoder-cross")
    assert cross.keys.equal(batch.source)
    late = attention_tokens(replace(batch, context=1), "decoder-cross")
    assert not late.valid_queries[:, 0].any()
    assert cross.counted_keys("query").equal(batch.source_valid)
    assert cross.counted_keys("key").equal(batch.source_valid & (batch.source != EOS))
    with pytest.raises(ValueError, match="attention_type must be one of encoder-self"):
        attention_tokens(batch, "encoder-cross")
    with pytest.raises(ValueError, match="exclude must be one of both, key, query, none"):
        cross.counted_queries("all")


@pytest.mark.parametrize("kind", KINDS)
def test_measures_are_means_over_tokens_whatever_the_batches(kind: str) -> None:
    model, batch = build(kind), small_batch()
    measures = measure(model, [padded(batch, 2, 3)])
    apart = measure(model, [rows(batch, [index]) for index in range(len(batch))])
    assert set(measures.entropy) == {block.name for block in model.blocks}
    for name in ("entropy", "confidence", "cosine"):
        for block, value in getattr(measures, name).items():
            assert torch.allclose(value, getattr(apart, name)[block], atol=1e-10)


def test_a_part_is_read_as_its_batches_are() -> None:
    model, part = build(), Part(Rows.of(TARGETS), Rows.of(SOURCES))
    whole, cut = measure(model, part), measure(model, list(batches(part, 10**6, shuffle=False)))
    for name, value in cut.entropy.items():
        assert torch.equal(whole.entropy[name], value)


def test_confidence_of_a_model_excludes_the_end_of_the_sentence() -> None:
    model, batch = build(), rows(small_batch(), [0])
    with PlugIn(), Recording(model) as heads:
        model.states(batch)
    weights = heads["encoder.1.self"].weights[0]
    words = weights[:, :3, :3].amax(-1).mean(-1)
    assert torch.allclose(measure(model, [batch]).confidence["encoder.1.self"], words)
    entropies = -torch.special.xlogy(weights, weights).sum(-1)
    assert torch.allclose(measure(model, [batch]).entropy["encoder.1.self"], entropies.mean(-1))
    every = measure(model, [batch], exclude="none").confidence["encoder.1.self"]
    assert torch.allclose(every, weights.amax(-1).mean(-1))


def test_a_block_without_a_latent_and_a_guide_are_measured_too() -> None:
    fixed, batch = build(blocks="none"), small_batch()
    assert measure(fixed, [batch]).entropy["encoder.0.self"].shape == (HEADS,)
    model = build()
    drawn = measure(model, [batch], attach("mean-field", model), seed=3)
    plain = measure(model, [batch])
    assert not torch.allclose(drawn.entropy["encoder.0.self"], plain.entropy["encoder.0.self"])


def test_a_window_with_context_counts_what_it_scores() -> None:
    model = build("language-model")
    whole = Batch.of([[4, 5, 6, 7, 8]])
    late = Batch(whole.target, context=3)
    with PlugIn(), Recording(model) as heads:
        model.states(whole)
    weights = heads["decoder.0.self"].weights[0, :, 3:]
    expected = -torch.special.xlogy(weights, weights).sum(-1).mean(-1)
    assert torch.allclose(measure(model, [late]).entropy["decoder.0.self"], expected)


@pytest.mark.parametrize("function", [record_heads, gradient_importance, relevance])
def test_a_guide_in_place_of_a_model(function: Any) -> None:
    with pytest.raises(ValueError, match=r"^model must be one of heads, .*, got Cascaded$"):
        list(unchecked(function)(attach("cascaded", build()), [small_batch()]))
