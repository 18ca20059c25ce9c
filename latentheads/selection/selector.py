"""Which candidate heads fill the places of a block for each task: from a draw to a choice.

What every law of selection answers is :class:`Selector`. A law is one file beside this one: its
distribution and its selector; ``laws.py`` is the table of their names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import pyro
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.names import ATTENTION_TYPES, check_attention_types, side_of
from latentheads.selection.distribution import Selection
from latentheads.selection.posterior import SelectionFamily

__all__ = [
    "CandidateSelector",
    "Choice",
    "LatentSelector",
    "Selector",
    "TaskSelector",
    "choose_in_order",
]


@dataclass(frozen=True)
class Choice:
    """The heads of a block that speak, for every sentence or for all of a batch.

    Sentences are the last dimension before places, particles stand in front of them.

    Attributes:
        weight: The factor of the output of the head in each place: one, with the gradient of a
            relaxation, or zero where no head speaks.
        index: The candidate in each place; None: every candidate has its own place.
        silent: Whether only the places of ``index`` are computed and all others say nothing; all
            sentences share such a choice.
    """

    weight: Float[Tensor, "*sentences place"]
    index: Int[Tensor, "*sentences place"] | None = None
    silent: bool = False

    @property
    def common(self) -> bool:
        """Whether all sentences share it."""
        return self.weight.ndim == 1

    def of_active(self) -> Choice:
        """The same choice, in which only the heads that speak are computed."""
        index = self.weight.nonzero().squeeze(-1)
        return Choice(self.weight[index], index, silent=True)

    def spread(self, hypotheses: int) -> Choice:
        """The choice with dimensions for hypotheses behind those of sentences."""
        if self.common or not hypotheses:
            return self
        behind = (..., *[None] * hypotheses, slice(None))
        index = None if self.index is None else self.index[behind]
        return Choice(self.weight[behind], index)

    def select(self, sentences: Int[Tensor, " kept"]) -> Choice:
        """The choice of some of the sentences."""
        if self.common:
            return self
        index = None if self.index is None else self.index.index_select(0, sentences)
        return Choice(self.weight.index_select(0, sentences), index)


@dataclass(frozen=True)
class Selector(ABC):
    """How a model's blocks get their heads: what every law of selection answers.

    Where a law draws, the draw is a vector of a block's candidates, one a task, at the site
    ``<block>.selection``: drawn once for all sentences, with a posterior in every guide.

    Args:
        heads: H, the heads of a block.
        chains: The chains whose blocks select.
    """

    heads: int
    chains: tuple[str, ...] = ATTENTION_TYPES

    def __post_init__(self) -> None:
        check_attention_types("chains", self.chains or ("",))

    @property
    def places(self) -> int:
        """Heads that a block computes and that its output projection reads."""
        return self.heads

    @abstractmethod
    def for_heads(self, heads: int) -> Selector:
        """The selector of a block with a number of heads.

        Raises:
            ValueError: Blocks with this number of heads cannot select.
        """

    @abstractmethod
    def num_candidates(self, attention_type: str) -> int:
        """Heads with weights of their own in a block of a chain."""

    @abstractmethod
    def tasks(self, attention_type: str) -> int:
        """Tasks that a chain tells apart: rows of a draw."""

    @abstractmethod
    def prior(self, attention_type: str, like: Tensor) -> Selection | None:
        """The law of a draw for every task of a chain; None: nothing is drawn.

        Args:
            attention_type: The block's.
            like: A tensor of the model, for type and device.
        """

    @abstractmethod
    def posterior(self, attention_type: str, like: Tensor) -> SelectionFamily | None:
        """A new posterior, with parameters of its own; None: nothing is drawn."""

    @abstractmethod
    def sample(
        self, site: str, attention_type: str, like: Tensor
    ) -> Float[Tensor, "*draw task candidate"]:
        """Says which candidates speak, zeros and ones for every task: drawn at a site, or given."""

    def choose(
        self,
        value: Float[Tensor, "*draw task candidate"],
        task: Int[Tensor, " sentence"] | None,
        common: bool = False,
        num_samples: int = 1,
    ) -> Choice:
        """Turns a draw into the choice of every sentence.

        Args:
            value: Zeros and ones.
            task: The task of every sentence; None: all have the only one.
            common: Whether all sentences have one task.
            num_samples: How many draws stand behind each other in ``value``, each for its equal part of
                the sentences, whose tasks must then be told.

        Raises:
            ValueError: There are several draws, and they do not fit the sentences.
        """
        if num_samples > 1:
            return self.make_choice(_choices_of_samples(value, task, num_samples))
        if value.ndim > 2 and (task is None or common):
            # particles stand in front, so that sentences must not lose their dimension
            task = value.new_zeros(1, dtype=torch.long) if task is None else task[:1]
        elif task is None or common:
            of_task = value[:1] if task is None else value.index_select(0, task[:1])
            return self.make_choice(of_task[0])
        return self.make_choice(value[..., task, :])

    @abstractmethod
    def make_choice(self, value: Float[Tensor, "*sentences candidate"]) -> Choice:
        """The heads that stand in the places, given who speaks."""


def _choices_of_samples(
    value: Float[Tensor, "row candidate"], task: Int[Tensor, " sentence"] | None, num_samples: int
) -> Float[Tensor, "sentence candidate"]:
    """The choice of each sentence by its draw and task; all draws have as many sentences."""
    if task is None or len(task) % num_samples or len(value) % num_samples:
        raise ValueError(
            f"{num_samples} draws need the task of every sentence, each {num_samples} times"
        )
    sample_index = torch.arange(num_samples, device=task.device).repeat_interleave(
        len(task) // num_samples
    )
    return value.unflatten(0, (num_samples, -1))[sample_index, task]


def choose_in_order(value: Float[Tensor, "*sentences candidate"], number: int) -> Choice:
    """The chosen, of which every row has the number, in the order of the candidates."""
    index = value.detach().topk(number, -1).indices.sort(-1).values
    return Choice(value.gather(-1, index), index)


@dataclass(frozen=True)
class LatentSelector(Selector):
    """One that draws: its law has logits, and its posterior has logits to learn.

    Attributes:
        gain: How many times as far as a weight a step of the optimiser moves a posterior's logits.
    """

    gain: ClassVar[float] = 10.0

    @abstractmethod
    def distribution(
        self, logits: Float[Tensor, "*batch candidate"], temperature: float | None = 1.0
    ) -> Selection:
        """The law with some logits; without a temperature its draws have no gradient."""

    @abstractmethod
    def start(self, attention_type: str, like: Tensor) -> Float[Tensor, "task candidate"]:
        """Logits that a posterior starts near: the prior's, unless a subclass says otherwise."""

    def prior(self, attention_type: str, like: Tensor) -> Selection:
        """The law of a draw for every task of a chain."""
        return self.distribution(self.start(attention_type, like))

    def posterior(self, attention_type: str, like: Tensor) -> SelectionFamily:
        """A new posterior, with parameters of its own."""
        return SelectionFamily(
            self.distribution, self.start(attention_type, like.detach()), self.gain
        )

    def sample(
        self, site: str, attention_type: str, like: Tensor
    ) -> Float[Tensor, "*draw task candidate"]:
        """Draws which candidates speak."""
        value: Tensor = pyro.sample(site, self.prior(attention_type, like))
        return value


@dataclass(frozen=True)
class TaskSelector(Selector):
    """One that chooses for each task, such as a language or a domain.

    Args:
        heads: H.
        chains: The chains whose blocks select.
        sources: Tasks that the encoder tells apart.
        targets: Tasks that the decoder tells apart.
    """

    sources: int = 1
    targets: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.sources, self.targets) < 1:
            raise ValueError(f"tasks must be at least 1, got {min(self.sources, self.targets)}")

    def for_heads(self, heads: int) -> TaskSelector:
        """The selector itself, if a block has as many heads as all others."""
        if heads != self.heads:
            raise ValueError(
                f"heads are selected for {self.heads} places in every block: "
                f"ngram_heads must be {self.heads} too, got {heads}"
            )
        return self

    def tasks(self, attention_type: str) -> int:
        """Those of the encoder, or of the decoder."""
        return self.sources if side_of(attention_type) == "encoder" else self.targets


@dataclass(frozen=True)
class CandidateSelector(TaskSelector, LatentSelector):
    """One that draws among H' candidates, each with queries, keys and values of its own.

    What is chosen fills the H places of a block, so that the output projection and all that reads
    logits stays as it is without selection.

    Args:
        heads: H.
        chains: The chains whose blocks select.
        sources: Tasks that the encoder tells apart.
        targets: Tasks that the decoder tells apart.
        candidates: H', more than H.
    """

    candidates: int = 0

    def __post_init__(self) -> None:
        if self.candidates <= self.heads:
            raise ValueError(
                f"candidates must be more than the {self.heads} heads, got {self.candidates}"
            )
        super().__post_init__()

    def num_candidates(self, attention_type: str) -> int:
        """The same in every block."""
        return self.candidates

    def start(self, attention_type: str, like: Tensor) -> Float[Tensor, "task candidate"]:
        """Zeros: every candidate is as likely as any other."""
        return like.new_zeros(self.tasks(attention_type), self.candidates)
