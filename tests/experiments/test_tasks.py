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
from tests.latentheads.corpora.folders import SIZES, write_all, write_languages
from tests.latentheads.corpora.texts import corpus_of
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
    words = [
        "--data",
        str(top / "corpus"),
        "--data.source=en",
        "--data.tasks.names",
        TASKS,
        "--recipe=coda",
    ]
    words += [
        "--data.tasks.temperature=5",
        "--data.vocab_size=300",
        "--train.steps=2",
        "--decode.max_tokens=8",
    ]
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
    words = [
        "--data=grammar",
        "--data.tasks.names=velu,korin",
        "--data.tasks.sizes=[30,20]",
        "--data.held_out=6",
    ]
    words += [
        "--guide=cascaded",
        "--alignments.blocks=2",
        "--alignments.width=4",
        "--decode.max_tokens=4",
    ]
    run = train(
        tmp_path / "run",
        *words,
        "--train.steps=3",
        "--train.learning_rate=0.02",
        "--train.warmup_steps=1",
    )
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
        words = [
            str(copy / "test.translations.txt"),
            "--data.references",
            str(copy / "config.yaml"),
        ]
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


@pytest.mark.parametrize(
    ("tasks", "encoder", "decoder", "tags"),
    [
        ("de,fr", ("en",), ("de", "fr"), True),
        ("de-en,fr-en", ("de", "fr"), ("en",), False),
        ("de-fr,fr-de,de,fr-en", ("de", "fr", "en"), ("fr", "de", "en"), True),
        ("de,bible:de", ("en",), ("de",), False),
    ],
)
def test_directions_of_a_folder_make_one_corpus(
    folder: Path, tasks: str, encoder: tuple[str], decoder: tuple[str], tags: bool
) -> None:
    corpus, told = corpus_of(data=str(folder), tasks=tasks)
    number = len(tasks.split(","))
    assert (corpus.train.mixture.sources, corpus.train.mixture.targets) == (encoder, decoder)
    assert corpus.name == f"corpus {','.join(task.name for task in corpus.tasks)}"
    assert len(corpus.train) == 40 * number
    assert len(told) == number
    assert corpus.source is corpus.target
    assert hasattr(corpus.source, "tags") == tags
    for part in (corpus.train, corpus.valid, corpus.test):
        for task, source, target in zip(part.task, part.sources, part.targets, strict=True):
            said = corpus.tasks[task]
            assert corpus.source.decode(source.tolist()).split()[0] == said.source
            assert corpus.target.decode(target.tolist()).split()[0] == said.target


def test_a_domain_is_read_from_its_folder_and_may_be_what_is_told_apart(folder: Path) -> None:
    write_languages(folder / "help", "en de", seed=2)
    options = {"data": str(folder), "tasks": "bible:de,help:de", "tell_apart": "domain"}
    corpus, _ = corpus_of(**options)
    assert corpus.train.mixture.sources == corpus.train.mixture.targets == ("bible", "help")
    places = folder / "bible" / "en-de", folder / "help"
    assert list(corpus.test.references) == [
        line for place in places for line in lines_of(place / "test.de")
    ]


def test_the_size_of_a_task_may_be_cut_in_training_alone(folder: Path) -> None:
    corpus, _ = corpus_of(data=str(folder), tasks="de,fr", task_sizes=(30, 4))
    assert [len(corpus.train.indices_of_task(task)) for task in range(2)] == [30, 4]
    assert [len(corpus.test.indices_of_task(task)) for task in range(2)] == [7, 7]
    corpus, _ = corpus_of(data=str(folder), tasks="de,fr", first=9)
    assert [len(corpus.train.indices_of_task(task)) for task in range(2)] == [9, 9]
    drawn, _ = corpus_of(data="grammar", tasks="velu,talk:korin", task_sizes=(30, 4), held_out=2)
    assert [len(drawn.train.indices_of_task(task)) for task in range(2)] == [30, 4]
    assert drawn.name == "grammar en-velu,talk:en-korin"


def test_a_kept_corpus_serves_every_way_to_mix_it_until_a_file_changes(
    folder: Path, tmp_path: Path
) -> None:
    options = {"data": str(folder), "tasks": TASKS, "cache": str(tmp_path / "cache")}
    plain, told = corpus_of(**options)
    assert len(told) == len(NAMES)
    ways = {"task_temperature": 5.0, "one_task": True}
    mixed, told = corpus_of(**options, **ways)
    assert not told
    assert (mixed.train.mixture.temperature, mixed.train.mixture.one_task) == (5.0, True)
    assert mixed.tasks == plain.tasks
    assert mixed.train.task.tolist() == plain.train.task.tolist()
    assert mixed.train.sources.tokens.tolist() == plain.train.sources.tokens.tolist()
    assert mixed.source.to_json() == plain.source.to_json()
    other, told = corpus_of(**{**options, "tasks": "de,fr"})
    assert told
    assert len(other.tasks) == 2
    with (folder / "bible" / "en-de" / "test.de").open("a", encoding="utf-8") as file:
        file.write("und\n")
    with (folder / "bible" / "en-de" / "test.en").open("a", encoding="utf-8") as file:
        file.write("and\n")
    changed, told = corpus_of(**options)
    assert told
    assert len(changed.test) == len(plain.test) + 1


def test_corpora_without_tasks_are_kept_under_the_key_they_had(folder: Path) -> None:
    from latentheads.corpora.data import TASK_OPTIONS, Data
    from latentheads.corpora.from_options import _key

    alone = _key(Data(data=str(folder), source="en", target="de"))
    assert not any(f"'{name}'" in alone for name in TASK_OPTIONS)
    several = _key(Data(data=str(folder), source="en", tasks="de,fr"))
    assert "'tasks': 'de,fr'" in several
    assert "task_temperature" not in several


def nothing(folder: Path) -> None:
    pass


def cut(name: str) -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes().split(b"\n", 1)[1])

    return act


MISTAKES: list[tuple[Callable[[Path], object], str, str]] = [
    (
        nothing,
        "--data.tasks.names de,cs",
        "corpus has no train.cs or train.cs.gz; it has bible, test.de",
    ),
    (
        nothing,
        "--data.tasks.names de,help:de",
        "there is no folder corpus/help, where train.en was looked",
    ),
    (
        nothing,
        "--data.tasks.names bible:fr",
        "corpus/bible has no train.en or train.en.gz; it has en-de",
    ),
    (
        cut("valid.fr"),
        "--data.tasks.names de,fr",
        "valid.en has 6 lines and corpus/valid.fr 5: line n of one",
    ),
    (
        cut("bible/en-de/test.de"),
        f"--data.tasks.names {TASKS}",
        "corpus/bible/en-de/test.de 6: line n of",
    ),
    (nothing, "--data.tasks.names de,fr,en-de", "task en-de is given twice"),
    (
        nothing,
        "--data.tasks.names de,,fr",
        "a task is TARGET or SOURCE-TARGET, with or without DOMAIN: ",
    ),
    (
        nothing,
        "--data.tasks.names de,en",
        "source and target of task 'en' must differ, got 'en' twice",
    ),
    (
        nothing,
        "--data.tasks.names de,fr --data.tasks.temperature 0",
        "task_temperature must be positive",
    ),
    (nothing, "--data.tasks.names de,fr --data.tasks.temperature nan", "task_temperature"),
    (
        nothing,
        "--data.tasks.names de,fr --data.tasks.distinguish_by domain",
        "told apart by domain need one each; en-de has",
    ),
    (nothing, "--data.tasks.names de,fr --data.tasks.distinguish_by family", "tell_apart"),
    (
        nothing,
        "--data.tasks.names de,fr --data.tasks.sizes [9]",
        "must be one for each of the 2 tasks, got 1",
    ),
    (
        nothing,
        "--data.tasks.names de,fr --data.tasks.sizes [9,0]",
        "task_sizes must be at least 1, got 0",
    ),
    (
        nothing,
        "--data.tasks.names de,fr --task language-model",
        "tasks are directions of translation",
    ),
    (nothing, "--data.tasks.names de,fr --data python-docs", "tasks are directions of translation"),
    (nothing, "--data.tasks.names a:de,fr --data multi30k", "a corpus of the hub has none"),
    (
        nothing,
        "--data.tasks.names velu,de --data grammar",
        "unknown language 'de' of task en-de: choose",
    ),
    (
        nothing,
        "--data.tasks.names x:velu --data grammar",
        "unknown domain 'x' of task x:en-velu: choose",
    ),
    (nothing, "--data.tasks.names de,fr --data.vocab_size 100", "types must be at least 260"),
    (
        nothing,
        "--data.tasks.names de,fr --data.joint false --network.share all",
        "share all needs one joint vocabulary",
    ),
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
    sides = [] if "grammar" in words else ["--data.source=en", "--data.vocab_size=300"]
    given = ["--data", "corpus", *sides, *SMALL, *BRIEF, "--out", "run", *words.split()]
    status = status_of(run.main, *given)
    error = capsys.readouterr().err
    assert status == 2
    assert message in error
    assert error.count("\n") == 1
    assert sorted(os.listdir()) == ["corpus"]


MIXED = [
    "--data.tasks.names",
    TASKS,
    "--data.tasks.temperature=5",
    "--data.tasks.one_task=true",
    "--data.source=en",
]
MIXED += ["--data.vocab_size=300"]


def test_a_run_of_tasks_stopped_goes_on_as_if_never_stopped(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from latentheads.experiments import run
    from latentheads.runs.trainer import Trainer

    words = [
        "--data",
        str(folder),
        *MIXED,
        *SMALL,
        "--guide=group",
        "--train.tokens=128",
        "--samples=1",
    ]
    words += [
        "--train.steps=5",
        "--train.report_every=3",
        "--network.dropout=0.2",
        "--decode.max_tokens=2",
    ]
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

    words = [
        "--data.tasks.names=velu,news:korin",
        "--data.tasks.sizes=[60,40]",
        "--data.held_out=6",
        *SMALL,
        *BRIEF,
    ]
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
