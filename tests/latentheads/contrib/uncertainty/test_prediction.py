"""Mixtures of distributions against cases counted by hand."""

import math

import pytest
import torch

from latentheads.contrib.uncertainty.prediction import Prediction, mix_distributions

FIRST = torch.tensor([[[0.9, 0.1], [0.5, 0.5]]]).double()
SECOND = torch.tensor([[[0.5, 0.5], [0.2, 0.8]]]).double()
WORDS = torch.tensor([[0, 1]])


def entropy_of(*values: float) -> float:
    return -sum(p * math.log(p) for p in values)


def test_total_data_and_knowledge_by_hand() -> None:
    distributions = mix_distributions([FIRST.log(), SECOND.log()], WORDS)
    assert distributions.log_probs.exp()[0, 0].tolist() == pytest.approx([0.7, 0.3])
    assert float(distributions.total_uncertainty[0, 0]) == pytest.approx(entropy_of(0.7, 0.3))
    data = (entropy_of(0.9, 0.1) + entropy_of(0.5, 0.5)) / 2
    assert float(distributions.data_uncertainty[0, 0]) == pytest.approx(data)
    assert float(distributions.knowledge_uncertainty[0, 0]) == pytest.approx(
        entropy_of(0.7, 0.3) - data
    )
    reverse = sum(
        0.7 * math.log(0.7 / p) + 0.3 * math.log(0.3 / q) for p, q in ((0.9, 0.1), (0.5, 0.5))
    )
    assert float(distributions.reverse_mutual_information[0, 0]) == pytest.approx(reverse / 2)
    assert float(distributions.mean_log_prob[0, 0]) == pytest.approx(
        (math.log(0.9) + math.log(0.5)) / 2
    )


def test_knowledge_and_its_reverse_are_the_mean_kl_of_all_pairs() -> None:
    distributions = mix_distributions([FIRST.log(), SECOND.log()], WORDS)
    pairs = [
        (one * (one / other).log()).sum(-1) for one in (FIRST, SECOND) for other in (FIRST, SECOND)
    ]
    assert torch.allclose(
        distributions.knowledge_uncertainty + distributions.reverse_mutual_information,
        torch.stack(pairs).mean(0),
    )


def test_a_draw_that_is_held_counts_by_what_it_foresaw() -> None:
    distributions = mix_distributions([FIRST.log(), SECOND.log()], WORDS, sentence_level=True)
    sentence = (0.9 * 0.5 + 0.5 * 0.8) / 2
    came = distributions.log_probs.gather(-1, WORDS[..., None])
    assert float(came.sum()) == pytest.approx(math.log(sentence))
    assert distributions.log_probs.exp()[0, 1].tolist() == pytest.approx(
        [(0.9 * 0.5 + 0.5 * 0.2) / 1.4, (0.9 * 0.5 + 0.5 * 0.8) / 1.4]
    )
    data = (0.9 * entropy_of(0.5, 0.5) + 0.5 * entropy_of(0.2, 0.8)) / 1.4
    assert float(distributions.data_uncertainty[0, 1]) == pytest.approx(data)
    assert float(distributions.mean_log_prob[0, 1]) == pytest.approx(
        (math.log(0.5) + math.log(0.8)) / 2
    )


def test_a_draw_that_excluded_a_token_counts_no_more() -> None:
    excluding = torch.tensor([[[0.0, 1.0], [0.2, 0.8]]]).double()
    distributions = mix_distributions([FIRST.log(), excluding.log()], WORDS, sentence_level=True)
    mean = torch.tensor([[0.45, 0.55], [0.5, 0.5]]).double()
    assert torch.allclose(distributions.log_probs.exp()[0], mean)
    assert float(distributions.knowledge_uncertainty[0, 1]) == pytest.approx(0, abs=1e-12)


def test_after_a_token_that_all_draws_excluded_they_count_as_before() -> None:
    excluding = torch.tensor([[[1.0, 0.0], [0.2, 0.8]]]).double().log()
    words = torch.tensor([[1, 0]])
    distributions = mix_distributions([excluding, excluding], words, sentence_level=True)
    assert torch.allclose(distributions.log_probs[0, 1], excluding[0, 1])
    assert float(distributions.data_uncertainty[0, 1]) == pytest.approx(entropy_of(0.2, 0.8))


def test_one_member_differs_from_nobody() -> None:
    alone = Prediction.of_one(FIRST.log(), WORDS)
    assert float(alone.knowledge_uncertainty.abs().max()) == pytest.approx(0, abs=1e-12)
    mixed = mix_distributions([FIRST.log()], WORDS, sentence_level=True)
    for name in (
        "log_probs",
        "mean_log_prob",
        "data_uncertainty",
        "reverse_mutual_information",
        "total_uncertainty",
    ):
        assert torch.allclose(getattr(mixed, name), getattr(alone, name)), name


def test_rounding_makes_no_information_negative() -> None:
    members = [torch.randn(50, 4, 7).log_softmax(-1)] * 3
    mixed = mix_distributions(members, torch.zeros(50, 4, dtype=torch.int64))
    for information in (mixed.knowledge_uncertainty, mixed.reverse_mutual_information):
        assert 0 <= float(information.min()) <= float(information.max()) < 1e-12


def test_a_token_that_never_comes_adds_nothing() -> None:
    sure = torch.tensor([[[0.0, -math.inf]]]).double()
    words = torch.tensor([[0]])
    for prediction in (Prediction.of_one(sure, words), mix_distributions([sure, sure], words)):
        assert float(prediction.total_uncertainty) == 0
        assert float(prediction.knowledge_uncertainty) == 0
        assert float(prediction.reverse_mutual_information) == 0
