"""What a run needs of a kind of latent: its options, and what they make of a model.

A kind of latent is a dataclass of options that derives from :class:`LatentOptions`, and a line of
:mod:`latentheads.latents.registry`. Settings, the making of a model, the description of one that
was made in Python, warm starts and training loop over the latents; none names a kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from latentheads.checks import check_instance
from latentheads.errors import shown
from latentheads.latents.latent import HasPosteriors, Latent, Structure
from latentheads.names import parse_attention_types

if TYPE_CHECKING:
    from latentheads.model import HeadModel
    from latentheads.names import Block
    from latentheads.training.callbacks import Callback

L = TypeVar("L", bound="LatentOptions")


@dataclass(frozen=True)
class ModelShape:
    """What latents depend on in a model that is about to be made.

    Attributes:
        heads: Heads of every block.
        attention_types: Those that the model has.
        width: Model width.
        dropout: Dropout of the model.
        is_causal: Whether it is a language model, without a source.
        sources: Names of the tasks that the encoder distinguishes.
        targets: The same for the decoder.
        blocks: The blocks of heads, bottom to top, for latents that are made after them.
    """

    heads: int
    attention_types: Collection[str]
    width: int = 0
    dropout: float = 0.0
    is_causal: bool = False
    sources: tuple[str, ...] = ("",)
    targets: tuple[str, ...] = ("",)
    blocks: tuple[Block, ...] = ()


class LatentOptions:
    """The options of a kind of latent; a subclass is a frozen dataclass.

    Attributes:
        blocks: Attention types that have the latent, where it is one of attention heads.
        kind: The class of the latent, or a base of it: whether it selects heads, is made before
            blocks, copies, or has a posterior for each sentence that is sampled.
        is_foldable: Whether a pruned network has taken it over into its weights.
        depends_on_tasks: Whether each task has its own.
        may_be_summed_out: Whether its exact posterior is known, with some or all of its options.
        needs_blocks: Whether it is made of a network's blocks, and acts within the network.
        needs_closed_form: Whether training needs the closed form of its KL.
        plug_in: What the plug-in network does with it.
        fixed_options: Options that must be equal in a warm start, even if the weights would fit.
    """

    blocks: Any
    kind: ClassVar[type[Latent]] = Latent
    is_foldable: ClassVar[bool] = False
    depends_on_tasks: ClassVar[bool] = False
    may_be_summed_out: ClassVar[bool] = False
    needs_blocks: ClassVar[bool] = False
    needs_closed_form: ClassVar[bool] = False
    plug_in: ClassVar[str] = "heads set to the prior mean"
    fixed_options: ClassVar[tuple[str, ...]] = ()

    @property
    def named_types(self) -> Collection[str]:
        """The attention types that the options name; none where they name none, or all."""
        return ()

    def resolve(self: L, is_language_model: bool) -> L:
        """The options with defaults that depend on the data.

        Raises:
            ValueError: One is for other data.
        """
        return self

    def check_block(self, block: int) -> None:
        """Raises an error for an option that has no effect in blocks of this size.

        Args:
            block: Tokens of the blocks of a running text; 0: sentences.
        """

    def make(self, shape: ModelShape) -> Latent | None:
        """Makes the latent of a model; None where it would act on no block."""
        return None

    def reduced_structure(self, structure: Structure) -> Structure:
        """The first structure of which the posterior of a guide is the same, such as with one head.

        Args:
            structure: The guide's structure, if the latent is summed out.
        """
        return structure

    @property
    def has_guide_form(self) -> bool:
        """Whether a guide chooses the form of its posterior, in one of several ways."""
        return self.is_summed_out or self.has_sampled_posterior()

    @classmethod
    def has_sampled_posterior(cls) -> bool:
        """Whether guides have a posterior of it for each sentence, which is sampled."""
        return not cls.may_be_summed_out and cls.kind.makes_posterior()

    @property
    def is_summed_out(self) -> bool:
        """Whether its exact posterior is known, because it is summed out."""
        return self.may_be_summed_out

    @property
    def has_shared_kl(self) -> bool:
        """Whether it has a KL that all sentences share, beside any of logits."""
        return False

    @property
    def has_sampled_kl(self) -> bool:
        """Whether that KL may be sampled instead of computed."""
        return False

    @classmethod
    def labels(cls, name: str) -> Mapping[str, Mapping[str, Any]]:
        """What may stand for it behind a ``+`` in a recipe, with the options that this means.

        Empty: a recipe does not name it.

        Args:
            name: Its name in the table.
        """
        return {name: {}}

    @property
    def label(self) -> str:
        """What stands for it behind a ``+`` in a recipe; empty: its name in the table."""
        return ""

    @property
    def phrase(self) -> str:
        """What it is, in the line that describes a run; empty: its name in the table."""
        return ""

    @property
    def fixes_task_weights(self) -> bool:
        """Whether each task has weights of its own, which no other task can start with."""
        return False

    @property
    def acts_on_encoder(self) -> bool:
        """Whether encoder self-attention has it."""
        types = parse_attention_types(str(self.blocks))
        return types is None or "encoder-self" in types

    def make_callback(
        self, model: HeadModel, guide: HasPosteriors, steps: int, tokens: int
    ) -> Callback | None:
        """Prepares a new model for training, and makes what is called after every step.

        Args:
            model: The model.
            guide: Its guide.
            steps: Steps of the whole training.
            tokens: Target tokens of the training part.
        """
        return None

    def facts(self, model: HeadModel, guide: HasPosteriors, tokens: int) -> dict[str, Any] | None:
        """Facts of the latent in a trained model, for the report; None where there are none."""
        return None

    @classmethod
    def rows(cls, facts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
        """Rows of the table that a run prints: what they are, on validation, and on test.

        Args:
            facts: What :meth:`facts` returned.
        """
        return []


def make_latents(
    latents: Sequence[Latent | LatentOptions], shape: ModelShape, *, before_blocks: bool
) -> list[Latent]:
    """The latents of a model that its blocks are made with, or all others.

    Args:
        latents: The latents, or their options.
        shape: The shape of the model.
        before_blocks: Whether to make those that blocks are made with.

    Raises:
        ValueError: One is neither a latent nor the options of one; options make another kind than
            they name; or the model has none of the attention types that they name.
    """
    check_latents(latents)
    chosen = [latent for latent in latents if latent.kind.before_blocks == before_blocks]
    for options in (latent for latent in chosen if isinstance(latent, LatentOptions)):
        named = options.named_types
        if named and not set(named) & set(shape.attention_types):
            raise ValueError(
                f"{type(options).__name__}.blocks {options.blocks}: this network has no such "
                f"heads, it has {', '.join(shape.attention_types)}"
            )
    built = [lat.make(shape) if isinstance(lat, LatentOptions) else lat for lat in chosen]
    for given, latent in zip(chosen, built, strict=True):
        if latent is not None and not isinstance(latent, given.kind):
            raise ValueError(
                f"{type(given).__name__}.kind must be the class of what it makes, "
                f"{type(latent).__name__}, got {shown(given.kind)}"
            )
    return [latent for latent in built if latent is not None]


def add_latents_of_blocks(
    model: HeadModel, latents: Sequence[Latent | LatentOptions], shape: ModelShape
) -> None:
    """Give a model, which has its blocks, the latents that are made after them.

    Raises:
        ValueError: A latent, made before or after, cannot act on the blocks.
    """
    shape = replace(shape, blocks=tuple(module.block for module in model.head_blocks))
    model.add_latents(make_latents(latents, shape, before_blocks=False))
    for latent in model.latents.values():
        latent.check_blocks(model)


def check_latents(latents: Any) -> None:
    """Raises an error unless these are latents, or their options."""
    check_instance(
        "latents", latents, list | tuple, "a list such as [lh.latents.AlignmentOptions(1)]"
    )
    for latent in latents:
        check_instance("latents", latent, Latent | LatentOptions, "options, as AlignmentOptions()")
