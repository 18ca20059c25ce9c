"""Temperatures and lines against cases with a known answer."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from latentheads.contrib.uncertainty.scaling import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    PlattScaling,
    TemperatureFit,
    fit_platt_scaling,
)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_the_temperature_that_words_were_drawn_at_is_found(temperature: float) -> None:
    log_probs = torch.randn(3, 5).double().log_softmax(-1)
    probabilities = (log_probs / temperature).softmax(-1)
    fit = TemperatureFit()
    # words as often as the distribution has them: no noise
    counts = (probabilities * 1000).round().int()
    for row, number in zip(log_probs, counts, strict=True):
        words = torch.arange(5).repeat_interleave(number)
        fit.add(row.expand(len(words), -1), words)
    assert fit.temperature == pytest.approx(temperature, rel=5e-3)


def test_a_temperature_stays_within_the_grid() -> None:
    log_probs = torch.tensor([[0.9, 0.1]]).double().log()
    always, never = TemperatureFit(), TemperatureFit()
    always.add(log_probs, torch.tensor([0]))
    never.add(log_probs, torch.tensor([1]))
    assert always.temperature == MIN_TEMPERATURE == pytest.approx(1 / 3)
    assert never.temperature == MAX_TEMPERATURE == pytest.approx(3)
    assert TemperatureFit().temperature == 1


def test_a_token_that_never_comes_does_not_move_the_temperature() -> None:
    words, fits = torch.tensor([0, 0, 1]), (TemperatureFit(), TemperatureFit())
    log_probs = torch.tensor([0.8, 0.2]).double().log().expand(3, -1)
    fits[0].add(log_probs, words)
    fits[1].add(torch.cat([log_probs, torch.full((3, 1), -math.inf).double()], -1), words)
    assert fits[1].temperature == pytest.approx(fits[0].temperature)


def test_a_line_is_that_of_the_highest_likelihood() -> None:
    rng = np.random.default_rng(2)
    log_prob = np.log(rng.uniform(0.05, 0.95, 60))
    odds = log_prob - np.log1p(-np.exp(log_prob))
    correct = rng.uniform(size=60) < 1 / (1 + np.exp(-(0.5 * odds - 0.4)))
    target = np.where(
        correct, (correct.sum() + 1) / (correct.sum() + 2), 1 / ((~correct).sum() + 2)
    )

    def loss(line: np.ndarray) -> float:
        score = line[0] * odds + line[1]
        return float((np.logaddexp(0, score) - target * score).sum())

    platt_scaling = fit_platt_scaling(log_prob, correct)
    best = minimize(loss, np.zeros(2), tol=1e-12).x
    assert [platt_scaling.slope, platt_scaling.offset] == pytest.approx(best.tolist(), abs=1e-5)


def test_a_line_is_finite_where_nothing_is_doubtful() -> None:
    platt_scaling = fit_platt_scaling(np.log([0.9, 0.8, 0.1]), np.array([True, True, False]))
    assert math.isfinite(platt_scaling.slope)
    assert platt_scaling(np.array([0.0, -50.0])) == pytest.approx([1, 0], abs=0.2)
    always = fit_platt_scaling(np.array([-0.1, -0.1]), np.array([True, True]))
    assert always(np.array([-0.1])) == pytest.approx([0.75])
    assert PlattScaling(1.0, 0.0)(np.log([0.3])) == pytest.approx([0.3])


@pytest.mark.parametrize("sharpness", [-2.0, -3.5, -4.0])
def test_a_line_through_sure_tokens_is_at_the_top_of_the_likelihood(sharpness: float) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        log_prob = -(10 ** rng.normal(sharpness, 0.8, 1600))
        correct = rng.uniform(size=1600) < np.exp(log_prob)
        target = np.where(
            correct, (correct.sum() + 1) / (correct.sum() + 2), 1 / ((~correct).sum() + 2)
        )
        platt_scaling = fit_platt_scaling(log_prob, correct)
        capped = np.minimum(log_prob, np.log1p(-(2.0**-24)))
        odds = capped - np.log(-np.expm1(capped))
        left = target - platt_scaling(log_prob)
        assert [float(left.sum()), float(left @ odds)] == pytest.approx([0, 0], abs=1e-3)


def test_a_few_doubtful_tokens_do_not_turn_a_line_over() -> None:
    log_prob = np.array([-1e-6] * 98 + [-1.0, -2.0])
    line = fit_platt_scaling(log_prob, np.array([True] * 99 + [False]))
    sure, doubtful, worse = line(np.array([-1e-6, -1.0, -2.0])).tolist()
    assert 0.98 < sure < 1
    assert worse < doubtful < 0.8
