"""Learned alignment heads in a file, and out of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from latentheads.contrib.heads.alignment_heads import AlignmentHeads, fit_alignment_heads
from latentheads.contrib.heads.boundaries.chain import jump_chain
from latentheads.contrib.heads.boundaries.fit import FitOptions
from latentheads.contrib.heads.kept import load_alignment_heads, save_alignment_heads
from latentheads.contrib.heads.word_attention import WordAttention
from latentheads.training import checkpoints
from tests.latentheads.contrib.hf.networks import bart
from tests.typechecking import unchecked

OPTIONS = FitOptions(views=1, rounds=1, steps=1, reach=2, width=0.5)

pytestmark = pytest.mark.filterwarnings("ignore:no head has P above")


def record(seed: int, ends: bool = True) -> WordAttention:
    random = torch.Generator().manual_seed(seed)
    weights = torch.rand(4, 3, 17, generator=random).double()
    starts = torch.tensor([2.5, 7.25, 11.5]).double()
    energy = torch.rand(17, generator=random)
    return WordAttention(weights, starts, starts + 2 if ends else starts * torch.nan, energy, 0.5)


@cache
def learn(kinds: int) -> AlignmentHeads:
    examples = [record(seed, kinds == 2) for seed in range(3)]
    chain = None
    if kinds == 1:  # a jump back by three positions cannot be
        chain = jump_chain(3)
        never = chain.base.clone()
        never[:, 0] = -torch.inf
        chain = replace(chain, base=never, jumps=never)
    options = replace(OPTIONS, kinds=kinds)
    return fit_alignment_heads([(0, 0), (0, 1)], examples, options=options, chain=chain)


@pytest.mark.parametrize("kinds", [1, 2])
def test_heads_are_read_as_they_were_learned(kinds: int, tmp_path: Path) -> None:
    path, heads, new = tmp_path / "a.heads", learn(kinds), record(7)
    save_alignment_heads(heads, path)
    tensors, facts = checkpoints.load(path)
    again = load_alignment_heads(str(path))
    assert path.stat().st_size < 20_000  # the attention of examples is left out
    assert repr(again) == repr(heads)
    assert again.table() == heads.table()
    save_alignment_heads(again, path)
    assert (checkpoints.load(path)[0].keys(), checkpoints.load(path)[1]) == (tensors.keys(), facts)
    assert torch.equal(again.marginals(new), heads.marginals(new))
    assert again.evidence(new) == heads.evidence(new)
    assert again.is_misfit(new) == heads.is_misfit(new)
    for name, times in heads.times(new).items():
        assert times.to_frame().equals(again.times(new)[name].to_frame())


def test_what_needs_the_examples_says_so(tmp_path: Path) -> None:
    save_alignment_heads(learn(1), tmp_path / "a.heads")
    with pytest.raises(ValueError, match=r"^sufficient\(\) needs the attention of examples: heads"):
        load_alignment_heads(tmp_path / "a.heads").sufficient()


def test_heads_of_another_network_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^these are heads of a network with 2 of "):
        learn(1).check_network(bart())


def test_attention_of_another_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^attention has a step of 1, that of the examples 0\.5$"):
        learn(1).times(replace(record(7), step=1.0))


def test_what_is_no_file_of_heads_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.heads"
    with pytest.raises(ValueError, match=r"^heads must be AlignmentHeads, got 'a'$"):
        unchecked(save_alignment_heads)("a", path)
    with pytest.raises(ValueError, match=r"^there is no checkpoint .*a\.heads$"):
        load_alignment_heads(path)
    tensors: dict[str, Tensor] = {"chain.jumps": torch.zeros(1)}
    checkpoints.save(path, tensors, {"kind": "word aligner 3"})
    with pytest.raises(ValueError, match=r"a\.heads is not of alignment heads of this version$"):
        load_alignment_heads(path)
    checkpoints.save(path, tensors, {"kind": "alignment heads 1"})
    with pytest.raises(ValueError, match=r"a\.heads is not complete: 'profiles\.weights'$"):
        load_alignment_heads(path)
