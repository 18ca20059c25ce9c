"""Help in groups: every option once, and what it says of each."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from importlib import import_module

import pytest

from latentheads.experiments.cli import main
from latentheads.experiments.cli.parser import DASHES, Parser, add_run_options
from latentheads.experiments.studies.benchmarks.command_line import BENCH_GROUPS
from tests.experiments.programs import STUDIES, assert_refused, inside, module_of

PROGRAMS = [*main.PROGRAMS, *sorted(STUDIES)]
TRAINING = ("run", "compare", "sweep")
"""Programs whose options are classes: see test_help.py."""

READERS = [name for name in PROGRAMS if name not in TRAINING]


def own_groups(name: str) -> dict[str, list[str]]:
    """The groups of a program's own, with what of its options is in each."""
    parser = import_module(module_of(name)).make_parser()
    parser.format_help()
    shown = {group.title: group._group_actions for group in parser._action_groups}
    return {title: [item.dest for item in actual] for title, actual in shown.items() if actual}


@pytest.mark.parametrize("name", READERS)
def test_every_option_stands_in_one_group(name: str) -> None:
    groups = own_groups(name)
    positional = [groups.pop(title) for title in list(groups) if title == "positional arguments"]
    accepted = (["run"], ["part", "runs"], ["runs"], ["run", "files"], ["corpus", "sources"])
    accepted += (["texts"], ["network", "files"], ["part"], ["part", "network"], ["run", "folder"])
    assert all(names in accepted for names in positional)
    assert not {"options", "optional arguments"} & set(groups)
    counts = Counter(option for group in groups.values() for option in group)
    assert set(counts.values()) == {1}
    assert "help" in counts


def test_no_group_names_an_option_that_is_none() -> None:
    names: set[str] = set()
    for name in READERS:
        names.update(*own_groups(name).values())
    assert {option for bench_group in BENCH_GROUPS.values() for option in bench_group} <= names


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_begins_with_what_a_program_does_in_one_line(name: str) -> None:
    done = inside(f"{name}.py", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "(default: [])" not in done.stdout
    usage, empty, first, second, *_ = done.stdout.splitlines()
    assert usage.startswith(f"usage: {name}.py [options]")
    assert (empty, second) == ("", "")
    assert first.endswith(".")
    folder = "experiments/studies" if name in STUDIES else "experiments"
    assert f"python {folder}/{name}.py" in done.stdout
    assert not re.search(r"python .* {8,}", done.stdout)  # two lines of a command are two
    assert "(type:" not in done.stdout
    assert "default: null" not in done.stdout


def test_an_option_of_no_group_stands_with_the_others() -> None:
    parser = Parser("some.py", "It does.", {"mine": ("two", "three"), "none": ("four",)})
    parser.add_argument("--one", help="the first")
    parser.add_argument("--two", help="the second", default=2)
    others, own = parser.format_help().split("mine:")
    assert "the second (default: 2)" in own
    assert "the first" in others
    assert "none:" not in own
    options = parser.parse_args(["--one", "1", "--two", "2"])
    assert (options.one, options.two) == ("1", "2")


def test_an_option_may_stand_between_others() -> None:
    parser = Parser("some.py", "It does.", {})
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--out")
    assert parser.parse_args(["a", "--out", "x", "b", "c"]).runs == ["a", "b", "c"]
    assert parser.parse_args(["--out", "x", "a", "b", "--", "-c"]).runs == ["a", "b", "-c"]


def test_classes_that_are_trusted_one_by_one_are_all_trusted() -> None:
    parser = argparse.ArgumentParser()
    add_run_options(parser, "of it")
    assert parser.parse_args([]).trust == []
    words = ["--trust", "m:C", "--trust=n:D", "--guide", "o:E"]
    assert parser.parse_args(words).trust == ["m:C", "n:D", "o:E"]


@pytest.mark.parametrize(
    "word", [f"{DASHES[0]}out", f"{DASHES[0]}{DASHES[0]}out", f"{DASHES[1]}out=x"]
)
def test_a_long_dash_is_named(word: str) -> None:
    says = f"error: unrecognized argument {word!r}: an option begins with --"
    assert_refused("report.py", "run", word, says=says)


def test_a_value_may_be_the_name_of_an_option_or_begin_with_a_dash() -> None:
    parser = Parser("any.py", "Does it.", {"the work": ("out",)})
    parser.add_argument("run")
    parser.add_argument("--out")
    options = parser.parse_args(["out", "--out", f"{DASHES[0]}x"])
    assert (options.run, options.out) == ("out", f"{DASHES[0]}x")


@pytest.mark.parametrize(
    ("program", "word", "says"),
    [
        ("analyse.py", "--out=", "--out: must be a file or a folder, got ''"),
        ("prune.py", "--out=", "--out: must be a file or a folder, got ''"),
        ("score.py", "--json=", "--json: cannot write '': name a file"),
    ],
)
def test_an_empty_output_is_no_folder(program: str, word: str, says: str) -> None:
    assert_refused(program, "run", word, says=says)


def test_a_name_is_not_broken_at_its_hyphen() -> None:
    parser = Parser("a.py", "Does it.", {})
    names = [f"mean-field-{index}" for index in range(11)]
    parser.add_argument("--names", help=" ".join(names), default=",".join(names[:5]))
    words = parser.format_help().split()
    assert {*names, f"{','.join(names[:5])})"} <= {*words}
