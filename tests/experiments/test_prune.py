"""Pruning a finished run: a curve, and run folders that every other program takes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import latentheads as lh
from latentheads.corpora import batches
from latentheads.corpora.batches import TOKENS
from latentheads.experiments.prune import (
    _make_folder,
    _replace_networks,
    _staging_folder,
    make_parser,
)
from latentheads.experiments.pruning.networks import pruned_networks
from latentheads.inference.evaluation import evaluate
from latentheads.metrics.scores import Scores
from latentheads.pruning import all_heads
from latentheads.runs.reporter import Reporter
from latentheads.training.checkpoints import weights
from tests.experiments.breaks import assert_same_ends, stopped_in
from tests.experiments.programs import (
    FORKS,
    SHORT,
    SMALL,
    TINY,
    assert_one_line,
    assert_refused,
    inside,
    painted,
    results_of,
    succeed,
)
from tests.latentheads.runs.trained import load, refused

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

FEW = ["--network.layers=2", "--data.held_out=3", "--num_samples=1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs: one of each kind, and the first one pruned."""
    top = tmp_path_factory.mktemp("prune")
    for recipe in ("transformer", "cascaded"):
        succeed("run.py", "--recipe", recipe, *TINY, *SHORT, *FEW, "--out", str(top / recipe))
    words = ["--data=grammar-text", "--recipe=transformer", *SMALL, *SHORT, *FEW]
    succeed("run.py", *words, "--out", str(top / "language-model"))
    with painted():
        pruned(top / "transformer", "--keep_heads=7,3,0", f"--out={top / 'pruned'}")
    succeed("run.py", *going_on(top / "pruned" / "heads-7"), "--out", str(top / "tuned"))
    return top


def going_on(start: Path) -> list[str]:
    """Words that train a pruned network further."""
    configuration = str(start / "config.yaml")
    return ["--config", configuration, "--start", str(start), "--train.learning_rate=.01"]


FAST = ("--timed=2", "--rounds=1")


def pruned(run: Path, *words: str) -> None:
    succeed("prune.py", str(run), *words, *FAST)


def curve(path: Path) -> Any:
    return json.loads((path / "curve.json").read_text())["curve"]


def test_the_curve_holds_every_number_of_heads(runs: Path) -> None:
    whole, *others = curve(runs / "pruned")
    record = json.loads((runs / "pruned" / "curve.json").read_text())
    assert record["checkpoint"] == "reported"
    assert record["versions"]["latentheads"] == lh.__version__
    assert record["keep_heads"] == [7, 3, 0]
    assert [point["heads"] for point in (whole, *others)] == [12, 7, 3, 0]
    assert whole["speed"] == 1
    reported = results_of(runs / "transformer")
    assert whole["valid"]["plug_in"] == pytest.approx(reported["valid"]["plug_in"], abs=1e-6)
    assert whole["test"]["bleu"] == pytest.approx(reported["test"]["bleu"])
    assert whole["parameters"] == reported["parameters"]
    sizes = [point["parameters"] for point in (whole, *others)]
    a_head = 4 * 8 * 4 + 3 * 4
    assert sizes == [sizes[0] - a_head * gone for gone in (0, 5, 9, 12)]
    for before, after in pairwise(others):
        assert all(set(heads) <= set(before["kept"][n]) for n, heads in after["kept"].items())
    assert (runs / "pruned" / "curve.png").stat().st_size > 5000


def test_a_pruned_run_is_loaded_and_has_the_figures_it_reports(runs: Path) -> None:
    loaded = load(runs / "pruned" / "heads-3")
    assert sum(map(len, all_heads(loaded.model).values())) == 3
    assert loaded.heads == curve(runs / "pruned")[2]["kept"]
    results = results_of(loaded.path)
    part = batches(loaded.settings.data.load().test, TOKENS, shuffle=False)
    report = evaluate(loaded.model, loaded.guide, part)
    assert report.plug_in == pytest.approx(results["test"]["plug_in"], abs=1e-6)
    assert results["pruned"]["heads"] == 3


def test_what_is_written_stands_beside_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run")
    for message in (".", "./", "checkpoints/..", "../run/", str(tmp_path / "run")):
        out = _make_folder(make_parser().parse_args([message]))
        assert out.resolve() == tmp_path / "run-pruned"
    monkeypatch.chdir(tmp_path)
    assert _make_folder(make_parser().parse_args(["run"])) == Path("run-pruned")


def test_nothing_is_told_of_the_whole_network_as_of_the_smaller_one(
    tiny_run: Path, tmp_path: Path
) -> None:
    from latentheads.experiments.pruning.networks import write_run

    folder = shutil.copytree(tiny_run, tmp_path / "run")
    whole = json.loads((folder / "results.json").read_text())
    rows = Scores.of({"elbo": -1.0}).to_json()
    by_task = {"tasks": {"velu": rows}, "average": rows}
    (folder / "results.json").write_text(json.dumps(whole | by_task | {"averaged": 9}))
    run = load(folder)
    kept = {name: heads[:1] for name, heads in all_heads(run.model).items()}
    write_run(kept, run, run.corpus, tmp_path / "small", "random")
    results = results_of(tmp_path / "small")
    assert results["gap_by_site"].keys() == whole["gap_by_site"].keys()
    assert results["gap_by_site"] != whole["gap_by_site"]
    assert sum(results["gap_by_site"].values()) == pytest.approx(results["test"]["gap"], rel=1e-5)
    assert (results["tasks"], results["average"]) == ({}, {})
    assert results["averaged"] == 0, "of the weights that were pruned, whatever was reported"


def test_a_pruned_network_of_several_tasks_has_the_report_of_a_run(tmp_path: Path) -> None:
    run, small = tmp_path / "run", tmp_path / "out" / "heads-9"
    words = ["--recipe=cascaded", "--data.tasks=velu,tamir", "--decode.rouge=true"]
    succeed("run.py", *words, *TINY, *SHORT, *FEW, f"--out={run}")
    pruned(run, "--keep_heads=9", f"--out={tmp_path / 'out'}")
    whole, less = results_of(run), results_of(small)
    assert less["test"].keys() == whole["test"].keys() >= {"rouge1", "bleu"}
    assert less["tasks"].keys() == whole["tasks"].keys() == {"en-velu", "en-tamir"}
    assert less["head_divergence"] not in (None, whole["head_divergence"])
    assert (less["test"]["iwae_k"], less["pruned"]["by"]) == (1, "gradient")
    succeed("score.py", str(small), "--direction", "en-velu")
    assert not list((tmp_path / "out").glob(".*"))


def test_where_a_report_fails_what_was_there_stays(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shutil.copytree(runs / "pruned", tmp_path / "out")
    before = (out / "heads-3" / "results.json").read_text()
    fail = mock.Mock(side_effect=ValueError("no words"))
    monkeypatch.setattr(Reporter, "translations", fail)
    words = (str(runs / "transformer"), "--keep_heads=3", f"--out={out}", "--overwrite", *FAST)
    done = inside("prune.py", *words)
    message = "prune.py: error: the report on 12 heads has no translations (no words)\n"
    assert (done.returncode, done.stderr) == (1, message)
    assert (out / "heads-3" / "results.json").read_text() == before
    assert not list(out.glob(".*"))


def test_other_programs_take_a_pruned_run(runs: Path, tmp_path: Path) -> None:
    folder = str(runs / "pruned" / "heads-7")
    assert succeed("translate.py", folder, text="the cat\n\nthe dog\n").stdout.count("\n") == 3
    again = succeed("run.py", "--config", f"{folder}/config.yaml", "--out", folder)
    assert "is finished" in again.stdout
    succeed("score.py", str(runs / "transformer"), folder)
    succeed("analyse.py", folder, "--sentences=3", f"--out={tmp_path}")


def test_a_pruned_network_goes_on_training(runs: Path, tmp_path: Path) -> None:
    before, after = load(runs / "pruned" / "heads-7"), load(runs / "tuned")
    assert after.heads == before.heads
    assert {n: len(heads) for n, heads in before.heads.items()} == {
        name: len(heads) for name, heads in all_heads(after.model).items()
    }
    mine, theirs = (weights(model=r.model, guide=r.guide) for r in (before, after))
    assert {n: t.shape for n, t in mine.items()} == {n: t.shape for n, t in theirs.items()}
    results = results_of(runs / "tuned")
    small = results_of(runs / "pruned" / "heads-7")
    assert results["parameters"] == small["parameters"]
    assert results["valid"]["elbo"] > small["valid"]["elbo"]
    pruned(runs / "tuned", "--keep_heads=4", f"--out={tmp_path}")
    least = load(tmp_path / "heads-4").heads
    assert all(set(heads) <= set(before.heads[name]) for name, heads in least.items())


def test_the_same_heads_are_trained_from_scratch(runs: Path, tmp_path: Path) -> None:
    """The comparison of Voita et al. 2019: new weights in the network that is left."""
    start = runs / "pruned" / "heads-7"
    words = [*going_on(start), "--start_with=heads", "--train.steps=1"]
    printed = succeed("run.py", *words, f"--out={tmp_path / 'new'}").stdout
    assert f"starts with heads of {start}" in " ".join(printed.split())
    new, before = load(tmp_path / "new"), load(start)
    assert new.heads == before.heads
    own, other = weights(model=new.model), weights(model=before.model)
    assert {n: w.shape for n, w in own.items()} == {n: w.shape for n, w in other.items()}
    assert not any(own[name].equal(other[name]) for name in own if name.endswith("table.weight"))
    words = ["--config", str(runs / "transformer" / "config.yaml"), "--start_with=heads"]
    words += [f"--start={runs / 'transformer'}", f"--out={tmp_path / 'whole'}"]
    assert_refused("run.py", *words, says="start_with heads is for a pruned run, and")
    words = ["--config", str(start / "config.yaml"), f"--out={tmp_path / 'whole'}"]
    assert_refused("run.py", *words, says=f"is of a pruned network: add --start {start}")
    other = f"--start={runs / 'pruned' / 'heads-3'}"
    assert_refused("run.py", *words, other, says=f"pruned network: add --start {start}")
    words = ["--config", str(start / "config.yaml"), f"--out={start}", "--overwrite"]
    assert_refused("run.py", *words, says=f"is of a pruned network: add --start {start}")


def test_a_pruned_network_in_training_is_stopped_and_goes_on_exactly(
    runs: Path, tmp_path: Path
) -> None:
    start = tmp_path / "pruned" / "heads-5"
    pruned(runs / "cascaded", "--keep_heads=5", f"--out={start.parent}")
    words = [*going_on(start), "--train.steps=4", "--train.checkpoint_every=1"]
    words += ["--network.dropout=0.2", "--train.report_every=4", "--decode.max_new_tokens=2"]
    whole, other = tmp_path / "whole", tmp_path / "other"
    succeed("run.py", *words, "--out", str(whole))
    with stopped_in(3):
        assert inside("run.py", *words, "--out", str(other)).returncode == 130
    shutil.rmtree(start / "checkpoints")
    assert "resumed at step 2" in succeed("run.py", *words, "--out", str(other)).stdout
    assert_same_ends(whole, other)
    assert sum(map(len, load(other).heads.values())) == 5


def test_a_network_without_heads_goes_on_and_a_new_run_there_has_them_all(
    runs: Path, tmp_path: Path
) -> None:
    succeed("run.py", *going_on(runs / "pruned" / "heads-0"), f"--out={tmp_path}")
    assert not any(load(tmp_path).heads.values())
    configuration = str(runs / "transformer" / "config.yaml")
    succeed("run.py", "--config", configuration, f"--out={tmp_path}", "--overwrite")
    assert load(tmp_path).heads is None


def test_only_the_named_blocks_lose_heads_and_posteriors_stay_whole(
    runs: Path, tmp_path: Path
) -> None:
    words = ["--blocks=encoder-self,decoder-cross", "--keep_heads=5", "--sentences=2"]
    pruned(runs / "cascaded", *words, f"--out={tmp_path}")
    whole, five = curve(tmp_path)
    assert [len(five["kept"][f"decoder.{layer}.self"]) for layer in (0, 1)] == [2, 2]
    assert five["heads"] == 5
    assert five["valid"]["elbo"] <= five["valid"]["plug_in"] + 1
    assert five["parameters"] < whole["parameters"]
    assert load(tmp_path / "heads-5").guide.families.keys() >= {"decoder_0_self"}


def test_a_language_model_is_pruned_by_default_to_nothing(runs: Path, tmp_path: Path) -> None:
    pruned(runs / "language-model", f"--out={tmp_path}")
    points = curve(tmp_path)
    assert [point["heads"] for point in points] == [4, 3, 2, 1, 0]
    assert all(point["test"]["bleu"] is None for point in points)
    assert load(tmp_path / "heads-1").source is None
    tuned = str(tmp_path / "tuned")
    succeed("run.py", *going_on(tmp_path / "heads-1"), "--out", tuned)
    assert succeed("generate.py", tuned, "--prompt=the", "--max_new_tokens=4").stdout.startswith(
        "the"
    )
    assert not (tmp_path / "heads-1" / "test.translations.txt").exists()
    assert not (tmp_path / "heads-1" / "bound.png").exists()  # it was not trained since


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "transformer --keep_heads=5 --blocks=decoder-self",
            "keep_heads must lie in 8 ... 12, got 5",
        ),
        ("transformer --keep_heads 3,x", "--keep_heads: must be a whole number, got 'x'"),
        ("transformer --blocks=none", "blocks must be all, or some of encoder-self,"),
        (
            "transformer --by=gates --normalise=false",
            "--normalise has no effect here: it needs --by gradien",
        ),
        ("transformer --seed=3", "--seed has no effect here: it needs --by random"),
        (
            "transformer --by=magic",
            "--by: invalid choice: 'magic' (choose from 'gradient', 'posterior', 'gates', 'random'",
        ),
        (
            "transformer --out={runs}/pruned",
            "holds a curve already: choose another --out or --overwrite",
        ),
        ("transformer --out={runs}/transformer", "is a run folder: choose another --out"),
        ("language-model --blocks=encoder-self", "has no heads in encoder-self: none can be"),
        ("pruned/heads-0", "has no heads: none can be removed"),
    ],
)
def test_a_mistake_costs_one_line_and_status_two(
    words: str, message: str, runs: Path, tmp_path: Path
) -> None:
    run, *more = words.format(runs=runs).split()
    given = (str(runs / run), f"--out={tmp_path / 'out'}", *more)
    assert_refused("prune.py", *given, says=message)
    assert not (tmp_path / "out").exists()


def test_only_pruned_networks_are_replaced(runs: Path, tmp_path: Path) -> None:
    run, out = runs / "language-model", tmp_path / "out"
    other = shutil.copytree(run, out / "heads-1")
    before = (other / "results.json").read_text()
    for more in ([], ["--overwrite"]):
        words = (str(run), "--keep_heads=1", f"--out={out}", *more)
        says = "heads-1 is not a pruned network: remove it, or choose"
        assert_refused("prune.py", *words, says=says)
    assert (other / "results.json").read_text() == before
    shutil.rmtree(other)
    pruned(run, "--keep_heads=3,1", f"--out={out}")
    (out / "curve.json").unlink()
    words = ("--keep_heads=2", f"--out={out}")
    assert_refused("prune.py", str(run), *words, says="holds a curve already")
    says = "heads-3, the run itself: choose another --out"
    assert_refused("prune.py", str(out / "heads-3"), *words, "--overwrite", says=says)
    for heads in (1, 3):
        (out / f"heads-{heads}" / "notes.txt").write_text("mine")
    pruned(run, "--keep_heads=2,1", f"--out={out}", "--overwrite")
    names = sorted(path.parent.name for path in out.glob("heads-*/config.yaml"))
    assert names == ["heads-1", "heads-2"]
    assert [path.name for path in (out / "heads-3").iterdir()] == ["notes.txt"]
    assert (out / "heads-1" / "notes.txt").read_text() == "mine"


def is_killed_at(act: int, folder: Path, work: Callable[[], None]) -> bool:
    """Whether work in a process of its own is killed before it ends, at an act in a folder."""
    child = os.fork()
    if child == 0:
        acts = count(1)

        def see(event: str, given: tuple[object, ...]) -> None:
            is_act = event == "open" or event.startswith(("os.", "shutil."))
            if is_act and str(folder) in str(given) and next(acts) == act:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(see)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


@FORKS
def test_killed_while_networks_move_it_goes_on(runs: Path, tmp_path: Path) -> None:
    """At every act: a network is whole or not there, and the files of others stay."""
    out, slim, acts = tmp_path / "out", tmp_path / "slim", 0
    for network in pruned_networks(runs / "pruned"):  # no file of them counts but these
        (slim / network.name / "checkpoints").mkdir(parents=True)
        shutil.copy(network / "results.json", slim / network.name)
    for name in ("curve.json", "curve.png"):
        shutil.copy(runs / "pruned" / name, slim)
    words = [str(runs / "transformer"), f"--out={out}"]
    first, again = (make_parser().parse_args([*words, *more]) for more in ([], ["--overwrite"]))

    new = ("heads-7", "heads-2")

    def move() -> None:
        with _staging_folder(out) as staged:
            for name in new:
                (staged / name / "checkpoints").mkdir(parents=True)
                shutil.copyfile(slim / "heads-7" / "results.json", staged / name / "results.json")
            for name in ("curve.json", "curve.png"):
                (staged / name).write_text("new")
            _replace_networks(out, staged, new)

    is_killed, unfinished = True, 0
    while is_killed:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(slim, out)
        for heads in (7, 3):
            (out / f"heads-{heads}" / "notes.txt").write_text("mine")
        acts += 1
        is_killed = is_killed_at(acts, out, move)
        if not (out / "curve.json").exists():
            unfinished += 1
            assert _make_folder(first) == out
        assert _make_folder(again) == out
        for network in pruned_networks(out):
            assert {path.name for path in network.iterdir()} >= {"results.json", "checkpoints"}
        move()
        assert [path.name for path in pruned_networks(out)] == ["heads-2", "heads-7"]
        for heads in (7, 3):
            assert (out / f"heads-{heads}" / "notes.txt").read_text() == "mine"
        assert not list(out.glob(".*"))
    assert unfinished > 9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--latents=gates", "is pruned: its heads can be neither selected nor gated; drop gates"),
        ("--network.layers=1", "has another network: network.layers 2 there, 1 here"),
        (
            "--recipe=realformer --network.norm=pre",
            "network.norm post there, pre",
        ),
        ("--data.sentences=50", "another vocabulary than this corpus: data.sentences 60 there, 50"),
    ],
)
def test_what_a_pruned_network_cannot_become_costs_one_line(
    words: str, message: str, runs: Path, tmp_path: Path
) -> None:
    start = runs / "pruned" / "heads-7"
    given = [*going_on(start), *words.split(), f"--out={tmp_path / 'out'}"]
    done = inside("run.py", *given)
    assert_one_line(done, "run.py")
    assert done.stderr.startswith(f"run.py: error: {start} ")
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


SPOILT = [
    '{"encoder.0.self": [9]}',
    '{"encoder.0.self": "ab"}',
]


@pytest.mark.parametrize("text", SPOILT)
def test_a_spoilt_record_of_heads_costs_one_line(text: str, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "pruned" / "heads-3", tmp_path / "run")
    (tmp_path / "run" / "heads.json").write_text(text)
    assert "heads.json cannot be " in refused(tmp_path / "run")
