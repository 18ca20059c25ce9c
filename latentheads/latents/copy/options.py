"""Options of copy heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, cast

from annotated_types import Ge, Le

from latentheads.latents.copy.heads import CopyHeads
from latentheads.latents.copy.priors import CopyPrior, CopyPriorName, IndependentCopyPrior
from latentheads.latents.latent import Latent, Structure
from latentheads.latents.options import LatentOptions, ModelShape
from latentheads.options import (
    Coerced,
    OptionError,
    Probability,
    Size,
    Width,
    name_of_class,
    options_class,
)

MAX_COPY_HEADS = 64


@options_class()
class CopyOptions(LatentOptions):
    """Latent copy heads above a decoder: each token is generated, or copied from a position.

    Attributes:
        prior: What the choice of a position is conditioned on: the states alone (independent), or
            also the position at the token before (chain).
        heads: Heads that copy. One choice selects a head and a position, or generates.
        lexicon: Whether a further head points at positions whose vector is added to the state, as
            an alignment head does; each has a softmax over the vocabulary, at its cost.
        width: Width of the query and of the keys.
        window: Of a language model: how many tokens back the head may point; 0: all of a block.
            Perplexity is measured across blocks too, where it is longer than a block.
        across_bias: Added to the score of generate where the head points across blocks: more
            positions than in training take more of its probability. Chosen on validation.
        slip: The probability that a copied token is generated after all. It keeps every bound
            finite.
        learn_slip: Whether each head learns its slip, beginning with that of the option, or with
            that of the run that training starts from.
    """

    kind: ClassVar[type[Latent]] = CopyHeads
    may_be_summed_out: ClassVar[bool] = True

    prior: Coerced[CopyPrior, CopyPriorName | Mapping[str, Any]] = cast(Any, IndependentCopyPrior())
    heads: Annotated[int, Ge(1), Le(MAX_COPY_HEADS)] = 1
    lexicon: bool = False
    width: Width = 64
    window: Size = 0
    across_bias: float = 0.0
    slip: Probability = 0.01
    learn_slip: bool = False

    def __post_init__(self) -> None:
        if self.across_bias and (self.chained or not self.window):
            raise OptionError("across_bias", " needs a window, and prior independent: drop it")

    @property
    def chained(self) -> bool:
        """Whether a token's position is conditioned on that of the token before."""
        return self.prior.chained

    def resolve(self, is_language_model: bool) -> CopyOptions:
        """The options themselves.

        Raises:
            ValueError: There is a window, and the model is not a language model.
        """
        if self.window and not is_language_model:
            raise OptionError("window", " is for a language model: drop it")
        return self

    def check_block(self, block: int) -> None:
        """A bias across blocks needs blocks, and a window that is longer than one."""
        if self.across_bias and not 0 < block < self.window:
            blocks = f"blocks of {block} tokens" if block else "a text in blocks"
            raise OptionError(
                "across_bias", f" needs {blocks} and a longer window, got {self.window}: drop it"
            )

    def make(self, shape: ModelShape) -> CopyHeads:
        self.resolve(shape.is_causal)
        return CopyHeads(
            shape.width,
            heads=self.heads,
            prior=self.prior,
            lexicon=self.lexicon,
            head_width=self.width,
            window=self.window,
            across_bias=self.across_bias,
            slip=self.slip,
            learn_slip=self.learn_slip,
            dropout=shape.dropout,
        )

    def reduced_structure(self, structure: Structure) -> Structure:
        """mean-field, unless a choice is conditioned on that of the token before."""
        return structure if self.chained and structure == "cascaded" else "mean-field"

    @property
    def phrase(self) -> str:
        plural, lexicon = "s" * (self.heads > 1), " and a lexicon head" * self.lexicon
        return (
            f"{self.heads} latent copy head{plural}{lexicon} (prior: {name_of_class(self.prior)})"
        )
