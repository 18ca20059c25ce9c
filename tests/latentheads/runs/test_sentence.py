"""One sentence is read as a run reads and translates many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from latentheads.decoding.options import Decoding
from latentheads.errors import UnfinishedError
from latentheads.runs.run import Run
from tests.latentheads.contrib.page.runs import make_run, small_corpus

CORPUS = small_corpus()
SENTENCE = "b a c d e f g"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run", CORPUS)


def with_options(run: Run, **changes: Any) -> Run:
    return replace(run, settings=replace(run.settings, **changes))


def with_limits(run: Run, **limits: int) -> Run:
    return replace(run, processor=replace(run.processor, **limits))


def test_a_source_is_cut_where_the_run_cuts_it(run: Run) -> None:
    batch = with_limits(run, max_source=5).read_sentence(SENTENCE, "a b")
    assert batch.source is not None
    assert batch.source.tolist() == [[*CORPUS.target.encode(SENTENCE)[:4], 2]]
    assert batch.target.tolist() == [CORPUS.target.encode("a b")]


def test_a_translation_is_that_of_the_seed_and_moves_no_other_noise(run: Run) -> None:
    drawing = with_options(run, decode=Decoding(num_samples=1, max_new_tokens=5))
    before, names = torch.get_rng_state(), set()
    for seed in range(5):
        batch = drawing.read_sentence(SENTENCE, seed=seed)
        (expected,) = drawing.translate([SENTENCE], seed=seed)
        assert batch.target.tolist() == [CORPUS.target.encode(expected)]
        names.add(expected)
    assert len(names) > 1
    assert torch.equal(before, torch.get_rng_state())


def test_what_cannot_be_read_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^sentence must contain a word, got ' '$"):
        run.read_sentence(" ")
    with pytest.raises(UnfinishedError, match="8 tokens, more than max_line 7"):
        with_limits(run, max_line=7).read_sentence(SENTENCE)
    with pytest.raises(ValueError, match="has a single direction: drop direction"):
        run.read_sentence(SENTENCE, direction="en-velu")
    text = make_run(tmp_path / "text", small_corpus(text=True))
    assert text.read_sentence(SENTENCE).target.tolist() == [CORPUS.target.encode(SENTENCE)]
    with pytest.raises(ValueError, match="is a language model: drop target and direction"):
        text.read_sentence(SENTENCE, "a")
