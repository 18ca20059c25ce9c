"""Checks that an option that samples has something to sample in a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from latentheads.analysis.alignments import samples_alignments
from latentheads.runs.trained_model import TrainedModel

StochasticPart = Literal["heads", "selections", "alignments"]
"""The parts of a model that may be stochastic."""


_STOCHASTIC_PARTS: dict[StochasticPart, tuple[str, Callable[[TrainedModel], bool]]] = {
    "heads": ("its heads", lambda trained: trained.model.samples_heads),
    "selections": ("the selection of heads", lambda trained: bool(trained.guide.selections)),
    "alignments": ("alignments", lambda trained: samples_alignments(trained.model)),
}
"""The name of each part, and whether it is stochastic in a model."""


def check_is_stochastic(
    models: Iterable[TrainedModel], option: str, parts: Iterable[StochasticPart] = ("heads",)
) -> None:
    """Checks that an option that samples has an effect in at least one model."""
    names, tests = zip(*(_STOCHASTIC_PARTS[kind] for kind in parts), strict=True)
    if not any(is_sampled(trained) for trained in models for is_sampled in tests):
        raise ValueError(
            f"{option} has no effect here: it needs a run that samples {', or '.join(names)}"
        )
