"""What a run needs of a kind of latent: its options, and what they make of a model.

A kind of latent is a dataclass of options that derives from :class:`LatentOptions`, and a line in
the table of :mod:`latentheads.runs.latents`. Settings, the making of a model, the description of
one that was made in Python, warm starts and training loop over the latents; none names a kind.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from latentheads.names import parse_attention_types

if TYPE_CHECKING:
    from latentheads.guide import ModelGuide
    from latentheads.model import HeadModel

__all__ = ["Controller", "LatentOptions", "ModelShape"]

L = TypeVar("L", bound="LatentOptions")


@runtime_checkable
class Controller(Protocol):
    """Changes something of a model while it trains.

    Attributes:
        quiet: Print nothing.
    """

    quiet: bool

    def __call__(self, step: int) -> None:
        """Is called after every step."""


@dataclass(frozen=True)
class ModelShape:
    """What latents depend on in a model that is about to be made.

    Attributes:
        heads: Heads of every block.
        attention_types: Those that the model has.
        sources: Names of the tasks that the encoder distinguishes.
        targets: The same for the decoder.
    """

    heads: int
    attention_types: Collection[str]
    sources: tuple[str, ...] = ("",)
    targets: tuple[str, ...] = ("",)


class LatentOptions:
    """The options of a kind of latent; a subclass is a frozen dataclass.

    Attributes:
        blocks: Attention types that have the latent, where it is one of attention heads.
        selects_heads: Whether it decides which heads are active: no two such latents go together,
            and a pruned network has none.
        depends_on_tasks: Whether each task has its own.
        needs_closed_form: Whether training needs the closed form of its KL.
        fixed_options: Options that must be equal in a warm start, even if the weights would fit.
    """

    blocks: Any
    selects_heads: ClassVar[bool] = False
    depends_on_tasks: ClassVar[bool] = False
    needs_closed_form: ClassVar[bool] = False
    fixed_options: ClassVar[tuple[str, ...]] = ()

    def resolve(self: L, is_language_model: bool) -> L:
        """The options with defaults that depend on the data.

        Raises:
            ValueError: One is for other data.
        """
        return self

    def model_arguments(self, shape: ModelShape) -> dict[str, Any]:
        """The arguments of a model that has the latent."""
        raise TypeError(f"{type(self).__name__} must say which arguments of a model it makes")

    def check_model(self, name: str, model: HeadModel) -> None:
        """Refuses a model in which the latent would act on no head.

        Args:
            name: The name of the latent.
            model: The model.
        """
        if self.selects_heads and not model.selecting_blocks:
            raise ValueError(f"{name}.blocks {self.blocks}: this network has no such heads")

    @property
    def has_guide_form(self) -> bool:
        """Whether a guide chooses the form of its posterior, in one of several ways."""
        return False

    @property
    def label(self) -> str:
        """What stands for it behind a ``+`` in the name of a recipe."""
        return ""

    @property
    def phrase(self) -> str:
        """What it is, in the line that describes a run."""
        return ""

    @property
    def acts_on_encoder(self) -> bool:
        """Whether encoder self-attention has it."""
        types = parse_attention_types(str(self.blocks))
        return types is None or "encoder-self" in types

    def make_controller(
        self, model: HeadModel, guide: ModelGuide, steps: int, tokens: int
    ) -> Controller | None:
        """Prepares a new model for training, and makes what is called after every step.

        Args:
            model: The model.
            guide: Its guide.
            steps: Steps of the whole training.
            tokens: Target tokens of the training part.
        """
        return None

    def facts(self, model: HeadModel, guide: ModelGuide, tokens: int) -> dict[str, Any] | None:
        """Facts of the latent in a trained model, for the report; None where there are none."""
        return None

    @classmethod
    def describe(cls: type[L], model: HeadModel, tokens: int) -> L | None:
        """The options that make the latent of a model; None where the model has none.

        Args:
            model: A model that was made in Python.
            tokens: Target tokens of the training part.
        """
        raise TypeError(f"{cls.__name__} must describe a model")
