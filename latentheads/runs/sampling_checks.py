"""Checks that an option that samples has something to sample in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from latentheads.analysis.alignments import samples_alignments

if TYPE_CHECKING:
    from latentheads.runs.run import Run

__all__ = ["StochasticPart", "check_is_stochastic"]

StochasticPart = Literal["heads", "selections", "alignments"]
"""The parts of a run that may be stochastic."""


_STOCHASTIC_PARTS: dict[StochasticPart, tuple[str, Callable[[Run], bool]]] = {
    "heads": ("its heads", lambda run: run.model.samples_heads),
    "selections": ("the selection of heads", lambda run: bool(run.guide.selections)),
    "alignments": ("alignments", lambda run: samples_alignments(run.model)),
}
"""The name of each part, and whether it is stochastic in a run."""


def check_is_stochastic(
    runs: Iterable[Run], option: str, parts: Iterable[StochasticPart] = ("heads",)
) -> None:
    """Checks that an option that samples has an effect in at least one run.

    Args:
        runs: The runs.
        option: The name of the option, for the error.
        parts: The parts that the option samples.

    Raises:
        ValueError: None of the parts is stochastic in any run.
    """
    names, tests = zip(*(_STOCHASTIC_PARTS[kind] for kind in parts), strict=True)
    if not any(is_sampled(run) for run in runs for is_sampled in tests):
        raise ValueError(
            f"{option} acts on nothing here: it needs a run that samples {', or '.join(names)}"
        )
