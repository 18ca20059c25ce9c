"""Options of heads that are selected for each task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, cast

from pydantic import AfterValidator

from latentheads.latents.latent import Latent
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
from latentheads.names import ATTENTION_TYPES, parse_attention_types
from latentheads.options import Coerced, OptionError, name_of_class, options_class

AUTO = "auto"
"""Self-attention of the sides that have several tasks; of both where none has."""


def _check_blocks(text: str) -> str:
    if text != AUTO and parse_attention_types(text) == ():
        choices = ",".join(ATTENTION_TYPES)
        raise OptionError("", f" must name an attention type: auto, all, or some of {choices}")
    return text


@options_class()
class SelectionOptions(LatentOptions):
    """Which heads are active for each task.

    Attributes:
        strategy: Each task selects its own heads among more candidates than it uses: every
            candidate on its own (bernoulli), exactly as many (subset), one of each group (group);
            or a fixed set of heads for each task or family of tasks (static).
        blocks: Attention types whose blocks select: all that there are, or some of encoder-self,
            decoder-self and decoder-cross, comma between; auto: self-attention of the sides that
            have several tasks, so not of the encoder of one source language.
    """

    strategy: Coerced[SelectionStrategy, Strategy | Mapping[str, Any]] = cast(
        Any, BernoulliStrategy()
    )
    blocks: Annotated[str, AfterValidator(_check_blocks)] = AUTO

    kind: ClassVar[type[Latent]] = Selector
    depends_on_tasks: ClassVar[bool] = True
    plug_in: ClassVar[str] = "each task uses its likeliest heads under the guide"
    fixed_options: ClassVar[tuple[str, ...]] = ("strategy", "blocks")

    def make(self, shape: ModelShape) -> Selector:
        types = self.named_types or ATTENTION_TYPES
        if self.blocks == AUTO:
            tasks = {"encoder-self": shape.sources, "decoder-self": shape.targets}
            own = [name for name in tasks if name in shape.attention_types]
            types = [name for name in own if len(tasks[name]) > 1] or own
        return self.strategy.make(shape.heads, tuple(types), shape.sources, shape.targets)

    @property
    def named_types(self) -> Collection[str]:
        return () if self.blocks == AUTO else parse_attention_types(self.blocks) or ()

    @property
    def acts_on_encoder(self) -> bool:
        return not self.named_types or "encoder-self" in self.named_types

    @property
    def fixes_task_weights(self) -> bool:
        """Whether each task has heads of its own: with a static selection."""
        return self.strategy.fixes_task_weights

    @property
    def has_shared_kl(self) -> bool:
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
        return {strategy: {"strategy": strategy} for strategy in STRATEGIES}

    @property
    def label(self) -> str:
        return name_of_class(self.strategy)

    @property
    def phrase(self) -> str:
        return f"selection of heads for each task ({self.label})"
