"""Laws of selected heads, against every choice there is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence

from latentheads.latents.active_heads import EnumerableSelection, Selection
from latentheads.latents.selection.bernoulli import Bernoullis
from latentheads.latents.selection.group import Group
from latentheads.latents.selection.subset import Subset

TASKS, CANDIDATES = 2, 6


def make(kind: str, logits: Tensor, temperature: float | None = 1.0) -> EnumerableSelection:
    if kind == "gates":
        return Bernoullis(logits, temperature)
    if kind == "group":
        return Group(logits, 3, temperature)
    return Subset(logits, 2, temperature)


KINDS = pytest.mark.parametrize("kind", ["gates", "group", "subset"])
ALL = torch.tensor(list(product((0.0, 1.0), repeat=CANDIDATES)), dtype=torch.float64)


def logits(seed: int) -> Tensor:
    torch.manual_seed(seed)
    return 2 * torch.randn(TASKS, CANDIDATES)


def probabilities(selection: Selection) -> Tensor:
    """Of every vector of zeros and ones, ``choice task``."""
    return selection.log_prob(ALL[:, None].expand(-1, TASKS, -1)).exp()


@KINDS
def test_the_mean_is_that_of_all_choices(kind: str) -> None:
    made_distribution = make(kind, logits(1))
    expected = (probabilities(made_distribution)[..., None] * ALL[:, None]).sum(0)
    torch.testing.assert_close(made_distribution.mean, expected)


@KINDS
def test_the_mode_is_the_most_probable_choice(kind: str) -> None:
    made_distribution = make(kind, logits(2))
    expected = ALL[probabilities(made_distribution).argmax(0)]
    torch.testing.assert_close(made_distribution.mode, expected, rtol=0, atol=0)


@KINDS
def test_every_choice_is_gone_through_once(kind: str) -> None:
    made_distribution = make(kind, logits(3))
    every = made_distribution.enumerate_support()
    assert every.shape == (made_distribution.num_choices, TASKS, CANDIDATES)
    assert torch.equal(made_distribution.enumerate_support(expand=False)[:, 0], every[:, 1])
    torch.testing.assert_close(made_distribution.log_prob(every).exp().sum(0), torch.ones(TASKS))
    assert len({tuple(row.tolist()) for row in every[:, 0]}) == made_distribution.num_choices


@KINDS
def test_without_a_temperature_draws_have_the_same_law_and_no_gradient(kind: str) -> None:
    values = logits(4).requires_grad_()
    relaxed, plain = make(kind, values), make(kind, values, None)
    assert relaxed.has_rsample
    assert not plain.has_rsample
    assert not plain.expand((5, TASKS)).has_rsample
    draws = []
    for distribution in (relaxed, plain):
        torch.manual_seed(0)
        draws.append(distribution())
    assert torch.equal(*draws)
    assert draws[0].requires_grad
    assert not draws[1].requires_grad


def test_equal_candidates_are_taken_in_their_order() -> None:
    assert Subset(torch.zeros(5), 2).mode.tolist() == [1, 1, 0, 0, 0]
    assert Group(torch.zeros(6), 3).mode.tolist() == [1, 1, 1, 0, 0, 0]


@KINDS
def test_the_divergence_is_the_sum_over_all_choices(kind: str) -> None:
    q, p = make(kind, logits(3)), make(kind, logits(4))
    q_probs, p_probs = probabilities(q), probabilities(p)
    expected = torch.special.xlogy(q_probs, q_probs) - torch.special.xlogy(
        q_probs, p_probs.clamp_min(1e-300)
    )
    torch.testing.assert_close(kl_divergence(q, p), expected.sum(0))
    torch.testing.assert_close(kl_divergence(q, make(kind, logits(3))), torch.zeros(TASKS))


@KINDS
@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_draws_have_the_law_whatever_the_temperature(kind: str, temperature: float) -> None:
    made_distribution = make(kind, logits(5), temperature)
    torch.manual_seed(0)
    number = 20_000
    drawn = made_distribution.rsample(torch.Size([number]))
    assert torch.equal(drawn, drawn.round())
    codes = (drawn @ (2.0 ** torch.arange(CANDIDATES - 1, -1, -1))).long()
    for task in range(TASKS):
        actual = torch.bincount(codes[:, task], minlength=2**CANDIDATES) / number
        expected = probabilities(made_distribution)[:, task]
        error = (expected * (1 - expected) / number).sqrt()
        assert ((actual - expected).abs() <= 4.5 * error + 1e-12).all()


def relaxed(kind: str, x: Tensor, temperature: float) -> Tensor:
    """The relaxation of a draw: noise first, the temperature behind it."""
    u = torch.rand_like(x)
    if kind == "gates":
        return ((x + u.logit()) / temperature).sigmoid()
    if kind == "group":
        noisy = x - (-u.log()).log()
        return (noisy / temperature).unflatten(-1, (-1, 3)).softmax(-2).flatten(-2)
    pairs = ALL[ALL.sum(-1) == 2]
    return (x @ pairs.mT / temperature).softmax(-1) @ pairs


@KINDS
@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_a_draw_has_the_gradient_of_its_relaxation(kind: str, temperature: float) -> None:
    start = logits(10).requires_grad_()

    def slope(draw: Callable[[], Tensor]) -> Tensor:
        torch.manual_seed(0)
        value = (draw() * torch.arange(1.0, CANDIDATES + 1)).sum()
        return torch.autograd.grad(value, start)[0]

    slopes = slope(lambda: make(kind, start, temperature).rsample())
    torch.testing.assert_close(slopes, slope(lambda: relaxed(kind, start, temperature)))
    assert not torch.allclose(slopes, slope(lambda: make(kind, start).rsample()))


@KINDS
def test_probability_mean_and_divergence_have_the_gradient_of_differences(kind: str) -> None:
    start = logits(7).requires_grad_()
    prior = make(kind, torch.zeros(TASKS, CANDIDATES))
    value = make(kind, logits(7)).mode

    def numbers(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made_distribution = make(kind, x)
        return (
            made_distribution.log_prob(value),
            made_distribution.mean,
            kl_divergence(made_distribution, prior),
        )

    assert torch.autograd.gradcheck(numbers, (start,))


def test_extreme_logits_stay_finite() -> None:
    start = torch.tensor([80.0, -80.0, 60.0, 0.0, -70.0]).requires_grad_()
    subset = Subset(start, 2)
    assert subset.mean.isfinite().all()
    torch.testing.assert_close(subset.mean.sum(), torch.tensor(2.0))
    kl_divergence(subset, Subset(torch.zeros(5), 2)).backward()
    assert start.grad is not None
    assert start.grad.isfinite().all()


@pytest.mark.parametrize("size", [1e3, 1e4, 1e7])
def test_the_divergence_of_large_logits_is_exact_in_float32(size: float) -> None:
    torch.manual_seed(0)
    start = size * torch.randn(8, dtype=torch.float32)
    divergence = kl_divergence(Subset(start, 4), Subset(torch.zeros_like(start), 4))
    # one of the 70 subsets has all the mass
    torch.testing.assert_close(divergence, torch.tensor(70.0).log().float(), rtol=1e-6, atol=0.0)


def test_other_sizes_are_impossible() -> None:
    assert Subset(torch.zeros(3), 2).log_prob(torch.tensor([1.0, 0.0, 0.0])) == -torch.inf
    assert Group(torch.zeros(4), 2).log_prob(torch.tensor([1.0, 0.0, 1.0, 0.0])) == -torch.inf
    assert kl_divergence(Subset(torch.zeros(3), 2), Subset(torch.zeros(3), 1)) == torch.inf
    with pytest.raises(NotImplementedError, match=r"^no closed form from 3 groups to 2$"):
        kl_divergence(Group(torch.zeros(6), 3), Group(torch.zeros(6), 2))


@KINDS
def test_a_plate_may_stretch_a_law(kind: str) -> None:
    made_distribution = make(kind, logits(8), 0.3)
    wide = made_distribution.expand((3, TASKS))
    assert wide.batch_shape == (3, TASKS)
    assert (wide.temperature, wide.has_rsample) == (0.3, True)
    assert not make(kind, logits(8), None).expand((3, TASKS)).has_rsample
    torch.testing.assert_close(wide.mean[1], made_distribution.mean)
    assert made_distribution.expand((TASKS,)) is made_distribution
    other = make(kind, logits(9))
    expected = kl_divergence(made_distribution, other).expand(3, TASKS)
    torch.testing.assert_close(kl_divergence(wide, other.expand((3, TASKS))), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Subset(torch.zeros(3), 4), "size must lie in 1 ... 3, got 4"),
        (
            lambda: Bernoullis(torch.zeros(3), 0.0),
            "temperature must be positive and finite",
        ),
    ],
)
def test_a_wrong_option_is_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
