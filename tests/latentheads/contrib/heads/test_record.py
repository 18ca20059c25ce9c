"""Heads on request, in every kind of pass, and nothing left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pyro import poutine
from torch import nn

from latentheads.attention.block import HeadBlock
from latentheads.attention.latent import LatentAttention
from latentheads.batch import PAD, Batch
from latentheads.contrib.heads import (
    Recording,
    gradient_importance,
    measure,
    record_heads,
    record_prior_heads,
    to_datatree,
)
from latentheads.decoding.beam_search import beam_search
from latentheads.families import Identity, Point
from latentheads.handlers import PlugIn
from latentheads.latents.network import Choice
from latentheads.mask import PairMask, causal
from latentheads.names import Block
from latentheads.pruning import remove_heads
from tests.tiny import HEADS, KINDS, attach, build, padded, rows, small_batch

every_kind = pytest.mark.parametrize("kind", KINDS)


def listeners(model: nn.Module) -> int:
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return hooks + sum(len(m.hooks) for m in model.modules() if isinstance(m, HeadBlock))


def plugged(model: Any, batch: Batch) -> Recording:
    with PlugIn(), Recording(model) as heads:
        model.states(batch)
    return heads


@every_kind
@pytest.mark.parametrize("training", [True, False])
def test_what_is_recorded_is_what_was_drawn(kind: str, training: bool) -> None:
    model = build(kind, "cascaded", dropout=0.3, attention_dropout=0.3).train(training)
    with Recording(model) as heads:
        trace = poutine.trace(model).get_trace(small_batch())
    assert heads.blocks == model.blocks
    for block in model.blocks:
        node, head = trace.nodes[block.site()], heads[block.name]
        assert head.logits.equal(node["value"])
        bias = node["fn"].context.mask.bias
        assert head.weights.equal(torch.softmax(node["value"] + bias, -1))
        assert heads[block.site()] is head


@pytest.mark.parametrize("prior", [None, Point(Identity())])
def test_weights_and_outputs_of_a_block_with_and_without_a_latent(prior: Any) -> None:
    block = LatentAttention(Block("decoder-self", 0, HEADS), 6, prior)
    with torch.no_grad():
        block.attention.out.weight[:, 0] = 0
    x, readable = torch.randn(2, 5, 6), causal(5).expand(2, -1, -1)
    mask = PairMask.build(readable, torch.ones(2, 5).bool(), torch.float64)
    with PlugIn(), Recording(block) as closed:
        block(query=x, memory=None, mask=mask, choice=Choice(torch.zeros(HEADS)))
    with PlugIn(), Recording(block) as heads:
        written, _ = block(x, None, mask)
    decoder_0_self = heads["decoder.0.self"]
    q, k, v = block.attention.project(x, None)
    expected = torch.softmax((q @ k.mT / 2**0.5).masked_fill(~readable[:, None], -1e30), -1)
    assert torch.allclose(decoder_0_self.weights, expected, atol=1e-12)
    assert decoder_0_self.readable.equal(readable)
    assert torch.allclose(decoder_0_self.outputs, expected @ v, atol=1e-12)
    assert torch.allclose(block.attention.out(decoder_0_self.joined), written)
    assert decoder_0_self.active.all()
    assert not closed["decoder.0.self"].outputs.any()


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_are_kept_when_asked_for(frozen: bool) -> None:
    model, batch = build().requires_grad_(not frozen), small_batch()
    with PlugIn(), Recording(model) as detached, Recording(model, keep_gradients=True) as kept:
        loss = -model.likelihood(model.states(batch), batch).log_prob(batch.target).sum()
    first = "encoder.0.self"
    assert not detached[first].weights.requires_grad
    for tensor in (kept[first].joined, *(() if frozen else (kept[first].logits,))):
        (gradient,) = torch.autograd.grad(loss, tensor, retain_graph=True)
        assert gradient.abs().sum() > 0


@every_kind
def test_decoding_records_a_pass_a_token_and_each_is_a_row_of_the_whole(kind: str) -> None:
    model, batch = build(kind, "cascaded").eval(), small_batch()
    whole = plugged(model, batch)
    length = batch.target.shape[1]
    with PlugIn(), Recording(model) as heads:
        state = model.begin(batch)
        for t in range(length):
            model.step(batch.decoder_input[:, t : t + 1], state)
    for block in model.blocks:
        passes, expected = heads.passes(block.name), whole[block.name]
        assert len(passes) == (1 if block.attention_type == "encoder-self" else length)
        if block.attention_type != "encoder-self":
            for t, step in enumerate(passes):
                keys = t + 1 if block.attention_type == "decoder-self" else None
                real = batch.target_valid[:, t]
                row = expected.weights[real, :, t : t + 1, :keys]
                assert torch.allclose(step.weights[real], row, atol=1e-12)
                outputs = expected.outputs[real, :, t : t + 1]
                assert torch.allclose(step.outputs[real], outputs, atol=1e-12)


def test_beam_search_records_every_hypothesis() -> None:
    model, batch = build(prior="cascaded").eval(), small_batch()
    with Recording(model) as heads:
        beam_search(model, batch, num_beams=2, num_samples=2, max_new_tokens=2)
    assert len(heads.passes("encoder.1.self")) == 1
    assert heads["encoder.1.self"].weights.shape == (2 * len(batch), HEADS, 5, 5)
    assert [item.weights.shape[-1] for item in heads.passes("decoder.0.self")] == [1, 2, 3]
    for one_pass in heads.passes("decoder.1.self") + heads.passes("decoder.1.cross"):
        assert torch.allclose(one_pass.weights.sum(-1), torch.ones(()))
    assert heads.passes("decoder.0.self")[1].weights.shape[1:3] == (2, HEADS)


def test_some_blocks_alone() -> None:
    model = build()
    with PlugIn(), Recording(model, ["decoder.1.cross.logits"]) as heads:
        model.states(small_batch())
    assert [block.name for block in heads.blocks] == ["decoder.1.cross"]
    with pytest.raises(ValueError, match=r"unknown block 'encoder.0.self': this recording has dec"):
        heads["encoder.0.self"]
    with pytest.raises(ValueError, match=r"unknown block 'encoder.7.self'"):
        Recording(model, ["encoder.7.self"])
    with pytest.raises(ValueError, match="blocks must be a list, got "):
        Recording(model, "encoder.0.self")


def test_a_block_that_did_not_run_says_so() -> None:
    heads = Recording(build())
    assert heads.passes("encoder.0.self") == []
    with pytest.raises(ValueError, match="did not run while it was recorded"):
        heads["encoder.0.self"]


def test_nothing_stands_on_a_model_that_is_not_recorded() -> None:
    model, batch = build(), small_batch()
    with Recording(model) as heads:
        assert listeners(model) == 2 * len(heads.blocks)
        model(batch)
    assert listeners(model) == 0
    model(batch)
    assert len(heads.passes("encoder.0.self")) == 1
    with pytest.raises(RuntimeError, match="broken"), Recording(model):
        raise RuntimeError("broken")
    assert listeners(model) == 0


def test_nothing_of_a_pass_that_failed_is_recorded_later() -> None:
    model = build()
    heads = Recording(model, ["encoder.0.self"])
    (block,) = (module for module in model.head_blocks if module.block.name == "encoder.0.self")

    def fail(*_: Any) -> None:
        raise RuntimeError("broken")

    handle = block.projection.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="broken"), heads:
        model(small_batch())
    handle.remove()
    with heads:
        block.projection(torch.zeros(2, 4, block.projection.in_features))
    assert heads.passes("encoder.0.self") == []


def test_readings_run_in_evaluation_mode_and_hand_the_model_back() -> None:
    model, batch = build(dropout=0.5).train(), small_batch()
    ((read, heads),) = record_heads(model, [batch])
    assert model.training
    assert torch.is_grad_enabled()
    assert read.target.equal(batch.target)
    expected = plugged(model.eval(), batch)
    assert heads["decoder.1.cross"].weights.equal(expected["decoder.1.cross"].weights)


def test_readings_of_a_guide_are_its_draws_and_the_same_for_the_same_seed() -> None:
    model, batch = build(), small_batch()
    guide, block = attach("mean-field", model), "decoder.1.cross"
    first, again, other = (
        [heads[block].logits for _, heads in record_heads(model, [batch] * 2, guide, seed)]
        for seed in (5, 5, 7)
    )
    assert all(one.equal(two) for one, two in zip(first, again, strict=True))
    assert not first[0].equal(first[1])
    assert not first[0].equal(other[0])


# Labelled arrays.


@every_kind
def test_a_labelled_array_says_layer_head_query_and_key(kind: str) -> None:
    model, batch = build(kind), small_batch()
    heads = plugged(model, batch)
    tree = to_datatree(heads)
    assert set(tree.children) == {block.attention_type for block in model.blocks}
    for block in model.blocks:
        for name in ("weights", "logits"):
            array = tree[block.attention_type][name]
            assert array.dims == ("sentence", "layer", "head", "query", "key")
            values = array.sel(layer=block.layer).values
            assert np.array_equal(values, getattr(heads[block.name], name).numpy())


def test_padding_is_nan_in_a_labelled_array_of_a_batch() -> None:
    model, batch = build(), small_batch()
    tree = to_datatree(plugged(model, batch), batch)
    cross = tree["decoder-cross"]["weights"]
    assert np.allclose(cross.sel(sentence=1, query=[0, 1], key=[0, 1]).sum("key"), 1)
    assert np.isnan(cross.sel(sentence=1, query=2)).all()
    assert np.isnan(cross.sel(sentence=1, key=2)).all()
    own = tree["decoder-self"]["logits"]
    assert np.isnan(own.sel(query=1, key=2)).all()
    longer = padded(batch, 2, 3)
    more = to_datatree(plugged(model, longer), longer)["decoder-cross"]["weights"]
    trimmed = more.isel(query=slice(4), key=slice(5)).values
    assert np.allclose(trimmed, cross.values, equal_nan=True)


@pytest.mark.parametrize("mixers", ["attention,local", "local,attention"])
def test_what_a_layer_may_not_read_is_nan_in_that_layer_alone(mixers: str) -> None:
    model, batch = build(mixers=mixers, windows="2,2", layers=2), small_batch()
    weights = to_datatree(plugged(model, batch), batch)["encoder-self"]["weights"]
    assert batch.source is not None
    real = slice(int(batch.source[0].ne(PAD).sum()))
    position = torch.arange(batch.source.shape[1])[real]
    far = ((position - position[:, None]).abs() > 1).numpy()
    weights = weights.isel(sentence=0, query=real, key=real)
    unread = np.isnan(weights.isel(head=0))
    for layer, mixer in enumerate(mixers.split(",")):
        expected = far if mixer == "local" else np.zeros_like(far)
        assert np.array_equal(unread.sel(layer=layer).values, expected)
        assert np.allclose(weights.sel(layer=layer).sum("key"), 1)


def test_layers_keep_their_depth_and_particles_are_draws() -> None:
    model, batch = build(), small_batch()
    with poutine.block(), Recording(model, ["encoder.1.self"]) as heads:
        model.states(batch)
    tree = to_datatree(heads)
    assert list(tree.children) == ["encoder-self"]
    assert tree["encoder-self"]["weights"].coords["layer"].values.tolist() == [1]
    several = Recording(model, ["encoder.1.self"])
    encoder_1_self = heads["encoder.1.self"]
    joined, *scored = (
        torch.stack([t, t + 1])
        for t in (encoder_1_self.joined, encoder_1_self.logits, encoder_1_self.bias)
    )
    several.passes("encoder.1.self").append(
        type(encoder_1_self)(encoder_1_self.block, joined, tuple(scored))
    )
    assert to_datatree(several)["encoder-self"]["logits"].dims[0] == "draw"


def test_a_head_that_a_layer_has_lost_is_nan_in_a_labelled_array() -> None:
    model, batch = build(), rows(small_batch(), [0, 1])  # fewer sentences than heads
    remove_heads(model, {"encoder.0.self": [1]})
    heads = plugged(model, batch)
    array = to_datatree(heads)["encoder-self"]["weights"]
    lower = heads["encoder.0.self"].weights.numpy()
    assert np.array_equal(array.sel(layer=0, head=[0]).values, lower)
    assert np.isnan(array.sel(layer=0, head=slice(1, None))).all()
    assert not np.isnan(array.sel(layer=1)).any()


def test_a_labelled_array_is_of_one_pass() -> None:
    model, batch = build().eval(), small_batch()
    with Recording(model) as heads:
        state = model.begin(batch)
        for t in range(3):
            model.step(batch.decoder_input[:, t : t + 1], state)
    with pytest.raises(ValueError, match=r"one pass, got 3 of decoder.0.self"):
        to_datatree(heads)


@pytest.mark.parametrize(
    "analyse",
    [
        lambda model, guide, batch: next(record_heads(model, [batch], guide)),
        lambda model, guide, batch: measure(model, [batch], guide),
        lambda model, guide, batch: gradient_importance(model, [batch], guide),
        lambda model, guide, batch: next(record_prior_heads(model, guide, batch, 2)),
    ],
)
def test_a_guide_of_another_model_is_refused(analyse: Any) -> None:
    guide = attach("mean-field", build())
    with pytest.raises(ValueError, match=r"^guide must be one of this model: it belongs to an"):
        analyse(build(), guide, small_batch())


def test_a_recording_says_how_often_each_block_ran() -> None:
    model, blocks = build(), ["encoder.1.self", "decoder.0.self"]
    with PlugIn(), Recording(model, blocks) as heads:
        model.states(small_batch())
    assert repr(heads) == "Recording(passes of encoder.1.self: 1, decoder.0.self: 1)"
    assert repr(Recording(model, blocks[:1])) == "Recording(passes of encoder.1.self: 0)"
