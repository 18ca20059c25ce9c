"""Alignments from the command line: one model, several guides, exact figures, translations."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from latentheads.contrib.heads import align, score_alignments, score_best_attention
from latentheads.corpora import pydoc
from latentheads.experiments.cli.tables import UNINFORMED
from latentheads.metrics.alignment import read_pharaoh, write_pharaoh
from latentheads.runs.loading import load_run
from tests.experiments.breaks import assert_same_ends, stopped_in
from tests.experiments.programs import assert_refused, inside, results_of, succeed
from tests.latentheads.runs import trained

SMALL = ["--data=grammar", "--data.sentences=60", "--data.held_out=7", *trained.SMALL]
SMALL += ["--train.steps=2", "--train.report_every=2", "--num_samples=2"]
QUICK = [*SMALL, "--decode.max_new_tokens=8"]
"""Of a translation that is written: who has not learned to end a sentence goes on for long."""

TEXT = [
    "--data=python-docs",
    "--data.block_size=16",
    "--data.context=8",
    "--data.max_train_samples=40",
]
TEXT += [*trained.SMALL, "--num_samples=2", "--train.steps=4", "--train.report_every=2"]
TEXT += ["--train.checkpoint_every=2", "--train.tokens=128", "--guide=cascaded"]
CHAIN = ("--alignments.blocks=1", "--alignments.prior=chain", "--alignments.width=4")
COPY = ("--latents=copy", "--copy.width=4", "--copy.window=100", "--loss=marginal")
pytestmark = pytest.mark.usefixtures("as_the_programs_do")


@pytest.fixture(scope="module", autouse=True)
def few_lines() -> Iterator[None]:
    """Validation and test of running text are as short as the training is."""
    parts = pydoc.Split(*(part[:40] for part in pydoc.split()))
    with mock.patch.object(pydoc, "split", return_value=parts):
        yield


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("aligned") / "base"
    words = ("--guide=exact", "--alignments.blocks=2", "--alignments.width=4", "--out", str(out))
    succeed("run.py", *QUICK, *words)
    return out


@pytest.fixture(scope="module", params=[CHAIN, COPY], ids=["alignments", "copy"])
def heads(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """What points at the past of a text."""
    options: tuple[str, ...] = request.param
    return options


@pytest.fixture(scope="module")
def text(heads: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of running text."""
    out = tmp_path_factory.mktemp("aligned") / "text"
    printed = succeed("run.py", *TEXT, *heads, "--out", str(out)).stdout
    assert "perplexity, exact" in printed
    assert "plug-in log-likelihood" not in printed
    return out


def test_a_run_prints_what_is_exact(base: Path) -> None:
    test = results_of(base)["test"]
    assert test["exact"] == pytest.approx(test["elbo"], abs=1e-5)
    assert test["gap"] == pytest.approx(0, abs=1e-5)
    assert test["plug_in"] == pytest.approx(test["exact"], abs=1e-5)


def test_another_guide_is_trained_of_the_same_model(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "ladder"
    words = ["--guide=cascaded", "--guide.condition_on=prefix", "--train_only=guide"]
    words += [f"--start={base}", "--alignments.blocks=2", "--alignments.width=4"]
    done = succeed("run.py", *QUICK, *words, "--out", str(out))
    assert "gap of the guide" in done.stdout
    before, after = (load_file(p / "checkpoints" / "best.safetensors") for p in (base, out))
    assert all(torch.equal(after[n], v) for n, v in before.items() if n.startswith("model."))
    results = results_of(out)
    assert results["test"]["exact"] == pytest.approx(results_of(base)["test"]["exact"], abs=1e-6)
    assert set(results["gap_by_site"]) == {f"decoder.{n}.alignment.choice" for n in (0, 1)}


def test_where_nothing_is_trained_no_progress_is_shown(base: Path, tmp_path: Path) -> None:
    words = ["--guide=exact", "--train_only=guide", f"--start={base}", "--out", str(tmp_path)]
    done = succeed("run.py", *QUICK, *words, "--alignments.blocks=2", "--alignments.width=4")
    assert "nothing to train: reported on as it is" in done.stdout + done.stderr
    assert "steps/s" not in done.stdout + done.stderr


def test_a_language_model_points_at_its_own_past(text: Path, heads: tuple[str, ...]) -> None:
    results = results_of(text)
    site = f"decoder.0.alignment.{'choice' if heads == CHAIN else 'copy'}"
    test = results["test"]
    assert test["exact"] - test["elbo"] == pytest.approx(test["gap"], abs=1e-5)
    assert results["kl_how"] == {site: "enumerated"}
    assert test["prior_entropy"] > 0.5
    blocks, windows, *across = results["perplexity"][1::2]
    assert blocks["mode"] == "blocks of 16"
    assert blocks["token"]["exact"] == pytest.approx(math.exp(-test["exact"]), rel=1e-6)
    assert windows["mode"] == "windows of 16, 8 before each token"
    assert windows["token"]["exact"] == pytest.approx(windows["token"]["plug_in"], rel=1e-5)
    for whole in across:
        assert whole["mode"] == f"{windows['mode']}, heads point 100 tokens back"
        assert whole["tokens"] == windows["tokens"]
        assert whole["token"]["exact"] != pytest.approx(windows["token"]["exact"], rel=1e-6)
    assert len(across) == (heads == COPY)


def test_bands_of_rare_words_are_summed_out_too(heads: tuple[str, ...], tmp_path: Path) -> None:
    words = ["--network.adaptive=50,200", "--network.adaptive.div_value=2", "--loss=marginal"]
    words += ["--network.adaptive.dropout=0.1", "--train.steps=2", "--out", str(tmp_path)]
    succeed("run.py", *TEXT, *heads, *words)
    results = results_of(tmp_path)
    blocks, test = results["perplexity"][1], results["test"]
    assert blocks["token"]["exact"] == pytest.approx(math.exp(-test["exact"]), rel=1e-6)
    assert test["exact"] - test["elbo"] == pytest.approx(test["gap"], abs=1e-5)
    drawn = succeed("generate.py", str(tmp_path), "--prompt=the", "--max_new_tokens=20")
    assert drawn.stdout.startswith("the ")


def test_a_language_model_is_gone_on_with_to_the_last_digit(
    text: Path, heads: tuple[str, ...], tmp_path: Path
) -> None:
    words = [*TEXT, *heads, "--out", str(tmp_path)]
    with stopped_in(3):
        assert inside("run.py", *words).returncode == 130
    succeed("run.py", *words)
    assert_same_ends(text, tmp_path)


@pytest.mark.parametrize("buffer", [1, 9])
def test_translations_are_linked_with_their_lines(base: Path, buffer: int, tmp_path: Path) -> None:
    file, lines = tmp_path / "links", ["the cat sleeps", "", "the old dog"]
    words = (f"--alignments={file}", f"--buffer={buffer}", "--num_beams=2", "--max_new_tokens=6")
    done = succeed("translate.py", str(base), *words, text="\n".join(lines))
    assert UNINFORMED in done.stderr  # trained for a few steps
    written = done.stdout.split("\n")[:-1]
    computed_words = file.read_text().split("\n")
    assert computed_words.pop() == ""
    assert [bool(line) for line in computed_words] == [bool(line) for line in written]
    assert not computed_words[1]
    run = load_run(base)
    assert [sorted(read_pharaoh(line)) for line in computed_words] == align(run, lines, written)


def test_links_of_words_without_punctuation_are_written_on_request(
    base: Path, tmp_path: Path
) -> None:
    line, file = "the cat, sleeps", tmp_path / "links"
    words = "--num_beams=2", "--max_new_tokens=6", "--split_punctuation"
    done = succeed("translate.py", str(base), f"--alignments={file}", *words, text=f"{line}\n")
    (links,) = align(load_run(base), [line], done.stdout.splitlines(), split_punctuation=True)
    assert file.read_text() == f"{write_pharaoh(links)}\n"
    message = "--split_punctuation is for --alignments FILE"
    assert_refused("translate.py", str(base), *words, says=message, text="the cat\n")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("aligned") / "plain"
    succeed("run.py", *QUICK, "--recipe=transformer", "--out", str(out))
    return out


def test_links_are_scored_beside_those_of_the_best_attention(
    base: Path, plain: Path, tmp_path: Path
) -> None:
    out = tmp_path / "heads"
    words = ("--sentences=5", "--relevance=0", "--part=test", "--out", str(out))
    done = succeed("analyse.py", str(base), str(plain), *words)
    assert (out / "alignments-base.png").exists()
    assert not (out / "alignments-plain.png").exists()
    aligned, other = json.loads((out / "analysis.json").read_text())["runs"]
    heads = ["decoder.0.alignment head 0", "decoder.1.alignment head 0", "all heads"]
    rows = [(row["links"], row["head"]) for row in aligned["links"]]
    assert rows[:9] == [(name, h) for name in ("prior", "guide", "posterior") for h in heads]
    best = ["attention before", "attention after"]
    assert [row["links"] for row in aligned["links"][9:]] == best
    assert [row["links"] for row in other["links"]] == best
    run = load_run(base)
    part, valid = (item.first(5) for item in (run.corpus.test, run.corpus.valid))
    wanted = [
        *score_alignments(run.model, run.guide, part),
        *score_best_attention(run.model, valid, part),
    ]
    for row, score in zip(aligned["links"], wanted, strict=True):
        assert (row["head"], row["aer"]) == (score.head, score.counts.aer)
        assert row["f1"] == pytest.approx(1 - row["aer"])
        assert (row["aer_low"], row["aer_high"], row["sentences"]) == (*score.interval(), 5)
    assert len((out / "alignments.csv").read_text().splitlines()) == 1 + 9 + 2 + 2
    shuffled = aligned["shuffled_target"]
    assert shuffled["fall"] == shuffled["elbo"] - shuffled["shuffled"] > 0
    assert other["shuffled_target"] is None
    for message in (
        "| `plain` | attention after | decoder.0.cross head",
        "the guide of base has a",
    ):
        assert message in done.stdout


def test_only_a_run_with_alignments_links(base: Path, plain: Path, tmp_path: Path) -> None:
    for run, file, says in (
        (plain, tmp_path / "links", f"{plain} has no alignments: there is no posterior of them"),
        (base, tmp_path, f"--alignments: cannot write {tmp_path}: Is a directory"),
    ):
        words = (str(run), f"--alignments={file}")
        assert_refused("translate.py", *words, says=says, text="the cat\n")
    assert not (tmp_path / "links").exists()
