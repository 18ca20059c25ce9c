"""Options of heads that are selected for each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from latentheads.checks import check_known, split_items
from latentheads.latents.options import LatentOptions, ModelShape
from latentheads.latents.selection.gradients import (
    DEFAULT_GRADIENT,
    SelectionGradient,
    StraightThrough,
)
from latentheads.latents.selection.selector import CandidateSelector
from latentheads.latents.selection.strategies import STRATEGIES, make_selector
from latentheads.latents.selector import Selector
from latentheads.model import HeadModel
from latentheads.names import (
    ATTENTION_TYPES,
    AttentionTypes,
    name_attention_types,
    parse_attention_types,
)
from latentheads.options import IdleOptionError, OptionError, Size, options_class


@options_class()
class SelectionOptions(LatentOptions):
    """Which heads are active for each task.

    Attributes:
        strategy: Each task selects its own heads among more candidates than it uses: every
            candidate on its own (bernoulli), exactly as many (subset), one of each group (group);
            or a fixed set of heads for each task or family of tasks (static).
        candidates: Heads of a block to select from; 0: twice those that are active.
        blocks: Attention types whose blocks select: all that there are, or some of encoder-self,
            decoder-self and decoder-cross, comma between.
        families: With static, tasks that share a set of heads, as ``de,nl|fr,ro|cs``; empty: each
            task has its own.
        gradient: How a selection is learned in the loss Head_ELBO: straight through a relaxation;
            by the scores of two draws a batch; or from all choices of all blocks.
    """

    strategy: Literal["bernoulli", "subset", "group", "static"] = "bernoulli"
    candidates: Size = 0
    blocks: AttentionTypes = "encoder-self,decoder-self"
    families: str = ""
    gradient: SelectionGradient = DEFAULT_GRADIENT

    def __post_init__(self) -> None:
        if parse_attention_types(self.blocks) == ():
            raise OptionError(
                "blocks",
                f" must name an attention type: all, or some of {','.join(ATTENTION_TYPES)}",
            )
        if self.strategy == "static" and self.gradient != DEFAULT_GRADIENT:
            raise IdleOptionError("gradient", " is of a selection that is learned, not of static")

    selects_heads: ClassVar[bool] = True
    depends_on_tasks: ClassVar[bool] = True
    fixed_options: ClassVar[tuple[str, ...]] = ("strategy", "candidates", "blocks", "families")

    def make(self, shape: ModelShape) -> Selector:
        """Makes what selects heads."""
        return self.selector(shape.heads, shape.sources, shape.targets)

    @property
    def fixes_task_weights(self) -> bool:
        """Whether each task has heads of its own: with a static selection."""
        return self.strategy == "static"

    @property
    def has_shared_kl(self) -> bool:
        """Whether the selection is learned."""
        return self.strategy != "static"

    @property
    def has_sampled_kl(self) -> bool:
        """Whether the selection is learned straight through: the other estimators compute it."""
        return self.has_shared_kl and isinstance(self.gradient, StraightThrough)

    @classmethod
    def labels(cls, name: str) -> Mapping[str, Mapping[str, Any]]:
        """The strategies."""
        return {strategy: {"strategy": strategy} for strategy in STRATEGIES}

    @property
    def label(self) -> str:
        """The strategy."""
        return self.strategy

    @property
    def phrase(self) -> str:
        """The strategy."""
        return f"selection of heads for each task ({self.strategy})"

    @classmethod
    def describe(cls, model: HeadModel, tokens: int) -> SelectionOptions | None:
        """The strategy of a model, and what it selects from."""
        selector = model.selector
        named = (name for name, kind in STRATEGIES.items() if type(selector) is kind)
        if selector is None or (strategy := next(named, None)) is None:
            return None
        blocks = name_attention_types(selector.attention_types)
        if not isinstance(selector, CandidateSelector):
            return cls(strategy, blocks=blocks)
        return cls(strategy, selector.candidates, blocks, gradient=selector.gradient)

    def selector(self, heads: int, sources: Sequence[str], targets: Sequence[str]) -> Selector:
        """Makes the selector of a model.

        Args:
            heads: Of every block.
            sources: Names of the tasks that the encoder tells apart.
            targets: The same for the decoder.
        """
        sides = {"source_sets": sources, "target_sets": targets}
        return make_selector(
            self.strategy,
            heads,
            self.candidates or 2 * heads,
            parse_attention_types(self.blocks) or ATTENTION_TYPES,
            len(sources),
            len(targets),
            self.gradient,
            **{name: self._sets_of(sources, targets, side) for name, side in sides.items()},
        )

    def _sets_of(
        self, sources: Sequence[str], targets: Sequence[str], side: Sequence[str]
    ) -> tuple[int, ...]:
        """The family of every task of a side; those in none have one of their own."""
        if not self.families:
            return ()
        families = [split_items(family) for family in self.families.split("|")]
        named = [name for family in families for name in family]
        for name in named:
            check_known("task", name, dict.fromkeys([*sources, *targets]), "families")
        if len(set(named)) < len(named):
            twice = next(name for name in named if named.count(name) > 1)
            raise ValueError(f"families: task {twice!r} is in two families")
        keys = [next((tuple(f) for f in families if name in f), (name,)) for name in side]
        order = list(dict.fromkeys(keys))
        return tuple(order.index(key) for key in keys)
