"""The plan: its order, what each job is told, and which corpora there are."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

import pytest

from latentheads.experiments.cli.options import read_program
from latentheads.experiments.comparison.recipes import ComparisonOptions
from latentheads.experiments.studies.machine.plan import (
    PARTS,
    RECIPES,
    Order,
    largest_corpus,
    make_plan,
)


def corpora(folder: Path) -> Path:
    for name, size in {"multi30k/tok": 90, "small": 10, "large": 40, "one sided": 99}.items():
        (folder / name).mkdir(parents=True)
        for language in ("en", "de"):
            if name != "one sided" or language == "en":
                (folder / name / f"train.{language}").write_text("x" * size)
    (folder / "multi30k/tok/test_2016_flickr.en").write_text("x")
    return folder


def test_all_parts_come_in_their_order(tmp_path: Path) -> None:
    order = Order(tmp_path / "out", "cuda", corpora(tmp_path / "data"), at_once=3)
    plan = make_plan(order)
    assert [job.name for job in plan] == [*PARTS]
    assert all(job.seconds for job in plan[:-2])
    assert all("--jobs=3" in job.words and not job.seconds for job in plan[-2:])
    assert [job.name for job in make_plan(order, ["train", "suite"])] == ["suite", "train"]
    assert largest_corpus(order.data or tmp_path) == tmp_path / "data/large"


def test_without_corpora_nothing_is_trained_but_in_miniature(tmp_path: Path) -> None:
    assert [job.name for job in make_plan(Order(tmp_path))] == [*PARTS[:-2]]
    (tmp_path / "data").mkdir()
    assert make_plan(Order(tmp_path, data=tmp_path / "data"), PARTS[-2:]) == []
    small = make_plan(Order(tmp_path, "cpu", smoke=True))
    left_out = ("graphs", "compiled", "large")
    assert [job.name for job in small] == [part for part in PARTS if part not in left_out]


@pytest.mark.parametrize("smoke", [True, False])
def test_every_job_is_a_command_that_is_taken(
    smoke: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its words are read by its own program."""
    order = Order(tmp_path, "cpu", corpora(tmp_path / "data"), smoke)
    for job in make_plan(order):
        program, *words = job.words
        if program == "pytest":
            assert "tests" in words or words[-3].endswith("test_second_device.py")
        elif program.endswith(".compare"):
            _, _, options = read_program(words, "compare.py", "", ComparisonOptions)
            assert (options.device, options.recipes[0]) == ("cpu", RECIPES[0])
            assert options.out == str(tmp_path / "runs" / job.name)
        else:
            module = import_module(program)
            parser: argparse.ArgumentParser = module.make_parser()
            assert parser.parse_args(words).json == tmp_path / f"{job.name}.json"
