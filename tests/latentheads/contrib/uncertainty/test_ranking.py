"""Rejection curves, ROC and correlation against cases counted by hand."""

import numpy as np
import pytest

from latentheads.contrib.uncertainty.ranking import (
    correlation,
    rejection_curve,
    rejection_ratio,
    roc_auc,
)

ERROR = np.array([0.6, 0.0, 0.3])


def test_a_rejection_curve_by_hand() -> None:
    assert rejection_curve(np.array([1.0, 3.0, 2.0]), ERROR) == pytest.approx([0.3, 0.3, 0.2, 0])


def test_the_ratio_of_areas_by_hand() -> None:
    # curves .3 .1 0 0 (oracle), .3 .3 .2 0; random has the area .15
    oracle, own = (0.15 + 0.1) / 3, (0.15 + 0.3 + 0.2) / 3
    ratio = rejection_ratio(np.array([1.0, 3.0, 2.0]), ERROR)
    assert ratio == pytest.approx(100 * (0.15 - own) / (0.15 - oracle))


def test_the_errors_themselves_have_a_hundred_and_the_wrong_order_less_than_nothing() -> None:
    assert rejection_ratio(ERROR, ERROR) == pytest.approx(100)
    assert rejection_ratio(-ERROR, ERROR) == pytest.approx(-100)


def test_an_uncertainty_that_says_nothing_has_no_ratio_above_nothing() -> None:
    assert rejection_ratio(np.ones(3), ERROR) == pytest.approx(0)
    assert rejection_curve(np.ones(3), ERROR) == pytest.approx([0.3, 0.2, 0.1, 0])


def test_where_all_errors_are_one_there_is_nothing_to_rank() -> None:
    assert np.isnan(rejection_ratio(ERROR, np.full(3, 0.1)))


def test_the_area_under_the_roc_curve_counts_pairs_and_halves_of_ties() -> None:
    # pairs (1, 2), (2, 2), (3, 2), (1, 5), (2, 5), (3, 5): right, tie, wrong, right, right, right
    assert roc_auc(np.array([1.0, 2.0, 3.0]), np.array([2.0, 5.0])) == pytest.approx(4.5 / 6)
    assert roc_auc(np.ones(4), np.ones(3)) == 0.5


def test_pearson_by_hand() -> None:
    first, second = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])
    assert correlation(first, second) == pytest.approx(0.5)
    assert correlation(first, -3 * first + 1) == pytest.approx(-1)
    assert np.isnan(correlation(first, np.full(3, 0.1)))
    assert np.isnan(correlation(first, 0.1 + 1e-16 * second))
    assert correlation(1e-8 * first, 1e-8 * second) == pytest.approx(0.5)
