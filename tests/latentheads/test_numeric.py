"""Full precision, and a dropout of our own."""

import pytest
import torch
from torch.autograd import gradcheck

from latentheads.numeric import dropout, full_precision


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
    found = dropout(torch.ones(count), probability, True)
    kept = found != 0
    error = (probability * (1 - probability) / count) ** 0.5
    assert abs(kept.double().mean() - (1 - probability)) < 5 * error + 2**-16
    assert found[kept].unique().tolist() == pytest.approx([1 / (1 - probability)], rel=0.01)
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
