"""Full precision, a dropout of our own, and weighted sums after it."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from pyro.ops.provenance import get_provenance, track_provenance
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.overrides import BaseTorchFunctionMode

from latentheads.layers.numeric import (
    dropout,
    exp_,
    full_precision,
    has_overrides,
    log_softmax,
    softmax,
    weighted_sum,
)
from tests.operations import Ran


def test_half_precision_becomes_float32_and_nothing_else_changes() -> None:
    assert full_precision(torch.zeros(1, dtype=torch.bfloat16)).dtype == torch.float32
    assert full_precision(torch.zeros(1, dtype=torch.float16)).dtype == torch.float32
    assert full_precision(torch.zeros(1, dtype=torch.float64)).dtype == torch.float64


def test_dropout_does_nothing_when_off() -> None:
    x = torch.randn(3, 5)
    assert dropout(x, 0.0, True) is x
    assert dropout(x, 0.5, False) is x


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5, 0.999])
def test_dropout_keeps_the_expectation(probability: float) -> None:
    count = 1_000_003
    dropped = dropout(torch.ones(count), probability, True)
    kept = dropped != 0
    error = (probability * (1 - probability) / count) ** 0.5
    assert abs(kept.double().mean() - (1 - probability)) < 5 * error + 2**-16
    assert dropped[kept].unique().tolist() == pytest.approx([1 / (1 - probability)], rel=0.01)
    neighbours = (kept[1:] & kept[:-1]).double().mean()
    assert abs(neighbours - (1 - probability) ** 2) < 10 * error + 2**-15


def test_every_bit_of_the_words_is_random() -> None:
    """Neighbours in one word of random bits drop independently, at every place in the word."""
    kept = dropout(torch.ones(400_000), 0.5, True).view(-1, 4) != 0
    assert torch.allclose(kept.double().mean(0), torch.full((4,), 0.5), atol=0.01)
    together = kept.double().T @ kept.double() / len(kept)
    off = together[~torch.eye(4, dtype=torch.bool)]
    assert torch.allclose(off, torch.full_like(off, 0.25), atol=0.01)


def test_dropout_repeats_with_the_seed_and_lets_gradients_through() -> None:
    x = torch.randn(3, 7, requires_grad=True)

    def fixed(value: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return dropout(value, 0.4, True)

    assert torch.equal(fixed(x), fixed(x))
    assert gradcheck(fixed, (x,))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dropout_keeps_the_type(dtype: torch.dtype) -> None:
    assert dropout(torch.ones(3, 5, dtype=dtype), 0.4, True).dtype == dtype


def plain_sum(weights: Tensor, values: Tensor, probability: float, training: bool) -> Tensor:
    return dropout(weights, probability, training).to(values.dtype) @ values


SHAPES = {
    "same": ((2, 3, 5, 7), (2, 3, 7, 11)),
    "particles of weights": ((4, 2, 5, 7), (2, 7, 11)),
    "one sentence's values": ((4, 2, 5, 7), (4, 1, 7, 11)),
    "one sentence's weights": ((2, 1, 5, 7), (2, 3, 7, 11)),
    "one query": ((2, 3, 1, 7), (2, 3, 7, 11)),
    "one query of all sentences": ((3, 1, 7), (2, 3, 7, 11)),
}


@pytest.mark.parametrize("probability", [0.0, 0.4])
@pytest.mark.parametrize("shapes", SHAPES)
def test_a_weighted_sum_is_dropout_and_a_product(shapes: str, probability: float) -> None:
    weights, values = (torch.randn(shape, requires_grad=True) for shape in SHAPES[shapes])
    results = []
    for form in (weighted_sum, plain_sum):
        torch.manual_seed(3)
        output = form(weights, values, probability, True)
        results.append((output, *torch.autograd.grad(output.exp().sum(), [weights, values])))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_weighted_sum_has_the_gradients_of_finite_differences() -> None:
    weights, values = (torch.randn(2, 3, 3, requires_grad=True) for _ in range(2))

    def fixed(*inputs: Tensor) -> Tensor:
        torch.manual_seed(3)
        return weighted_sum(*inputs, 0.4, True)

    assert gradcheck(fixed, (weights, values))


def test_a_weighted_sum_with_dropout_refuses_a_second_derivative() -> None:
    """Torch itself refuses it only where the gradient that comes in has a gradient."""
    weights, values = (torch.randn(2, 3, 3, requires_grad=True) for _ in range(2))
    actual = weighted_sum(weights, values, 0.4, True).sum() + weights.pow(3).sum()
    with pytest.raises(RuntimeError, match=r"^a network of heads has no second derivatives"):
        torch.autograd.grad(actual, weights, create_graph=True)


@pytest.mark.parametrize("probability", [0.0, 0.4])
def test_a_weighted_sum_multiplies_in_the_type_of_its_values(probability: float) -> None:
    weights = torch.randn(2, 5, 7, dtype=torch.float32, requires_grad=True)
    values = torch.randn(2, 7, 11, dtype=torch.bfloat16, requires_grad=True)
    results = []
    for form in (weighted_sum, plain_sum):
        torch.manual_seed(3)
        output = form(weights, values, probability, True)
        results.append((output, *torch.autograd.grad(output.float().sum(), [weights, values])))
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


def kept(weights: Tensor, values: Tensor, probability: float) -> dict[tuple[int, ...], int]:
    """Bytes an element of everything that is saved, by shape."""
    actual: dict[tuple[int, ...], int] = {}

    def note(tensor: Tensor) -> Tensor:
        actual[tuple(tensor.shape)] = actual.get(tuple(tensor.shape), 0) + tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        weighted_sum(weights, values, probability, True)
    return actual


@pytest.mark.parametrize(("probability", "expected"), [(0.0, 4), (0.4, 5)])
def test_a_weighted_sum_saves_its_weights_and_which_were_dropped(
    probability: float, expected: int
) -> None:
    weights = torch.randn(2, 5, 7, dtype=torch.float32, requires_grad=True)
    values = torch.randn(2, 7, 11, dtype=torch.bfloat16, requires_grad=True)
    assert kept(weights, values, probability) == {(2, 5, 7): expected, (2, 7, 11): 2}


def test_what_is_off_drops_nothing() -> None:
    weights, values = torch.randn(2, 5, 7), torch.randn(2, 7, 11)
    assert torch.equal(weighted_sum(weights, values, 0.4, False), weights @ values)


def test_a_default_device_overrides_nothing() -> None:
    x = torch.randn(3, 5)
    recorded = track_provenance(x, frozenset({"x"}))
    for context in (nullcontext(), torch.device("cpu")):
        with context:
            assert not has_overrides(x, nn.Parameter(x))
            assert has_overrides(x, recorded)
            with BaseTorchFunctionMode():
                assert has_overrides(x)


def test_a_tensor_that_records_what_is_done_to_it_sees_the_sum() -> None:
    weights = track_provenance(torch.randn(2, 5, 7), frozenset({"weights"}))
    values = track_provenance(torch.randn(2, 7, 11), frozenset({"values"}))
    weighted = weighted_sum(weights, values, 0.4, True)
    assert get_provenance(weighted) == frozenset({"weights", "values"})


@pytest.mark.parametrize("keys", [1, 3, 7, 8, 11])
@pytest.mark.parametrize("ours", [softmax, log_softmax])
def test_a_softmax_of_short_rows_is_torchs_in_value_and_gradient(
    ours: Callable[[Tensor], Tensor], keys: int
) -> None:
    theirs = {softmax: torch.softmax, log_softmax: torch.log_softmax}[ours]
    x = torch.randn(2, 5, keys, requires_grad=True)
    with torch.no_grad():
        x[0, 1, keys // 2 :] = -torch.inf
        x[0, 1, 0] = 3.0
    weight = torch.rand(2, 5, keys)
    results = []
    for actual in (ours(x), theirs(x, -1)):
        finite = actual.masked_fill(actual.isinf(), 0.0)
        results.append((finite, *torch.autograd.grad((finite * weight).sum(), [x])))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_an_exponential_in_place_is_torchs() -> None:
    x = torch.tensor([-torch.inf, -700.0, -31.0, -1.0, 0.0, 5.0])
    expected = x.exp()
    assert exp_(x) is x
    torch.testing.assert_close(x, expected, rtol=1e-12, atol=0.0)


def test_an_exponential_goes_through_the_memory_of_a_gpu_once() -> None:
    x = torch.empty(3, device="meta")
    with Ran() as ran:
        exp_(x)
    assert ran.names == ["exp_"]
