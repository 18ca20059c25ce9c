"""Schedules, reports and the guard of the training loop."""

import itertools

import pytest
import torch

from latentheads.training import Progress, Training, train
from tests.tiny import attach, build, small_batch


def test_the_learning_rate_warms_up_and_falls_to_zero() -> None:
    plan = Training(steps=10, warmup_steps=4)
    assert [plan.rate(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert plan.rate(4) == 1.0
    assert plan.rate(9) == pytest.approx(1 / 6)
    assert plan.rate(10) == 0


def test_inverse_square_root_is_continuous_at_the_end_of_the_warm_up() -> None:
    plan = Training(steps=100, warmup_steps=16, decay="inverse-sqrt")
    assert plan.rate(15) == 1
    assert plan.rate(63) == pytest.approx(0.5)


def test_the_weight_of_the_kl_grows_linearly_between_its_ends() -> None:
    plan = Training(kl_warmup_steps=4, min_kl_weight=0.2, max_kl_weight=1.0)
    weights = [plan.kl_weight(step) for step in range(6)]
    assert weights == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert Training(max_kl_weight=0.5).kl_weight(0) == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "steps must be at least 1, got -1"),
        ({"tokens": 0}, "tokens must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"free_bits": -0.5}, "free_bits must be at least 0"),
    ],
)
def test_a_wrong_plan_is_refused_in_one_line(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Training(**options)


def run(precision: str = "fp32", **options: object) -> tuple[list[Progress], list[torch.Tensor]]:
    torch.manual_seed(0)
    model = build()
    guide = attach("cascaded", model)
    if precision == "bf16":
        model, guide = model.float(), guide.float()
    seen: list[Progress] = []
    plan = Training(steps=7, report_every=3, warmup_steps=2, precision=precision, **options)
    data = itertools.repeat(small_batch(corpus_size=31))
    torch.manual_seed(1)
    train(model, guide, data, plan, seen.append)
    return seen, [p.detach() for p in (*model.parameters(), *guide.parameters())]


def test_reports_come_in_stretches_and_at_the_end() -> None:
    seen, _ = run()
    assert [progress.step for progress in seen] == [3, 6, 7]
    assert seen[-1].objective > seen[0].objective
    assert all(progress.tokens_per_second > 0 for progress in seen)


def test_same_seed_gives_the_same_weights() -> None:
    first, second = run()[1], run()[1]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"kl": "sampled"},
        {"free_bits": 0.01},
        {"clip": 0.0, "weight_decay": 1e-3},
        {"precision": "bf16"},
    ],
)
def test_every_option_trains(options: dict) -> None:
    seen, weights = run(**options)
    assert seen[-1].objective > seen[0].objective
    assert all(torch.isfinite(weight).all() for weight in weights)


def test_the_weight_of_the_kl_is_that_of_the_last_step() -> None:
    seen, _ = run(kl_warmup_steps=4)
    assert [progress.kl_weight for progress in seen] == pytest.approx([0.5, 1.0, 1.0])


def test_a_broken_objective_stops_training_with_one_line() -> None:
    model = build()
    guide = attach("cascaded", model)
    with torch.no_grad():
        next(model.parameters())[5] = torch.nan
    plan = Training(steps=2, report_every=1)
    data = itertools.repeat(small_batch())
    with (
        pytest.warns(UserWarning, match="NaN"),
        pytest.raises(FloatingPointError, match="at or before step 1"),
    ):
        train(model, guide, data, plan, lambda progress: None)
