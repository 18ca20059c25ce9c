"""The page as a whole: what stands in it, how large it is, and where it shows."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import latentheads as lh
from latentheads.contrib.page import assembly
from latentheads.contrib.page.facts import list_scores
from latentheads.contrib.page.grid import gather_grid, measure_distances
from latentheads.latents.bernoulli_heads.latent import BernoulliHeads
from latentheads.latents.latent import Latent
from latentheads.latents.selection.sharing import selection_probabilities
from latentheads.runs.run import Run
from tests.latentheads.contrib.page.runs import BREAKS_OUT, make_run, small_corpus
from tests.second_device import second_device
from tests.terminal import showing_progress
from tests.tiny import sizes


def read_data(page: lh.contrib.page.ReportPage) -> Any:
    """The data within the page."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.html, re.S)
    assert match is not None
    return json.loads(match[1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder / "pairs", small_corpus()),
        make_run(folder / "aligned", small_corpus(), "delta", "two blocks"),
        make_run(folder / "text", small_corpus(text=True)),
    ]


@pytest.fixture(scope="module")
def page(runs: list[Run]) -> lh.contrib.page.ReportPage:
    return lh.contrib.page.report(runs, shown=2, num_samples=3)


def test_it_tells_every_run(page: lh.contrib.page.ReportPage, runs: list[Run]) -> None:
    pairs, aligned, text = read_data(page)["runs"]
    assert [run["name"] for run in (pairs, aligned, text)] == ["pairs", "aligned", "text"]
    assert read_data(page)["scores"] == list_scores()
    assert pairs["figures"]["test"]["elbo"] == runs[0].results.test.elbo
    assert pairs["curves"]["steps"] == [1, 2, 3]
    assert [len(run["sentences"]) for run in (pairs, aligned, text)] == [2, 2, 2]
    assert aligned["sentences"][0]["alignments"][0]["parts"] == ["prior", "guide", "posterior"]
    assert aligned["sentences"][0]["bounds"]["exact"] >= aligned["sentences"][0]["bounds"]["elbo"]
    assert text["sentences"][0]["source"] is None
    assert pairs["sentences"][0]["bounds"]["pareto_k"] is None


def test_its_code_reads_no_key_of_a_run_that_its_data_does_not_have(
    page: lh.contrib.page.ReportPage,
) -> None:
    keys = set(re.findall(r"\brun\.(\w+)", page.html.split("</script>")[1]))
    assert "condition_on" in keys
    assert keys <= {*read_data(page)["runs"][1], "unread"}


def test_it_reads_nothing_but_itself_and_its_words_stay_words(
    page: lh.contrib.page.ReportPage,
) -> None:
    assert not re.findall(
        r"https?:(?!//www\.w3\.org/2000/svg)|\bsrc=|\bhref=|@import|url\(", page.html
    )
    assert "default-src 'none'" in page.html
    assert BREAKS_OUT not in page.html
    assert page.html.count("</script>") == 2
    assert read_data(page)["runs"][0]["sentences"][1]["reference"] == f"d {BREAKS_OUT}"


def test_it_is_written_whole_and_shows_in_a_frame(
    page: lh.contrib.page.ReportPage, tmp_path: Path
) -> None:
    page.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page.html
    match = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', page._repr_html_())
    assert match is not None
    assert html.unescape(match[1]) == page.html
    assert repr(page) == f"ReportPage({len(page.html.encode()):,} bytes)"


def test_gates_are_sampled_though_bounds_have_no_noise(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus(), "delta", "bernoulli")
    (page_run,) = read_data(lh.contrib.page.report(run, shown=3, num_samples=8))["runs"]
    maps = [actual for sentence in page_run["sentences"] for actual in sentence["maps"]]
    active = [actual["active"] for actual in maps if actual["name"] == "decoder.0.cross"]
    assert len(active) == 3
    assert all(share * 8 % 1 == 0 for shares in active for share in shares)
    assert any(share * 8 % 4 for shares in active for share in shares)


def test_a_page_that_is_too_large_loses_draws_and_then_sentences(runs: list[Run]) -> None:
    whole = lh.contrib.page.report(runs[0], shown=3, num_samples=4)
    size = len(whole.html.encode())
    with mock.patch.object(assembly, "MAX_BYTES", size - 1):
        fewer = read_data(lh.contrib.page.report(runs[0], shown=3, num_samples=4))
    assert (fewer["kept"], len(fewer["runs"][0]["sentences"])) == (2, 3)
    with mock.patch.object(assembly, "MAX_BYTES", 1):  # which no page can keep
        least = read_data(lh.contrib.page.report(runs[0], shown=3, num_samples=4))
    assert (least["kept"], len(least["runs"][0]["sentences"]), least["asked"]) == (0, 1, 3)


def test_it_shows_how_many_runs_are_read(runs: list[Run]) -> None:
    with showing_progress() as terminal:
        lh.contrib.page.report(runs[:1], sentences=1, shown=1, num_samples=2)
    assert "reading runs" in terminal.getvalue()


def test_few_pages_are_made_to_find_the_one_that_fits(runs: list[Run]) -> None:
    with (
        mock.patch.object(assembly, "MAX_BYTES", 1),
        mock.patch.object(assembly, "fill_page", wraps=assembly.fill_page) as fill,
    ):
        least = read_data(lh.contrib.page.report(runs[0], shown=60, num_samples=8))
    assert (least["kept"], len(least["runs"][0]["sentences"])) == (0, 1)
    assert fill.call_count <= 8  # of 64 forms


def test_the_grid_has_a_figure_a_head_or_a_block(runs: list[Run]) -> None:
    run = runs[0]
    grid = gather_grid(run, run.corpus.test, measure_distances(run, run.corpus.test))
    assert [block["name"] for block in grid["blocks"]] == [
        *("encoder.0.self", "encoder.1.self", "decoder.0.self", "decoder.1.self"),
        *("decoder.0.cross", "decoder.1.cross"),
    ]
    assert grid["values"]["kl"] == {"decoder.0.self": [0.25], "decoder.1.self": [0.5]}
    assert set(grid["values"]) == {"kl", "entropy", "confidence", "disagreement", "importance"}
    assert all(len(row) == 3 for row in grid["values"]["entropy"].values())


def test_the_grid_has_the_kl_of_noise_and_the_probability_of_each_gate(tmp_path: Path) -> None:
    how = {"decoder.0.self.logits": "fixed", "decoder.1.self.logits": "sampled"}
    run = make_run(tmp_path / "run", small_corpus(), aligned="gates", kl_how=how)
    grid = gather_grid(run, run.corpus.test, measure_distances(run, run.corpus.test))
    assert grid["values"]["kl"] == {"decoder.1.self": [0.5]}
    probabilities = selection_probabilities(run.guide)
    assert grid["values"]["active"] == {name: p[0].tolist() for name, p in probabilities.items()}


@pytest.mark.parametrize("part", ["train", "valid"])
def test_sentences_are_of_the_part_that_is_asked_for(runs: list[Run], part: str) -> None:
    run = runs[0]
    text = getattr(run.corpus, part)
    (actual,) = read_data(lh.contrib.page.report(run, part=part, num_samples=2, sentences=2))[
        "runs"
    ]
    references = [sentence["reference"] for sentence in actual["sentences"]]
    assert references == [run.target.decode(row.tolist()) for row in text.targets]
    measured = min(2, len(text))
    assert actual["read"] == {"part": part, "unit": "sentences", "measured": measured, "draws": 2}


def test_a_run_whose_text_is_gone_still_tells_what_it_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus())
    run.user_corpus = None
    with mock.patch.object(type(run), "corpus", property(_refuse)):
        page = lh.contrib.page.report(run)
    (actual,) = read_data(page)["runs"]
    assert actual["unread"] == page.unread["run"] == "the text is not here"
    assert actual["sentences"] == []
    assert actual["figures"]["test"]
    assert "grid" not in actual


def test_what_a_latent_cannot_do_is_left_out_of_its_run_alone(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A latent that runs the network may have no form for decoding."""
    gated = make_run(tmp_path / "gated", small_corpus(), "delta", "bernoulli")
    monkeypatch.setattr(BernoulliHeads, "decoding_mixture", Latent.decoding_mixture)
    page = lh.contrib.page.report([gated, runs[0]], num_samples=2)
    without, whole = read_data(page)["runs"]
    reason = "latents bernoulli-heads run the network, so that decoding needs their"
    assert page.left_out == {"gated": without["left_out"]}
    assert {*without["left_out"]} == {"calibration", "translations"}
    assert all(why.startswith(reason) for why in without["left_out"].values())
    assert [sentence["hypothesis"] for sentence in without["sentences"]] == [None] * 3
    assert all(sentence["maps"] and sentence["inclusion"] for sentence in without["sentences"])
    assert whole["left_out"] == {}
    assert all(sentence["hypothesis"] for sentence in whole["sentences"])


def _refuse(run: Run) -> None:
    raise ValueError("the text is not here")


def test_options_out_of_range_are_refused(runs: list[Run]) -> None:
    for options, words in (
        ({"sentences": 0}, "sentences must be at least 1"),
        ({"num_samples": 1}, "num_samples must be at least 2"),
        ({"shown": 0}, "shown must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"part": "all"}, "part must be one of train, valid, test; got 'all'"),
    ):
        with pytest.raises(ValueError, match=words):
            lh.contrib.page.report(runs[0], **options)
    with pytest.raises(ValueError, match="runs must be at least one"):
        lh.contrib.page.report([])
    with pytest.raises(ValueError, match="every run must be given once"):
        lh.contrib.page.report([runs[0], runs[0]])


@pytest.mark.parametrize("slices", [False, True])
def test_heads_that_do_not_attend_have_figures_and_no_maps(tmp_path: Path, slices: bool) -> None:
    network = sizes(mixers="ngram", windows="2", ngram_slices=slices)
    corpus = small_corpus(text=True)
    (actual,) = read_data(
        lh.contrib.page.report(make_run(tmp_path / "run", corpus, network=network), num_samples=2)
    )["runs"]
    assert not any(block["attends"] for block in actual["grid"]["blocks"])
    assert set(actual["grid"]["values"]) == {"kl", "importance"}
    assert actual["pairs"] == {}
    assert [sentence["maps"] for sentence in actual["sentences"]] == [[], [], []]


@pytest.mark.parametrize("aligned", ["", "one head"])
def test_a_run_on_another_device_has_the_same_page(tmp_path: Path, aligned: str) -> None:
    run = make_run(tmp_path / "run", small_corpus(), "delta" if aligned else "independent", aligned)
    here = lh.contrib.page.report(run, shown=2, num_samples=2)
    with second_device() as device:
        run.model.to(device.name)
        run.guide.to(device.name)
        assert read_data(lh.contrib.page.report(run, shown=2, num_samples=2)) == read_data(here)
