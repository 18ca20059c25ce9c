"""Selection strategies by name, ``STRATEGIES``: the options of each, and the selector they make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, cast

from latentheads.checks import check_choice, split_items
from latentheads.latents.selection.bernoulli import BernoulliSelector
from latentheads.latents.selection.gradients import DEFAULT_GRADIENT, SelectionGradient
from latentheads.latents.selection.group import GroupSelector
from latentheads.latents.selection.selector import CandidateSelector, TaskSelector
from latentheads.latents.selection.static import StaticSelector
from latentheads.latents.selection.subset import SubsetSelector
from latentheads.names import ATTENTION_TYPES
from latentheads.options import Choice, Size, options_class

Strategy = Literal["bernoulli", "subset", "group", "static"]
Names: TypeAlias = Sequence[str]


@options_class()
class SelectionStrategy(Choice, ABC):
    """How each task selects its heads."""

    selector_class: ClassVar[type[TaskSelector]]
    fixes_task_weights: ClassVar[bool] = False
    """Whether each task has weights of its own, which no other task can start with."""

    @classmethod
    def choices(cls) -> Mapping[str, type[SelectionStrategy]]:
        return cast(Mapping[str, type[SelectionStrategy]], STRATEGIES)

    @abstractmethod
    def arguments(self, heads: int, sources: Names, targets: Names) -> dict[str, Any]:
        """The arguments that a selector of this strategy alone has, from those of :meth:`make`."""

    def make(
        self, heads: int, attention_types: tuple[str, ...], sources: Names, targets: Names
    ) -> TaskSelector:
        """Makes the selector of a model.

        Args:
            heads: Of every block.
            attention_types: The attention types whose blocks select.
            sources: Names of the tasks that the encoder distinguishes.
            targets: The same for the decoder.
        """
        own = self.arguments(heads, sources, targets)
        return self.selector_class(heads, attention_types, len(sources), len(targets), **own)


@options_class()
class CandidateStrategy(SelectionStrategy, ABC):
    """Each task selects its heads among more candidates than it uses.

    Attributes:
        candidates: Heads of a block to select from; 0: twice those that are active.
        gradient: How the selection is learned in the loss Head_ELBO: straight through a relaxation;
            by the scores of two samples a batch; or from all choices of all blocks.
    """

    selector_class: ClassVar[type[CandidateSelector]]  # type: ignore[misc]

    candidates: Size = 0
    gradient: SelectionGradient = DEFAULT_GRADIENT

    def arguments(self, heads: int, sources: Names, targets: Names) -> dict[str, Any]:
        return {"candidates": self.candidates or 2 * heads, "gradient": self.gradient}


@options_class()
class BernoulliStrategy(CandidateStrategy):
    """Every candidate is selected on its own."""

    selector_class = BernoulliSelector


@options_class()
class SubsetStrategy(CandidateStrategy):
    """Exactly as many candidates as a block has heads."""

    selector_class = SubsetSelector


@options_class()
class GroupStrategy(CandidateStrategy):
    """One candidate of each group."""

    selector_class = GroupSelector


@options_class()
class StaticStrategy(SelectionStrategy):
    """A fixed set of heads for each task or family of tasks.

    Attributes:
        families: Tasks that share a set of heads, as ``de,nl|fr,ro|cs``; empty: each task has its
            own.
    """

    selector_class = StaticSelector
    fixes_task_weights: ClassVar[bool] = True

    families: str = ""

    def arguments(self, heads: int, sources: Names, targets: Names) -> dict[str, Any]:
        return {
            "source_sets": self._sets_of(sources, targets, sources),
            "target_sets": self._sets_of(sources, targets, targets),
        }

    def _sets_of(self, sources: Names, targets: Names, side: Names) -> tuple[int, ...]:
        """The family of every task of a side; those in none have one of their own."""
        if not self.families:
            return ()
        families = [split_items(family) for family in self.families.split("|")]
        named = [name for family in families for name in family]
        for name in named:
            check_choice("task of families", name, dict.fromkeys([*sources, *targets]))
        if len(set(named)) < len(named):
            twice = next(name for name in named if named.count(name) > 1)
            raise ValueError(f"families: task {twice!r} is in two families")
        keys = [next((tuple(f) for f in families if name in f), (name,)) for name in side]
        order = list(dict.fromkeys(keys))
        return tuple(order.index(key) for key in keys)


STRATEGIES: dict[Strategy, type[SelectionStrategy]] = {
    "bernoulli": BernoulliStrategy,
    "subset": SubsetStrategy,
    "group": GroupStrategy,
    "static": StaticStrategy,
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
    check_choice("strategy", strategy, STRATEGIES)
    selector_class = STRATEGIES[strategy].selector_class
    if issubclass(selector_class, CandidateSelector):
        return selector_class(heads, attention_types, sources, targets, candidates, gradient)
    return selector_class(heads, attention_types, sources, targets, **sets)
