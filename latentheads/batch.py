"""A batch of sentences, and the special tokens every vocabulary begins with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from reprlib import repr as shortened
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentheads.checks import check_number
from latentheads.names import side_of

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SPECIALS",
    "UNK",
    "Batch",
    "SentenceTasks",
    "check_batch",
    "pad",
    "with_places",
]

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")

IDS = ("target", "source", "index", "before", "source_task", "target_task", "frame_counts")
"""The tensors of a batch that hold whole numbers."""


def pad(sequences: Sequence[Sequence[int]]) -> Int[Tensor, "batch token"]:
    """Stacks sequences of token ids, padded to the longest.

    Raises:
        ValueError: There is none, or one is no list of whole numbers.
    """
    rows = [_read_ids(sequence) for sequence in sequences]
    if not rows:
        raise ValueError("there is no sentence: a batch has at least one")
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def _read_ids(sequence: Any) -> Int[Tensor, " token"]:
    try:
        row = sequence if isinstance(sequence, Tensor) else torch.tensor(sequence)
    except (TypeError, ValueError, RuntimeError):
        row = torch.empty(())
    numbers = row.is_floating_point() or row.is_complex() or row.dtype == torch.bool
    if row.ndim != 1 or (len(row) and numbers):
        raise ValueError(
            f"a sentence must be a list of token ids, whole numbers, got {shortened(sequence)}"
        )
    return row.long()


def _check_rows(name: str, real: Bool[Tensor, "batch token"]) -> None:
    """Refuses a sentence without a token, and one with padding before a token."""
    inside = (~real[:, :-1] & real[:, 1:]).any(1).tolist()
    for place, (some, broken) in enumerate(zip(real.any(1).tolist(), inside, strict=True)):
        if broken or not some:
            what = "the padding id before a token" if broken else "no token"
            raise ValueError(f"{name}[{place}] has {what}: give each sentence its own ids")


@dataclass(frozen=True)
class Batch:
    """Sentences a model is run on; the one argument of every model and guide.

    Attributes:
        target: Token ids, each sentence ended by EOS, padded. One of padding alone has nothing to
            predict: its bound is 0.
        source: The same for the source; None for a language model.
        index: Each sentence's place in its corpus.
        corpus_size: Sentences of the corpus, N of the plate; 0 takes the batch for the corpus.
        before: The token that stands before each target, where a running text was cut, or where
            it names the language that speech is written in; BOS when not given.
        context: How many of the first target tokens are read and not scored; their heads are drawn
            from the prior.
        source_task: Each sentence's task as the encoder tells tasks apart, such as its language or
            domain; None: all have the first.
        target_task: The same for the decoder.
        one_task: Whether the sentences have one task on each side.
        draws: How many copies of the sentences stand behind each other, each under a draw of its
            own of what all sentences share.
        frames: The frames of sound, padded, where the source is speech: its tokens then stand for
            positions in time and say nothing else. None: the source is text.
        frame_counts: Frames of each utterance.

    Example:
        >>> batch = lh.Batch.of(targets=[[5, 6, 2], [7, 2]], sources=[[8, 9, 2], [4, 2]])
        >>> batch.target
        tensor([[5, 6, 2],
                [7, 2, 0]])
        >>> batch.fed
        tensor([[1, 5, 6],
                [1, 7, 2]])
    """

    target: Int[Tensor, "batch target"]
    source: Int[Tensor, "batch source"] | None = None
    index: Int[Tensor, batch] | None = None
    corpus_size: int = 0
    before: Int[Tensor, batch] | None = None
    context: int = 0
    source_task: Int[Tensor, batch] | None = None
    target_task: Int[Tensor, batch] | None = None
    one_task: bool = False
    draws: int = 1
    frames: Float[Tensor, "batch frame bin"] | None = None
    frame_counts: Int[Tensor, batch] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.target, Tensor) or self.target.ndim != 2:
            raise ValueError(
                f"target must be a tensor of sentences and tokens, got {shortened(self.target)}"
            )
        for name in IDS:
            self._take_ids(name)
        check_number("corpus_size", self.corpus_size, whole=True)
        sentences = len(self)
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor) and value.shape[:1] != (sentences,):
                raise ValueError(
                    f"{each.name} must have as many rows as the target has sentences, {sentences}, "
                    f"got shape {tuple(value.shape)}"
                )
        if self.corpus_size and self.corpus_size < sentences:
            raise ValueError(
                f"corpus_size must be 0, or at least the {sentences} sentences of the batch, "
                f"got {self.corpus_size}"
            )

    def _take_ids(self, name: str) -> None:
        """Refuses ids that are no whole numbers, and widens narrow ones."""
        ids = getattr(self, name)
        if not isinstance(ids, Tensor) or ids.dtype == torch.int64:
            return
        if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
            raise ValueError(f"{name} must be whole numbers, got {ids.dtype}")
        object.__setattr__(self, name, ids.long())

    def check_ids(self, **sizes: int) -> None:
        """Refuses tokens that a vocabulary does not have.

        Args:
            **sizes: Its types, by ``source`` and ``target``.

        Raises:
            ValueError: It names the side, and the id.
        """
        for name, size in sizes.items():
            ids = getattr(self, name)
            if ids is None or not ids.numel():
                continue
            low, high = map(int, ids.aminmax())
            if low < 0 or high >= size:
                raise ValueError(
                    f"{name} has the token id {low if low < 0 else high}, and the model's "
                    f"vocabulary has the ids 0 to {size - 1:,}"
                )

    @classmethod
    def of(
        cls,
        targets: Sequence[Sequence[int]],
        sources: Sequence[Sequence[int]] | None = None,
        index: Sequence[int] | None = None,
        corpus_size: int = 0,
    ) -> Batch:
        """Pads token ids into a batch.

        Args:
            targets: Token ids of each target, the last of them EOS.
            sources: The same of the sources; None for a language model.
            index: Each sentence's place in its corpus.
            corpus_size: Sentences of the corpus; 0 takes the batch for the corpus.

        Raises:
            ValueError: A sentence has no token, or the padding id before one.
        """
        target, source = pad(targets), None if sources is None else pad(sources)
        for name, rows in (("targets", target), ("sources", source)):
            if rows is not None:
                _check_rows(name, rows != PAD)
        places = None if index is None else torch.tensor(index)
        return cls(target, source, places, corpus_size)

    def __len__(self) -> int:
        return self.target.shape[0]

    @property
    def size(self) -> int:
        """Sentences of the corpus this batch stands for."""
        return self.corpus_size or len(self)

    @property
    def sentences(self) -> Int[Tensor, batch]:
        """Each sentence's place in its corpus."""
        if self.index is not None:
            return self.index
        return torch.arange(len(self), device=self.target.device)

    @property
    def fed(self) -> Int[Tensor, "batch target"]:
        """The tokens that the decoder reads: the target shifted right behind ``before``."""
        if not self.target.shape[1]:
            raise ValueError("target must have a token in one sentence at least, an EOS")
        begin = torch.full_like(self.target[:, 0], BOS) if self.before is None else self.before
        return torch.cat([begin[:, None], self.target[:, :-1]], 1)

    @property
    def target_valid(self) -> Bool[Tensor, "batch target"]:
        """True at the target's real tokens."""
        return self.target != PAD

    @property
    def target_drawn(self) -> Bool[Tensor, "batch target"]:
        """True at the target's real tokens behind the context, whose heads are drawn."""
        if not self.context:
            return self.target_valid
        later = torch.arange(self.target.shape[1], device=self.target.device) >= self.context
        return self.target_valid & later

    @property
    def scored(self) -> Int[Tensor, "batch scored"]:
        """The target tokens behind the context."""
        return self.target[:, self.context :]

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids of tokens that only begin or end a sentence."""
        return BOS, EOS

    @property
    def counted(self) -> Bool[Tensor, "batch scored"]:
        """True at the scored tokens that are real: those that a likelihood counts."""
        return self.scored != PAD

    @property
    def source_valid(self) -> Bool[Tensor, "batch source"]:
        """True at the source's real tokens."""
        if self.source is None:
            raise ValueError("this batch has no source: a translation model needs one")
        return self.source != PAD

    def task_of(self, site: str) -> Int[Tensor, batch] | None:
        """Each sentence's task as a chain or a site of the encoder or the decoder tells it."""
        return self.source_task if side_of(site) == "encoder" else self.target_task

    def tasks(self, side: str) -> SentenceTasks | None:
        """The tasks as the encoder or the decoder tells them apart; None where neither does."""
        ids = self.task_of(side)
        return None if ids is None else SentenceTasks(ids, self.one_task)

    def repeated(self, draws: int) -> Batch:
        """Copies of the sentences behind each other, one for each draw of what they share.

        Of several draws every sentence's task is told.
        """
        untold = [n for n in ("source_task", "target_task") if getattr(self, n) is None]
        first = torch.zeros_like(self.target[:, 0])
        told: dict[str, Any] = dict.fromkeys(untold, first) if draws > 1 else {}
        alone = replace(self, index=None, corpus_size=0, draws=draws, **told)
        return alone._map(lambda each: each.repeat(draws, *[1] * (each.ndim - 1)))

    def to(self, device: torch.device | str) -> Batch:
        """Moves every tensor, without waiting for a GPU that they are moved to."""
        # what comes back must have arrived before it is read
        leaves = torch.device(device).type != "cpu"
        return self._map(lambda tensor: tensor.to(device, non_blocking=leaves))

    def pinned(self) -> Batch:
        """Puts every tensor in pinned memory."""
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        changed: dict[str, Any] = {n: change(v) for n, v in values if isinstance(v, Tensor)}
        return replace(self, **changed)


def with_places(batches: Any) -> Iterator[tuple[Batch, Int[Tensor, batch]]]:
    """Each batch with its sentences' places in the corpus; those that do not tell are counted on.

    Raises:
        ValueError: Something among them is no batch.
    """
    seen = 0
    for batch in batches:
        check_batch(batch, "batches")
        yield batch, batch.sentences.cpu() + (seen if batch.index is None else 0)
        seen += len(batch)


def check_batch(given: object, name: str = "") -> None:
    """Refuses what is no batch.

    Args:
        given: The value.
        name: The list that it stands in, for the message; empty where it stands alone.
    """
    if not isinstance(given, Batch):
        wanted = f"{name} must be made of Batch" if name else "a model runs on a Batch"
        raise ValueError(f"{wanted}, got {type(given).__name__}")


@dataclass(frozen=True)
class SentenceTasks:
    """The task of every sentence on one side.

    Attributes:
        ids: Counted from 0.
        common: Whether all sentences have one.
    """

    ids: Int[Tensor, " sentence"]
    common: bool = False

    def select(self, sentences: Int[Tensor, " kept"]) -> SentenceTasks:
        """The tasks of some of the sentences."""
        return SentenceTasks(self.ids.index_select(0, sentences), self.common)
