"""The maps of sentences: those of the draws, beside the prior's, with the true links."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from latentheads.batch import Batch
from latentheads.contrib.heads.alignments import DISTRIBUTIONS, alignment_distributions
from latentheads.contrib.heads.samples import sample_weights
from latentheads.contrib.page.maps import (
    MapTokens,
    gather_alignments,
    gather_map_tokens,
    gather_maps,
)
from latentheads.contrib.page.packing import quantise_weights
from latentheads.corpora.batches import collate
from latentheads.names import ALIGNMENT
from latentheads.runs.run import Run
from tests.latentheads.contrib.page.runs import make_run, small_corpus


def prepare(
    folder: Path, prior: str = "independent", aligned: str = "", text: bool = False
) -> tuple[Run, Batch, list[dict[str, MapTokens]]]:
    """A run, its three sentences, and the names of their rows and columns."""
    corpus = small_corpus(text=text)
    run, batch = make_run(folder / "run", corpus, prior, aligned), collate(corpus.test, range(3))
    return run, batch, [gather_map_tokens(run, batch, index) for index in range(3)]


def test_rows_and_columns_are_named_and_links_stand_where_a_word_is_predicted(
    tmp_path: Path,
) -> None:
    corpus = small_corpus()
    run, batch = make_run(tmp_path / "run", corpus), collate(corpus.test, range(3))
    sides = gather_map_tokens(run, batch, 0, corpus.test.links[0])
    assert set(sides) == {"encoder-self", "decoder-self", "decoder-cross"}
    cross = sides["decoder-cross"]
    rows, predicts = ["<bos>", "a", "b", "c"], ["a", "b", "c", "<eos>"]
    assert cross == MapTokens(rows, ["b", "a", "<eos>"], predicts, cross.links)
    assert set(cross.links) == {(0, 1), (2, 0)}
    assert sides["encoder-self"].predicts == sides["encoder-self"].links == []
    run = make_run(tmp_path / "copy", corpus, aligned="copy")
    copied = gather_map_tokens(run, batch, 0, corpus.test.links[0])[ALIGNMENT]
    assert copied.columns == ["generate", "b", "a", "<eos>"]
    assert set(copied.links) == {(0, 2), (2, 1)}


def test_long_sides_are_told_pooled() -> None:
    names = [str(index) for index in range(300)]
    side = MapTokens(["x"], names, ["y"], [(0, 5)])
    statement = side.to_json()
    assert side.stride == (1, 2)
    assert statement["columns"][:2] == ["0 … 1", "2 … 3"]
    assert len(statement["columns"]) == 150
    assert statement["links"] == [(0, 2)]
    assert side.pool(torch.ones(2, 3, 400)).shape == (2, 1, 150)


def test_a_column_that_is_no_position_is_named_where_it_stands_alone() -> None:
    for number, name in ((100, "null"), (200, None)):
        side = MapTokens(["x"] * number, ["null", *["y"] * number], no_position="null")
        assert side.to_json()["no_position"] == name


def test_maps_are_those_of_the_draws_without_padding(tmp_path: Path) -> None:
    run, batch, sides = prepare(tmp_path)
    computed_maps = gather_maps(run, batch, sides, num_samples=5, kept=3, seed=7)
    drawn = sample_weights(run.model, run.guide, batch, 5, 7)
    (maps,) = [item for item in computed_maps[1] if item.name == "decoder.1.cross"]
    assert maps.parts["mean"].shape == (3, 3, 5)
    assert maps.heads == ["0", "1", "2"]
    for part in ("mean", "low"):
        values = getattr(drawn["decoder.1.cross"], part)[1, :, :3, :5]
        np.testing.assert_array_equal(maps.parts[part], quantise_weights(values))
    assert maps.draws.shape == (3, 3, 3, 5)
    assert set(maps.parts) == {"mean", "deviation", "low", "high", "prior"}
    assert maps.to_json(2)["draws"] == 2
    assert maps.arrays(2)[-1].shape == (2, 3, 3, 5)


def test_heads_without_noise_have_one_map(tmp_path: Path) -> None:
    run, batch, sides = prepare(tmp_path, "delta", text=True)
    for maps in gather_maps(run, batch, sides, 2, 8, 0)[0]:
        assert set(maps.parts) == {"mean"}
        assert len(maps.draws) == 0
        assert maps.active == [1.0] * 3


def test_a_head_is_shown_on_the_samples_in_which_it_is_active(tmp_path: Path) -> None:
    run, batch, sides = prepare(tmp_path, "delta", "bernoulli")
    maps_of_sentences = gather_maps(run, batch, sides, 9, 3, 1)
    samples = sample_weights(run.model, run.guide, batch, 9, 1)
    for index, (rows, columns) in enumerate([(4, 3), (3, 5), (2, 2)]):
        by_name = {maps.name: maps for maps in maps_of_sentences[index]}
        gated, above = by_name["decoder.0.cross"], by_name["decoder.1.cross"]
        assert gated.active == samples["decoder.0.cross"].active[index].tolist()
        assert set(gated.parts) == {"mean"}  # its weights have no noise, and the prior's are equal
        mean = samples["decoder.0.cross"].mean[index, :, :rows, :columns]
        np.testing.assert_array_equal(gated.parts["mean"], quantise_weights(mean))
        assert above.active == [1.0] * 3
        shares = samples["decoder.0.cross"].active[index]
        varies = bool(((shares > 0) & (shares < 1)).any())
        assert varies == ("deviation" in above.parts) == (index < 2)


@pytest.mark.parametrize("text", [False, True])
def test_alignments_are_the_three_laws(tmp_path: Path, text: bool) -> None:
    run, batch, sides = prepare(tmp_path, "delta", "one head", text)
    assert sides[1][ALIGNMENT].rows == ["d", "</script><b>", "<eos>"]
    columns = ["null", "<bos>", "d"] if text else ["</script><b>", "e", "f", "g", "<eos>"]
    assert sides[1][ALIGNMENT].columns == columns
    distributions = alignment_distributions(run.model, run.guide, batch)
    ((maps,),) = gather_alignments(run, batch, sides)[1:2]
    for distribution in DISTRIBUTIONS:
        expected = getattr(distributions, distribution)[1, :, :3, : len(columns)]
        np.testing.assert_array_equal(maps.parts[distribution], quantise_weights(expected))
        torch.testing.assert_close(expected.sum(-1), torch.ones_like(expected[..., 0]))
    assert maps.active == [1.0]


def test_a_run_without_alignments_has_none(tmp_path: Path) -> None:
    assert gather_alignments(*prepare(tmp_path)) == [[], [], []]
