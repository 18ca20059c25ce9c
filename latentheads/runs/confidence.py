"""How sure a run is of translations: a probability for every word, fitted on what it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from latentheads.batch import EOS
from latentheads.corpora import Part
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.decoding.translate import Decoding, Lose
from latentheads.errors import in_a_line
from latentheads.runs.generation import encode_pairs, lose_nothing
from latentheads.uncertainty.ensembles import Ensemble, HeadSamples, SingleModel
from latentheads.uncertainty.evaluation import Output
from latentheads.uncertainty.figures import read_tokens, translate_with_ensemble
from latentheads.uncertainty.scaling import Line, fit_line

if TYPE_CHECKING:
    from latentheads.runs.run import Run

__all__ = ["ConfidenceEstimator", "ConfidenceScores", "mark_doubts"]

FITTED = 200
"""Sentences of validation that the line is fitted on."""


@dataclass(frozen=True)
class ConfidenceScores:
    """How sure a run is of a translation.

    Attributes:
        score: The share of its tokens that it expects to be right; None where it has none.
        words: For each word the probability that it is right: that of its least sure token.
    """

    score: float | None
    words: list[float]


class ConfidenceEstimator:
    """Judges translations by a run: how probable it is that each of their words is right.

    A token is right if an edit to the reference would leave it alone. The run's own probabilities
    are calibrated by a line through log-odds, fitted on its translations of the first sentences of
    validation.

    Args:
        run: The run.
        decoding: How it translates; with ``draws`` the laws are means over as many.
        task: The place of the lines' task, where the run has tasks.
        seed: Of the draws.

    Raises:
        ValueError: The run hears speech, or its corpus cannot be had.
    """

    def __init__(
        self, run: Run, decoding: Decoding, task: int | None = None, seed: int = 0
    ) -> None:
        if isinstance(run.source, Positions):
            raise ValueError(f"{run.path} hears speech: confidence is of translations of text")
        self.run, self.task, self.seed = run, task, seed
        self.committee: Ensemble = (
            HeadSamples(run.model, run.guide, decoding.draws)
            if decoding.draws
            else SingleModel(run.model, run.guide)
        )
        self.line = self._fit(decoding)

    def _fit(self, decoding: Decoding) -> Line:
        try:
            part = self.run.corpus.valid
        except (OSError, ValueError) as reason:
            raise ValueError(
                f"confidence is fitted on the run's validation text: {in_a_line(reason)}"
            ) from reason
        places = np.arange(len(part)) if self.task is None else part.indices_of_task(self.task)
        part = part.take(places[:FITTED])
        tokens = translate_with_ensemble(self.committee, part, decoding, self.seed)
        types = len(self.run.target)
        written = Output.of(self.committee, part, types, tokens, self.seed)
        if not len(written.right):
            raise ValueError(f"{self.run.path} writes empty translations: nothing can be fitted")
        return fit_line(written.log_prob, written.right)

    def judge(
        self, sentences: Iterable[str], translations: Iterable[str], lose: Lose | None = None
    ) -> list[ConfidenceScores]:
        """Says how sure the run is of translations.

        Args:
            sentences: Lines in its source language.
            translations: A translation of each.
            lose: Called with the place of a line that is too long for the run, and why; None ends
                the work.

        Returns:
            One for each line; without a score for an empty one.

        Raises:
            ValueError: There are not as many translations as lines.
            UnfinishedError: A line is lost.
        """
        known = encode_pairs(self.run, sentences, translations, self.task, lose or lose_nothing)
        judged = self._judge_part(known.part) if known.places else []
        return known.spread(judged, ConfidenceScores(None, []))

    def _judge_part(self, part: Part) -> list[ConfidenceScores]:
        """Judges encoded lines."""
        figures = read_tokens(self.committee, part, len(self.run.target), seed=self.seed)
        probability = self.line(figures.judged[1.0].log_prob)
        found = []
        for place in range(len(part)):
            own = figures.sentence == place
            tokens, sure = figures.token[own].tolist(), probability[own]
            inner = np.array(tokens) != EOS
            words = self.run.target.word_ids(tokens)
            score = float(sure[inner].mean()) if inner.any() else None
            found.append(ConfidenceScores(score, _least_of_words(words, sure.tolist())))
        return found


def _least_of_words(places: Sequence[int | None], sure: Sequence[float]) -> list[float]:
    """The least probability of the tokens of every word."""
    known = [place for place in places if place is not None]
    least = [1.0] * (max(known, default=-1) + 1)
    for place, each in zip(places, sure, strict=False):  # the end of a sentence is no word
        if place is not None:
            least[place] = min(least[place], each)
    return least


def mark_doubts(text: str, confidence: ConfidenceScores, below: float = 0.5) -> str:
    """Puts brackets around the words that are right with less than some probability.

    >>> mark_doubts("a cat sleeps", Confidence(0.7, [0.9, 0.3, 0.9]))
    'a [cat] sleeps'
    """
    words = text.split()
    sure = [*confidence.words, *[1.0] * (len(words) - len(confidence.words))]
    marked = (f"[{word}]" if p < below else word for word, p in zip(words, sure, strict=False))
    return " ".join(marked)
