"""The page in a real browser: every view of every run is drawn, and nothing goes wrong."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import latentheads as lh
from latentheads.contrib.heads.alignments import alignment_distributions
from latentheads.contrib.page.curves import gather_curves
from latentheads.contrib.page.facts import gather_facts, list_scores
from latentheads.contrib.page.inclusion import gather_inclusion
from latentheads.contrib.page.template import fill_page
from latentheads.corpora.batches import collate
from latentheads.metrics.compared import METRICS
from latentheads.metrics.scores import SCORES
from tests.figures import FIGURES, rows_of
from tests.latentheads.contrib.page.runs import BREAKS_OUT, make_run, small_corpus

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
WORDS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000")

pytestmark = pytest.mark.skipif(not BROWSER, reason="no Chromium is installed")

SELECTION = {
    "encoder-self": {
        "tasks": ["velu", "tamir"],
        "chosen": {"encoder.0.self": [[1, 0, 1], [0, 1, 1]]},
        "probabilities": {"encoder.0.self": [[0.9, 0.1, 0.8], [0.2, 0.7, 0.9]]},
        "sharing": [[1.0, 0.5], [0.5, None]],
        "by_chance": 0.67,
    }
}
SCORED = rows_of({**FIGURES, **dict.fromkeys(METRICS, 12.34)})
PERPLEXITY = {
    "mode": "sentences",
    "part": "test",
    "tokens": 9,
    "iwae_k": 2,
    "token": {"elbo": 3.0},
    "word": {"elbo": 5.0, "plug_in": 4.0},
}


def body_of(file: Path, address: str = "", width: int = 800) -> dict[str, str]:
    """The data of a page's body after it has drawn."""
    size = f"--window-size={width},1000"
    words = [BROWSER, *WORDS, size, "--dump-dom", f"file://{file}{address}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    match = re.search(r"<body[^>]*>", done.stdout)
    assert match is not None
    data = dict(re.findall(r'data-(\w+)="([^"]*)"', match[0]))
    return {name: html.unescape(value) for name, value in data.items()} | {"dom": done.stdout}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = make_run(tmp_path_factory.mktemp("copied") / "run", small_corpus(), "delta", "copy")
    with torch.no_grad():
        run.model.latents["copy"].bias.fill_(0.0)  # some words are copied
    return run


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, copied: Any) -> lh.contrib.page.ReportPage:
    folder = tmp_path_factory.mktemp("runs")
    runs = [
        make_run(folder / "pairs", small_corpus(long=True), selection=SELECTION),
        make_run(folder / "aligned", small_corpus(), "delta", "two blocks", test=SCORED),
        make_run(folder / "text", small_corpus(text=True), perplexity=[PERPLEXITY]),
    ]
    runs.insert(2, copied)
    return lh.contrib.page.report(runs, shown=3, num_samples=3)


@pytest.fixture(scope="module")
def seen(
    page: lh.contrib.page.ReportPage, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What every view says that it has drawn, by run and view."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    page.save(file)
    body = body_of(file, "#walk")
    assert "errors" not in body, body["errors"]
    views = {(item["run"], item["view"]): item for item in json.loads(body["walked"])}
    return {"views": views, "dom": body["dom"]}


def test_every_view_that_has_something_to_show_is_drawn(seen: dict[str, Any]) -> None:
    common = {"bounds", "training", "heads", "head", "pairs", "sentences"}
    offered = {run: {view for item, view in seen["views"] if item == run} for run in range(4)}
    translated = common | {"calibration"}
    aligned = translated | {"alignments"}
    assert offered == {0: translated | {"selection"}, 1: aligned, 2: aligned, 3: common}
    assert all(view["drawn"] > 0 for view in seen["views"].values())


def test_rows_of_weights_sum_to_one(seen: dict[str, Any]) -> None:
    for key in ((0, "head"), (1, "head"), (2, "alignments"), (3, "head")):
        view = seen["views"][key]
        assert 0.99 < float(view["low"]) <= float(view["high"]) < 1.01


def test_maps_are_of_heads_that_vary_and_of_those_that_do_not(seen: dict[str, Any]) -> None:
    maps = {key: int(view["maps"]) for key, view in seen["views"].items() if "maps" in view}
    heads = {(0, "head"): 4, (1, "head"): 1, (2, "head"): 1, (3, "head"): 4}
    assert maps == heads | {(1, "alignments"): 6, (2, "alignments"): 3}
    assert seen["views"][0, "head"]["draws"] == "3"
    assert seen["views"][0, "selection"]["cells"] == "10"  # 6 chances, and 4 of what tasks share
    assert seen["views"][1, "alignments"]["gold"] == "2"


def test_ticks_of_bars_stand_where_their_numbers_are(
    page: lh.contrib.page.ReportPage, tmp_path: Path
) -> None:
    page.save(tmp_path / "page.html")
    dom = body_of(tmp_path / "page.html", "#view=head&block=decoder.0.cross")["dom"]
    tick = r'<line x1="38" y1="([\d.]+)"[^>]*></line><text[^>]*>([\d.]+)</text>'
    heights, values = zip(*((float(y), float(v)) for y, v in re.findall(tick, dom)), strict=True)
    assert len(values) > 2
    assert values[0] == 0
    for height, value in zip(heights[1:], values[1:], strict=True):
        unit = (heights[0] - heights[1]) / values[1]
        assert (heights[0] - height) / value == pytest.approx(unit, rel=1e-6)


def test_words_that_are_rather_copied_are_marked(seen: dict[str, Any], copied: Any) -> None:
    batch = collate(copied.corpus.test, range(1))
    posterior = alignment_distributions(copied.model, copied.guide, batch).posterior[0, 0]
    marked = int((posterior[:, 0] < 0.5).sum())
    assert 0 < marked < len(posterior)
    assert seen["views"][2, "alignments"]["marked"] == str(marked)
    assert "marked" not in seen["views"][1, "alignments"]


def test_probabilities_of_gates_stand_below_each_sentence(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus(), "delta", "two bernoulli blocks")
    lh.contrib.page.report(run, tmp_path / "page.html", shown=3, num_samples=2)
    body = body_of(tmp_path / "page.html", "#view=sentences")
    assert "errors" not in body
    (data,) = (view for view in re.findall(r"<section[^>]*>", body["dom"]) if "data-cells" in view)
    assert 'data-cells="54"' in data  # 3 sentences, 3 distributions, 6 heads
    batch = collate(run.corpus.test, range(3))
    first = gather_inclusion(run, batch)[0]["decoder.1.cross"]["posterior"][2]
    assert f'"decoder.1.cross, head 2, exact posterior: {first:.4f}"' in body["dom"]


def test_every_score_has_a_column(seen: dict[str, Any]) -> None:
    for title in (SCORES[name].heading for name in METRICS):
        assert f">{html.escape(title, quote=False)}<br>" in seen["dom"]
    assert seen["dom"].count(">12.34<") == len(METRICS)


def test_words_stay_words(seen: dict[str, Any]) -> None:
    assert html.escape(f"d {BREAKS_OUT}") in seen["dom"]


def test_no_two_of_twenty_runs_have_the_same_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus())
    chances = {"encoder.0.self": [[0.9, 0.1, 0.8]], "encoder.1.self": [[0.7]]}
    side = {"tasks": [""], "chosen": chances, "probabilities": chances}
    facts = gather_facts(run, "") | {"curves": gather_curves(run.metrics), "sentences": []}
    facts["selection"] = {"encoder-self": side}
    facts["options"] |= {"select": "selection"}  # every candidate has a place of its own
    own = {"name": "encoder.0.self", "chain": "encoder-self", "layer": 0, "heads": 1}
    facts["grid"] = {"blocks": [own], "values": {"entropy": {"encoder.0.self": [0.5]}}}
    runs = [{**facts, "name": f"run {number}"} for number in range(20)]
    page = fill_page({"made": "", "scores": list_scores(), "asked": 1, "kept": 0, "runs": runs})
    (tmp_path / "page.html").write_text(page)
    body = body_of(tmp_path / "page.html", "#view=all")
    assert "errors" not in body, body["errors"]
    assert 'class="warning"' not in body["dom"], "all are of one text"
    chart = body["dom"].split("Bound of every run")[2].split("</figure>")[0]
    for element in ("path", "line"):
        drawn = (match for match in re.findall(rf"<{element}[^>]*>", chart) if "--run-" in match)
        looks = [re.findall(r'stroke(?:-dasharray)?="([^"]*)"', item) for item in drawn]
        assert len(set(map(tuple, looks))) == len(looks) == 20
    assert "max-content repeat(3," in body["dom"].split('data-view="selection"')[1]
    assert "a cell is a slot, which each task may fill" not in body["dom"].split("<script")[0]


def test_a_curve_has_a_gap_where_its_value_is_not_known(tmp_path: Path) -> None:
    facts = gather_facts(make_run(tmp_path / "run", small_corpus()), "")
    curves = {"steps": [1, 2, 3, 4, 5], "bound": {"elbo": [1.0, 2.0, None, 3.0, 4.0]}}
    facts |= {"curves": curves, "sentences": [], "name": "run", "recipe": "cascaded+copy"}
    page = fill_page({"made": "", "scores": list_scores(), "asked": 1, "kept": 0, "runs": [facts]})
    (tmp_path / "page.html").write_text(page)
    body = body_of(tmp_path / "page.html", "#view=all")
    assert "errors" not in body, body["errors"]
    assert "cascaded+<wbr>copy" in body["dom"]
    paths = re.findall(r'<path d="(M[^"]*)" fill="none"', body["dom"])
    assert [(path.count("M"), path.count("L")) for path in paths] == [(2, 2)]


FRAMED = """<!doctype html><body>{frame}<script>
const frame = document.querySelector("iframe");
const copy = () => Object.assign(document.body.dataset, frame.contentDocument.body.dataset,
  frame.contentDocument.querySelector("section").dataset);
frame.addEventListener("load", () => setTimeout(() => {{
  frame.contentWindow.location.hash = "{address}";
  setTimeout(copy, 1500);
}}, 500));
</script></body>"""


def test_a_frame_of_a_notebook_follows_its_address_to_a_map_of_200_by_60(
    page: lh.contrib.page.ReportPage, tmp_path: Path
) -> None:
    address = "run=0&view=head&sentence=2&block=decoder.0.cross&head=1&row=59&draw=2&theme=dark"
    file = tmp_path / "notebook.html"
    file.write_text(FRAMED.format(frame=page._repr_html_(), address=address), encoding="utf-8")
    body = body_of(file)
    assert "errors" not in body, body["errors"]
    assert (body["ready"], body["block"], body["size"]) == ("head", "decoder.0.cross", "201 x 61")


def test_runs_of_different_texts_are_told_apart_and_classes_are_named(tmp_path: Path) -> None:
    runs = []
    for name, text in (("one", "abc"), ("two", "abd")):
        runs.append(make_run(tmp_path / name, small_corpus()))
        (tmp_path / name / "corpus.json").write_text(json.dumps({"test": text}), "utf-8")
    page = tmp_path / "page.html"
    lh.contrib.page.report(runs, page, shown=1, num_samples=2, sentences=2)
    dom = body_of(page, "#view=all")["dom"]
    assert "reported on different test texts" in dom
    assert 'aria-label="Bound on validation"' in dom
    assert 'aria-label="Bound of every run' not in dom
    assert "class_path:" not in dom.partition("</script>")[2].rpartition("<script")[0]
