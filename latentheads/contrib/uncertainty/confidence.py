"""Confidence estimation: the calibrated probability that each word of a translation is correct."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentheads.batch import EOS
from latentheads.contrib.uncertainty.ensembles import Ensemble, HeadSamples, SingleModel
from latentheads.contrib.uncertainty.evaluation import Output
from latentheads.contrib.uncertainty.scaling import PlattScaling, fit_platt_scaling
from latentheads.contrib.uncertainty.token_scores import score_tokens, translate_with_ensemble
from latentheads.corpora.part import Part
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import OnSkip
from latentheads.errors import one_line_message, shown
from latentheads.files import read_json, reading_file, write_json
from latentheads.runs.generation import encode_pairs, raise_on_skip
from latentheads.runs.loading import open_run
from latentheads.runs.run import Run
from latentheads.runs.trained_model import TrainedModel
from latentheads.training import checkpoints

FITTED_SENTENCES = 200
"""Validation sentences for fitting the Platt scaling."""


@dataclass(frozen=True)
class ConfidenceScores:
    """The confidence of a translation.

    Attributes:
        score: The expected share of correct tokens; None for an empty translation.
        words: For each word the probability that it is correct: the minimum over its tokens, at
            least that of all being correct.
    """

    score: float | None
    words: list[float]


def check_has_text(trained: TrainedModel) -> None:
    """Checks that the input of a model is text."""
    if not trained.processor.reads_text:
        raise ValueError(f"{trained.name} has speech input: confidence is for translations of text")


class ConfidenceEstimator:
    """Estimates the probability that each word of a translation is correct.

    A token is correct if the edits to the reference would keep it. The probabilities are
    calibrated by Platt scaling, fitted on its translations of the first validation sentences.

    Args:
        trained: The model with its guide and vocabularies.
        valid: Validation sentences, for fitting the Platt scaling; or a Platt scaling.
        decoding: Options of the beam search; with ``num_samples``, probabilities are averaged over
            as many samples of the heads.
        task: Index of the lines' task, if the model has tasks.
        seed: Seed of sampling.

    Raises:
        ValueError: The model's input is speech, or all its translations are empty.
    """

    def __init__(
        self,
        trained: TrainedModel,
        valid: Part | PlattScaling,
        decoding: Decoding,
        task: int | None = None,
        seed: int = 0,
    ) -> None:
        check_has_text(trained)
        self.trained, self.task, self.seed = trained, task, seed
        self.ensemble: Ensemble = (
            HeadSamples(trained.model, trained.guide, decoding.num_samples)
            if decoding.num_samples
            else SingleModel(trained.model, trained.guide)
        )
        self.decoding = decoding
        self.platt_scaling = valid if isinstance(valid, PlattScaling) else self._fit(valid)

    @classmethod
    def of(
        cls,
        run: Run | str | Path,
        decoding: Decoding | None = None,
        task: int | None = None,
        seed: int = 0,
    ) -> ConfidenceEstimator:
        """The estimator of a run, fitted on its validation part.

        Args:
            run: The run, or its folder.
            decoding: Options of the beam search; the run's own by default.
            task: As for the class.
            seed: The same.

        Raises:
            ValueError: The run's input is speech, or its corpus is not available.
        """
        run = open_run(run)
        check_has_text(run)
        try:
            valid = run.corpus.valid
        except (OSError, ValueError) as error:
            raise ValueError(
                f"confidence is fitted on the run's validation text: {one_line_message(error)}"
            ) from error
        return cls(run, valid, decoding or run.settings.decode, task, seed)

    def save(self, path: str | Path) -> None:
        """Writes the Platt scaling as JSON, with which run and options it was fitted for."""
        write_json(Path(path), {**asdict(self.platt_scaling), "fitted": self._facts()})

    @classmethod
    def load(
        cls,
        run: Run | str | Path,
        path: str | Path,
        decoding: Decoding | None = None,
        task: int | None = None,
        seed: int = 0,
    ) -> ConfidenceEstimator:
        """The estimator of a run with the Platt scaling of a file; it needs no corpus.

        Args:
            run: The run, or its folder.
            path: A file that :meth:`save` wrote.
            decoding: As for :meth:`of`.
            task: As for the class.
            seed: The same.

        Raises:
            ValueError: The file cannot be read, or is of another run, task or decoding.
        """
        run = open_run(run)
        with reading_file(Path(path)):
            record = read_json(Path(path))
            scaling = PlattScaling(float(record["slope"]), float(record["offset"]))
            fitted = dict(record["fitted"])
        estimator = cls(run, scaling, decoding or run.settings.decode, task, seed)
        for name, value in estimator._facts().items():
            if fitted.get(name) != value:
                raise ValueError(
                    f"{path} was fitted with {name} {shown(fitted.get(name))}, got {shown(value)}"
                )
        return estimator

    def _facts(self) -> dict[str, Any]:
        """What the Platt scaling is of; of a run also what names its weights."""
        trained = self.trained
        facts: dict[str, Any] = {"task": self.task, **asdict(self.decoding)}
        if isinstance(trained, Run):
            facts |= {"recipe": trained.settings.recipe, "seed": trained.settings.seed}
            facts |= {"step": trained.step, "averaged": trained.averaged}
        tensors = checkpoints.weights(model=trained.model, guide=trained.guide)
        return {**facts, "weights": checkpoints.checksum(tensors)}

    def _fit(self, part: Part) -> PlattScaling:
        indices = np.arange(len(part)) if self.task is None else part.indices_of_task(self.task)
        part = part.take(indices[:FITTED_SENTENCES])
        tokens = translate_with_ensemble(self.ensemble, part, self.decoding, self.seed)
        vocab_size = len(self.trained.target)
        output = Output.of(self.ensemble, part, vocab_size, tokens, self.seed)
        if not len(output.correct):
            raise ValueError(
                f"{self.trained.name} writes empty translations: nothing can be fitted"
            )
        return fit_platt_scaling(output.log_prob, output.correct)

    def estimate(
        self, sentences: Iterable[str], translations: Iterable[str], on_skip: OnSkip | None = None
    ) -> list[ConfidenceScores]:
        """Estimates the confidence of translations.

        Args:
            sentences: Lines in the source language.
            translations: A translation of each.
            on_skip: Called for a line that is too long for the model; None raises an error.

        Returns:
            The scores of each line; without a score for an empty line.

        Raises:
            ValueError: The numbers of lines and translations differ.
            UnfinishedError: A line is too long.
        """
        encoded = encode_pairs(
            self.trained, sentences, translations, self.task, on_skip or raise_on_skip
        )
        scores = self._estimate_part(encoded.part) if encoded.indices else []
        return encoded.scatter(scores, ConfidenceScores(None, []))

    def _estimate_part(self, part: Part) -> list[ConfidenceScores]:
        """Estimates the confidence of encoded lines."""
        token_scores = score_tokens(self.ensemble, part, len(self.trained.target), seed=self.seed)
        probability = self.platt_scaling(token_scores.by_temperature[1.0].log_prob)
        borders = np.searchsorted(token_scores.sentence, np.arange(1, len(part)))
        columns = (np.split(column, borders) for column in (token_scores.token, probability))
        scores = []
        for token_ids, probabilities in zip(*columns, strict=True):
            tokens = token_ids.tolist()
            is_inner = token_ids != EOS
            words = self.trained.target.word_ids(tokens)
            score = float(probabilities[is_inner].mean()) if is_inner.any() else None
            scores.append(ConfidenceScores(score, _min_of_words(words, probabilities.tolist())))
        return scores


def _min_of_words(
    word_indices: Sequence[int | None], probabilities: Sequence[float]
) -> list[float]:
    """The minimum probability over the tokens of every word."""
    indices = [word_index for word_index in word_indices if word_index is not None]
    minima = [1.0] * (max(indices, default=-1) + 1)
    for word_index, probability in zip(word_indices, probabilities, strict=False):  # without EOS
        if word_index is not None:
            minima[word_index] = min(minima[word_index], probability)
    return minima


def bracket_doubtful_words(text: str, confidence: ConfidenceScores, below: float = 0.5) -> str:
    """Puts brackets around the words whose probability is below a threshold.

    >>> bracket_doubtful_words("a cat sleeps", ConfidenceScores(0.7, [0.9, 0.3, 0.9]))
    'a [cat] sleeps'
    """
    words = text.split()
    probabilities = [*confidence.words, *[1.0] * (len(words) - len(confidence.words))]
    marked = (
        f"[{word}]" if p < below else word for word, p in zip(words, probabilities, strict=False)
    )
    return " ".join(marked)
