"""What a network of ``transformers`` predicts: which scores, of which places.

Every one is a categorical law of a label at each scored place, given what the network says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from latentheads.checks import check_known
from latentheads.pretrained.batch import IGNORE_INDEX, EncodedBatch, scored_here_or_later
from latentheads.values import shown

__all__ = [
    "LIKELIHOODS",
    "Likelihood",
    "NextToken",
    "OwnLikelihood",
    "Scores",
    "TargetToken",
    "check_labels",
    "make_likelihood",
]

Scores = Callable[[Any, EncodedBatch], Tensor]
"""From what the network said, and the batch, to the score of every label: batch place label."""


class Likelihood(ABC):
    """Which places are scored, and where their scores stand.

    Attributes:
        families: What ``transformers`` calls the tables of networks that it is the likelihood of.
    """

    families: tuple[str, ...] = ()

    @abstractmethod
    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch place"]:
        """The label of every place, ``IGNORE_INDEX`` where nothing is predicted.

        Args:
            inputs: What the network is called with.
            labels: What the user said; None: nothing.
        """

    @abstractmethod
    def scores(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch place label"]:
        """The scores of all labels at every place.

        Args:
            outputs: What the network said.
            batch: What it was run on.
        """

    def places(
        self, read: Shaped[Tensor, "batch read *rest"]
    ) -> Shaped[Tensor, "batch place *rest"]:
        """Keeps the positions that predict something; all of them unless overridden.

        Args:
            read: Values at all positions of a decoder, or of an encoder.
        """
        return read

    def drawn(
        self, is_scored: Bool[Tensor, "batch place"], valid: Bool[Tensor, "batch read"]
    ) -> Bool[Tensor, "batch read"]:
        """The decoder's positions that some prediction reads; all real ones unless overridden.

        Args:
            is_scored: True where something is predicted.
            valid: The decoder's positions that are no padding.
        """
        return valid


class NextToken(Likelihood):
    """Every token given those before it; the first is read and not predicted."""

    families = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",)

    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch place"]:
        """The tokens themselves unless labels are given, but the first and padding."""
        targets = _require_labels(inputs.get("input_ids")) if labels is None else labels
        attention_mask = inputs.get("attention_mask")
        if attention_mask is not None and attention_mask.shape == targets.shape:
            # behind padding on the left the first real token is not predicted either
            targets = targets.masked_fill(
                (attention_mask == 0) | (attention_mask.cumsum(-1) == 1), IGNORE_INDEX
            )
        return targets[:, 1:]

    def scores(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch place label"]:
        """Those of the next token, at every position but the last."""
        return self.places(outputs.logits)

    def places(
        self, read: Shaped[Tensor, "batch read *rest"]
    ) -> Shaped[Tensor, "batch place *rest"]:
        """All but the last."""
        return read[:, :-1]

    def drawn(
        self, is_scored: Bool[Tensor, "batch place"], valid: Bool[Tensor, "batch read"]
    ) -> Bool[Tensor, "batch read"]:
        """Not the last token, and nothing behind the last that is predicted."""
        _check_shapes(is_scored.shape, self.places(valid).shape)
        before = valid.new_zeros(valid.shape)
        before[:, :-1] = scored_here_or_later(is_scored)
        return valid & before


class EveryToken(Likelihood):
    """A label at each position, as a masked language model has, or a tagger."""

    families: tuple[str, ...] = (
        "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
        "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    )

    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch place"]:
        """As they were given."""
        return _require_labels(labels)

    def scores(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch place label"]:
        """The network's logits."""
        return outputs.logits


class TargetToken(EveryToken):
    """The tokens of a target, each given the source and those before it."""

    families = ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",)

    def drawn(
        self, is_scored: Bool[Tensor, "batch place"], valid: Bool[Tensor, "batch read"]
    ) -> Bool[Tensor, "batch read"]:
        """Nothing behind the last token that is predicted."""
        _check_shapes(is_scored.shape, valid.shape)
        return valid & scored_here_or_later(is_scored)


class SentenceLabel(Likelihood):
    """One label a sentence, or an image."""

    families = (
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    )

    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch place"]:
        """The label of each sentence, as its only place."""
        sentence_labels = _require_labels(labels)
        if sentence_labels.ndim != 1 or sentence_labels.is_floating_point():
            raise ValueError(
                "labels of a classification must be one whole number a sentence, "
                f"got shape {tuple(sentence_labels.shape)} of {sentence_labels.dtype}"
            )
        return sentence_labels[:, None]

    def scores(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch 1 label"]:
        """The network's logits."""
        if outputs.logits.shape[-1] < 2:
            raise ValueError("a classification needs two labels or more, the network has one")
        return outputs.logits[:, None]


class OwnLikelihood(Likelihood):
    """Scores that a function of the user's own computes.

    Args:
        function: From what the network said, and the batch, to scores: ``batch place label``, or
            ``batch label`` where a sentence has one place.
    """

    def __init__(self, function: Scores) -> None:
        self.function = function

    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch place"]:
        """As they were given; one number a sentence is its only place."""
        own_labels = _require_labels(labels)
        return own_labels[:, None] if own_labels.ndim == 1 else own_labels

    def scores(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch place label"]:
        """What the function says; one row of scores a sentence is of its only place."""
        scores = self.function(outputs, batch)
        return scores[:, None] if scores.ndim == 2 else scores


LIKELIHOODS: dict[str, type[Likelihood]] = {
    "language-model": NextToken,
    "masked-language-model": EveryToken,
    "sequence-to-sequence": TargetToken,
    "classification": SentenceLabel,
}


def make_likelihood(network: Any, likelihood: str | Scores | None) -> Likelihood | None:
    """The likelihood that a user names, writes, or leaves to the network's class.

    Args:
        network: A ``PreTrainedModel``.
        likelihood: A name, a function, or None.

    Returns:
        The likelihood; None where there is none: the network can be run, and has no bound.
    """
    if likelihood is None:
        return _likelihood_of_class(type(network).__name__)
    if callable(likelihood):
        return OwnLikelihood(likelihood)
    if not isinstance(likelihood, str):
        raise ValueError(f"likelihood must be a name or a function, got {shown(likelihood)}")
    check_known("likelihood", likelihood, LIKELIHOODS)
    return LIKELIHOODS[likelihood]()


def check_labels(labels: Int[Tensor, "*place"], scores: Sequence[int]) -> None:
    """Refuses labels that are not, at every place that is scored, one of those with a score.

    Which they are is looked at on a CPU alone.

    Args:
        labels: 0 where nothing is predicted.
        scores: The sizes of what scores them: sentences, places, labels.

    Raises:
        ValueError: There are other places, or another label.
    """
    _check_shapes(labels.shape, scores[:-1])
    if labels.device.type != "cpu":
        return  # to look at them, every pass would wait for the device
    out_of_range = labels[(labels < 0) | (labels >= scores[-1])]
    if len(out_of_range):
        raise ValueError(
            f"labels must lie between 0 and {scores[-1] - 1}, or be {IGNORE_INDEX} where nothing "
            f"is predicted; got {out_of_range[0]}"
        )


def _check_shapes(labels: Sequence[int], is_scored: Sequence[int]) -> None:
    """Refuses labels of other sentences and places than those that are scored."""
    if tuple(labels) != tuple(is_scored):
        raise ValueError(
            f"labels are given for sentences and places {tuple(labels)}, and scores for "
            f"{tuple(is_scored)}: both must be the same"
        )


def _likelihood_of_class(name: str) -> Likelihood | None:
    """The likelihood of a class of networks, by the tables that ``transformers`` keeps of them."""
    from transformers.models.auto import modeling_auto

    # a network that reads a source stands in the table of language models too
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
        raise ValueError("labels must be given: the input does not say what is predicted")
    return labels
