"""Columns of figures for every token of a text, and for every sentence, by a committee."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from latentheads.batch import EOS, Batch
from latentheads.corpora import Part, Rows
from latentheads.corpora import batches as in_batches
from latentheads.decoding.translate import Decoding, map_batches
from latentheads.noise import fixed_noise
from latentheads.uncertainty.calibration import BINS
from latentheads.uncertainty.ensembles import Ensemble
from latentheads.uncertainty.prediction import Prediction
from latentheads.uncertainty.scaling import TemperatureFit

__all__ = [
    "UNCERTAINTIES",
    "TokenEvaluation",
    "TokenFigures",
    "fit_temperature",
    "read_tokens",
    "score_sentences",
    "translate_with_ensemble",
    "with_targets",
]

NUMBERS = 2**24
"""Probabilities that are in memory at a time: members times tokens times the vocabulary."""

UNCERTAINTIES = {
    "log_prob": "less log-probability",
    "mean_log": "less the members' mean log-probability",
    "total": "entropy of the mean law",
    "data": "mean entropy of the members",
    "knowledge": "mutual information",
    "pairs": "mean KL of pairs of members",
    "reverse": "log-probability less the members' mean",
}
"""How uncertain a sentence is, a mean over its tokens: the more the larger."""


@dataclass(frozen=True)
class TokenEvaluation:
    """A law at some temperature, judged by the tokens that came.

    Attributes:
        log_prob: Log-probability of the token that came.
        confidence: Probability of the likeliest token.
        right: Whether the likeliest token is the one that came.
        brier: Brier score, the squared distance of the law from the outcome.
        masses: For bins of equal width of probabilities, the sum over the tokens whose probability
            p falls into each of p ([it came] - p).
    """

    log_prob: Float[ndarray, " token"]
    confidence: Float[ndarray, " token"]
    right: Bool[ndarray, " token"]
    brier: Float[ndarray, " token"]
    masses: Float[ndarray, "token bin"]

    @classmethod
    def of(
        cls, log_law: Float[Tensor, "token vocab"], words: Int[Tensor, " token"]
    ) -> TokenEvaluation:
        """Judges a law.

        Args:
            log_law: Log-probabilities of all tokens at each place.
            words: The tokens that came.
        """
        log_prob = log_law.gather(-1, words[:, None])[:, 0]
        # no more than 15 probabilities can be above a fifteenth: all others fall into one bin
        top, tokens = log_law.topk(min(BINS, log_law.shape[-1]), -1)
        law, came = top.double().exp(), (tokens == words[:, None]).double()
        squares = (2 * log_law.double()).exp().sum(-1)
        probability = log_prob.double().exp()
        bins = torch.bucketize(law, torch.arange(1, BINS, device=law.device) / BINS)
        masses = law.new_zeros(len(words), BINS).scatter_add_(1, bins, law * (came - law))
        masses[:, 0] = probability - squares - masses[:, 1:].sum(-1)
        columns = (
            log_prob.double(),
            law[:, 0],
            tokens[:, 0] == words,
            1 - 2 * probability + squares,
            masses,
        )
        return cls(*(column.cpu().numpy() for column in columns))


@dataclass(frozen=True)
class TokenFigures:
    """Figures of every token of a text by a committee; sentences in their order.

    Attributes:
        sentence: The sentence of every token.
        token: The token.
        ends: Whether the end of the sentence is the likeliest there.
        judged: The mean law at every temperature that was asked for.
        mean_log: Mean over the members of the log-probability of the token.
        total: Entropy of the mean law.
        data: Mean entropy of the members.
        reverse: Mean KL from the mean law to a member's.
        seconds: Processor time that the members' laws took.
    """

    sentence: Int[ndarray, " token"]
    token: Int[ndarray, " token"]
    ends: Bool[ndarray, " token"]
    judged: Mapping[float, TokenEvaluation]
    mean_log: Float[ndarray, " token"]
    total: Float[ndarray, " token"]
    data: Float[ndarray, " token"]
    reverse: Float[ndarray, " token"]
    seconds: float

    @cached_property
    def sentences(self) -> int:
        """How many there are."""
        return int(self.sentence.max(initial=-1)) + 1

    def sums(self, values: Float[ndarray, " token"]) -> Float[ndarray, " sentence"]:
        """The sum of something over the tokens of each sentence."""
        found: Float[ndarray, " sentence"] = np.bincount(self.sentence, values, self.sentences)
        return found

    def means(self, values: Float[ndarray, " token"]) -> Float[ndarray, " sentence"]:
        """The mean of something over the tokens of each sentence."""
        return self.sums(values) / self.sums(np.ones(len(self.sentence)))


def score_sentences(figures: TokenFigures) -> dict[str, Float[ndarray, " sentence"]]:
    """How uncertain every sentence is, by each of ``UNCERTAINTIES``, in nats a token.

    Args:
        figures: Of its tokens, judged at temperature 1.
    """
    log_prob = figures.judged[1.0].log_prob
    knowledge = np.maximum(figures.total - figures.data, 0)
    every = {
        "log_prob": -log_prob,
        "mean_log": -figures.mean_log,
        "total": figures.total,
        "data": figures.data,
        "knowledge": knowledge,
        "pairs": knowledge + figures.reverse,
        "reverse": log_prob - figures.mean_log,
    }
    return {name: figures.means(values) for name, values in every.items()}


def read_tokens(
    committee: Ensemble,
    part: Part,
    types: int,
    temperatures: Sequence[float] = (1.0,),
    seed: int = 0,
) -> TokenFigures:
    """Asks a committee about every target token of a part.

    Args:
        committee: Whose laws they are.
        part: Sentences, with targets.
        types: Size of the target vocabulary.
        temperatures: Those at which the mean law is judged.
        seed: Of the draws.
    """
    columns: list[list[ndarray]] = []
    judged: list[list[TokenEvaluation]] = []
    clock = _Clock()
    for batch, prediction in _predictions(committee, part, types, seed, clock):
        valid, words = batch.target_valid, batch.target
        law = prediction.log_law[valid]
        judged.append(
            [TokenEvaluation.of(scaled(law, each), words[valid]) for each in temperatures]
        )
        figures = (prediction.mean_log, prediction.total, prediction.data, prediction.reverse)
        places = batch.sentences[:, None].expand_as(words)
        every = [*(each[valid] for each in (places, words, *figures)), law.argmax(-1) == EOS]
        columns.append([each.cpu().numpy() for each in every])
    joined = [np.concatenate(each) for each in zip(*columns, strict=True)]
    order = joined[0].argsort(kind="stable")
    sentence, token, mean_log, total, data, reverse, ends = (each[order] for each in joined)
    laws = (_join_laws(each, order) for each in zip(*judged, strict=True))
    return TokenFigures(
        sentence=sentence,
        token=token,
        ends=ends,
        judged=dict(zip(temperatures, laws, strict=True)),
        mean_log=mean_log.astype(float),
        total=total.astype(float),
        data=data.astype(float),
        reverse=reverse.astype(float),
        seconds=clock.seconds,
    )


def _join_laws(judged: Sequence[TokenEvaluation], order: Int[ndarray, " token"]) -> TokenEvaluation:
    """The tokens of all batches in an order."""
    columns = zip(*(vars(each).values() for each in judged), strict=True)
    return TokenEvaluation(*(np.concatenate(each)[order] for each in columns))


class _Clock:
    """Adds up processor time."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self.start = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self.start


def _predictions(
    committee: Ensemble, part: Part, types: int, seed: int, clock: _Clock
) -> Iterator[tuple[Batch, Prediction]]:
    """The prediction of a committee for every batch."""
    tokens = max(1, NUMBERS // (committee.members * types))
    for place, batch in enumerate(in_batches(part, tokens)):
        with fixed_noise(seed + place, committee.device), torch.no_grad(), clock:
            prediction = committee.predict(batch)
        yield batch.to(prediction.log_law.device), prediction


def scaled(log_law: Float[Tensor, "token vocab"], temperature: float) -> Tensor:
    """A law at a temperature."""
    return log_law if temperature == 1.0 else (log_law / temperature).log_softmax(-1)


def fit_temperature(committee: Ensemble, part: Part, types: int, seed: int = 0) -> float:
    """The temperature of the highest likelihood of a part.

    Args:
        committee: Whose mean law is scaled.
        part: Held-out sentences, with targets.
        types: Size of the target vocabulary.
        seed: Of the draws.
    """
    fit = TemperatureFit()
    for batch, prediction in _predictions(committee, part, types, seed, _Clock()):
        valid = batch.target_valid
        fit.add(prediction.log_law[valid], batch.target[valid])
    return fit.temperature


def translate_with_ensemble(
    committee: Ensemble, part: Part, decoding: Decoding, seed: int = 0
) -> list[list[int]]:
    """Translates every sentence of a part into tokens.

    Args:
        committee: Who writes.
        part: Sentences; their targets are not looked at.
        decoding: How to search.
        seed: Of the draws.
    """
    with fixed_noise(seed, committee.device):
        return map_batches(part, lambda batch: committee.write(batch, decoding), [EOS])


def with_targets(part: Part, targets: Rows | Sequence[Sequence[int]]) -> Part:
    """The sources of a part, with other targets.

    Args:
        part: The sentences.
        targets: Tokens, the end of a sentence the last.
    """
    rows = targets if isinstance(targets, Rows) else Rows.of(targets)
    return Part(rows, part.sources, task=part.task, mixture=part.mixture)
