"""Heads that are switched off are those that a hook, or zeros in the weights, take away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import accelerate
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

import latentheads as lh
from latentheads.contrib.heads.interventions import Mean
from latentheads.contrib.heads.switch import NetworkHeads, label_head
from latentheads.contrib.hf.addresses import find_heads
from tests.latentheads.contrib.hf.networks import (
    FRAMES,
    IDS,
    REAL,
    bart,
    bert,
    gpt2,
    grouped,
    whisper,
)
from tests.tiny import jiggle
from tests.typechecking import unchecked

DECODER = torch.tensor([[1, 3, 5], [1, 4, 6], [1, 7, 8]])


def decoder_only(network: Any) -> Tensor:
    return network(input_ids=IDS, attention_mask=REAL).logits


def translated(network: Any) -> Tensor:
    return network(input_ids=IDS, attention_mask=REAL, decoder_input_ids=DECODER).logits


def transcribed(network: Any) -> Tensor:
    frames = FRAMES.to(next(network.parameters()).dtype)
    return network(input_features=frames, decoder_input_ids=DECODER).logits


NETWORKS: dict[str, tuple[Callable[[], Any], Callable[[Any], Tensor]]] = {
    "gpt2": (gpt2, decoder_only),
    "grouped": (grouped, decoder_only),
    "bert": (bert, decoder_only),
    "bart": (bart, translated),
    "whisper": (whisper, transcribed),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


def build(name: str) -> tuple[Any, Callable[[Any], Tensor]]:
    make, run = NETWORKS[name]
    return jiggle(make(), 0.3).double().eval(), run


@every_network
def test_a_head_that_is_off_is_one_whose_output_weights_are_0(name: str) -> None:
    network, run = build(name)
    whole = run(network)
    for address in find_heads(network):
        block, projection = address.block, address.projection
        for head in range(block.heads):
            with lh.heads(network).off([(block.name, head)]):
                off = run(network)
            weight: Any = projection.weight
            kept = weight.detach().clone()
            columns = weight if isinstance(projection, torch.nn.Linear) else weight.T
            size = columns.shape[1] // block.heads
            with torch.no_grad():
                columns[:, head * size : (head + 1) * size] = 0
                expected = run(network)
                weight.copy_(kept)
            torch.testing.assert_close(off, expected, rtol=1e-12, atol=1e-12)
            assert not torch.allclose(off, whole)
    assert torch.equal(run(network), whole)


@every_network
def test_a_scaled_head_is_that_of_a_hook_to_the_last_digit(name: str) -> None:
    network, run = build(name)
    address = find_heads(network)[-1]
    heads = address.block.heads

    def hook(module: Any, args: Any) -> Any:
        size = args[0].shape[-1] // heads
        factors = torch.ones(heads, dtype=torch.float64).index_fill(0, torch.tensor([1]), 0.5)
        return (args[0] * factors.repeat_interleave(size), *args[1:])

    handle = address.projection.register_forward_pre_hook(hook)
    expected = run(network)
    handle.remove()
    with lh.heads(network).scale({(address.block.name, 1): 0.5}):
        assert torch.equal(run(network), expected)


def test_a_layer_and_a_head_have_three_spellings() -> None:
    heads = lh.heads(gpt2())
    assert heads.find((1, 2)) == heads.find("L1H2") == heads.find(("decoder.1.self", 2))
    assert heads.find(label_head(1, 2)) == ("decoder.1.self", 2)
    cross = lh.heads(whisper(), "decoder-cross")
    assert cross.find((1, 0)) == ("decoder.1.cross", 0)
    assert repr(heads) == "NetworkHeads(decoder.0.self: 3, decoder.1.self: 3)"


def test_a_choice_of_blocks_is_all_of_their_heads() -> None:
    network, run = build("gpt2")
    heads = lh.heads(network)
    assert heads.find_all("L1H2,decoder.0.self") == [
        *(("decoder.0.self", head) for head in range(3)),
        ("decoder.1.self", 2),
    ]
    with heads.off([(0, 0), (0, 1), (0, 2)]):
        expected = run(network)
    for choice in ("decoder.0.self", "0"):
        with heads.off(choice):
            assert torch.equal(run(network), expected)
    crossed = [(f"decoder.{layer}.cross", head) for layer in range(2) for head in range(2)]
    assert lh.heads(bart()).find_all("decoder-cross") == crossed
    assert lh.heads(bart(), "decoder-cross").find_all("0-1") == crossed
    with heads.scale({"decoder.0.self": 0.0}):
        torch.testing.assert_close(run(network), expected)


def test_contexts_multiply_and_end_with_an_error_too() -> None:
    network, run = build("gpt2")
    heads, whole = lh.heads(network), run(network)
    with heads.scale({(0, 1): 0.5}), heads.scale({(0, 1): 0.5, "L1H0": 3.0}):
        both = run(network)
    with heads.scale({(0, 1): 0.25, (1, 0): 3.0}):
        torch.testing.assert_close(run(network), both)
    with pytest.raises(KeyError), heads.off([(0, 1)]):
        raise KeyError
    assert torch.equal(run(network), whole)


def test_generation_runs_without_the_head() -> None:
    network = jiggle(gpt2(), 0.5).eval()
    prompt = torch.tensor([[3, 4, 5]])
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 2}
    with lh.heads(network).off([(0, 0), (1, 1), (1, 2)]):
        tokens = network.generate(prompt, **options)
        for index in range(3, tokens.shape[1]):
            logits = network(input_ids=tokens[:, :index]).logits[0, -1]
            assert tokens[0, index] == logits.argmax()


def test_factors_have_gradients() -> None:
    network, run = build("gpt2")
    factor = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    with lh.heads(network).scale({(1, 2): factor}):
        loss = run(network).square().sum()
    (gradient,) = torch.autograd.grad(loss, factor)
    losses = []
    for value in (0.7 + 1e-6, 0.7 - 1e-6):
        with lh.heads(network).scale({(1, 2): value}), torch.no_grad():
            losses.append(run(network).square().sum())
    assert float(gradient) == pytest.approx(float(losses[0] - losses[1]) / 2e-6, rel=1e-5)


def test_layers_that_run_again_for_a_gradient_have_the_factor_or_say_so() -> None:
    network, run = build("grouped")
    weight = network.model.layers[0].self_attn.o_proj.weight
    with lh.heads(network).scale({(0, 1): 0.3}):
        (expected,) = torch.autograd.grad(run(network).square().sum(), weight)
    network.train().activation_checkpointing_enable()
    with lh.heads(network).scale({(0, 1): 0.3}):
        loss = run(network).square().sum()
        (gradient,) = torch.autograd.grad(loss, weight, retain_graph=True)
    torch.testing.assert_close(gradient, expected)
    with lh.heads(network).scale({(0, 1): 0.3}):
        loss = run(network).square().sum()
    with pytest.raises(CheckpointError):
        torch.autograd.grad(loss, weight)


def test_factors_of_sentences_may_be_wider_than_the_network() -> None:
    network, run = build("gpt2")
    with lh.heads(network.bfloat16()).scale({(1, 2): 0.5}):
        expected = run(network)
    with lh.heads(network).scale({(1, 2): torch.full((len(IDS), 1, 1), 0.5)}):
        assert torch.equal(run(network), expected)


def test_what_is_off_is_0_even_if_it_is_no_number() -> None:
    network, run = build("gpt2")
    fused = network.transformer.h[0].attn.c_attn
    with torch.no_grad():
        fused.bias[-2:] = torch.inf  # the values of the last head
    assert run(network).isnan().any()
    with lh.heads(network).off([(0, 2)]):
        assert run(network).isfinite().all()


def test_a_latent_network_has_its_heads_too() -> None:
    network, run = build("gpt2")
    with lh.heads(network).off([(0, 1)]):
        plain = run(network)
    model = lh.latent(network, prior="delta")
    with lh.heads(model).off([(0, 1)]):
        torch.testing.assert_close(run(network), plain)


def test_heads_of_a_compiled_network_are_off_too() -> None:
    network, run = jiggle(gpt2(n_layer=1), 0.3).double().eval(), decoder_only
    mean = Mean(network, {"input_ids": IDS})
    with lh.heads(network).off([(0, 1)], mean):
        off = run(network)
    network.compile(backend="eager")
    whole = run(network)
    means = Mean(network, {"input_ids": IDS}).means
    torch.testing.assert_close(means, mean.means)
    with lh.heads(network).off([(0, 1)], mean):
        torch.testing.assert_close(run(network), off)
    with lh.heads(network).scale({(0, 1): 0.0}):
        zero = run(network)
    assert not torch.allclose(zero, whole)
    torch.testing.assert_close(run(network), whole)

    def run_without() -> Tensor:
        with lh.heads(network).off([(0, 1)]):
            return run(network)

    torch.testing.assert_close(torch.compile(run_without, backend="eager")(), zero)


def test_heads_are_off_where_weights_are_on_a_device_only_while_they_are_used() -> None:
    network, run = build("grouped")
    with lh.heads(network).off([(0, 1)]):
        expected = run(network)
    accelerate.cpu_offload(network, torch.device("cpu"))
    assert next(network.parameters()).device.type == "meta"
    with lh.heads(network).off([(0, 1)]):
        torch.testing.assert_close(run(network), expected)


def test_what_is_no_head_is_refused_in_one_line() -> None:
    heads, cross = lh.heads(gpt2()), lh.heads(bart())
    for head, message in (
        ((2, 0), r"head \(2, 0\): there is no layer 2 of decoder-self, which has layers 0 to 1"),
        ((1, 3), r"head \(1, 3\): decoder.1.self has heads 0 to 2"),
        ((1, -1), r"head \(1, -1\): decoder.1.self has heads 0 to 2"),
        (("encoder.0.self", 0), r"head .*: there is no such block in decoder.0.self"),
        ("decoder.9.self", r"a head is .*, of decoder.0.self, .*; got 'decoder.9.self'"),
        ("H1", r"a head is \(9, 6\), 'L9H6' or \('decoder.9.self', 6\), or a choice.*; got 'H1'"),
        (3, r"a head is \(9, 6\), 'L9H6' or \('decoder.9.self', 6\), or a choice of .*; got 3"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$|^{message}"):
            unchecked(NetworkHeads.find)(heads, head)
    with pytest.raises(ValueError, match=r"^head \(0, 1\): a layer has heads of encoder-self, dec"):
        cross.find((0, 1))
    with (
        pytest.raises(ValueError, match=r"^factors must be a factor of each head, as .*, got \["),
        unchecked(NetworkHeads.scale)(heads, ["L0H1"]),
    ):
        pass
    for network, layers in ((heads, "decoder-self"), (cross, "encoder-self, decoder-self, deco")):
        message = rf"^head \(7, 1\): there is no layer 7 of {layers}.*, which has layers 0 to 1$"
        with pytest.raises(ValueError, match=message):
            network.off([(7, 1)])
    with (
        pytest.raises(ValueError, match=r"^head \('decoder.0.self', 1\) is named twice"),
        heads.off([(0, 1), "L0H1"]),
    ):
        pass
    with pytest.raises(ValueError, match=r"^attention_type must be one of decoder-self; got"):
        lh.heads(gpt2(), "decoder-cross")
    with pytest.raises(
        ValueError, match=r"^network must be a PreTrainedModel of transformers, got"
    ):
        lh.heads(torch.nn.Linear(2, 2))
