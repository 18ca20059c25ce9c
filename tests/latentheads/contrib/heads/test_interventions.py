"""Heads that an intervention replaces are those of hooks by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

import latentheads as lh
from latentheads.contrib.heads.interventions import (
    Counterfactual,
    Intervention,
    Mean,
    Window,
    Zero,
    intervene,
    record_outputs,
)
from latentheads.contrib.hf.addresses import find_heads
from tests.latentheads.contrib.circuits.tiny import PROMPTS
from tests.latentheads.contrib.hf.networks import (
    IDS,
    PATCHES,
    REAL,
    bart,
    gemma3,
    gpt2,
    grouped,
    qwen2vl,
    t5,
)
from tests.tiny import jiggle
from tests.typechecking import unchecked

INPUTS = {"input_ids": IDS, "attention_mask": REAL}
PAIRED = {"input_ids": IDS.flip(0), "attention_mask": REAL}
HEAD = 1

by_grouped_keys = pytest.mark.parametrize("make", [gpt2, grouped])


def sliding() -> Any:
    """A decoder that attends to the last four tokens, and whose cache keeps no more."""
    return grouped("Mistral", sliding_window=4)


def neox() -> Any:
    """A decoder whose attention has another name for the cache."""
    return grouped("GPTNeoX", hidden_size=16)


def build(make: Callable[..., Any]) -> Any:
    return jiggle(make(), 0.3).double().eval()


def logits_by_hand(network: Any, replace: Callable[[Tensor], Tensor]) -> Tensor:
    """The logits where a hook replaces head 1 of the first layer by a function of its output."""
    address = find_heads(network)[0]

    def hook(_: Any, args: Any) -> Any:
        size = args[0].shape[-1] // address.block.heads
        joined = args[0].clone()
        columns = slice(HEAD * size, (HEAD + 1) * size)
        joined[..., columns] = replace(joined[..., columns])
        return (joined,)

    handle = address.projection.register_forward_pre_hook(hook)
    logits: Tensor = network(**INPUTS).logits
    handle.remove()
    return logits


def output_by_hand(network: Any, inputs: Any) -> Tensor:
    """The output of head 1 of the first layer."""
    address, outputs = find_heads(network)[0], []

    def hook(_: Any, args: Any) -> None:
        size = args[0].shape[-1] // address.block.heads
        outputs.append(args[0][..., HEAD * size : (HEAD + 1) * size])

    handle = address.projection.register_forward_pre_hook(hook)
    network(**inputs)
    handle.remove()
    return outputs[0].detach()


def logits_of(network: Any, intervention: Intervention | None) -> Tensor:
    with lh.heads(network).off([(0, HEAD)], intervention):
        logits: Tensor = network(**INPUTS).logits
    return logits


@by_grouped_keys
def test_a_replaced_head_is_that_of_a_hook_to_the_last_digit(make: Callable[..., Any]) -> None:
    network = build(make)
    own, paired = output_by_hand(network, INPUTS), output_by_hand(network, PAIRED)
    is_real = REAL[..., None].bool()
    mean = own.masked_fill(~is_real, 0).sum((0, 1)) / REAL.sum()
    means = own.masked_fill(~is_real, 0).sum(0) / REAL.sum(0)[:, None]
    for intervention, output in (
        (Zero(), torch.zeros_like(mean)),
        (Mean(network, INPUTS), mean),
        (Mean(network, INPUTS, by_position=True), means),
        (Counterfactual(network, PAIRED), paired),
    ):
        expected = logits_by_hand(network, lambda x, output=output: output.expand_as(x))
        assert torch.equal(logits_of(network, intervention), expected)
        assert not torch.allclose(expected, network(**INPUTS).logits)
    assert torch.equal(logits_of(network, Zero()), logits_of(network, None))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@by_grouped_keys
def test_a_head_in_a_window_has_its_other_weights_renormalised(
    make: Callable[..., Any], attention: str
) -> None:
    """Of one prompt without padding, so that sdpa is given no mask."""
    network = build(make)
    network.set_attn_implementation("eager")
    prompt = {"input_ids": IDS[:1]}
    weights = network(**prompt, output_attentions=True).attentions[0][0]
    near = torch.tensor([[j > i - 2 or j < 1 for j in range(5)] for i in range(5)])
    narrow = torch.where(near, weights[HEAD], 0.0)
    narrow = narrow / narrow.sum(-1, keepdim=True)
    whole, outputs = output_by_hand(network, prompt), []
    network.set_attn_implementation(attention)
    with intervene(
        Window(2),
        lh.heads(network).addresses,
        {"decoder.0.self": torch.arange(len(weights)) != HEAD},
    ):
        outputs.append(output_by_hand(network, prompt))
    # values from outputs: a triangle of weights has an inverse; its softmax is in float32
    values = torch.linalg.solve(weights[HEAD], whole[0])
    torch.testing.assert_close(outputs[0][0], narrow @ values, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(outputs[0], whole)


def test_a_wide_window_changes_nothing_and_a_padded_batch_is_its_rows() -> None:
    network = build(grouped)
    torch.testing.assert_close(logits_of(network, Window(9)), network(**INPUTS).logits)
    rows = logits_of(network, Window(1, sinks=0))
    for row, length in enumerate(REAL.sum(1)):
        with lh.heads(network).off([(0, HEAD)], Window(1, sinks=0)):
            alone = network(input_ids=IDS[row : row + 1, :length]).logits[0]
        torch.testing.assert_close(rows[row, :length], alone)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("make", [gpt2, grouped, neox, sliding, bart, t5])
def test_a_window_with_a_cache_is_that_of_the_whole_text(
    make: Callable[..., Any], attention: str
) -> None:
    network = build(make)
    network.set_attn_implementation(attention)
    prompt, window = IDS[:1, :3], Window(2)
    options = {"do_sample": False, "min_new_tokens": 5, "max_new_tokens": 5}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    caches: tuple[dict[str, Any], ...] = ({}, {"cache_implementation": "static"})
    with lh.heads(network).off([("decoder.0.self", 0), ("decoder.1.self", HEAD)], window):
        whole = network.generate(prompt, use_cache=False, **options)
        for cache in caches[: 1 if make in (bart, sliding, t5) else 2]:
            steps = network.generate(prompt, **cache, **options)
            torch.testing.assert_close(steps.logits, whole.logits)
    assert not torch.allclose(network.generate(prompt, **options).logits[-1], whole.logits[-1])


def test_the_sinks_of_a_row_with_padding_on_the_left_are_its_own_first_tokens() -> None:
    network = build(grouped)
    padded = torch.cat([IDS.new_zeros(1, 2), IDS[:1]], 1)
    mask = (torch.arange(7) > 1).long()[None]
    with lh.heads(network).off([(0, HEAD)], Window(2)):
        alone = network(input_ids=IDS[:1]).logits
        position_ids = (mask.cumsum(-1) - 1).clamp_min(0)
        row = network(input_ids=padded, attention_mask=mask, position_ids=position_ids).logits
    torch.testing.assert_close(row[:, 2:], alone)


def test_the_sinks_of_a_sliding_window_are_those_of_the_text_in_any_cache() -> None:
    network = build(sliding)
    tokens = torch.cat([IDS.new_zeros(1, 2), IDS[:1], IDS[2:, :2]], 1)
    mask = (torch.arange(9) > 1).long()[None]
    position_ids = (mask.cumsum(-1) - 1).clamp_min(0)
    with lh.heads(network).off([(0, HEAD)], Window(2)):
        whole = network(tokens, mask, position_ids).logits
        for cache in (DynamicCache(config=network.config), DynamicCache()):
            for first, stop in ((0, 5), *((index, index + 1) for index in range(5, 9))):
                now = slice(first, stop)
                step = network(tokens[:, now], mask[:, :stop], position_ids[:, now], cache)
                torch.testing.assert_close(step.logits[:, -1], whole[:, stop - 1])


def test_the_first_chunk_of_a_text_may_be_padding_and_rows_may_leave_a_cache() -> None:
    network = build(grouped)
    tokens = torch.cat([IDS.new_zeros(len(IDS), 3), IDS], 1)
    mask = (torch.arange(tokens.shape[1]) > 2).long().expand_as(tokens)
    position_ids = (mask.cumsum(-1) - 1).clamp_min(0)
    with lh.heads(network).off([(0, HEAD)], Window(2)):
        whole, cache = network(tokens, mask, position_ids).logits, DynamicCache()
        for first, stop, rows in ((0, 2, slice(3)), (2, 6, slice(3)), (6, 7, slice(1))):
            now = rows, slice(first, stop)
            if first:
                cache.batch_select_indices(torch.arange(3)[rows])
            step = network(tokens[now], mask[rows, :stop], position_ids[now], cache)
    torch.testing.assert_close(step.logits[:, -1], whole[:1, 6])


def test_gates_of_rows_are_those_of_a_row_at_a_time_and_fractions_have_gradients() -> None:
    network = build(gpt2)
    addresses, mean = lh.heads(network).addresses, Mean(network, INPUTS)
    gates = torch.tensor([[True, True, True], [True, False, True], [False, True, True]])
    with intervene(mean, addresses, {"decoder.0.self": gates}):
        together = network(**INPUTS).logits
    assert torch.equal(together[0], network(**INPUTS).logits[0])
    assert torch.equal(together[1], logits_of(network, mean)[1])
    soft = gates.double().requires_grad_()
    with intervene(mean, addresses, {"decoder.0.self": soft}):
        logits = network(**INPUTS).logits
    torch.testing.assert_close(logits, together)
    assert torch.autograd.grad(logits.square().sum(), soft)[0].abs().min() > 0


def test_recorded_outputs_are_those_without_dropout_and_noise() -> None:
    network = build(gpt2).train()
    means = Mean(network, INPUTS).means["decoder.0.self"]
    assert network.training
    assert torch.equal(means, Mean(network.eval(), INPUTS).means["decoder.0.self"])
    lh.latent(network)
    torch.testing.assert_close(Mean(network, INPUTS).means["decoder.0.self"], means)
    without_cache = {**INPUTS, "use_cache": False, "return_dict": None}
    assert torch.equal(
        Mean(network, without_cache).means["decoder.0.self"],
        Mean(network, INPUTS).means["decoder.0.self"],
    )


def test_a_mean_of_each_side_is_over_what_is_no_padding_there() -> None:
    """Source and target are equally wide, and their padding differs."""
    network, masks = build(bart), (REAL, REAL.flip(0))
    inputs = {**INPUTS, "decoder_input_ids": IDS, "decoder_attention_mask": masks[1]}
    outputs, means = record_outputs(network, inputs), Mean(network, inputs).means
    for name, mask in zip(("encoder.1.self", "decoder.1.cross"), masks, strict=True):
        torch.testing.assert_close(means[name], outputs[name][mask.bool()].mean(0))
    no_padding = {name: value for name, value in inputs.items() if name != "decoder_attention_mask"}
    everywhere = record_outputs(network, no_padding)["decoder.0.self"].mean((0, 1))
    torch.testing.assert_close(Mean(network, no_padding).means["decoder.0.self"], everywhere)


def test_a_mean_in_half_precision_is_of_any_number_of_positions() -> None:
    network = build(gpt2).half()
    with torch.no_grad():
        network.transformer.h[0].attn.c_attn.bias[12:] = 1e3  # the values
    means = Mean(network, {"input_ids": IDS.repeat(20, 1)}).means["decoder.0.self"]
    torch.testing.assert_close(means, torch.full_like(means, 1e3), rtol=0.05, atol=0)


def test_copies_of_a_batch_have_the_pair_of_each_row() -> None:
    network = build(gpt2)
    paired, gates = Counterfactual(network, PAIRED), (torch.arange(3) != HEAD).expand(6, -1)
    twice = {name: value.repeat(2, 1) for name, value in INPUTS.items()}
    with intervene(paired, lh.heads(network).addresses, {"decoder.0.self": gates}):
        copies = network(**twice).logits
    once = logits_of(network, paired)
    torch.testing.assert_close(copies, torch.cat([once, once]))
    with (
        lh.heads(network).off([(0, HEAD)], paired),
        pytest.raises(ValueError, match=r"^counterfactual is of 3 rows, got 6$"),
    ):
        network.generate(IDS, num_beams=2, max_new_tokens=1)


def test_what_an_intervention_cannot_do_is_said_in_one_line() -> None:
    network = build(gpt2)
    with (
        pytest.raises(ValueError, match=r"^a counterfactual has 2 rows of 5 positions, got 3 of 5"),
        lh.heads(network).off([(0, 1)], Counterfactual(network, {"input_ids": IDS[:2]})),
    ):
        network(**INPUTS)
    with (
        pytest.raises(ValueError, match=r"^by_position has means of 3 positions, got 5$"),
        lh.heads(network).off([(0, 1)], Mean(network, {"input_ids": IDS[:, :3]}, by_position=True)),
    ):
        network(**INPUTS)
    by_position = Mean(network, INPUTS, by_position=True)
    with (
        pytest.raises(ValueError, match=r"^by_position is of whole prompts, got a query alone"),
        lh.heads(network).off([(0, 1)], by_position),
    ):
        network.generate(IDS, max_new_tokens=2, do_sample=False)
    with (
        pytest.raises(ValueError, match=r"^window is of decoder-self attention, got block 'enc"),
        lh.heads(bart()).off([("encoder.0.self", 1)], Window(2)),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"^window takes heads as a whole: gates must be True or"),
        intervene(Window(2), lh.heads(network).addresses, {"decoder.0.self": torch.ones(3)}),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"^intervention must be an instance of Inter.*got 'mean'$"),
        unchecked(intervene)("mean", {}, {}),
    ):
        pass
    for mask in (REAL[:, :4], torch.ones(3, 1, 5, 5).tril()):
        with pytest.raises(ValueError, match=r"^attention_mask has.* inputs of one length$"):
            Mean(network, {"input_ids": IDS, "attention_mask": mask})
    with pytest.raises(ValueError, match=r"^inputs must be tensors by name, .* got Prompts\("):
        unchecked(record_outputs)(network, PROMPTS)
    with pytest.raises(ValueError, match=r"^size must be at least 1, got 0"):
        Window(0)


def test_a_mask_of_text_is_not_that_of_images_beside_it() -> None:
    network, ids = jiggle(gemma3(), 0.3).eval(), torch.tensor([[2, 12, 4, 5, 6], [12, 7, 8, 9, 10]])
    inputs = {"input_ids": ids, "pixel_values": torch.linspace(-1, 1, 96).reshape(2, 3, 4, 4)}
    inputs |= {"attention_mask": (ids != 2).long(), "token_type_ids": (ids == 12).long()}
    means, outputs = Mean(network, inputs).means, record_outputs(network, inputs)
    images, text = outputs["encoder.0.self"], outputs["decoder.0.self"]
    torch.testing.assert_close(means["encoder.0.self"], images.mean((0, 1)))
    torch.testing.assert_close(means["decoder.0.self"], text[ids != 2].mean(0))


def test_a_mean_is_of_all_patches_where_images_have_no_rows() -> None:
    network, inputs = jiggle(qwen2vl(), 0.3).eval(), PATCHES
    outputs, mean = record_outputs(network, inputs), Mean(network, inputs)
    assert outputs["encoder.0.self"].shape == (8, 3, 4)
    assert torch.allclose(mean.means["encoder.0.self"], outputs["encoder.0.self"].mean(0))
    assert torch.allclose(mean.means["decoder.0.self"], outputs["decoder.0.self"].mean((0, 1)))
