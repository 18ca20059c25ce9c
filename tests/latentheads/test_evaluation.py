"""What evaluation prints is a bound, and it disturbs nothing."""

import math

import pytest
import torch

from latentheads import Batch, terms
from latentheads.evaluation import evaluate, evaluating, fixed_noise, plug_in_log_likelihood
from tests.tiny import attach, build, rows, small_batch


def pair(name: str = "cascaded", **changes: object) -> tuple:
    model = build(**changes)
    return model, attach(name, model)


def test_evaluation_turns_dropout_and_smoothing_off_and_on_again() -> None:
    model, guide = pair(dropout=0.5, label_smoothing=0.1)
    first = evaluate(model, guide, [small_batch()], samples=2, seed=3)
    again = evaluate(model, guide, [small_batch()], samples=2, seed=3)
    assert first == again
    assert model.training
    assert guide.training


def test_the_noise_of_evaluation_has_a_seed_of_its_own() -> None:
    model, guide = pair()
    state = torch.get_rng_state()
    one = evaluate(model, guide, [small_batch()], seed=1)
    other = evaluate(model, guide, [small_batch()], seed=2)
    assert one.elbo != other.elbo
    assert torch.equal(state, torch.get_rng_state())


def test_sums_are_divided_by_the_tokens_once() -> None:
    model, guide = pair()
    batch = small_batch()
    report = evaluate(model, guide, [batch], samples=1, seed=5)
    model.eval(), guide.eval()
    with fixed_noise(5, torch.device("cpu")):
        expected = terms(model, guide, batch)
    assert report.tokens == 9
    assert report.elbo == pytest.approx(float(expected.elbo.sum() / 9), abs=1e-12)
    assert report.kl == pytest.approx(sum(report.kl_by_site.values()), abs=1e-12)
    assert report.log_likelihood - report.kl == pytest.approx(report.elbo, abs=1e-12)


def test_splitting_the_part_into_batches_changes_no_deterministic_figure() -> None:
    model, guide = pair("tied", prior="delta")
    whole = evaluate(model, guide, [small_batch()])
    split = evaluate(model, guide, [rows(small_batch(), [2]), rows(small_batch(), [0, 1])])
    assert whole.elbo == pytest.approx(split.elbo, abs=1e-12)
    assert whole.plug_in == pytest.approx(whole.elbo, abs=1e-12)


@pytest.mark.parametrize("name", ["tied", "mean-field", "cholesky", "cascaded"])
def test_iwae_is_at_least_the_mean_log_weight(name: str) -> None:
    model, guide = pair(name)
    report = evaluate(model, guide, [small_batch()], samples=30)
    single = evaluate(model, guide, [small_batch()], samples=1)
    assert 1 <= report.effective_sample_size <= 30
    assert 0 <= report.pareto_k <= 1
    assert single.pareto_k is None
    assert single.effective_sample_size == pytest.approx(1)
    assert report.iwae >= report.elbo - 0.05


def test_the_plug_in_likelihood_is_that_of_the_same_network_without_noise() -> None:
    torch.manual_seed(1)
    noisy = build(prior="independent")
    torch.manual_seed(1)
    plain = build(prior="delta")
    plain.load_state_dict(noisy.state_dict())
    batch: Batch = small_batch()
    law = plain.likelihood(plain.states(batch), batch)
    assert torch.allclose(plug_in_log_likelihood(noisy, batch), law.log_prob(batch.target))


def test_truth_is_given_a_token() -> None:
    model, guide = pair("tied", prior="delta")
    report = evaluate(model, guide, [small_batch()], truth=-18.0)
    assert report.truth == -2.0
    assert math.isfinite(report.figures()["elbo"])


def test_evaluating_restores_the_mode_after_an_error() -> None:
    model, guide = pair()
    guide.eval()

    def broken() -> None:
        with evaluating(model, guide):
            assert not model.training
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert model.training
    assert not guide.training


def test_no_samples_are_refused_in_one_line() -> None:
    model, guide = pair()
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        evaluate(model, guide, [small_batch()], samples=0)
