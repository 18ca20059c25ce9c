"""A trial: a committee on held-out text, on what it writes itself, and on texts of other kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from sacrebleu.metrics import CHRF

from latentheads.batch import EOS
from latentheads.corpora import Part, Vocabulary
from latentheads.decoding.translate import Decoding, map_batches
from latentheads.noise import fixed_noise
from latentheads.uncertainty.calibration import BinSums, edges_of_width, sum_bins
from latentheads.uncertainty.edits import label_tokens
from latentheads.uncertainty.ensembles import Ensemble, SampledEnsemble
from latentheads.uncertainty.figures import (
    TokenFigures,
    fit_temperature,
    read_tokens,
    score_sentences,
    translate_with_ensemble,
    with_targets,
)
from latentheads.uncertainty.scaling import Line, fit_line

__all__ = [
    "OWN_BINS",
    "TEST",
    "UNLIKE",
    "EnsembleEvaluation",
    "Output",
    "Texts",
    "evaluate_ensemble",
    "score_lines",
]

OWN_BINS = 20
"""Bins of what a committee writes itself."""

TEST = "test"
"""The name of the held-out text."""

UNLIKE = "unlike"
"""The score of how little translations by single draws are like each other."""


@dataclass(frozen=True)
class Texts:
    """The texts of a trial.

    Attributes:
        valid: What temperature and line are fitted on.
        test: What is judged, with references.
        target: The target vocabulary.
        others: Texts of other kinds by name; their targets are not looked at.
        name: What the corpus is called.
    """

    valid: Part
    test: Part
    target: Vocabulary
    others: Mapping[str, Part]
    name: str = ""

    @property
    def sizes(self) -> dict[str, int]:
        """Sentences of each text that is judged."""
        return {TEST: len(self.test)} | {name: len(part) for name, part in self.others.items()}


@dataclass(frozen=True)
class Output:
    """The translations of a committee, and its law of each of their tokens.

    Attributes:
        tokens: Of every sentence, its end the last.
        figures: Of every token.
        inner: The tokens that do not end a sentence.
        right: Whether an edit to the reference leaves each of those alone.
    """

    tokens: Sequence[Sequence[int]]
    figures: TokenFigures
    inner: Bool[ndarray, " token"]
    right: Bool[ndarray, " inner"]

    @classmethod
    def of(
        cls, committee: Ensemble, part: Part, types: int, tokens: list[list[int]], seed: int
    ) -> Output:
        """Asks a committee about translations of a part, and compares them with its targets.

        Args:
            committee: Who is asked.
            part: The sentences with their references.
            types: Size of the target vocabulary.
            tokens: The translations.
            seed: Of the draws.
        """
        figures = read_tokens(committee, with_targets(part, tokens), types, seed=seed)
        labels = [
            label_tokens(_cut_end(own), _cut_end(reference.tolist()))
            for own, reference in zip(tokens, part.targets, strict=True)
        ]
        return cls(tokens, figures, figures.token != EOS, np.concatenate(labels))

    @property
    def log_prob(self) -> Float[ndarray, " inner"]:
        """The log-probability of each token that ends no sentence."""
        inner: Float[ndarray, " inner"] = self.figures.judged[1.0].log_prob[self.inner]
        return inner

    def bins(self, probability: Float[ndarray, " inner"]) -> BinSums:
        """Puts tokens into bins by the probability that they are right."""
        where = self.figures.sentence[self.inner], len(self.tokens)
        return sum_bins(probability, self.right, *where, edges_of_width(OWN_BINS))


def _cut_end(tokens: Sequence[int]) -> list[int]:
    return [token for token in tokens if token != EOS]


@dataclass(frozen=True)
class EnsembleEvaluation:
    """The results of one committee on all texts.

    Attributes:
        members: How many laws are mixed.
        temperature: Fitted on validation.
        line: Fitted on what the committee wrote of validation; where that is no word, it leaves
            probabilities as they are.
        references: What it says of the test part's targets, at temperature 1 and its own.
        output: What it wrote of the test part.
        texts: The same as text.
        chrf: Of every sentence that it wrote, 0 to 100.
        scores: For each text, how uncertain every sentence is that it wrote, by each score.
    """

    members: int
    temperature: float
    line: Line
    references: TokenFigures
    output: Output
    texts: Sequence[str]
    chrf: Float[ndarray, " sentence"]
    scores: Mapping[str, Mapping[str, Float[ndarray, " sentence"]]]

    @property
    def seconds(self) -> float:
        """Processor time that a thousand tokens of the test part took."""
        return 1000 * self.references.seconds / len(self.references.token)


def evaluate_ensemble(
    committee: Ensemble,
    texts: Texts,
    decoding: Decoding,
    seed: int = 0,
    varied: int = 0,
    written: dict[str, list[list[int]]] | None = None,
) -> EnsembleEvaluation:
    """Puts a committee to the trial.

    Args:
        committee: Whose laws they are.
        texts: What they are of.
        decoding: How translations are searched for.
        seed: Of all draws.
        varied: Translations by single draws whose likeness is a score too; 0: none. Of a committee
            of draws alone.
        written: Translations of each text that are known, by its name; others are put there.

    Raises:
        ValueError: A translation by a single draw would have no other to be like.
    """
    if varied < 0 or varied == 1:
        raise ValueError(f"varied must be 0, for none, or at least 2, got {varied}")
    types, known = len(texts.target), {} if written is None else written

    def write(name: str, part: Part) -> list[list[int]]:
        if name not in known:
            known[name] = translate_with_ensemble(committee, part, decoding, seed)
        return known[name]

    temperature = fit_temperature(committee, texts.valid, types, seed)
    held_out = Output.of(committee, texts.valid, types, write("valid", texts.valid), seed)
    line = fit_line(held_out.log_prob, held_out.right) if len(held_out.right) else Line(1.0, 0.0)
    references = read_tokens(committee, texts.test, types, (1.0, temperature), seed)
    output = Output.of(committee, texts.test, types, write(TEST, texts.test), seed)
    lines = [texts.target.decode(tokens) for tokens in output.tokens]
    scores = {TEST: score_sentences(output.figures)}
    for name, part in texts.others.items():
        own = with_targets(part, write(name, part))
        scores[name] = score_sentences(read_tokens(committee, own, types, seed=seed))
    if varied and isinstance(committee, SampledEnsemble):
        every = {TEST: texts.test, **texts.others}
        for name, part in every.items():
            scores[name][UNLIKE] = _measure_unlikeness(
                committee, part, texts.target, decoding, seed, varied
            )
    chrf = np.array(score_lines(lines, texts.test.references, texts.target.lowercase))
    members = committee.members
    return EnsembleEvaluation(members, temperature, line, references, output, lines, chrf, scores)


def score_lines(
    lines: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> list[float]:
    """Sentence chrF; 100 where nothing is written and nothing is right.

    Args:
        lines: What was written.
        references: What is right.
        lowercase: Whether case counts for nothing: references keep it where the model has none.
    """
    metric = CHRF(lowercase=lowercase)
    pairs = zip(lines, references, strict=True)
    return [
        100.0 if line == right else float(metric.sentence_score(line, [right]).score)
        for line, right in pairs
    ]


def _measure_unlikeness(
    committee: SampledEnsemble,
    part: Part,
    target: Vocabulary,
    decoding: Decoding,
    seed: int,
    varied: int,
) -> Float[ndarray, " sentence"]:
    """100 less the mean chrF of all pairs of translations by single draws, in hundredths."""
    drawn = []
    for place in range(varied):
        with fixed_noise(seed + place, committee.device):
            written = map_batches(part, lambda each: committee.write_by_one(each, decoding), [EOS])
        drawn.append([target.decode(tokens) for tokens in written])
    likeness = [score_lines(one, other) for one, other in combinations(drawn, 2)]
    found: Float[ndarray, " sentence"] = 1 - np.mean(likeness, 0) / 100
    return found
