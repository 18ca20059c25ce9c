"""Differences of log p over resampled sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from latentheads.metrics.likelihood import compare_likelihoods
from latentheads.metrics.resampling import Resamples, estimate_systems

RANDOM = np.random.default_rng(7)
TOKENS = RANDOM.integers(3, 23, 71).astype(np.float64)
PLAIN = -1.7 * TOKENS + 9 * RANDOM.normal(size=71)
BETTER = PLAIN + 0.1 * TOKENS + 0.5 * RANDOM.normal(size=71)


def test_a_difference_is_of_the_sums_in_every_resample() -> None:
    first, second = compare_likelihoods([PLAIN, BETTER], [TOKENS, TOKENS], 200, 3)
    assert (first.difference, first.nats.p, second.unit) == (None, None, "token")
    assert first.nats.score == pytest.approx(PLAIN.sum() / TOKENS.sum())
    apart = BETTER - PLAIN
    resampled = [apart[some].sum() / TOKENS[some].sum() for some in Resamples(71, 200, 3)]
    (estimate,) = estimate_systems([(apart.sum() / TOKENS.sum(), np.array(resampled))], "")
    assert second.difference is not None
    for name in ("score", "low", "high"):
        assert getattr(second.difference, name) == pytest.approx(getattr(estimate, name))
    assert second.difference.p == second.nats.p == pytest.approx(1 / 201)
    assert second.difference.low > 0
    assert second.nats.low < first.nats.score  # alone they overlap: pairs tell them apart


def test_other_tokens_are_compared_by_the_sentence() -> None:
    finer = TOKENS + np.arange(71) % 2
    _, actual = compare_likelihoods([PLAIN, BETTER], [TOKENS, finer], 50)
    assert actual.difference is not None
    assert (actual.unit, actual.difference.score) == (
        "sentence",
        pytest.approx((BETTER - PLAIN).mean()),
    )
    assert "nats per sentence" in actual.nats.signature


def test_a_single_sentence_has_a_difference_and_neither_interval_nor_test() -> None:
    _, actual = compare_likelihoods([PLAIN[:1], BETTER[:1]], [TOKENS[:1]] * 2)
    assert actual.difference is not None
    assert actual.difference.score == pytest.approx((BETTER[0] - PLAIN[0]) / TOKENS[0])
    assert actual.difference.p is None
    assert np.isnan(actual.difference.low)


@pytest.mark.parametrize(
    ("nats", "tokens", "message"),
    [
        ([], [], "got 0 and 0 with no sentences"),
        ([PLAIN, BETTER[:9]], [TOKENS] * 2, "got 2 and 2 with 71, 9, 71, 71 sentences"),
        ([PLAIN], [TOKENS] * 2, "got 1 and 2 with 71, 71, 71 sentences"),
        ([PLAIN[:0]], [TOKENS[:0]], "got 1 and 1 with 0, 0 sentences"),
    ],
)
def test_systems_are_of_the_same_sentences(nats: Any, tokens: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"{message}$"):
        compare_likelihoods(nats, tokens)
