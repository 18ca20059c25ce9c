"""A run's heads read in every way: the numbers are those of each reading alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import latentheads as lh
from latentheads.contrib.heads import analyse, gradient_importance, measure, relevance
from latentheads.contrib.heads.divergence import divergence
from latentheads.corpora import batches
from latentheads.runs.run import Run
from tests.latentheads.runs.trained import load, train
from tests.typechecking import unchecked

BLOCK = "decoder.0.cross"


SMALL = ("--data.sentences=90", "--data.held_out=9")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run") / "mine"
    train(out, "--recipe=cascaded", *SMALL)
    return load(out)


def close(actual: Any, expected: torch.Tensor) -> bool:
    return torch.allclose(torch.as_tensor(actual), expected, rtol=1e-6)


def test_a_portrait_has_every_reading_of_the_first_sentences(run: Run) -> None:
    analysis = analyse(run, "test", sentences=4, relevance=2)
    parts = list(batches(run.corpus.test.first(4), 4096, shuffle=False))
    assert analysis.name == "mine"
    assert repr(analysis).startswith("HeadReport('mine'; heads of encoder.0.self: ")
    assert len(repr(analysis).splitlines()) == 1
    assert analysis.divergence.average() == divergence(run.model, parts).average()
    assert close(analysis.measures.entropy[BLOCK], measure(run.model, parts).entropy[BLOCK])
    assert close(analysis.importance[BLOCK], gradient_importance(run.model, parts)[BLOCK])
    of_two = relevance(run.model, batches(run.corpus.test.first(2), 4096, shuffle=False))
    assert analysis.relevance is not None
    assert close(analysis.relevance.shares[BLOCK], of_two.shares[BLOCK])
    assert analysis.syntactic is not None  # the grammar knows its parses


def test_a_run_may_be_named_by_its_folder(run: Run) -> None:
    options = {"sentences": 4, "relevance": 0}
    of_folder, of_run = analyse(run.path, **options), analyse(run, **options)
    assert close(of_folder.measures.entropy[BLOCK], of_run.measures.entropy[BLOCK])


def test_pictures_of_heads_take_it(run: Run) -> None:
    analysis = analyse(run, sentences=4, relevance=0)
    for draw in (lh.plot.draw_maps, lh.plot.draw_averages, lh.plot.draw_roles):
        assert draw([analysis], "heads").axes


def test_draws_come_from_the_guide_and_relevance_may_be_left_out(run: Run) -> None:
    parts = list(batches(run.corpus.valid.first(4), 4096, shuffle=False))
    still = measure(run.model, parts).entropy[BLOCK]
    drawn = measure(run.model, parts * 2, run.guide, 3).entropy[BLOCK]
    plain = analyse(run, sentences=4, relevance=0)
    moved = analyse(run, sentences=4, num_samples=2, seed=3, relevance=0)
    assert plain.relevance is None
    assert "relevance" not in plain.maps
    assert close(plain.measures.entropy[BLOCK], still)
    assert close(moved.measures.entropy[BLOCK], drawn)
    assert not close(drawn, still)


def test_draws_of_heads_without_noise_are_refused(tmp_path: Path) -> None:
    train(tmp_path, "--recipe=transformer", *SMALL)
    with pytest.raises(ValueError, match="num_samples has no effect here"):
        analyse(load(tmp_path), num_samples=2)


def test_draws_of_alignments_are_read(tmp_path: Path) -> None:
    train(tmp_path, "--guide=cascaded", "--alignments.blocks=1", *SMALL)
    analysis = analyse(load(tmp_path), sentences=4, num_samples=2, relevance=0)
    assert analysis.importance["encoder.0.self"].isfinite().all()


def test_a_language_models_own_text_is_parsed(tmp_path: Path) -> None:
    train(tmp_path, "--data=grammar-text", "--recipe=coda", *SMALL)
    run = load(tmp_path)
    analysis = analyse(run, relevance=2)
    assert analysis.attention_types == ["decoder-self"]
    assert analysis.syntactic is not None
    assert set(analysis.syntactic.accuracy) == {"decoder.0.self"}
    assert analysis.relevance is not None
    tokens = run.corpus.valid.targets.lengths
    assert analysis.relevance.predictions == tokens[0] + tokens[1]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"part": "all"}, "part must be one of train, valid, test; got 'all'"),
        ({"sentences": 0}, "sentences must be at least 1, got 0"),
        ({"rare": 0.0}, r"rare must be above 0, got 0"),
        ({"exclude": "words"}, "exclude must be one of both, key, query, none; got 'words'"),
        ({"drawn": 3}, "drawn"),
    ],
)
def test_what_nothing_is_read_by_is_refused_by_its_name(
    run: Run, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        unchecked(analyse)(run, **options)
