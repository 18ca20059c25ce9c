"""A trained model with its guide and processor, for translation, alignment and sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from latentheads.corpora.processor import Processor
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.guide import ModelGuide
from latentheads.model import Decoder
from latentheads.options import OptionError


class TrainedModel:
    """A model with its guide and what encodes its text; it needs no run folder.

    Args:
        model: The model.
        guide: Its guide.
        processor: Vocabularies, tasks, and limits of the length of inputs.
        name: The name of the model in messages.
    """

    def __init__(
        self, model: Decoder, guide: ModelGuide, processor: Processor, name: str = "the model"
    ) -> None:
        self.model, self.guide, self.processor, self.name = model, guide, processor, name

    @property
    def target(self) -> Vocabulary:
        """Target vocabulary."""
        return self.processor.target

    @property
    def source(self) -> Vocabulary | None:
        """Source vocabulary; None for a language model."""
        return self.processor.source


StochasticPart = Literal["heads", "selections", "alignments"]
"""The parts of a model that may be stochastic."""


_STOCHASTIC_PARTS: dict[StochasticPart, tuple[str, Callable[[TrainedModel], bool]]] = {
    "heads": ("its heads", lambda trained: trained.model.samples_heads),
    "selections": ("the selection of heads", lambda trained: bool(trained.guide.shared_posteriors)),
    "alignments": ("alignments", lambda trained: trained.model.samples_alignments),
}
"""The name of each part, and whether it is stochastic in a model."""


def check_is_stochastic(
    models: Iterable[TrainedModel], option: str, parts: Iterable[StochasticPart] = ("heads",)
) -> None:
    """Checks that an option that samples has an effect in at least one model."""
    names, tests = zip(*(_STOCHASTIC_PARTS[kind] for kind in parts), strict=True)
    if not any(is_sampled(trained) for trained in models for is_sampled in tests):
        reason = f" has no effect here: it needs a run that samples {', or '.join(names)}"
        raise OptionError(option, reason)
