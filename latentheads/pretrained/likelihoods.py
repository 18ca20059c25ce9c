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
        self, scored: Bool[Tensor, "batch place"], real: Bool[Tensor, "batch read"]
    ) -> Bool[Tensor, "batch read"]:
        """The decoder's positions that some prediction reads; all real ones unless overridden.

        Args:
            scored: True where something is predicted.
            real: The decoder's positions that are no padding.
        """
        return real


class NextToken(Likelihood):
    """Every token given those before it; the first is read and not predicted."""

    families = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",)

    def labels(
        self, inputs: Mapping[str, Tensor], labels: Tensor | None
    ) -> Int[Tensor, "batch place"]:
        """The tokens themselves unless labels are given, but the first and padding."""
        found = _require_labels(inputs.get("input_ids")) if labels is None else labels
        real = inputs.get("attention_mask")
        if real is not None and real.shape == found.shape:
            # behind padding on the left the first real token is not predicted either
            found = found.masked_fill((real == 0) | (real.cumsum(-1) == 1), IGNORE_INDEX)
        return found[:, 1:]

    def scores(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch place label"]:
        """Those of the next token, at every position but the last."""
        return self.places(outputs.logits)

    def places(
        self, read: Shaped[Tensor, "batch read *rest"]
    ) -> Shaped[Tensor, "batch place *rest"]:
        """All but the last."""
        return read[:, :-1]

    def drawn(
        self, scored: Bool[Tensor, "batch place"], real: Bool[Tensor, "batch read"]
    ) -> Bool[Tensor, "batch read"]:
        """Not the last token, and nothing behind the last that is predicted."""
        _check_shapes(scored.shape, self.places(real).shape)
        before = real.new_zeros(real.shape)
        before[:, :-1] = scored_here_or_later(scored)
        return real & before


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
        self, scored: Bool[Tensor, "batch place"], real: Bool[Tensor, "batch read"]
    ) -> Bool[Tensor, "batch read"]:
        """Nothing behind the last token that is predicted."""
        _check_shapes(scored.shape, real.shape)
        return real & scored_here_or_later(scored)


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
        given = _require_labels(labels)
        if given.ndim != 1 or given.is_floating_point():
            raise ValueError(
                "labels of a classification must be one whole number a sentence, "
                f"got shape {tuple(given.shape)} of {given.dtype}"
            )
        return given[:, None]

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
        given = _require_labels(labels)
        return given[:, None] if given.ndim == 1 else given

    def scores(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch place label"]:
        """What the function says; one row of scores a sentence is of its only place."""
        found = self.function(outputs, batch)
        return found[:, None] if found.ndim == 2 else found


LIKELIHOODS: dict[str, type[Likelihood]] = {
    "language-model": NextToken,
    "masked-language-model": EveryToken,
    "sequence-to-sequence": TargetToken,
    "classification": SentenceLabel,
}


def make_likelihood(network: Any, given: str | Scores | None) -> Likelihood | None:
    """The likelihood that a user names, writes, or leaves to the network's class.

    Args:
        network: A ``PreTrainedModel``.
        given: A name, a function, or None.

    Returns:
        The likelihood; None where there is none: the network can be run, and has no bound.
    """
    if given is None:
        return _likelihood_of_class(type(network).__name__)
    if callable(given):
        return OwnLikelihood(given)
    if not isinstance(given, str):
        raise ValueError(f"likelihood must be a name or a function, got {shown(given)}")
    check_known("likelihood", given, LIKELIHOODS)
    return LIKELIHOODS[given]()


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
    wrong = labels[(labels < 0) | (labels >= scores[-1])]
    if len(wrong):
        raise ValueError(
            f"labels must lie between 0 and {scores[-1] - 1}, or be {IGNORE_INDEX} where nothing is "
            f"predicted; got {wrong[0]}"
        )


def _check_shapes(labels: Sequence[int], scored: Sequence[int]) -> None:
    """Refuses labels of other sentences and places than those that are scored."""
    if tuple(labels) != tuple(scored):
        raise ValueError(
            f"labels are given for sentences and places {tuple(labels)}, and scores for "
            f"{tuple(scored)}: both must be the same"
        )


def _likelihood_of_class(name: str) -> Likelihood | None:
    """The likelihood of a class of networks, by the tables that ``transformers`` keeps of them."""
    from transformers.models.auto import modeling_auto

    # a network that reads a source stands in the table of language models too
    for kind in (TargetToken, NextToken, EveryToken, SentenceLabel):
        for table in kind.families:
            names = getattr(modeling_auto, table).values()
            if name in names or any(name in each for each in names if isinstance(each, tuple)):
                return kind()
    return None


def _require_labels(labels: Tensor | None) -> Tensor:
    if labels is None:
        raise ValueError("labels must be given: the input does not say what is predicted")
    return labels
