"""A batch of sentences, and the special tokens that every vocabulary starts with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from reprlib import repr as shortened
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentheads.checks import check_number
from latentheads.names import side_of

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")

IDS = ("target", "source", "index", "before", "source_task", "target_task", "frame_counts")
"""The integer tensors of a batch."""


def pad(sequences: Sequence[Sequence[int]]) -> Int[Tensor, "batch token"]:
    """Stack sequences of token ids, padded to the longest."""
    rows = [_to_ids(sequence) for sequence in sequences]
    if not rows:
        return torch.empty(0, 0, dtype=torch.long)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def _to_ids(sequence: Any) -> Int[Tensor, " token"]:
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


def _check_rows(name: str, rows: Int[Tensor, "batch token"]) -> None:
    """Check that every sentence has a token, none negative, and no padding before a token."""
    for index in (rows < 0).any(1).nonzero()[:1, 0].tolist():
        raise ValueError(f"{name}[{index}] has the token id {int(rows[index].min())}: ids are >= 0")
    valid = rows != PAD
    padded = (~valid[:, :-1] & valid[:, 1:]).any(1).tolist()
    for index, (has_token, has_gap) in enumerate(zip(valid.any(1).tolist(), padded, strict=True)):
        if has_gap or not has_token:
            problem = "the padding id before a token" if has_gap else "no token"
            raise ValueError(f"{name}[{index}] has {problem}: give each sentence its own ids")


@dataclass(frozen=True)
class Batch:
    """Sentences: the only argument of every model and guide.

    Attributes:
        target: Token ids, each sentence ended by EOS, padded on the right. A row of
            padding has nothing to predict: its log-likelihood is 0.
        source: The same for the source; None for a language model.
        index: Each sentence's index in its corpus.
        corpus_size: Number of sentences of the corpus, N of the plate; 0: the batch is the corpus.
        before: The token before each target, if a running text was cut there, or the tag of the
            target language of speech. Default: BOS.
        context: Number of first target tokens that are conditioned on and not scored; their heads
            are sampled from the prior.
        source_task: Each sentence's task for the encoder, such as its language or domain; None: all
            have the first.
        target_task: The same for the decoder.
        one_task: Whether all sentences have the same task on each side.
        num_samples: Number of concatenated copies of the sentences, each with its own sample of
            shared latents.
        frames: The audio frames, padded, if the source is speech; its tokens then only mark
            positions in time. None: the source is text.
        frame_counts: Number of frames of each utterance.

    Example:
        >>> batch = lh.data.Batch.of(targets=[[5, 6, 2], [7, 2]], sources=[[8, 9, 2], [4, 2]])
        >>> batch.target
        tensor([[5, 6, 2],
                [7, 2, 0]])
        >>> batch.decoder_input
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
    num_samples: int = 1
    frames: Float[Tensor, "batch frame bin"] | None = None
    frame_counts: Int[Tensor, batch] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.target, Tensor) or self.target.ndim != 2:
            raise ValueError(
                f"target must be a tensor of sentences and tokens, got {shortened(self.target)}"
            )
        for name in IDS:
            self._convert_ids(name)
        check_number("corpus_size", self.corpus_size, whole=True)
        sentences = len(self)
        if not sentences:
            raise ValueError("there is no sentence: a batch has at least one")
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if isinstance(value, Tensor) and value.shape[:1] != (sentences,):
                raise ValueError(
                    f"{name} must have as many rows as the target has sentences, {sentences}, "
                    f"got shape {tuple(value.shape)}"
                )
        if self.corpus_size and self.corpus_size < sentences:
            raise ValueError(
                f"corpus_size must be 0, or at least the {sentences} sentences of the batch, "
                f"got {self.corpus_size}"
            )

    def _convert_ids(self, name: str) -> None:
        """Check that ids are integers, and convert them to int64."""
        ids = getattr(self, name)
        if not isinstance(ids, Tensor) or ids.dtype == torch.int64:
            return
        if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
            raise ValueError(f"{name} must be whole numbers, got {ids.dtype}")
        object.__setattr__(self, name, ids.long())

    def check_ids(self, **sizes: int) -> None:
        """Check that ids are in the vocabularies of these sizes, and padded on the right."""
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
            # batches with masks of their own may be padded on the left
            if type(self) is Batch and ((ids[:, :-1] == PAD) & (ids[:, 1:] != PAD)).any():
                raise ValueError(f"{name} has the padding id before a token: pad on the right")

    @classmethod
    def of(
        cls,
        targets: Sequence[Sequence[int]],
        sources: Sequence[Sequence[int]] | None = None,
        index: Sequence[int] | None = None,
        corpus_size: int = 0,
    ) -> Batch:
        """Pad token ids into a batch.

        Args:
            targets: Token ids of each target, ended by EOS.
            sources: Token ids of each source; None for a language model.
            index: Each sentence's index in its corpus.
            corpus_size: Number of sentences of the corpus; 0: the batch is the corpus.

        Raises:
            ValueError: A sentence has no token, a negative id, or the padding id before a token.
        """
        target, source = pad(targets), None if sources is None else pad(sources)
        for name, rows in (("targets", target), ("sources", source)):
            if rows is not None:
                _check_rows(name, rows)
        indices = None if index is None else torch.tensor(index)
        return cls(target, source, indices, corpus_size)

    def __len__(self) -> int:
        return self.target.shape[0]

    @property
    def size(self) -> int:
        """Number of sentences of the corpus."""
        return self.corpus_size or len(self)

    @property
    def sentences(self) -> Int[Tensor, batch]:
        """Each sentence's index in its corpus."""
        if self.index is not None:
            return self.index
        return torch.arange(len(self), device=self.target.device)

    @property
    def decoder_input(self) -> Int[Tensor, "batch target"]:
        """The input tokens of the decoder: the target shifted right, after ``before``."""
        if not self.target.shape[1]:
            raise ValueError("target must have a token in one sentence at least, an EOS")
        start = torch.full_like(self.target[:, 0], BOS) if self.before is None else self.before
        return torch.cat([start[:, None], self.target[:, :-1]], 1)

    @property
    def target_valid(self) -> Bool[Tensor, "batch target"]:
        """True at the target's real tokens."""
        return self.target != PAD

    @property
    def target_latent(self) -> Bool[Tensor, "batch target"]:
        """True at the target's real tokens after the context, whose heads are latent."""
        if not self.context:
            return self.target_valid
        after_context = (
            torch.arange(self.target.shape[1], device=self.target.device) >= self.context
        )
        return self.target_valid & after_context

    @property
    def scored(self) -> Int[Tensor, "batch scored"]:
        """The target tokens after the context."""
        return self.target[:, self.context :]

    @property
    def boundary_ids(self) -> tuple[int, ...]:
        """The ids of tokens that only start or end a sentence."""
        return BOS, EOS

    @property
    def scored_mask(self) -> Bool[Tensor, "batch scored"]:
        """True at the scored tokens that are real: those in the likelihood."""
        return self.scored != PAD

    @property
    def source_valid(self) -> Bool[Tensor, "batch source"]:
        """True at the source's real tokens."""
        if self.source is None:
            raise ValueError("this batch has no source: a translation model needs one")
        return self.source != PAD

    def task_of(self, site: str) -> Int[Tensor, batch] | None:
        """Each sentence's task for an attention type or a site of the encoder or decoder."""
        return self.source_task if side_of(site) == "encoder" else self.target_task

    def tasks(self, side: str) -> SentenceTasks | None:
        """The tasks of the encoder or decoder; None if there is only one."""
        ids = self.task_of(side)
        return None if ids is None else SentenceTasks(ids, self.one_task)

    def repeated(self, num_samples: int) -> Batch:
        """Concatenate copies of the sentences, one for each sample of shared latents.

        Several copies need an explicit task for every sentence.
        """
        missing = [n for n in ("source_task", "target_task") if getattr(self, n) is None]
        first = torch.zeros_like(self.target[:, 0])
        task_ids: dict[str, Any] = dict.fromkeys(missing, first) if num_samples > 1 else {}
        batch = replace(self, index=None, corpus_size=0, num_samples=num_samples, **task_ids)
        return batch._map(lambda tensor: tensor.repeat(num_samples, *[1] * (tensor.ndim - 1)))

    def to(self, device: torch.device | str) -> Batch:
        """Move every tensor; asynchronously if to a GPU."""
        # a copy to the CPU must be complete before it is used
        non_blocking = torch.device(device).type != "cpu"
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Copy every tensor to pinned memory, as ``DataLoader(pin_memory=True)`` asks for."""
        return self._map(Tensor.pin_memory)

    def _map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        changed: dict[str, Any] = {
            name: function(value) for name, value in values if isinstance(value, Tensor)
        }
        return replace(self, **changed)


def with_indices(batches: Any) -> Iterator[tuple[Batch, Int[Tensor, batch]]]:
    """Yield each batch with its sentences' indices in the corpus; default: a running count."""
    seen = 0
    for batch in batches:
        check_batch(batch, "batches")
        yield batch, batch.sentences.cpu() + (seen if batch.index is None else 0)
        seen += len(batch)


def check_batch(batch: object, name: str = "") -> None:
    """Check that a value is a batch.

    Args:
        batch: The value.
        name: The name of the list that contains it, for the message; empty if there is none.
    """
    if not isinstance(batch, Batch):
        expected = f"{name} must be made of Batch" if name else "a model runs on a Batch"
        hint = ": make one by model.batch(inputs)" if isinstance(batch, Mapping) else ""
        raise ValueError(f"{expected}, got {type(batch).__name__}{hint}")


@dataclass(frozen=True)
class SentenceTasks:
    """The task of every sentence on one side."""

    ids: Int[Tensor, " sentence"]
    common: bool = False

    def select(self, sentences: Int[Tensor, " kept"]) -> SentenceTasks:
        """The tasks of some of the sentences."""
        return SentenceTasks(self.ids.index_select(0, sentences), self.common)
