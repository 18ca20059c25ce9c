"""Several tasks in one run: folders of text and the grammar, figures by task, text of a task."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from latentheads.corpora import batches
from latentheads.inference.evaluation import plug_in_log_likelihood
from latentheads.runs.folder import REPORT_FILES
from latentheads.training import checkpoints
from tests.experiments.programs import inside, report_of, results_of, status_of
from tests.latentheads.corpora.folders import SIZES, write_all
from tests.latentheads.metrics.systems import score
from tests.latentheads.runs.trained import BRIEF, SMALL, train
from tests.tiny import jiggle

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

TASKS = "de,fr,fr-de,bible:de"
NAMES = ["en-de", "en-fr", "fr-de", "bible:en-de"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_all(tmp_path / "corpus")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with weights so large that every task has its own translations."""
    top = tmp_path_factory.mktemp("tasks")
    write_all(top / "corpus")
    words = ["--data", str(top / "corpus"), "--data.source=en", "--data.tasks", TASKS]
    words += ["--data.tasks.temperature=5", "--data.vocab_size=300", "--recipe=coda"]
    words += ["--train.steps=2", "--decode.max_tokens=8"]
    run = train(top / "run", *words)
    torch.manual_seed(0)
    jiggle(run.model, 0.7)
    best = checkpoints.weights(model=run.model, guide=run.guide)
    checkpoints.save(top / "run" / "checkpoints" / "best.safetensors", best, {"step": 2})
    run.finish()
    return top / "run"


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_the_scores_of_a_task_are_those_of_its_lines_alone(finished: Path) -> None:
    results, files = results_of(finished), ("translations", "references", "tasks")
    written, right, tasks = (lines_of(finished / f"test.{name}.txt") for name in files)
    assert {path.name for path in finished.glob("test.*")} <= {*REPORT_FILES}
    assert list(results["tasks"]) == list(dict.fromkeys(tasks)) == NAMES
    assert len(set(written)) > len(NAMES)
    folder = finished.parent / "corpus"
    for name, figures in results["tasks"].items():
        mine = [place for place, task in enumerate(tasks) if task == name]
        place = folder / "bible" / "en-de" if name.startswith("bible") else folder
        references = lines_of(place / f"test.{name[-2:]}")
        assert [right[line] for line in mine] == references
        alone = score([written[line] for line in mine], references)
        assert (figures["bleu"], figures["chrf"]) == (alone.bleu, alone.chrf)
        assert figures["sentences"] == len(mine) == SIZES["test"]
    test = results["test"]
    together = score(written, right)
    assert (test["bleu"], test["chrf"]) == (together.bleu, together.chrf)


def test_the_bound_of_all_is_that_of_the_tasks_by_their_tokens(finished: Path) -> None:
    results = results_of(finished)
    test, tasks = results["test"], results["tasks"].values()
    assert sum(figures["tokens"] for figures in tasks) == test["tokens"]
    nats = sum(figures["plug_in"] * figures["tokens"] for figures in tasks)
    assert nats / test["tokens"] == pytest.approx(test["plug_in"], rel=1e-5)
    for name in ("elbo", "plug_in", "kl", "iwae", "bleu", "chrf"):
        mean = sum(figures[name] for figures in tasks) / len(tasks)
        assert results["average"][name] == pytest.approx(mean)
    assert "truth" not in results["average"]
    assert len({figures["plug_in"] for figures in tasks}) == len(NAMES)


def test_alignments_say_the_exact_log_p_of_each_task(tmp_path: Path) -> None:
    words = ["--data.tasks=velu,korin", "--data.tasks.sizes=[30,20]", "--data.held_out=6"]
    words += ["--guide=cascaded", "--alignments.blocks=2", "--alignments.width=4"]
    words += ["--decode.max_tokens=4", "--train.learning_rate=0.02", "--train.warmup_steps=1"]
    run = train(tmp_path / "run", *words)
    run.finish()
    results = results_of(tmp_path / "run")
    tasks, test = results["tasks"], results["test"]
    assert list(tasks) == ["en-velu", "en-korin"]
    for number, figures in enumerate(tasks.values()):
        assert figures["exact"] - figures["elbo"] == pytest.approx(figures["gap"], abs=1e-5)
        alone = run.corpus.test.task == number
        own = [batch for batch in batches(run.corpus.test, 1) if alone[batch.sentences[0]]]
        nats = sum(plug_in_log_likelihood(run.model, batch).sum().item() for batch in own)
        assert nats / figures["tokens"] == pytest.approx(figures["exact"], abs=1e-5)
    for name in ("exact", "gap", "elbo"):
        nats = sum(figures[name] * figures["tokens"] for figures in tasks.values())
        assert nats / test["tokens"] == pytest.approx(test[name], abs=1e-5)
        if name != "gap":
            mean = sum(figures[name] for figures in tasks.values()) / len(tasks)
            assert results["average"][name] == pytest.approx(mean)


def test_the_table_has_a_line_for_each_task_and_the_average(finished: Path) -> None:
    from latentheads.experiments.cli.tables import task_table

    results = report_of(finished)
    head, *rows, last = task_table(results).splitlines()
    assert head.split()[:5] == ["test", "part", "by", "task", "sentences"]
    assert [row.split()[0] for row in rows] == NAMES
    cells = last.split()
    assert cells[0] == "average"
    assert cells[-2:] == [f"{results.average[name]:.2f}" for name in ("bleu", "chrf")]


def translated(run: Path, text: str, *words: str) -> tuple[object, list[str], str]:
    done = inside("translate.py", str(run), *words, text=text)
    return done.returncode, done.stdout.split("\n")[:-1], done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_task_is_translated_as_the_test_part_was(
    finished: Path,
    name: str,
) -> None:
    folder = finished.parent / "corpus"
    place = folder / "bible" / "en-de" if name.startswith("bible") else folder
    text = (place / f"test.{name.removeprefix('bible:')[:2]}").read_text(encoding="utf-8")
    tasks = lines_of(finished / "test.tasks.txt")
    written = zip(lines_of(finished / "test.translations.txt"), tasks, strict=True)
    words = "--direction", name.replace("en-", "")
    found = translated(finished, text, *words)
    assert found == (0, [line for line, task in written if task == name], "")
    assert translated(finished, "\n\n", *words) == (0, ["", ""], "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], f"has several tasks: give --direction, one of {', '.join(NAMES)}"),
        (["--direction=cs"], f"unknown task 'cs': choose from {', '.join(NAMES)}"),
        (["--direction=a-b-c"], "a task is TARGET or SOURCE-TARGET"),
    ],
)
def test_a_task_that_is_not_the_runs_costs_one_line(
    finished: Path,
    words: list[str],
    message: str,
) -> None:
    status, found, error = translated(finished, "a\n", *words)
    assert (status, found) == (2, [])
    assert message in error
    assert error.count("\n") == 1


def test_a_run_of_one_direction_has_no_task(
    folder: Path,
    tmp_path: Path,
) -> None:
    words = ["--data", str(folder), "--data.source=en", "--data.target=de", "--train.steps=1"]
    train(tmp_path / "run", *words)
    assert "task_" not in (tmp_path / "run" / "config.yaml").read_text()
    one = translated(tmp_path / "run", "a\n", "--direction=de")
    assert one[0] == 2
    assert one[2].endswith("has a single direction: drop --direction\n")


def test_the_paired_test_takes_all_tasks_together_or_one_alone(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import score as program

    results, words = results_of(finished), [str(finished), str(finished), "--resamples=50"]
    for name, figures in {"": results["test"], **results["tasks"]}.items():
        chosen = ["--direction", name] if name else []
        assert program.main([*words, *chosen, "--json", str(tmp_path / "scores.json")]) == 0
        assert f"{figures['bleu']:.2f} [" in capsys.readouterr().out
        said = json.loads((tmp_path / "scores.json").read_text())
        assert said["sentences"] == SIZES["test"] * (1 if name else len(NAMES))
    for short, name in (("fr", "en-fr"), ("bible:de", "bible:en-de")):
        assert program.main([*words, "--direction", short]) == 0
        assert f"{results['tasks'][name]['bleu']:.2f} [" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["unknown", "file", "plain", "short"])
def test_scores_of_a_task_that_is_not_there_are_refused(
    finished: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import score as program

    copy, task = tmp_path / "run", "en-cs" if kind == "unknown" else "en-de"
    shutil.copytree(finished, copy)
    words = [str(copy)]
    if kind == "file":
        words = [str(copy / "test.translations.txt"), "--references", str(copy / "config.yaml")]
    elif kind == "plain":
        (copy / "test.tasks.txt").unlink()
    elif kind == "short":
        (copy / "test.tasks.txt").write_text("en-de\n")
    messages = {
        "unknown": f"has no task 'en-cs': choose from {', '.join(NAMES)}",
        "file": "--direction is for runs: ",
        "plain": "has a single direction: drop --direction",
        "short": "must name the task of each line of test.translations.txt",
    }
    with pytest.raises(SystemExit):
        program.main([*words, "--direction", task])
    error = capsys.readouterr().err
    assert messages[kind] in error
    assert error.count("\n") == 1


def nothing(folder: Path) -> None:
    pass


def cut(name: str) -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes().split(b"\n", 1)[1])

    return act


MISTAKES: list[tuple[Callable[[Path], object], str, str]] = [
    (nothing, "de,cs", "corpus has no train.cs or train.cs.gz; it has bible, test.de"),
    (nothing, "de,help:de", "there is no folder corpus/help, where train.en was looked"),
    (nothing, "bible:fr", "corpus/bible has no train.en or train.en.gz; it has en-de"),
    (cut("valid.fr"), "de,fr", "valid.en has 6 lines and corpus/valid.fr 5: line n of one"),
    (cut("bible/en-de/test.de"), TASKS, "corpus/bible/en-de/test.de 6: line n of"),
    (nothing, "de,fr,en-de", "task en-de is given twice"),
    (nothing, "de,,fr", "a task is TARGET or SOURCE-TARGET, with or without DOMAIN: "),
    (nothing, "de,fr --data.tasks.temperature 0", "--data.tasks.temperature must be positive"),
    (nothing, "de,fr --data.tasks.temperature nan", "--data.tasks.temperature must be a number"),
    (nothing, "de,fr --data.tasks.distinguish_by family", "--data.tasks.distinguish_by must be on"),
    (nothing, "de,fr --data.tasks.sizes [9]", "--data.tasks.sizes must be one for each of the 2"),
    (nothing, "de,fr --data.tasks.sizes [9,0]", "--data.tasks.sizes must be at least 1, got 0"),
    (nothing, "de,fr --data.vocab_size 100", "vocab_size must be at least 260"),
    (nothing, "de,fr --data.joint false --network.share all", "share all needs one joint voc"),
]
OTHERS = [
    ("python-docs", "de,fr", "--data.tasks is no option of python-docs, but of grammar, pairs,"),
    ("multi30k", "a:fr", "a domain of a task is a folder: a corpus of the hub has none"),
    ("grammar", "velu,de", "unknown language 'de' of task en-de: choose"),
    ("grammar", "x:velu", "unknown domain 'x' of task x:en-velu: choose"),
]


@pytest.mark.parametrize(("act", "words", "message"), MISTAKES)
def test_a_mistake_costs_one_line_and_writes_nothing(
    folder: Path,
    act: Callable[[Path], object],
    words: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from latentheads.experiments import run

    monkeypatch.chdir(folder.parent)
    act(folder)
    given = ["--data=corpus", "--data.source=en", "--data.vocab_size=300", *SMALL, *BRIEF]
    given += ["--out=run", "--data.tasks", *words.split()]
    status = status_of(run.main, *given)
    error = capsys.readouterr().err
    assert status == 2
    assert message in error
    assert error.count("\n") == 1
    assert sorted(os.listdir()) == ["corpus"]


@pytest.mark.parametrize(("data", "tasks", "message"), OTHERS)
def test_tasks_that_a_corpus_has_not_cost_one_line(
    data: str, tasks: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import run

    words = ["--data", data, "--data.tasks", tasks, "--out", str(tmp_path / "run")]
    assert status_of(run.main, *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


MIXED = ["--data.tasks", TASKS, "--data.tasks.temperature=5", "--data.tasks.one_task"]
MIXED += ["--data.source=en", "--data.vocab_size=300"]


def test_a_run_of_tasks_stopped_goes_on_as_if_never_stopped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from latentheads.experiments import run
    from latentheads.runs.trainer import Trainer

    words = ["--data", str(folder), *MIXED, *SMALL, "--recipe=group", "--samples=1"]
    words += ["--train.tokens=128", "--train.steps=5", "--train.report_every=3"]
    words += ["--network.dropout=0.2", "--decode.max_tokens=2"]
    whole, halted = tmp_path / "whole", tmp_path / "halted"
    assert run.main([*words, "--out", str(whole)]) == 0
    keep = Trainer._checkpoint

    def stop(self: Trainer) -> None:
        keep(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_checkpoint", stop)
        assert status_of(run.main, *words, "--out", str(halted)) == 130
    assert run.main([*words, "--out", str(halted)]) == 0
    one, two = (
        checkpoints.load(out / "checkpoints" / "last.safetensors")[0] for out in (whole, halted)
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert results_of(whole)["average"] == results_of(halted)["average"]
    other = [*words, "--data.tasks.temperature=2", "--out", str(whole)]
    assert status_of(run.main, *other) == 2


def test_a_comparison_has_a_column_for_each_task_and_the_averages(tmp_path: Path) -> None:
    from latentheads.experiments import compare

    words = ["--data.tasks=velu,news:korin", "--data.tasks.sizes=[60,40]", "--data.held_out=6"]
    words += [*SMALL, *BRIEF]
    words += ["--recipes=transformer", "--seeds=0", "--out", str(tmp_path)]
    assert compare.main(words) == 0
    assert "| BLEU, average of tasks |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    with (tmp_path / "table.csv").open() as file:
        (base,) = csv.DictReader(file)
    found = results_of(tmp_path / "transformer-seed0")
    assert list(found["tasks"]) == ["en-velu", "news:en-korin"]
    assert float(base["average_bleu"]) == pytest.approx(found["average"]["bleu"])
    for name, figures in found["tasks"].items():
        for figure in ("bleu", "elbo", "plug_in"):
            assert float(base[f"task {name}: {figure}"]) == pytest.approx(figures[figure])
    assert all(math.isfinite(figures["elbo"]) for figures in found["tasks"].values())


def test_what_a_language_model_writes_is_no_translation(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from latentheads.experiments import generate

    with pytest.raises(SystemExit):
        generate.main([str(finished), "--prompt", "a"])
    assert capsys.readouterr().err.endswith("is a translation model: use translate.py\n")
