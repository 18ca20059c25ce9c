"""Tokens: an exact likelihood over real tokens, and its smoothed stand-in."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical

from latentheads.distributions import SmoothedTokens, Tokens

VALID = torch.tensor([[True, True, True], [True, False, False]])
VALUE = torch.tensor([[4, 1, 2], [2, 0, 0]])


def test_log_prob_is_the_sum_over_real_tokens() -> None:
    logits = torch.randn(2, 3, 5)
    tokens = Tokens(logits, VALID)
    log_probability = Categorical(logits=logits).log_prob(VALUE)
    assert torch.allclose(tokens.token_log_prob(VALUE), log_probability * VALID)
    assert torch.allclose(tokens.log_prob(VALUE), (log_probability * VALID).sum(-1))
    assert tokens.smoothing == 0


def test_smoothed_log_prob_is_its_formula() -> None:
    logits, smoothing = torch.randn(2, 3, 5), 0.2
    log_p = logits.log_softmax(-1)
    chosen = log_p.gather(-1, VALUE[..., None]).squeeze(-1)
    expected = (1 - smoothing) * chosen + smoothing * log_p.mean(-1)
    smoothed = SmoothedTokens(logits, VALID, smoothing=smoothing)
    assert torch.allclose(smoothed.log_prob(VALUE), (expected * VALID).sum(-1))
    assert not torch.allclose(smoothed.log_prob(VALUE), Tokens(logits, VALID).log_prob(VALUE))


@pytest.mark.parametrize("distribution", [Tokens, SmoothedTokens])
def test_particles_in_front(distribution: type[Tokens]) -> None:
    logits = torch.randn(2, 3, 5)
    plain = distribution(logits, VALID)
    wide = plain.expand(torch.Size([7, 2]))
    assert plain.expand(plain.batch_shape) is plain
    assert wide.smoothing == plain.smoothing
    assert wide.sample().shape == (7, 2, 3)
    assert torch.allclose(wide.log_prob(VALUE), plain.log_prob(VALUE).expand(7, 2))
    samples = plain.sample(torch.Size([4]))
    log_probs = torch.stack([plain.log_prob(sample) for sample in samples])
    assert torch.allclose(plain.log_prob(samples), log_probs)


def test_samples_follow_the_probabilities_and_leave_padding() -> None:
    tokens = Tokens(torch.randn(2, 3, 5), VALID)
    drawn = tokens.sample(torch.Size([20_000]))
    assert (drawn[:, ~VALID] == 0).all()
    share = torch.nn.functional.one_hot(drawn, 5).double().mean(0)
    probability = tokens.logits.softmax(-1)
    error = (probability * (1 - probability) / 20_000).sqrt()
    assert ((share - probability).abs()[VALID] < 5 * error[VALID]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_scored_in_float32(dtype: torch.dtype) -> None:
    logits = torch.randn(2, 3, 5).to(dtype)
    tokens = Tokens(logits, VALID)
    exact = Tokens(logits.float(), VALID)
    assert tokens.log_prob(VALUE).dtype == torch.float32
    assert torch.equal(tokens.log_prob(VALUE), exact.log_prob(VALUE))


def test_gradient_is_probability_less_one_hot() -> None:
    logits = torch.randn(2, 3, 5, requires_grad=True)
    Tokens(logits, VALID).log_prob(VALUE).sum().backward()
    one_hot = torch.nn.functional.one_hot(VALUE, 5)
    expected = (one_hot - logits.detach().softmax(-1)) * VALID[..., None]
    assert logits.grad is not None
    assert torch.allclose(logits.grad, expected)
