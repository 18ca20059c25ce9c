"""Scores of every token and of every sentence of a text under an ensemble."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from latentheads.batch import EOS, Batch
from latentheads.checks import check_positive
from latentheads.contrib.uncertainty.calibration import BINS
from latentheads.contrib.uncertainty.ensembles import Ensemble
from latentheads.contrib.uncertainty.prediction import Prediction
from latentheads.contrib.uncertainty.scaling import TemperatureFit
from latentheads.corpora.batches import batches as in_batches
from latentheads.corpora.part import Part
from latentheads.corpora.rows import Rows
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import map_batches
from latentheads.frames import in_one_line, make_frame
from latentheads.noise import fixed_noise

if TYPE_CHECKING:
    import pandas as pd

MAX_PROBABILITIES = 2**24
"""Most probabilities in memory at a time: members times tokens times the vocabulary."""

UNCERTAINTIES = {
    "log_prob": "negative log-probability",
    "mean_log": "negative mean log-probability of the members",
    "total": "entropy of the mean distribution",
    "data": "mean entropy of the members",
    "knowledge": "mutual information",
    "pairs": "expected pairwise KL",
    "reverse": "log-probability minus the members' mean",
}
"""The uncertainty scores of a sentence, each a mean over its tokens."""


@dataclass(frozen=True)
class TokenEvaluation:
    """Predictive distributions at some temperature, evaluated on the targets.

    Attributes:
        log_prob: Log-probability of the target.
        confidence: Probability of the likeliest token.
        correct: Whether the likeliest token is the target.
        brier: Brier score, the squared distance of the distribution from the outcome.
        bin_sums: For every bin of equal width, the sum of p ([v = target] - p) over the tokens v
            whose probability p falls into it.
    """

    log_prob: Float[ndarray, " token"]
    confidence: Float[ndarray, " token"]
    correct: Bool[ndarray, " token"]
    brier: Float[ndarray, " token"]
    bin_sums: Float[ndarray, "token bin"]

    __repr__ = in_one_line

    @classmethod
    def of(
        cls, log_probs: Float[Tensor, "token vocab"], targets: Int[Tensor, " token"]
    ) -> TokenEvaluation:
        """Evaluates distributions."""
        log_prob = log_probs.gather(-1, targets[:, None])[:, 0]
        # at most 15 probabilities can exceed 1/15: all others fall into the first bin
        top, tokens = log_probs.topk(min(BINS, log_probs.shape[-1]), -1)
        probs, is_target = top.double().exp(), (tokens == targets[:, None]).double()
        squares = (2 * log_probs.double()).exp().sum(-1)
        probability = log_prob.double().exp()
        bins = torch.bucketize(probs, torch.arange(1, BINS, device=probs.device) / BINS)
        errors = probs * (is_target - probs)
        bin_sums = probs.new_zeros(len(targets), BINS).scatter_add_(1, bins, errors)
        bin_sums[:, 0] = probability - squares - bin_sums[:, 1:].sum(-1)
        columns = (
            log_prob.double(),
            probs[:, 0],
            tokens[:, 0] == targets,
            1 - 2 * probability + squares,
            bin_sums,
        )
        return cls(*(column.cpu().numpy() for column in columns))


@dataclass(frozen=True)
class TokenScores:
    """Scores of every token of a text under an ensemble, in the order of the sentences.

    Attributes:
        sentence: The index of the token's sentence.
        token: The token id.
        ends: Whether EOS is the likeliest token at this position.
        by_temperature: The evaluation of the mean distribution at each temperature.
        mean_log_prob: Mean over the members of the log-probability of the token.
        total_uncertainty: Entropy of the mean distribution.
        data_uncertainty: Mean entropy of the members.
        reverse_mutual_information: Mean KL from the mean distribution to a member's.
        seconds: Processor time of the predictions.
    """

    sentence: Int[ndarray, " token"]
    token: Int[ndarray, " token"]
    ends: Bool[ndarray, " token"]
    by_temperature: Mapping[float, TokenEvaluation]
    mean_log_prob: Float[ndarray, " token"]
    total_uncertainty: Float[ndarray, " token"]
    data_uncertainty: Float[ndarray, " token"]
    reverse_mutual_information: Float[ndarray, " token"]
    seconds: float

    __repr__ = in_one_line

    def to_frame(self) -> pd.DataFrame:
        """A row for each token, without the evaluations by temperature."""
        columns = vars(self).items()
        return make_frame({k: v for k, v in columns if isinstance(v, ndarray)})

    @cached_property
    def sentences(self) -> int:
        """Number of sentences."""
        return int(self.sentence.max(initial=-1)) + 1

    def sums(self, values: Float[ndarray, " token"]) -> Float[ndarray, " sentence"]:
        """Sums values over the tokens of each sentence."""
        sums: Float[ndarray, " sentence"] = np.bincount(self.sentence, values, self.sentences)
        return sums

    def means(self, values: Float[ndarray, " token"]) -> Float[ndarray, " sentence"]:
        """Averages values over the tokens of each sentence."""
        return self.sums(values) / self.sums(np.ones(len(self.sentence)))


def score_sentences(scores: TokenScores) -> dict[str, Float[ndarray, " sentence"]]:
    """Computes the ``UNCERTAINTIES`` of every sentence, in nats per token."""
    log_prob = scores.by_temperature[1.0].log_prob
    knowledge = np.maximum(scores.total_uncertainty - scores.data_uncertainty, 0)
    uncertainties = {
        "log_prob": -log_prob,
        "mean_log": -scores.mean_log_prob,
        "total": scores.total_uncertainty,
        "data": scores.data_uncertainty,
        "knowledge": knowledge,
        "pairs": knowledge + scores.reverse_mutual_information,
        "reverse": log_prob - scores.mean_log_prob,
    }
    return {name: scores.means(values) for name, values in uncertainties.items()}


def score_tokens(
    ensemble: Ensemble,
    part: Part,
    vocab_size: int,
    temperatures: Iterable[float] = (1.0,),
    seed: int = 0,
) -> TokenScores:
    """Scores every target token of a part.

    Args:
        ensemble: What predicts them, such as ``HeadSamples(run.model, run.guide)``.
        part: The sentences, with their targets.
        vocab_size: Number of tokens of the target vocabulary, ``len(run.target)``.
        temperatures: Log-probabilities are divided by each, and normalised again.
        seed: Seed of what is sampled.
    """
    temperatures = [*temperatures]
    for temperature in temperatures:
        check_positive("temperature", temperature)
    columns: list[list[ndarray]] = []
    batch_evaluations: list[list[TokenEvaluation]] = []
    seconds = 0.0
    for batch, prediction, spent in _predictions(ensemble, part, vocab_size, seed):
        seconds += spent
        valid, targets = batch.target_valid, batch.target
        log_probs = prediction.log_probs[valid]
        batch_evaluations.append(
            [TokenEvaluation.of(scaled(log_probs, t), targets[valid]) for t in temperatures]
        )
        tensors = (
            batch.sentences[:, None].expand_as(targets),
            targets,
            prediction.mean_log_prob,
            prediction.total_uncertainty,
            prediction.data_uncertainty,
            prediction.reverse_mutual_information,
        )
        is_end = log_probs.argmax(-1) == EOS
        columns.append([*(tensor[valid].cpu().numpy() for tensor in tensors), is_end.cpu().numpy()])
    joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
    order = joined[0].argsort(kind="stable")
    sentence, token, mean_log_prob, total, data, reverse, ends = (
        column[order] for column in joined
    )
    evaluations = (_concatenate(batches, order) for batches in zip(*batch_evaluations, strict=True))
    return TokenScores(
        sentence=sentence,
        token=token,
        ends=ends,
        by_temperature=dict(zip(temperatures, evaluations, strict=True)),
        mean_log_prob=mean_log_prob.astype(float),
        total_uncertainty=total.astype(float),
        data_uncertainty=data.astype(float),
        reverse_mutual_information=reverse.astype(float),
        seconds=seconds,
    )


def _concatenate(
    evaluations: Sequence[TokenEvaluation], order: Int[ndarray, " token"]
) -> TokenEvaluation:
    """Concatenates the tokens of all batches and reorders them."""
    columns = zip(*(vars(evaluation).values() for evaluation in evaluations), strict=True)
    return TokenEvaluation(*(np.concatenate(column)[order] for column in columns))


def _predictions(
    ensemble: Ensemble, part: Part, vocab_size: int, seed: int
) -> Iterator[tuple[Batch, Prediction, float]]:
    """The prediction of an ensemble for every batch, and the processor time that it took."""
    tokens = max(1, MAX_PROBABILITIES // (ensemble.members * vocab_size))
    for index, batch in enumerate(in_batches(part, tokens, shuffle=False)):
        with fixed_noise(seed + index, ensemble.device), torch.no_grad():
            start = time.process_time()
            prediction = ensemble.predict(batch)
            spent = time.process_time() - start
        yield batch.to(prediction.log_probs.device), prediction, spent


def scaled(log_probs: Float[Tensor, "token vocab"], temperature: float) -> Tensor:
    """Log-probabilities at a temperature."""
    return log_probs if temperature == 1.0 else (log_probs / temperature).log_softmax(-1)


def fit_temperature(ensemble: Ensemble, part: Part, vocab_size: int, seed: int = 0) -> float:
    """Fits the temperature of an ensemble by maximum likelihood.

    Args:
        ensemble: The ensemble, whose mean distribution is scaled.
        part: Held-out sentences, with targets.
        vocab_size: Size of the target vocabulary.
        seed: Seed of sampling.
    """
    fit = TemperatureFit()
    for batch, prediction, _ in _predictions(ensemble, part, vocab_size, seed):
        valid = batch.target_valid
        fit.add(prediction.log_probs[valid], batch.target[valid])
    return fit.temperature


def translate_with_ensemble(
    ensemble: Ensemble, part: Part, decoding: Decoding, seed: int = 0
) -> list[list[int]]:
    """Translates every sentence of a part into tokens."""
    with fixed_noise(seed, ensemble.device):
        return map_batches(part, lambda batch: ensemble.translate(batch, decoding), [EOS])


def with_targets(part: Part, targets: Rows | Sequence[Sequence[int]]) -> Part:
    """Replaces the targets of a part."""
    rows = targets if isinstance(targets, Rows) else Rows.of(targets)
    return Part(
        rows,
        part.sources,
        task=part.task,
        mixture=part.mixture,
        frames=part.frames,
        tags=part.tags,
    )
