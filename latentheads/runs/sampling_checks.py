"""What differs between two draws of a run, and options refused where nothing would."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from latentheads.analysis.alignments import samples_alignments

if TYPE_CHECKING:
    from latentheads.runs.run import Run

__all__ = ["DrawnKind", "check_draws"]

DrawnKind = Literal["heads", "selections", "alignments"]
"""What a run may draw."""


_DRAWN: dict[DrawnKind, tuple[str, Callable[[Run], bool]]] = {
    "heads": ("its heads", lambda run: run.model.samples_heads),
    "selections": ("which of them speak", lambda run: bool(run.guide.selections)),
    "alignments": ("alignments", lambda run: samples_alignments(run.model)),
}
"""What each is called, and whether a run draws it."""


def check_draws(runs: Iterable[Run], option: str, of: Iterable[DrawnKind] = ("heads",)) -> None:
    """Refuses an option that draws, where all draws of all runs would be the same.

    Args:
        runs: The runs; one that draws is enough.
        option: The name of the option, for the error.
        of: What the option draws.

    Raises:
        ValueError: No run draws any of it.
    """
    said, draws = zip(*(_DRAWN[kind] for kind in of), strict=True)
    if not any(tell(run) for run in runs for tell in draws):
        raise ValueError(
            f"{option} acts on nothing here: it needs a run that draws {', or '.join(said)}"
        )
