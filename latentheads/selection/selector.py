"""Which candidate heads fill the places of a block for each task: from a draw to a choice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.names import CHAINS
from latentheads.selection.laws import Gates, Group, Selection, Subset

__all__ = ["LAWS", "Choice", "Law", "Selector"]

Law = Literal["selection", "subset", "group", "static"]
LAWS: tuple[Law, ...] = get_args(Law)


@dataclass(frozen=True)
class Choice:
    """The heads of a block that speak, for every sentence or for all of a batch.

    Sentences are the last dimension before places, particles stand in front of them.

    Attributes:
        weight: What the output of the head in each place is multiplied by: one, with the gradient
            of a relaxation, or zero where nobody speaks.
        index: The candidate in each place; None: every candidate has its own place.
        silent: Whether only the places of ``index`` are computed and all others say nothing.
    """

    weight: Float[Tensor, "*sentences place"]
    index: Int[Tensor, "*sentences place"] | None = None
    silent: bool = False

    @property
    def common(self) -> bool:
        """Whether all sentences share it."""
        return self.weight.ndim == 1

    def speaking(self) -> Choice:
        """The same choice for all, in which only those who speak are computed."""
        index = self.weight.nonzero().squeeze(-1)
        return Choice(self.weight[index], index, silent=True)

    def spread(self, hypotheses: int) -> Choice:
        """That of sentences which have so many dimensions of hypotheses behind them."""
        if self.common or not hypotheses:
            return self
        behind = (..., *[None] * hypotheses, slice(None))
        index = None if self.index is None else self.index[behind]
        return Choice(self.weight[behind], index, self.silent)

    def select(self, sentences: Int[Tensor, " kept"]) -> Choice:
        """That of some of the sentences."""
        if self.common:
            return self
        index = None if self.index is None else self.index.index_select(0, sentences)
        return Choice(self.weight.index_select(0, sentences), index, self.silent)


@dataclass(frozen=True)
class Selector:
    """How a model's blocks get their heads: H of H' candidates, for each task.

    Each candidate has weights of its own for queries, keys and values. ``group`` and ``subset``
    fill the H places of a block, so that the output projection and all that reads logits stays as
    it is without selection: the chosen of group g stands in place g, those of a subset in the
    order of the candidates. With ``selection`` every candidate has its own place and speaks or
    not. With ``static`` nothing is drawn: tasks of one set, such as a family of languages, have
    H heads of their own.

    Attributes:
        gain: A step of the optimiser moves a posterior's logits so many times as far as a weight.

    Args:
        law: ``selection``, each candidate on its own; ``subset``, exactly H of them; ``group``,
            one of each of H groups; ``static``.
        heads: H.
        candidates: H'; with ``group`` a multiple of H; without meaning to ``static``.
        chains: The chains whose blocks select.
        sources: Tasks that the encoder tells apart.
        targets: Tasks that the decoder tells apart.
        source_sets: With ``static``, the set of each of the encoder's tasks, counted from 0; each
            its own when not given.
        target_sets: The same for the decoder.
    """

    gain: ClassVar[float] = 10.0

    law: Law
    heads: int
    candidates: int = 0
    chains: tuple[str, ...] = CHAINS
    sources: int = 1
    targets: int = 1
    source_sets: tuple[int, ...] = ()
    target_sets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise ValueError(f"unknown law {self.law!r}: choose from {', '.join(LAWS)}")
        if self.law != "static" and self.candidates <= self.heads:
            raise ValueError(
                f"candidates must be more than the {self.heads} heads, got {self.candidates}"
            )
        if self.law == "group" and self.candidates % self.heads:
            raise ValueError(
                f"candidates must be a multiple of the {self.heads} heads for group, "
                f"got {self.candidates}"
            )
        unknown = set(self.chains) - set(CHAINS)
        if unknown or not self.chains:
            wrong = min(unknown) if unknown else ""
            raise ValueError(f"unknown chain {wrong!r}: choose from {', '.join(CHAINS)}")
        if min(self.sources, self.targets) < 1:
            raise ValueError(f"tasks must be at least 1, got {min(self.sources, self.targets)}")
        for side, sets, tasks in (
            ("source", self.source_sets, self.sources),
            ("target", self.target_sets, self.targets),
        ):
            if sets and (len(sets) != tasks or min(sets) < 0):
                raise ValueError(f"{side}_sets must name the set of each of {tasks} tasks")

    def fitting(self, heads: int) -> Selector:
        """The selector of a block of so many heads.

        Raises:
            ValueError: It is not H.
        """
        if heads != self.heads:
            raise ValueError(
                f"heads are selected for {self.heads} places in every block: "
                f"ngram_heads must be {self.heads} too, got {heads}"
            )
        return self

    @property
    def places(self) -> int:
        """Heads that a block computes and that its output projection reads."""
        return self.candidates if self.law == "selection" else self.heads

    def candidates_of(self, chain: str) -> int:
        """Heads with weights of their own in a block of a chain."""
        if self.law != "static":
            return self.candidates
        return self.heads * (max(self._sets(chain)) + 1)

    def _sets(self, chain: str) -> tuple[int, ...]:
        given = self.source_sets if chain.startswith("encoder") else self.target_sets
        return given or tuple(range(self.tasks(chain)))

    def assigned(
        self, chain: str, task: Int[Tensor, " sentence"] | None, common: bool, like: Tensor
    ) -> Choice:
        """The choice of every sentence with ``static``: the heads of its task's set."""
        sets = torch.tensor(self._sets(chain), device=like.device)
        mine = sets[0] if task is None else sets[task[0] if common else task]
        places = torch.arange(self.heads, device=like.device)
        index = mine[..., None] * self.heads + places
        return Choice(like.new_ones(index.shape), index)

    def tasks(self, chain: str) -> int:
        """Tasks that a chain tells apart."""
        return self.sources if chain.startswith("encoder") else self.targets

    def distribution(
        self, logits: Float[Tensor, "*batch candidate"], temperature: float | None = 1.0
    ) -> Selection:
        """The law with some logits; without a temperature its draws have no gradient."""
        if self.law == "group":
            return Group(logits, self.heads, temperature)
        if self.law == "subset":
            return Subset(logits, self.heads, temperature)
        return Gates(logits, temperature)

    def prior(self, chain: str, like: Tensor) -> Selection:
        """Every candidate with probability H/H', for every task of a chain."""
        share = self.heads / self.candidates
        logit = math.log(share / (1 - share)) if self.law == "selection" else 0.0
        return self.distribution(like.new_full((self.tasks(chain), self.candidates), logit))

    def start(self, chain: str, like: Tensor) -> Float[Tensor, "task candidate"]:
        """Logits that a posterior starts near: the prior's."""
        return self.prior(chain, like).logits

    def choose(
        self,
        value: Float[Tensor, "*draw task candidate"],
        task: Int[Tensor, " sentence"] | None,
        common: bool = False,
        draws: int = 1,
    ) -> Choice:
        """Turns a draw into the choice of every sentence.

        Args:
            value: Zeros and ones.
            task: The task of every sentence; None: all have the only one.
            common: Whether all sentences have one task.
            draws: So many draws stand behind each other in ``value``, each for its equal part of
                the sentences, whose tasks must then be told.

        Raises:
            ValueError: There are several draws, and they do not fit the sentences.
        """
        if draws > 1:
            if task is None or len(task) % draws:
                raise ValueError(
                    f"{draws} draws need the task of every sentence, each {draws} times"
                )
            draw = torch.arange(draws, device=task.device).repeat_interleave(len(task) // draws)
            return self._filled(value[task + len(value) // draws * draw])
        if value.ndim > 2 and (task is None or common):
            task = value.new_zeros(1, dtype=torch.long) if task is None else task[:1]
        elif task is None or common:
            return self._filled(value[0] if task is None else value[task[0]])
        return self._filled(value[..., task, :])

    def _filled(self, value: Float[Tensor, "*sentences candidate"]) -> Choice:
        if self.law == "selection":
            return Choice(value)
        index = self._index(value.detach())
        return Choice(value.gather(-1, index), index)

    def _index(self, value: Float[Tensor, "*sentences candidate"]) -> Int[Tensor, "*s place"]:
        if self.law == "subset":
            return value.topk(self.heads, -1).indices.sort(-1).values
        member = value.unflatten(-1, (-1, self.heads)).argmax(-2)
        return member * self.heads + torch.arange(self.heads, device=value.device)
