"""The front end of speech: subsampled frames in place of embedded tokens, and CTC."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.checks import MAX_WIDTH
from latentheads.contrib.speech.ctc import CTC
from latentheads.contrib.speech.spec_augment import Policy, SpecAugment
from latentheads.contrib.speech.subsampler import Subsampler
from latentheads.models.front_end import FrontEnd
from latentheads.models.network import ScaledWithPositions
from latentheads.options import OptionError, options_class


@options_class()
class SpeechOptions(FrontEnd):
    """The layers below the encoder, to which the frames of speech are given.

    Attributes:
        channels: Outputs of the first of the two convolutions; half of them gate the other half.
        spec_augment: What is masked in speech during training, as in Park et al. 2019: nothing
            (none), a band of frequencies and an interval of time (LB), or two of each (LD).
    """

    channels: Annotated[int, Ge(2), Le(MAX_WIDTH)] = 256
    spec_augment: Policy = "none"

    def __post_init__(self) -> None:
        if self.channels % 2:
            raise OptionError("channels", f" must be even, got {self.channels}")

    def make_embedding(self, bins: int, width: int, dropout: float) -> FrameEmbedding:
        return FrameEmbedding(bins, width, dropout, self)

    def make_loss(self, width: int, vocab_size: int, weight: float) -> CTC:
        return CTC(width, vocab_size, weight)


class FrameEmbedding(ScaledWithPositions):
    """Subsamples frames of sound by four, scales by sqrt(d), adds positions, applies dropout.

    Args:
        bins: Coefficients of a frame.
        width: Width of the states.
        dropout: Dropout of the states.
        options: Channels, and the SpecAugment policy.
    """

    def __init__(self, bins: int, width: int, dropout: float, options: SpeechOptions) -> None:
        super().__init__(dropout)
        self.subsampler = Subsampler(bins, options.channels, width)
        self.hiding = SpecAugment(options.spec_augment)

    def forward(
        self, frames: Float[Tensor, "batch frame bin"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch position dim"]:
        """Embeds utterances."""
        return self.add_positions(self.subsampler(self.hiding(frames, lengths), lengths))
