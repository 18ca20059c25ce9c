"""Options of heads that are selected for each task."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from latentheads.latents.options import LatentOptions, ModelShape
from latentheads.latents.selection.gradients import StraightThrough
from latentheads.latents.selection.strategies import (
    STRATEGIES,
    BernoulliStrategy,
    CandidateStrategy,
    SelectionStrategy,
    Strategy,
)
from latentheads.latents.selector import Selector
from latentheads.names import (
    ATTENTION_TYPES,
    AttentionTypes,
    parse_attention_types,
)
from latentheads.options import (
    Coerced,
    OptionError,
    name_of_class,
    options_class,
)

if TYPE_CHECKING:
    from latentheads.model import HeadModel


@options_class()
class SelectionOptions(LatentOptions):
    """Which heads are active for each task.

    Attributes:
        strategy: Each task selects its own heads among more candidates than it uses: every
            candidate on its own (bernoulli), exactly as many (subset), one of each group (group);
            or a fixed set of heads for each task or family of tasks (static).
        blocks: Attention types whose blocks select: all that there are, or some of encoder-self,
            decoder-self and decoder-cross, comma between. A side of a single task, as the encoder
            of one source language, needs no selection.
    """

    strategy: Coerced[SelectionStrategy, Strategy | Mapping[str, Any]] = cast(
        Any, BernoulliStrategy()
    )
    blocks: AttentionTypes = "encoder-self,decoder-self"

    def __post_init__(self) -> None:
        if parse_attention_types(self.blocks) == ():
            raise OptionError(
                "blocks",
                f" must name an attention type: all, or some of {','.join(ATTENTION_TYPES)}",
            )

    selects_heads: ClassVar[bool] = True
    depends_on_tasks: ClassVar[bool] = True
    plug_in: ClassVar[str] = "each task uses its likeliest heads under the guide"
    fixed_options: ClassVar[tuple[str, ...]] = ("strategy", "blocks")

    def make(self, shape: ModelShape) -> Selector:
        """Makes what selects heads."""
        return self.selector(shape.heads, shape.sources, shape.targets)

    def advice(self, model: HeadModel) -> str:
        """Names the blocks whose candidates no task needs, where others have several tasks."""
        selector = model.selector
        if selector is None or self.fixes_task_weights:
            return ""
        types = dict.fromkeys(module.block.attention_type for module in model.selecting_blocks)
        several = [name for name in types if selector.num_tasks(name) > 1]
        one = [name for name in types if name not in several]
        if not (several and one):
            return ""
        acts = f"selection also acts on {' and '.join(one)}, where there is one task"
        return f"{acts}: selection.blocks {','.join(several)} leaves it out"

    @property
    def named_types(self) -> Collection[str]:
        """Those of ``blocks``."""
        return parse_attention_types(self.blocks) or ()

    @property
    def fixes_task_weights(self) -> bool:
        """Whether each task has heads of its own: with a static selection."""
        return self.strategy.fixes_task_weights

    @property
    def has_shared_kl(self) -> bool:
        """Whether the selection is learned."""
        return not self.fixes_task_weights

    @property
    def has_sampled_kl(self) -> bool:
        """Whether the selection is learned straight through: the other estimators compute it."""
        strategy = self.strategy
        return isinstance(strategy, CandidateStrategy) and isinstance(
            strategy.gradient, StraightThrough
        )

    @classmethod
    def labels(cls, name: str) -> Mapping[str, Mapping[str, Any]]:
        """The strategies."""
        return {strategy: {"strategy": strategy} for strategy in STRATEGIES}

    @property
    def label(self) -> str:
        """The strategy."""
        return name_of_class(self.strategy)

    @property
    def phrase(self) -> str:
        """The strategy."""
        return f"selection of heads for each task ({self.label})"

    def selector(self, heads: int, sources: Sequence[str], targets: Sequence[str]) -> Selector:
        """Makes the selector of a model.

        Args:
            heads: Of every block.
            sources: Names of the tasks that the encoder tells apart.
            targets: The same for the decoder.
        """
        types = parse_attention_types(self.blocks) or ATTENTION_TYPES
        return self.strategy.make(heads, types, sources, targets)
