"""Batches: padding, the shift behind BOS, the place in a corpus."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data._utils.pin_memory import pin_memory

from latentheads.batch import BOS, PAD, SPECIALS, Batch, pad
from tests.tiny import SOURCE_TYPES, SOURCES, TARGET_TYPES, TARGETS, build, small_batch
from tests.typechecking import unchecked


def test_padding_comes_after_each_sentence() -> None:
    assert pad([[5, 2], [2], [6, 7, 2]]).tolist() == [[5, 2, 0], [2, 0, 0], [6, 7, 2]]
    assert SPECIALS[PAD] == "<pad>"


def test_decoder_reads_the_target_one_behind() -> None:
    batch = small_batch()
    for fed, target in zip(batch.decoder_input.tolist(), batch.target.tolist(), strict=True):
        assert fed == [BOS, *target[:-1]]


def test_valid_marks_the_real_tokens() -> None:
    batch = small_batch()
    assert batch.target_valid.sum(-1).tolist() == [len(t) for t in TARGETS]
    assert batch.source_valid.sum(-1).tolist() == [len(s) for s in SOURCES]
    with pytest.raises(ValueError, match=r"^this batch has no source.*$"):
        _ = Batch.of(TARGETS).source_valid


def test_a_loader_of_pytorch_pins_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.neg)  # which needs a GPU
    batch = small_batch()
    pinned = pin_memory(batch)
    assert torch.equal(pinned.target, -batch.target)
    assert torch.equal(pinned.source, -batch.source)


def test_places_and_size_stand_for_the_corpus() -> None:
    plain = small_batch()
    assert (len(plain), plain.size, plain.sentences.tolist()) == (3, 3, [0, 1, 2])
    placed = small_batch(index=[7, 0, 3], corpus_size=11)
    assert (len(placed), placed.size, placed.sentences.tolist()) == (3, 11, [7, 0, 3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus_size": -4}, "corpus_size must be 0, or at least the 3 sentences of the batch"),
        ({"corpus_size": 2}, "corpus_size must be 0, or at least the 3 sentences of the batch"),
        ({"corpus_size": 7.5}, "corpus_size must be a whole number, got 7.5"),
        ({"source": torch.tensor([[4, 2]])}, "source must have as many rows as the target has"),
        ({"index": torch.tensor([0, 1])}, "index must have as many rows as the target has sent"),
        ({"target_task": torch.tensor([0])}, "target_task must have as many rows as the target"),
        ({"index": torch.tensor(1)}, r"index must have as many rows .*, 3, got shape \(\)"),
        ({"corpus_size": torch.tensor(50)}, "corpus_size must be a whole number, got tensor"),
        ({"target": [[1, 2]]}, r"target must be a tensor of sentences and tokens, got \[\[1, 2"),
    ],
)
def test_what_does_not_fit_the_sentences_is_refused(changes: dict[str, Any], message: str) -> None:
    given = {"target": small_batch().target} | changes
    with pytest.raises(ValueError, match=f"^{message}"):
        unchecked(Batch.__init__)(object.__new__(Batch), **given)


def test_a_batch_has_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"^there is no sentence: a batch has at least one$"):
        Batch.of([])
    with pytest.raises(ValueError, match=r"^there is no sentence: a batch has at least one$"):
        Batch(torch.empty(0, 3, dtype=torch.long))


def test_a_sentence_has_a_token_and_padding_behind_it_alone() -> None:
    with pytest.raises(ValueError, match=r"^sources\[1\] has no token: give each sentence its own"):
        Batch.of(targets=[[5, 2], [6, 2]], sources=[[8, 2], []])
    with pytest.raises(ValueError, match=r"^targets\[1\] has the token id -3: ids are >= 0$"):
        Batch.of([[5, 2], [5, -3, 2]])
    with pytest.raises(ValueError, match=r"^targets\[0\] has the padding id before a token"):
        Batch.of(targets=[[5, 0, 2]], sources=[[8, 2]])
    assert Batch.of([[5, 2, 0], [6]], [[8, 2], [9, 0]]).target.tolist() == [[5, 2, 0], [6, 0, 0]]


@pytest.mark.parametrize("wrong", [[[1.5, 2]], [[True]], [1, 2], ["ab"], [[[1]]], [None]])
def test_what_is_no_list_of_token_ids_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^a sentence must be a list of token ids, whole numbers"):
        unchecked(pad)(wrong)
    assert unchecked(pad)([[], torch.tensor([5, 2])]).tolist() == [[0, 0], [5, 2]]
    mapped = np.array([5, 2])
    mapped.setflags(write=False)
    assert unchecked(pad)([mapped]).tolist() == [[5, 2]]


def test_moving_keeps_everything() -> None:
    batch = small_batch(index=[7, 0, 3], corpus_size=11)
    moved = batch.to("cpu")
    assert moved.corpus_size == 11
    for name in ("target", "source", "index"):
        assert torch.equal(getattr(moved, name), getattr(batch, name))
    assert Batch.of(TARGETS).to("cpu").source is None
    text = replace(batch, before=torch.tensor([4, 1, 9]), context=2).to("cpu")
    assert (text.before.tolist(), text.context) == ([4, 1, 9], 2)


def test_decoder_reads_what_stands_before_in_place_of_bos() -> None:
    batch = replace(small_batch(), before=torch.tensor([4, BOS, 9]))
    assert batch.decoder_input[:, 0].tolist() == [4, BOS, 9]
    assert torch.equal(batch.decoder_input[:, 1:], small_batch().decoder_input[:, 1:])


def test_a_context_is_read_and_neither_scored_nor_drawn() -> None:
    whole, batch = small_batch(), replace(small_batch(), context=2)
    assert torch.equal(whole.scored, whole.target)
    assert torch.equal(whole.target_latent, whole.target_valid)
    assert torch.equal(batch.decoder_input, whole.decoder_input)
    assert torch.equal(batch.target_valid, whole.target_valid)
    assert batch.scored.tolist() == [[7, 2], [0, 0], [2, 0]]
    assert batch.target_latent.int().tolist() == [[0, 0, 1, 1], [0] * 4, [0, 0, 1, 0]]


def test_repeated_sentences_keep_what_stands_before_them() -> None:
    batch = Batch.of([[5, 6, 2], [7, 2]], corpus_size=3)
    batch = replace(batch, before=torch.tensor([3, 4]), context=1)
    twice = batch.repeated(2)
    assert twice.size == len(twice) == 4
    assert twice.decoder_input.tolist() == batch.decoder_input.tolist() * 2
    assert twice.scored_mask.tolist() == batch.scored_mask.tolist() * 2


def test_a_decoder_is_fed_one_token_at_least() -> None:
    empty = Batch(target=torch.empty(3, 0, dtype=torch.long))
    with pytest.raises(ValueError, match=r"^target must have a token in one sentence at least"):
        _ = empty.decoder_input


def make(**tensors: torch.Tensor) -> Batch:
    """A batch as users make it."""
    batch = object.__new__(Batch)
    unchecked(Batch.__init__)(batch, **tensors)
    return batch


@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.complex64])
@pytest.mark.parametrize("name", ["target", "source", "index"])
def test_ids_are_whole_numbers(name: str, kind: torch.dtype) -> None:
    tensors = {"target": torch.ones(2, 3).long(), "source": torch.ones(2, 3).long()}
    tensors["index"] = torch.tensor([0, 1])
    with pytest.raises(ValueError, match=f"^{name} must be whole numbers, got torch"):
        make(**{**tensors, name: tensors[name].to(kind)})
    narrow = make(**{key: value.int() for key, value in tensors.items()})
    for key, value in tensors.items():
        assert torch.equal(getattr(narrow, key), value)
        assert getattr(narrow, key).dtype == torch.int64


@pytest.mark.parametrize(
    ("kind", "name", "bad"),
    [
        ("translation", "target", TARGET_TYPES),
        ("translation", "source", SOURCE_TYPES),
        ("translation", "source", -1),
        ("language-model", "target", TARGET_TYPES),
        ("adaptive", "target", TARGET_TYPES),
    ],
)
def test_an_id_beyond_the_vocabulary_is_named(kind: str, name: str, bad: int) -> None:
    batch, model = small_batch(), build(kind, prior="delta")
    ids = getattr(batch, name).clone()
    ids[0, 1] = bad
    types = TARGET_TYPES if name == "target" else SOURCE_TYPES
    message = f"^{name} has the token id {bad}, and the model's vocabulary has the ids 0 to "
    message += f"{types - 1}$"
    with pytest.raises(ValueError, match=message):
        model(replace(batch, **{name: ids}))


@pytest.mark.parametrize("name", ["target", "source"])
def test_padding_on_the_left_is_refused(name: str) -> None:
    batch = small_batch()
    flipped = replace(batch, **{name: getattr(batch, name).flip(1)})
    with pytest.raises(ValueError, match=f"^{name} has the padding id before a token: pad on"):
        build("translation", prior="delta")(flipped)
