"""The table of selection strategies by name, ``STRATEGIES``."""

from __future__ import annotations

from typing import Literal

from latentheads.checks import check_known
from latentheads.latents.selection.bernoulli import BernoulliSelector
from latentheads.latents.selection.gradients import DEFAULT_GRADIENT, SelectionGradient
from latentheads.latents.selection.group import GroupSelector
from latentheads.latents.selection.selector import CandidateSelector, TaskSelector
from latentheads.latents.selection.static import StaticSelector
from latentheads.latents.selection.subset import SubsetSelector
from latentheads.names import ATTENTION_TYPES

Strategy = Literal["bernoulli", "subset", "group", "static"]

STRATEGIES: dict[Strategy, type[TaskSelector]] = {
    "bernoulli": BernoulliSelector,
    "subset": SubsetSelector,
    "group": GroupSelector,
    "static": StaticSelector,
}


def make_selector(
    strategy: Strategy,
    heads: int,
    candidates: int = 0,
    attention_types: tuple[str, ...] = ATTENTION_TYPES,
    sources: int = 1,
    targets: int = 1,
    gradient: SelectionGradient = DEFAULT_GRADIENT,
    **sets: tuple[int, ...],
) -> TaskSelector:
    """Makes a selector by the name of its strategy.

    Args:
        strategy: One of ``STRATEGIES``.
        heads: H, the heads of a block.
        candidates: H', for a latent selection; a static one has as many as its sets need.
        attention_types: The attention types whose blocks select.
        sources: Number of tasks that the encoder distinguishes.
        targets: Number of tasks that the decoder distinguishes.
        gradient: How a latent selection is learned.
        **sets: For a static selection, the sets of tasks that share their heads.
    """
    check_known("strategy", strategy, STRATEGIES)
    selector_class = STRATEGIES[strategy]
    if issubclass(selector_class, CandidateSelector):
        return selector_class(heads, attention_types, sources, targets, candidates, gradient)
    return selector_class(heads, attention_types, sources, targets, **sets)
