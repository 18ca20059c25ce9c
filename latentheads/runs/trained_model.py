"""A trained model with its guide and vocabularies, for translation, alignment and sampling."""

from __future__ import annotations

from dataclasses import dataclass, field

from latentheads.corpora import Vocabulary
from latentheads.data import Data, InMemory
from latentheads.guide import ModelGuide
from latentheads.model import Decoder


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model with its guide, vocabularies and data options; it needs no run folder.

    Attributes:
        model: The model.
        guide: Its guide.
        target: Target vocabulary.
        source: Source vocabulary; None for a language model.
        data: Data options: tasks, and limits of the length of inputs.
        name: The name of the model in messages.
    """

    model: Decoder
    guide: ModelGuide
    target: Vocabulary
    source: Vocabulary | None = None
    data: Data = field(default_factory=InMemory)
    name: str = "the model"
