"""Several tasks in one run: folders of text and the grammar, figures by task, text of a task."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from latentheads.corpora import batches
from latentheads.inference.evaluation import plug_in_log_likelihood
from latentheads.runs.folder import REPORT_FILES
from latentheads.training import checkpoints
from tests.experiments.breaks import assert_data_refused, assert_resumes
from tests.experiments.programs import SHORT, assert_refused, results_of, succeed
from tests.latentheads.corpora.folders import SIZES, write_all
from tests.latentheads.metrics.systems import score
from tests.latentheads.runs.trained import SMALL, train
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
    words += ["--train.steps=2", "--decode.max_new_tokens=8"]
    run = train(top / "run", *words)
    torch.manual_seed(0)
    jiggle(run.model, 0.7)
    best = checkpoints.weights(model=run.model, guide=run.guide)
    checkpoints.save(top / "run" / "checkpoints" / "best.safetensors", best, {"step": 2})
    run.finish()
    return top / "run"


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def folder_of(finished: Path, task: str) -> Path:
    """Where the text of a task is."""
    return finished.parent / "corpus" / ("bible/en-de" if task.startswith("bible") else "")


def test_the_scores_of_a_task_are_those_of_its_lines_alone(finished: Path) -> None:
    results, files = results_of(finished), ("translations", "references", "tasks")
    written, right, tasks = (lines_of(finished / f"test.{name}.txt") for name in files)
    assert {path.name for path in finished.glob("test.*")} <= {*REPORT_FILES}
    assert list(results["tasks"]) == list(dict.fromkeys(tasks)) == NAMES
    assert len(set(written)) > len(NAMES)
    for name, figures in results["tasks"].items():
        mine = [index for index, task in enumerate(tasks) if task == name]
        references = lines_of(folder_of(finished, name) / f"test.{name[-2:]}")
        assert [right[line] for line in mine] == references
        alone = score([written[line] for line in mine], references)
        assert (figures["bleu"], figures["chrf"]) == (alone.bleu, alone.chrf)
        assert figures["sentences"] == len(mine) == SIZES["test"]
    together = score(written, right)
    assert (results["test"]["bleu"], results["test"]["chrf"]) == (together.bleu, together.chrf)


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
    words += ["--decode.max_new_tokens=4", "--train.learning_rate=0.02", "--train.warmup_steps=1"]
    run = train(tmp_path / "run", *words)
    run.finish()
    results = results_of(tmp_path / "run")
    tasks, test = results["tasks"], results["test"]
    assert list(tasks) == ["en-velu", "en-korin"]
    for number, figures in enumerate(tasks.values()):
        assert figures["exact"] - figures["elbo"] == pytest.approx(figures["gap"], abs=1e-5)
        alone = run.corpus.test.task == number
        own = [
            batch
            for batch in batches(run.corpus.test, 1, shuffle=False)
            if alone[batch.sentences[0]]
        ]
        nats = sum(plug_in_log_likelihood(run.model, batch).sum().item() for batch in own)
        assert nats / figures["tokens"] == pytest.approx(figures["exact"], abs=1e-5)
    for name in ("exact", "gap", "elbo"):
        nats = sum(figures[name] * figures["tokens"] for figures in tasks.values())
        assert nats / test["tokens"] == pytest.approx(test[name], abs=1e-5)
        if name != "gap":
            mean = sum(figures[name] for figures in tasks.values()) / len(tasks)
            assert results["average"][name] == pytest.approx(mean)


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_task_is_translated_as_the_test_part_was(finished: Path, name: str) -> None:
    text = (folder_of(finished, name) / f"test.{name.removeprefix('bible:')[:2]}").read_text(
        "utf-8"
    )
    tasks = lines_of(finished / "test.tasks.txt")
    written = zip(lines_of(finished / "test.translations.txt"), tasks, strict=True)
    expected = "".join(f"{line}\n" for line, task in written if task == name)
    words = ("translate.py", str(finished), "--direction", name.replace("en-", ""))
    assert succeed(*words, text=text).stdout == expected
    assert succeed(*words, text="\n\n").stdout == "\n\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], f"has several tasks: give direction, one of {', '.join(NAMES)}"),
        (["--direction=cs"], f"task must be one of {', '.join(NAMES)}; got 'en-cs'"),
        (["--direction=a-b-c"], "a task is TARGET or SOURCE-TARGET"),
    ],
)
def test_a_task_that_is_not_the_runs_costs_one_line(
    finished: Path, words: list[str], message: str
) -> None:
    assert_refused("translate.py", str(finished), *words, says=message, text="a\n")


def test_a_run_of_one_direction_has_no_task(folder: Path, tmp_path: Path) -> None:
    words = ["--data", str(folder), "--data.source=en", "--data.target=de", "--train.steps=1"]
    train(tmp_path / "run", *words)
    assert "task_" not in (tmp_path / "run" / "config.yaml").read_text()
    single = "has a single direction: drop direction\n"
    assert_refused("translate.py", str(tmp_path / "run"), "--direction=de", says=single)


def test_the_paired_test_takes_all_tasks_together_or_one_alone(
    finished: Path, tmp_path: Path
) -> None:
    results, file = results_of(finished), tmp_path / "scores.json"
    words = ["score.py", str(finished), str(finished), "--resamples=50", "--json", str(file)]
    for name, figures in {"": results["test"], **results["tasks"]}.items():
        chosen = ["--direction", name] if name else []
        assert f" {figures['bleu']:.2f} " in succeed(*words, *chosen).stdout
        sentences = SIZES["test"] * (1 if name else len(NAMES))
        assert json.loads(file.read_text())["sentences"] == sentences
    for short, name in (("fr", "en-fr"), ("bible:de", "bible:en-de")):
        printed = succeed(*words, "--direction", short).stdout
        assert f" {results['tasks'][name]['bleu']:.2f} " in printed
    succeed(*words[:2], "--likelihood", "--direction=fr", *words[3:])
    record = json.loads(file.read_text())
    assert record["sentences"] == SIZES["test"]
    assert record["systems"][0]["nats"]["score"] == results["tasks"]["en-fr"]["iwae"]


def test_scores_of_a_task_that_is_not_there_are_refused(finished: Path, tmp_path: Path) -> None:
    run = str(shutil.copytree(finished, tmp_path / "run"))
    tasks = tmp_path / "run" / "test.tasks.txt"
    unknown = f"has no task 'en-cs': choose from {', '.join(NAMES)}"
    assert_refused("score.py", run, "--direction=en-cs", says=unknown)
    tasks.unlink()
    single = "has a single direction: drop --direction"
    assert_refused("score.py", run, "--direction=en-de", says=single)


def cut(name: str) -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes().split(b"\n", 1)[1])

    return act


MISTAKES: list[tuple[Callable[[Path], object] | None, str, str]] = [
    (None, "de,cs", "corpus has no train.cs or train.cs.gz; it has bible, test.de"),
    (None, "de,help:de", "there is no folder corpus/help, where train.en was looked"),
    (None, "bible:fr", "corpus/bible has no train.en or train.en.gz; it has en-de"),
    (cut("valid.fr"), "de,fr", "valid.en must be as many as those of corpus/valid.fr, 5, got 6"),
    (cut("bible/en-de/test.de"), TASKS, "as many as those of corpus/bible/en-de/test.de, 6, got"),
]


@pytest.mark.parametrize(("act", "words", "message"), MISTAKES)
def test_a_mistake_costs_one_line_and_writes_nothing(
    folder: Path, act: Callable[[Path], object] | None, words: str, message: str
) -> None:
    given = ["--data.source=en", "--data.vocab_size=300", *SMALL, "--data.tasks", *words.split()]
    assert_data_refused(folder, act, given, message)


def test_a_run_of_tasks_stopped_goes_on_as_if_never_stopped(folder: Path, tmp_path: Path) -> None:
    words = ["--data", str(folder), "--data.source=en", "--data.vocab_size=300"]
    words += ["--data.tasks", TASKS, "--data.tasks.temperature=5", "--data.tasks.one_task"]
    words += [*SMALL, "--recipe=group", "--num_samples=1"]
    words += ["--train.tokens=128", "--train.steps=5", "--train.report_every=3"]
    words += ["--network.dropout=0.2", "--decode.max_new_tokens=2"]
    whole = assert_resumes(words, tmp_path, 4)
    assert results_of(whole)["average"] == results_of(tmp_path / "halted")["average"]
    other = [*words, "--data.tasks.temperature=2", "--out", str(whole)]
    assert_refused("run.py", *other, says="holds a run with other options")


def test_a_comparison_has_a_column_for_each_task_and_the_averages(tmp_path: Path) -> None:
    words = ["--data.tasks=velu,news:korin", "--data.tasks.sizes=[60,40]", "--data.held_out=6"]
    words += [*SMALL, *SHORT, "--recipes=transformer", "--seeds=0", "--out", str(tmp_path)]
    succeed("compare.py", *words)
    assert "| BLEU, average of tasks |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    with (tmp_path / "table.csv").open() as file:
        (base,) = csv.DictReader(file)
    results = results_of(tmp_path / "transformer-seed0")
    assert list(results["tasks"]) == ["en-velu", "news:en-korin"]
    assert float(base["average_bleu"]) == pytest.approx(results["average"]["bleu"])
    for name, figures in results["tasks"].items():
        for figure in ("bleu", "elbo", "exact"):
            assert math.isfinite(figures[figure])
            assert float(base[f"task {name}: {figure}"]) == pytest.approx(figures[figure])
