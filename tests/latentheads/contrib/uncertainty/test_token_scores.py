"""Figures of tokens and sentences against the distributions that they are of."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from latentheads.batch import Batch
from latentheads.contrib.uncertainty import token_scores as rooms
from latentheads.contrib.uncertainty.ensembles import HeadSamples, SingleModel
from latentheads.contrib.uncertainty.prediction import Prediction
from latentheads.contrib.uncertainty.token_scores import (
    UNCERTAINTIES,
    TokenEvaluation,
    fit_temperature,
    score_sentences,
    score_tokens,
    translate_with_ensemble,
    with_targets,
)
from latentheads.corpora import Part, Rows
from latentheads.corpora.frames import Frames
from latentheads.corpora.tasks import Mixture, Task
from latentheads.decoding.options import Decoding
from tests.tiny import SOURCES, TARGET_TYPES, TARGETS, build

LAW = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.5, 0.45]]).double()
PART = Part(Rows.of(TARGETS), Rows.of(SOURCES))


def test_a_judgement_by_hand() -> None:
    token_evaluation = TokenEvaluation.of(LAW.log(), torch.tensor([0, 2]))
    assert token_evaluation.log_prob == pytest.approx(np.log([0.7, 0.45]))
    assert token_evaluation.confidence == pytest.approx([0.7, 0.5])
    assert token_evaluation.correct.tolist() == [True, False]
    assert token_evaluation.brier == pytest.approx(
        [0.3**2 + 0.2**2 + 0.1**2, 0.05**2 + 0.5**2 + 0.55**2]
    )
    assert token_evaluation.bin_sums.shape == (2, 15)
    assert token_evaluation.bin_sums[0, [10, 3, 1]] == pytest.approx(
        [0.7 * 0.3, -(0.2**2), -(0.1**2)]
    )
    assert token_evaluation.bin_sums[1, [7, 6, 0]] == pytest.approx(
        [-(0.5**2), 0.45 * 0.55, -(0.05**2)]
    )
    assert token_evaluation.bin_sums.sum() == pytest.approx(0.7 + 0.45 - (LAW**2).sum().item())


def test_probabilities_that_are_not_looked_at_fall_into_the_lowest_bin() -> None:
    values = torch.full((1, 40), 0.5 / 39).double()
    values[0, 3] = 0.5
    token_evaluation = TokenEvaluation.of(values.log(), torch.tensor([30]))
    rest = 0.5 / 39 - 39 * (0.5 / 39) ** 2
    assert token_evaluation.bin_sums[0, [7, 0]] == pytest.approx([-0.25, rest])


def test_columns_are_those_of_every_sentence_whatever_its_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ensemble = SingleModel(build(prior="delta").eval())
    at = (1.0, 2.0)
    together = score_tokens(ensemble, PART, TARGET_TYPES, iter(at))
    monkeypatch.setattr(rooms, "MAX_PROBABILITIES", TARGET_TYPES)
    apart = score_tokens(ensemble, PART, TARGET_TYPES, at)
    assert together.token.tolist() == [token for row in TARGETS for token in row]
    assert together.sentence.tolist() == [0] * 4 + [1] * 2 + [2] * 3
    assert together.sentences == 3
    batch = Batch.of(TARGETS, SOURCES)
    log_prob = ensemble.predict(batch).log_probs[batch.target_valid]
    assert together.ends.tolist() == (log_prob.argmax(-1) == 2).tolist()
    warm = TokenEvaluation.of((log_prob / 2).log_softmax(-1), batch.target[batch.target_valid])
    assert together.by_temperature[2.0].log_prob == pytest.approx(warm.log_prob)
    for name in (
        "mean_log_prob",
        "total_uncertainty",
        "data_uncertainty",
        "reverse_mutual_information",
    ):
        assert getattr(apart, name) == pytest.approx(getattr(together, name))
    for temperature in at:
        for name, column in vars(together.by_temperature[temperature]).items():
            assert getattr(apart.by_temperature[temperature], name) == pytest.approx(column), name
    assert 0 < together.seconds < time.process_time()
    frame = together.to_frame()
    assert frame.token.tolist() == together.token.tolist()
    assert "by_temperature" not in frame


def test_scores_of_sentences_are_means_over_their_tokens() -> None:
    model = build().eval()
    tokens = score_tokens(HeadSamples(model, members=3), PART, TARGET_TYPES)
    scores = score_sentences(tokens)
    assert list(scores) == list(UNCERTAINTIES)
    assert scores["total"][1] == pytest.approx(tokens.total_uncertainty[4:6].mean())
    assert scores["log_prob"][2] == pytest.approx(-tokens.by_temperature[1.0].log_prob[6:].mean())
    difference = scores["mean_log"] - scores["log_prob"]
    assert scores["reverse"] == pytest.approx(difference)
    assert (scores["reverse"] > -1e-12).all()  # Jensen: a held draw's mean is above the members'
    assert (scores["knowledge"] > 0).all()
    assert scores["pairs"] == pytest.approx(
        scores["knowledge"] + tokens.means(tokens.reverse_mutual_information)
    )


def test_every_batch_has_noise_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MAX_PROBABILITIES", 1)  # a batch a sentence
    ensemble = HeadSamples(build().eval(), members=3)
    tokens = score_tokens(ensemble, PART.take([0, 0]), TARGET_TYPES)
    first, second = np.split(tokens.mean_log_prob, 2)
    assert not np.isclose(first, second).any()


class Watched(HeadSamples):
    """Notes how many places of tokens it is asked about at a time."""

    def predict(self, batch: Batch) -> Prediction:
        self.seen = max(getattr(self, "seen", 0), batch.target.numel())
        return super().predict(batch)


def test_the_laws_of_all_members_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = Watched(build(layers=1).eval(), members=3)
    monkeypatch.setattr(rooms, "MAX_PROBABILITIES", 3 * 10 * TARGET_TYPES)
    score_tokens(ensemble, PART, TARGET_TYPES)
    assert ensemble.seen <= 10


def test_the_temperature_of_a_part_is_that_of_its_likelihood() -> None:
    ensemble = SingleModel(build(prior="delta").eval())
    likely = translate_with_ensemble(ensemble, PART, Decoding(max_new_tokens=4))
    part = with_targets(PART, [*likely[:2], TARGETS[2]])
    best = fit_temperature(ensemble, part, TARGET_TYPES)
    assert 0.4 < best < 2.5
    near = (best / 1.05, best, best * 1.05)
    by_temperature = score_tokens(ensemble, part, TARGET_TYPES, near).by_temperature
    nats = [by_temperature[item].log_prob.sum() for item in near]
    assert max(nats) == nats[1]


def test_a_part_is_written_and_judged_in_its_own_words() -> None:
    ensemble = SingleModel(build(prior="delta").eval())
    written = translate_with_ensemble(ensemble, PART, Decoding(max_new_tokens=4))
    own = with_targets(PART, written)
    assert [row.tolist() for row in own.targets] == written
    assert own.sources is PART.sources
    assert all(row[-1] == 2 for row in written)


def test_other_targets_of_speech_have_its_frames_and_tags() -> None:
    frames = Frames(np.zeros((7, 2), np.float16), np.array([2, 5, 7]))
    speech = replace(PART, frames=frames, tags=np.array([5, 6, 5], np.int32))
    other = with_targets(speech, TARGETS[::-1])
    assert other.frames is frames
    assert other.tags is speech.tags


def test_other_targets_are_of_the_same_tasks() -> None:
    mixture = Mixture((Task("en", "de"), Task("en", "fr")))
    tasks = replace(PART, task=np.array([1, 0, 1], np.int32), mixture=mixture)
    other = with_targets(tasks, TARGETS[::-1])
    assert (other.task is tasks.task, other.mixture) == (True, mixture)


def test_a_temperature_of_zero_is_refused() -> None:
    """Log-probabilities divided by it are no numbers."""
    with pytest.raises(ValueError, match=r"temperature must be positive and finite, got 0\.0"):
        score_tokens(SingleModel(build().eval()), PART, TARGET_TYPES, temperatures=[1.0, 0.0])
