"""Evaluation of an ensemble on held-out text, on its own output, and on out-of-domain texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from sacrebleu.metrics import CHRF

from latentheads.batch import EOS
from latentheads.checks import check_instance
from latentheads.contrib.uncertainty.calibration import BinSums, equal_width_edges, sum_bins
from latentheads.contrib.uncertainty.edits import label_tokens
from latentheads.contrib.uncertainty.ensembles import Ensemble, SampledEnsemble
from latentheads.contrib.uncertainty.scaling import PlattScaling, fit_platt_scaling
from latentheads.contrib.uncertainty.token_scores import (
    TokenScores,
    fit_temperature,
    score_sentences,
    score_tokens,
    translate_with_ensemble,
    with_targets,
)
from latentheads.corpora.part import Part
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import map_batches
from latentheads.frames import in_one_line, make_frame
from latentheads.noise import fixed_noise

if TYPE_CHECKING:
    import pandas as pd

OUTPUT_BINS = 20
"""Number of bins of an ensemble's own output."""

TEST = "test"
"""The name of the held-out text."""

DISSIMILARITY = "unlike"
"""The score of dissimilarity between translations by single samples."""


@dataclass(frozen=True)
class Texts:
    """The texts of an evaluation.

    Attributes:
        valid: Validation part, for fitting temperature and Platt scaling.
        test: Test part, with references.
        target: The target vocabulary.
        others: Out-of-domain texts by name; their targets are ignored.
        name: Name of the corpus.
    """

    valid: Part
    test: Part
    target: Vocabulary
    others: Mapping[str, Part]
    name: str = ""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of sentences of each text that is evaluated."""
        return {TEST: len(self.test)} | {name: len(part) for name, part in self.others.items()}


@dataclass(frozen=True)
class Output:
    """The translations of an ensemble, and its scores of each of their tokens.

    Attributes:
        tokens: The token ids of every sentence, ended by EOS.
        figures: The scores of every token.
        inner: Whether each token is not EOS.
        correct: Whether each token but EOS is kept by the edits to the reference.
    """

    tokens: Sequence[Sequence[int]]
    figures: TokenScores
    inner: Bool[ndarray, " token"]
    correct: Bool[ndarray, " inner"]

    __repr__ = in_one_line

    @classmethod
    def of(
        cls, ensemble: Ensemble, part: Part, vocab_size: int, tokens: list[list[int]], seed: int
    ) -> Output:
        """Scores translations of a part, and compares them with its targets."""
        scores = score_tokens(ensemble, with_targets(part, tokens), vocab_size, seed=seed)
        labels = [
            label_tokens(_cut_end(hypothesis), _cut_end(reference.tolist()))
            for hypothesis, reference in zip(tokens, part.targets, strict=True)
        ]
        return cls(tokens, scores, scores.token != EOS, np.concatenate(labels))

    @property
    def log_prob(self) -> Float[ndarray, " inner"]:
        """The log-probability of each token but EOS."""
        inner: Float[ndarray, " inner"] = self.figures.by_temperature[1.0].log_prob[self.inner]
        return inner

    def bins(self, probability: Float[ndarray, " inner"]) -> BinSums:
        """Bins tokens by the probability that they are correct."""
        sentence = self.figures.sentence[self.inner]
        edges = equal_width_edges(OUTPUT_BINS)
        return sum_bins(probability, self.correct, sentence, len(self.tokens), edges)


def _cut_end(tokens: Sequence[int]) -> list[int]:
    return [token for token in tokens if token != EOS]


@dataclass(frozen=True)
class EnsembleEvaluation:
    """The results of one ensemble on all texts.

    Attributes:
        members: Number of members.
        temperature: Temperature fitted on validation.
        platt_scaling: Platt scaling fitted on the translations of validation; the identity if all
            of these are empty.
        references: Scores of the test targets, at temperature 1 and at the fitted one.
        output: Translations of the test part.
        texts: These translations as text.
        chrf: Sentence chrF of the translations, 0 to 100.
        scores: For each text and each uncertainty score, the values of its sentences.
    """

    members: int
    temperature: float
    platt_scaling: PlattScaling
    references: TokenScores
    output: Output
    texts: Sequence[str]
    chrf: Float[ndarray, " sentence"]
    scores: Mapping[str, Mapping[str, Float[ndarray, " sentence"]]]

    __repr__ = in_one_line

    def to_frame(self) -> pd.DataFrame:
        """A row for each sentence of each text, with its uncertainty scores."""
        import pandas as pd  # takes long to load

        frames = {text: make_frame(scores, "sentence") for text, scores in self.scores.items()}
        return pd.concat(frames, names=["text"]).reset_index()

    @property
    def seconds(self) -> float:
        """Processor time per 1,000 tokens of the test part."""
        return 1000 * self.references.seconds / len(self.references.token)


def evaluate_ensemble(
    ensemble: Ensemble,
    texts: Texts,
    decoding: Decoding,
    seed: int = 0,
    varied: int = 0,
    translations: dict[str, list[list[int]]] | None = None,
) -> EnsembleEvaluation:
    """Evaluates an ensemble.

    Args:
        ensemble: The ensemble.
        texts: The texts.
        decoding: Options of the beam search.
        seed: Seed of all samples.
        varied: Number of translations by single samples, whose dissimilarity is a score too; 0:
            none. Only for a :class:`SampledEnsemble`.
        translations: A cache of translations by the name of the text; new ones are added.

    Raises:
        ValueError: ``varied`` is 1: there are no pairs to compare.
    """
    check_instance("texts", texts, Texts, "Texts(valid, test, target, others)")
    vocab_size, cache = len(texts.target), {} if translations is None else translations

    def get_translations(name: str, part: Part) -> list[list[int]]:
        if name not in cache:
            cache[name] = translate_with_ensemble(ensemble, part, decoding, seed)
        return cache[name]

    temperature = fit_temperature(ensemble, texts.valid, vocab_size, seed)
    valid_translations = get_translations("valid", texts.valid)
    valid_output = Output.of(ensemble, texts.valid, vocab_size, valid_translations, seed)
    platt_scaling = (
        fit_platt_scaling(valid_output.log_prob, valid_output.correct)
        if len(valid_output.correct)
        else PlattScaling(1.0, 0.0)
    )
    references = score_tokens(ensemble, texts.test, vocab_size, (1.0, temperature), seed)
    output = Output.of(ensemble, texts.test, vocab_size, get_translations(TEST, texts.test), seed)
    lines = [texts.target.decode(tokens) for tokens in output.tokens]
    scores = {TEST: score_sentences(output.figures)}
    for name, part in texts.others.items():
        translated = with_targets(part, get_translations(name, part))
        scores[name] = score_sentences(score_tokens(ensemble, translated, vocab_size, seed=seed))
    if varied and isinstance(ensemble, SampledEnsemble):
        parts = {TEST: texts.test, **texts.others}
        for name, part in parts.items():
            scores[name][DISSIMILARITY] = _compute_dissimilarity(
                ensemble, part, texts.target, decoding, seed, varied
            )
    chrf = np.array(sentence_chrf(lines, texts.test.references, texts.target.lowercase))
    members = ensemble.members
    return EnsembleEvaluation(
        members, temperature, platt_scaling, references, output, lines, chrf, scores
    )


def sentence_chrf(
    lines: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> list[float]:
    """Computes sentence chrF; 100 if translation and reference are equal, even if empty."""
    metric = CHRF(lowercase=lowercase)
    pairs = zip(lines, references, strict=True)
    return [
        100.0 if line == reference else float(metric.sentence_score(line, [reference]).score)
        for line, reference in pairs
    ]


def _compute_dissimilarity(
    ensemble: SampledEnsemble,
    part: Part,
    target: Vocabulary,
    decoding: Decoding,
    seed: int,
    varied: int,
) -> Float[ndarray, " sentence"]:
    """1 minus the mean chrF, from 0 to 1, of all pairs of translations by single samples."""
    translations = []
    for index in range(varied):
        with fixed_noise(seed + index, ensemble.device):
            token_ids = map_batches(
                part, lambda batch: ensemble.translate_with_one_sample(batch, decoding), [EOS]
            )
        translations.append([target.decode(tokens) for tokens in token_ids])
    similarity = [sentence_chrf(first, second) for first, second in combinations(translations, 2)]
    dissimilarity: Float[ndarray, " sentence"] = 1 - np.mean(similarity, 0) / 100
    return dissimilarity
