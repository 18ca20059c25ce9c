"""Schedules of training, and options that make no sense."""

import math

import pytest

from latentheads.training.options import (
    CosineRestartsSchedule,
    CosineSchedule,
    InverseSqrtSchedule,
    Training,
    make_training,
)


def test_the_learning_rate_warms_up_and_falls_to_zero() -> None:
    plan = Training(steps=10, warmup_steps=4)
    assert [plan.rate_factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert plan.rate_factor(4) == 1.0
    assert plan.rate_factor(9) == pytest.approx(1 / 6)
    assert plan.rate_factor(10) == 0


def test_inverse_square_root_is_continuous_at_the_end_of_the_warm_up() -> None:
    plan = Training(steps=100, warmup_steps=16, schedule=InverseSqrtSchedule())
    assert plan.rate_factor(15) == 1
    assert plan.rate_factor(63) == pytest.approx(0.5)
    cold = Training(warmup_steps=0, schedule=InverseSqrtSchedule())
    assert [cold.rate_factor(step) for step in (0, 3)] == [1, 0.5]


def test_cosine_cycles_grow_and_shrink() -> None:
    """Period 10, twice as long each time, three quarters as high: the papers' schedule in small."""
    plan = Training(
        steps=80,
        warmup_steps=5,
        learning_rate=1.0,
        schedule=CosineRestartsSchedule(period=10, growth=2.0, shrink=0.75, min_rate=0.1),
    )
    rate_factors = [plan.rate_factor(step) for step in (4, 5, 10, 14, 15, 25, 34, 35, 55)]
    half = [0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * x)) for x in (0.0, 0.5, 0.9, 0.95)]
    expected = [1, half[0], half[1], half[2]]
    expected += [0.75 * half[0], 0.75 * half[1], 0.75 * half[3], 0.75**2 * half[0]]
    assert rate_factors[:8] == pytest.approx(expected)
    assert rate_factors[8] == pytest.approx(0.75**2 * half[1])


def test_cosine_cycles_of_no_whole_number_of_steps_begin_between_two() -> None:
    """Cycle i begins at period (growth^i - 1) / (growth - 1), as in fairseq."""
    schedule = CosineRestartsSchedule(period=3, growth=1.5)
    plan = Training(steps=80, warmup_steps=2, schedule=schedule)
    starts = [3 * (1.5**i - 1) / 0.5 for i in range(8)]
    for step in range(60):
        cycle = max(i for i, start in enumerate(starts) if start <= step)
        share = (step - starts[cycle]) / (3 * 1.5**cycle)
        expected = 0.5 * (1 + math.cos(math.pi * share))
        assert plan.rate_factor(step + 2) == pytest.approx(expected)


def test_cosine_cycles_of_one_length_are_not_counted_one_by_one() -> None:
    schedule = CosineRestartsSchedule(period=4, shrink=0.5, min_rate=0.1)
    plan = Training(steps=80, warmup_steps=2, learning_rate=1.0, schedule=schedule)
    first = [plan.rate_factor(step + 2) for step in range(4)]
    for cycle in (1, 7, 19):
        factors = [plan.rate_factor(4 * cycle + step + 2) for step in range(4)]
        assert factors == [0.5**cycle * factor for factor in first]
    assert plan.rate_factor(10**16) == 0


def test_one_cosine_covers_all_steps() -> None:
    plan = Training(steps=20, warmup_steps=0, schedule=CosineSchedule())
    assert plan.rate_factor(0) == 1
    assert plan.rate_factor(10) == pytest.approx(0.5)
    assert plan.rate_factor(19) < 0.01
    warmed = Training(steps=20, warmup_steps=10, schedule=CosineSchedule())
    assert [warmed.rate_factor(step) for step in (10, 15)] == pytest.approx([1, 0.5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "steps must be at least 1, got -1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0"),
        ({"learning_rate": math.inf}, "learning_rate must be a finite number, got inf"),
        (
            {"optimizer": {"class": "nag", "momentum": 1.0}},
            "optimizer.momentum must be below 1, got 1",
        ),
        (
            {"schedule": {"class": "cosine-restarts", "period": 9, "growth": 0.5}},
            "schedule.growth must be at least 1",
        ),
        (
            {"schedule": {"class": "cosine", "min_rate": 1}, "learning_rate": 0.5},
            "schedule.min_rate must be at most learning_rate, 0.5, got 1",
        ),
        ({"average": 5, "keep": 3}, "keep must be at least average, 5, or 0, got 3"),
        ({"free_bits": 1}, r"^free_bits is not an option: did you mean loss\.free_bits\?$"),
    ],
)
def test_a_wrong_plan_is_refused_in_one_line(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_training(options)
