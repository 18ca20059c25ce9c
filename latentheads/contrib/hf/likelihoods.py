"""The likelihoods of networks of ``transformers``: which positions are scored, by which logits.

Each is a categorical distribution of a label at every scored position, given the network's outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from latentheads.checks import check_choice
from latentheads.contrib.hf.batch import IGNORE_INDEX, EncodedBatch, scored_here_or_later

Scores = Callable[[Any, EncodedBatch], Tensor]
"""Maps the network's outputs and the batch to the score of every label: batch position label."""


class Likelihood(ABC):
    """Defines the labels of a batch, and their scores.

    Attributes:
        families: Names of the tables of ``transformers`` that list the networks with this
            likelihood.
    """

    families: tuple[str, ...] = ()

    @abstractmethod
    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch scored"]:
        """The label of every position, ``IGNORE_INDEX`` where nothing is predicted.

        Args:
            inputs: The arguments of the network.
            labels: The labels of the user; None: not given.
        """

    def scores(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch scored label"]:
        """The scores of all labels at every position; by default the network's logits.

        Args:
            outputs: The outputs of the network.
            batch: The batch.
        """
        return self.scored_positions(outputs.logits)

    def scored_positions(
        self, read: Shaped[Tensor, "batch input *rest"]
    ) -> Shaped[Tensor, "batch scored *rest"]:
        """Selects the positions that predict a label; by default all.

        Args:
            read: Values at all positions of a decoder or encoder.
        """
        return read

    def latent_positions(
        self, is_scored: Bool[Tensor, "batch scored"], valid: Bool[Tensor, "batch input"]
    ) -> Bool[Tensor, "batch input"]:
        """The decoder's positions that some prediction depends on; by default all real ones.

        Args:
            is_scored: True where a label is predicted.
            valid: The padding mask of the decoder.
        """
        return valid


class NextToken(Likelihood):
    """Every token given its prefix; the first token is not predicted."""

    families = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",)

    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch scored"]:
        """The given labels, or the tokens themselves; without the first token and padding."""
        targets = _require_labels(inputs.get("input_ids")) if labels is None else labels
        attention_mask = inputs.get("attention_mask")
        if attention_mask is not None and attention_mask.shape == targets.shape:
            # after left padding the first real token is not predicted either
            targets = targets.masked_fill(
                (attention_mask == 0) | (attention_mask.cumsum(-1) == 1), IGNORE_INDEX
            )
        return targets[:, 1:]

    def scored_positions(
        self, read: Shaped[Tensor, "batch input *rest"]
    ) -> Shaped[Tensor, "batch scored *rest"]:
        """All but the last."""
        return read[:, :-1]

    def latent_positions(
        self, is_scored: Bool[Tensor, "batch scored"], valid: Bool[Tensor, "batch input"]
    ) -> Bool[Tensor, "batch input"]:
        """All real positions before the last prediction."""
        _check_shapes(is_scored.shape, self.scored_positions(valid).shape)
        before = valid.new_zeros(valid.shape)
        before[:, :-1] = scored_here_or_later(is_scored)
        return valid & before


class EveryToken(Likelihood):
    """A label at each position, as in masked language models and taggers."""

    families: tuple[str, ...] = (
        "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
        "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    )

    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch scored"]:
        return _require_labels(labels)


class TargetToken(EveryToken):
    """The tokens of a target, each given the source and its prefix."""

    families = (
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    )

    def latent_positions(
        self, is_scored: Bool[Tensor, "batch scored"], valid: Bool[Tensor, "batch input"]
    ) -> Bool[Tensor, "batch input"]:
        """All real positions up to the last prediction."""
        _check_shapes(is_scored.shape, valid.shape)
        return valid & scored_here_or_later(is_scored)


class SentenceLabel(Likelihood):
    """One label per sentence or image."""

    families = (
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    )

    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch scored"]:
        """The label of each sentence, as its only position."""
        sentence_labels = _require_labels(labels)
        if sentence_labels.ndim != 1 or sentence_labels.is_floating_point():
            raise ValueError(
                "labels of a classification must be one whole number per sentence, "
                f"got shape {tuple(sentence_labels.shape)} of {sentence_labels.dtype}"
            )
        return sentence_labels[:, None]

    def scores(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch 1 label"]:
        if outputs.logits.shape[-1] < 2:
            raise ValueError("a classification needs two labels or more, the network has one")
        return outputs.logits[:, None]


class OwnLikelihood(Likelihood):
    """Scores from a function of the user.

    Args:
        function: Maps the network's outputs and the batch to scores: ``batch position label``, or
            ``batch label`` with one label per sentence.
    """

    def __init__(self, function: Scores) -> None:
        self.function = function

    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch scored"]:
        """The given labels; one per sentence becomes its only position."""
        own_labels = _require_labels(labels)
        return own_labels[:, None] if own_labels.ndim == 1 else own_labels

    def scores(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch scored label"]:
        """The scores of the function; one row per sentence becomes its only position."""
        scores = self.function(outputs, batch)
        return scores[:, None] if scores.ndim == 2 else scores


LIKELIHOODS: dict[str, type[Likelihood]] = {
    "language-model": NextToken,
    "masked-language-model": EveryToken,
    "sequence-to-sequence": TargetToken,
    "classification": SentenceLabel,
}


def make_likelihood(network: Any, likelihood: str | Scores | None) -> Likelihood | None:
    """Makes the likelihood of a network from a name, a function, or the network's class.

    Returns:
        The likelihood; None if the class has none: the network can be run, but has no bound.
    """
    if likelihood is None:
        return _likelihood_of_class(type(network).__name__)
    if callable(likelihood):
        return OwnLikelihood(likelihood)
    check_choice("likelihood", likelihood, LIKELIHOODS)
    return LIKELIHOODS[likelihood]()


def check_labels(labels: Int[Tensor, "*position"], scores: Sequence[int]) -> None:
    """Checks the shape of labels and, on a CPU only, that every label has a score.

    Args:
        labels: The labels, 0 where nothing is predicted.
        scores: The shape of the scores: sentences, positions, labels.
    """
    _check_shapes(labels.shape, scores[:-1])
    if labels.device.type != "cpu":
        return  # reading values would synchronise with the device in every pass
    out_of_range = labels[(labels < 0) | (labels >= scores[-1])]
    if len(out_of_range):
        raise ValueError(
            f"labels must lie between 0 and {scores[-1] - 1}, or be {IGNORE_INDEX} where nothing "
            f"is predicted; got {out_of_range[0]}"
        )


def _check_shapes(labels: Sequence[int], is_scored: Sequence[int]) -> None:
    """Checks that labels and scores have the same sentences and positions."""
    if tuple(labels) != tuple(is_scored):
        raise ValueError(
            f"labels are given for sentences and positions {tuple(labels)}, and scores for "
            f"{tuple(is_scored)}: both must be the same"
        )


def _likelihood_of_class(name: str) -> Likelihood | None:
    """Looks up the likelihood of a class of networks in the tables of ``transformers``."""
    from transformers.models.auto import modeling_auto

    # the table of language models also lists encoder-decoders
    for likelihood_class in (TargetToken, NextToken, EveryToken, SentenceLabel):
        for table in likelihood_class.families:
            names = getattr(modeling_auto, table).values()
            if name in names or any(
                name in name_or_names for name_or_names in names if isinstance(name_or_names, tuple)
            ):
                return likelihood_class()
    return None


def _require_labels(labels: Tensor | None) -> Tensor:
    if labels is None:
        raise ValueError("labels must be given: the inputs do not determine what is predicted")
    return labels
