"""What reads a source of frames, such as speech, in place of an embedding of tokens."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentheads.options import CLASS, Choice, options_class

FRONT_ENDS = {"subsampler": "latentheads.contrib.speech.front_end:SpeechOptions"}
"""The front ends by name; the first is the default, and each is loaded when it is first needed."""


class EncoderLoss(nn.Module, ABC):
    """A second likelihood of the target, by the encoder alone: a factor of training.

    Args:
        weight: Its weight.
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    @abstractmethod
    def forward(
        self,
        memory: Float[Tensor, "*batch position dim"],
        valid: Bool[Tensor, "batch position"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "*batch"]:
        """The loss of each target, in nats."""

    @abstractmethod
    def greedy_decode(
        self, memory: Float[Tensor, "batch position dim"], valid: Bool[Tensor, "batch position"]
    ) -> list[list[int]]:
        """The likeliest tokens of each sentence, without EOS."""


@options_class()
class FrontEnd(Choice, ABC):
    """Options of what turns the frames of a source into states below the encoder."""

    @classmethod
    def choices(cls) -> Mapping[str, type[FrontEnd]]:
        return {name: pkgutil.resolve_name(path) for name, path in FRONT_ENDS.items()}

    @classmethod
    def read(cls, value: Any, trusted: Collection[str] = ()) -> Any:
        """A front end; options without its name are those of the default."""
        if isinstance(value, Mapping) and CLASS not in value:
            value = {CLASS: next(iter(FRONT_ENDS)), **value}
        return super().read(value, trusted)

    @classmethod
    def default(cls) -> FrontEnd:
        """The front end of speech that names none."""
        front_end: FrontEnd = cls.read({})
        return front_end

    @abstractmethod
    def make_embedding(self, bins: int, width: int, dropout: float) -> nn.Module:
        """A module that maps padded frames, and the number of frames of each, to states.

        Args:
            bins: Coefficients of a frame.
            width: Width of the states.
            dropout: Dropout of the states.
        """

    @abstractmethod
    def make_loss(self, width: int, vocab_size: int, weight: float) -> EncoderLoss:
        """The second likelihood of the target that ``ctc`` asks for."""
