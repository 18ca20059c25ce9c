"""The output layer: equal to a plain softmax in value and gradient, whatever the slices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.layers import linear_log_prob
from latentheads.layers.linear_output import TableOutput
from latentheads.layers.output import GivenLogits

TYPES, WIDTH = 13, 5


def plain(logits: Tensor, tokens: Tensor, smoothing: float) -> Tensor:
    log_p = logits.log_softmax(-1)
    chosen = log_p.gather(-1, tokens[..., None]).squeeze(-1)
    return (1 - smoothing) * chosen + smoothing * log_p.mean(-1)


@pytest.fixture(params=[1, 3, 1000])
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linear_log_prob.CHUNK, "cpu", request.param * TYPES)


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_table_gives_the_plain_softmax_and_its_gradient(smoothing: float) -> None:
    layer = TableOutput(nn.Embedding(TYPES, WIDTH))
    states = torch.randn(2, 7, WIDTH, requires_grad=True)
    tokens = torch.randint(TYPES, (2, 7))
    weight = torch.randn(2, 7)
    weight[0, 3] = 0
    results = []
    for scores in (
        layer.log_prob(states, tokens, smoothing),
        plain(layer(states), tokens, smoothing),
    ):
        gradients = torch.autograd.grad((scores * weight).sum(), [states, layer.table.weight])
        results.append((scores, *gradients))
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", [1.0, -0.7, 0.0])
def test_where_all_positions_weigh_alike_the_gradient_is_the_same(
    weight: float, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made beside the value then: the logits are not made again."""
    layer = TableOutput(nn.Embedding(TYPES, WIDTH))
    states = torch.randn(2, 7, WIDTH, requires_grad=True)
    tokens = torch.randint(TYPES, (2, 7))
    inputs = [states, layer.table.weight]
    expected = torch.autograd.grad(weight * plain(layer(states), tokens, smoothing).sum(), inputs)
    log_probability = layer.log_prob(states, tokens, smoothing)
    monkeypatch.delattr(linear_log_prob, "Slices")
    gradients = torch.autograd.grad(weight * log_probability.sum(), inputs)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("comes", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_an_expected_gradient_is_made_beside_the_value(
    comes: bool, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another one comes, the logits are made again."""
    layer = TableOutput(nn.Embedding(TYPES, WIDTH))
    states = torch.randn(2, 7, WIDTH, requires_grad=True)
    tokens = torch.randint(TYPES, (2, 7))
    inputs, weights = [states, layer.table.weight], torch.rand(2, 7)
    expected = torch.autograd.grad(
        (weights * plain(layer(states), tokens, smoothing)).sum(), inputs
    )
    log_probability = layer.log_prob(
        states, tokens, smoothing, 3 * weights if comes else torch.rand(2, 7)
    )
    if comes:
        monkeypatch.delattr(linear_log_prob, "Slices")
    gradients = torch.autograd.grad((weights * log_probability).sum(), inputs)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_a_gradient_that_is_small_is_not_taken_for_the_expected_one() -> None:
    layer = TableOutput(nn.Embedding(TYPES, WIDTH))
    states, tokens = torch.randn(7, WIDTH, requires_grad=True), torch.randint(TYPES, (7,))
    weights, expected_gradient = 1e-14 * torch.rand(2, 7)
    (expected,) = torch.autograd.grad(weights @ plain(layer(states), tokens, 0.0), states)
    log_probability = layer.log_prob(states, tokens, 0.0, expected_gradient)
    (gradient,) = torch.autograd.grad(weights @ log_probability, states)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=0)


def test_a_table_that_is_not_learned_asks_for_no_equal_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = TableOutput(nn.Embedding(TYPES, WIDTH)).requires_grad_(False)
    states, weight = torch.randn(7, WIDTH, requires_grad=True), torch.randn(7)
    tokens = torch.randint(TYPES, (7,))
    (expected,) = torch.autograd.grad(plain(layer(states), tokens, 0.1) @ weight, [states])
    log_probability = layer.log_prob(states, tokens, 0.1)
    monkeypatch.delattr(linear_log_prob, "Slices")
    (gradient,) = torch.autograd.grad(log_probability @ weight, [states])
    assert torch.allclose(gradient, expected, atol=1e-12)


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weight", ["uniform", "varied", "both outputs", "log p alone"])
def test_a_mixture_with_a_constant_is_the_plain_formula(weight: str, smoothing: float) -> None:
    layer = TableOutput(nn.Embedding(TYPES, WIDTH))
    states = torch.randn(2, 7, WIDTH, requires_grad=True)
    tokens = torch.randint(TYPES, (2, 7))
    log_constant = torch.randn(2, 7).mul(4).sub(2)
    log_constant[0, 0], log_constant[0, 1] = -1e9, -torch.inf
    log_constant.requires_grad_()
    expected_log_probs = plain(layer(states), tokens, smoothing)
    expected_mixture = torch.logaddexp(expected_log_probs, log_constant)
    results = []
    for mixture, log_probs in (
        layer.log_mixture(states, tokens, log_constant, smoothing),
        (expected_mixture, expected_log_probs),
    ):
        score = {
            "uniform": -0.7 * mixture,
            "varied": mixture * torch.arange(14.0).view(2, 7),
            "both outputs": mixture - 2 * log_probs,
            "log p alone": log_probs,
        }[weight]
        inputs = [states, layer.table.weight, log_constant]
        gradients = torch.autograd.grad(score.sum(), inputs, materialize_grads=True)
        results.append((mixture, log_probs, *gradients))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)


def test_the_gradient_of_a_mixture_computes_no_logits_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = TableOutput(nn.Embedding(TYPES, WIDTH))
    states, log_constant = torch.randn(7, WIDTH, requires_grad=True), torch.randn(7)
    tokens = torch.randint(TYPES, (7,))
    inputs = [states, layer.table.weight]
    expected = torch.logaddexp(plain(layer(states), tokens, 0.0), log_constant)
    wanted = torch.autograd.grad(3 * expected.sum(), inputs)
    mixture, _ = layer.log_mixture(states, tokens, log_constant)
    monkeypatch.delattr(linear_log_prob, "Slices")
    for ours, theirs in zip(torch.autograd.grad(3 * mixture.sum(), inputs), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)


def test_a_hessian_is_refused_and_not_given_in_part() -> None:
    layer = TableOutput(nn.Embedding(TYPES, WIDTH))
    tokens = torch.randint(TYPES, (4,))

    def density(x: Tensor) -> Tensor:
        return layer.log_prob(x.tanh(), tokens).sum() - x.square().sum()

    with pytest.raises(RuntimeError, match=r"^a network of heads has no second derivatives"):
        torch.autograd.functional.hessian(density, torch.randn(4, WIDTH))


def test_what_is_held_keeps_its_weights() -> None:
    layer = TableOutput(nn.Embedding(TYPES, WIDTH))
    states, tokens = torch.randn(4, WIDTH), torch.randint(TYPES, (4,))
    expected, held = layer.log_prob(states, tokens), layer.with_current_weights()
    assert held.weight is layer.weight
    layer.table.weight = nn.Parameter(torch.zeros(TYPES, WIDTH))
    assert torch.equal(held.log_prob(states, tokens), expected)
    assert not torch.equal(layer.log_prob(states, tokens), expected)


def test_autocast_multiplies_in_bfloat16_and_adds_up_in_float32() -> None:
    torch.set_default_dtype(torch.float32)
    layer = TableOutput(nn.Embedding(101, 32))
    states = torch.randn(3, 7, 32, requires_grad=True)
    tokens = torch.randint(101, (3, 7))
    exact = layer.log_prob(states, tokens, 0.1)
    (expected,) = torch.autograd.grad(exact.sum(), [states])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log_probability = layer.log_prob(states, tokens, 0.1)
        as_before = plain(layer(states).float(), tokens, 0.1)
    (gradient,) = torch.autograd.grad(log_probability.sum(), [states])
    assert log_probability.dtype == gradient.dtype == torch.float32
    assert not torch.equal(log_probability, exact)
    assert torch.allclose(log_probability, as_before, atol=0.02)
    assert torch.allclose(log_probability, exact, atol=0.2)
    assert F.cosine_similarity(gradient.flatten(), expected.flatten(), 0) > 0.9999


def test_given_logits_are_scored_as_they_are() -> None:
    logits, tokens = torch.randn(2, 7, TYPES), torch.randint(TYPES, (2, 7))
    layer = GivenLogits()
    assert layer(logits) is logits
    assert torch.allclose(layer.log_prob(logits, tokens, 0.3), plain(logits, tokens, 0.3))


def test_of_no_position_there_is_no_gradient() -> None:
    states = torch.randn(0, WIDTH, dtype=torch.float64, requires_grad=True)
    table = nn.Embedding(TYPES, WIDTH).double()
    TableOutput(table).log_prob(states, torch.zeros(0, dtype=torch.long)).sum().backward()
    assert states.grad is not None
    assert states.grad.shape == (0, WIDTH)
    assert table.weight.grad is not None
    assert not table.weight.grad.any()


def test_of_no_position_there_is_no_gradient_where_the_table_is_not_learned() -> None:
    states = torch.randn(0, WIDTH, dtype=torch.float64, requires_grad=True)
    layer = TableOutput(nn.Embedding(TYPES, WIDTH).double().requires_grad_(False))
    nothing = torch.zeros(0, dtype=torch.long)
    layer.log_prob(states, nothing).sum().backward()
    layer.log_mixture(states, nothing, states.new_zeros(0))[0].sum().backward()
    assert states.grad is not None
    assert states.grad.shape == (0, WIDTH)


def test_compiled_code_reads_the_logits_of_any_number_of_states() -> None:
    def sums(states: Tensor, weight: Tensor) -> Tensor:
        slices = linear_log_prob.Slices(states, weight)
        strips = (strip for logits in slices for strip in slices.upcast(*logits, put_back=False))
        return torch.cat([part.logsumexp(-1) for _, part in strips])

    compiled, weight = torch.compile(sums, backend="eager", dynamic=True), torch.randn(TYPES, WIDTH)
    for states in torch.randn(8, WIDTH), torch.randn(12, WIDTH):
        torch.testing.assert_close(compiled(states, weight), (states @ weight.mT).logsumexp(-1))
