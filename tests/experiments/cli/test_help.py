"""Help of the programs that train: short, complete, and of one class where it is asked for."""

from __future__ import annotations

import re
from typing import Any

import pytest

from latentheads.data import Data
from latentheads.experiments.cli.help import choices_page, class_page, help_page, select_help_page
from latentheads.experiments.cli.options import RunOptions
from latentheads.experiments.cli.parser import texts_of
from latentheads.families import Family, Gaussian, HeadScale, Identity
from latentheads.guides import GUIDES
from latentheads.latents.registry import LATENTS
from latentheads.models import PRIORS, Prior
from latentheads.names import Block
from latentheads.options import choices_of, flatten, options_of
from latentheads.runs.settings import Settings
from latentheads.training.losses import KLWarmup
from latentheads.training.options import Optimizer, Training
from tests.experiments.programs import assert_refused, inside

DATA = Data.choices()
MOST_LINES = 64
MARKS = ("``", "\\", ":math:", ":class:", "(type:", "default: null")


def test_the_help_of_a_run_fits_on_a_screen() -> None:
    done = inside("run.py", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) <= MOST_LINES
    assert max(map(len, done.stdout.splitlines())) <= 99
    assert done.stdout == inside("run.py", "-h", "--seed", "3").stdout


def test_it_names_every_option_and_every_group() -> None:
    page = help_page(RunOptions)
    shown = {name.rstrip(".") for name in re.findall(r"^  --([\w.-]+)", page, re.MULTILINE)}
    assert shown >= {*options_of(RunOptions), *options_of(Settings), *LATENTS, "recipe", "preset"}
    for name, option in options_of(Settings).items():
        if choices_of(option.kind):
            assert f"--{name}. " in page
    for kind in LATENTS.values():
        assert ", ".join(options_of(kind)) in " ".join(page.split())


def test_help_of_all_holds_every_option_of_every_group() -> None:
    page = help_page(RunOptions, everything=True)
    for name in flatten(Settings().to_options()):
        assert re.search(rf"--{re.escape(name)}\s", page) or name.endswith(
            ("class", "disagreement")
        ), name
    for name, kind in DATA.items():
        assert f"--data {name}:" in page
        assert all(f"--data.{option}" in page.split() for option in options_of(kind))
    assert page == select_help_page({"help": "all"}, RunOptions)


@pytest.mark.parametrize(
    "words",
    [
        "--help=all",
        *(f"--guide.help={name}" for name in GUIDES),
        *(f"--logits.prior.help={name}" for name in PRIORS),
        *(f"--data.help={name}" for name in DATA),
        "--data.tasks.help",
        "--train.help",
        "--train.optimizer.help=nag",
        *(f"--{name}.help" for name in LATENTS),
    ],
)
def test_help_is_plain_text(words: str) -> None:
    done = inside("run.py", words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(("usage: ", words.partition(".help")[0]))
    assert not {mark for mark in MARKS if mark in done.stdout}


def test_a_page_of_a_class_says_what_each_option_does() -> None:
    page = class_page(DATA["pairs"], "data", "pairs")
    assert page.startswith("--data pairs:\nPairs of texts from a folder")
    assert all(f"--data.{name} " in page for name in options_of(DATA["pairs"]))


def test_a_default_of_zero_is_shown_and_one_of_nothing_is_not() -> None:
    words = " ".join(class_page(KLWarmup, "train.loss.kl_warmup").split())
    assert "--train.loss.kl_warmup.start Where it starts. (default: 0.0)" in words
    words = " ".join(class_page(Training, "train").split())
    optimizers = ", ".join(Optimizer.choices())
    assert f"--train.optimizer How gradients move the weights. One of {optimizers}. (d" in words
    pages = "".join(class_page(kind, "data") for kind in DATA.values())
    assert not re.search(r"default: (False|None|\)|\{\})", pages)


@pytest.mark.parametrize("kind", [Settings, *DATA.values(), *LATENTS.values()])
def test_every_option_says_what_it_does(kind: type) -> None:
    assert [name for name in options_of(kind) if not texts_of(kind).get(name)] == []


@pytest.mark.parametrize("kind", [*GUIDES.values(), *PRIORS.values()])
def test_so_does_every_option_of_a_guide_or_a_prior(kind: type) -> None:
    assert [name for name in options_of(kind) if not texts_of(kind).get(name)] == []


def test_without_a_name_the_classes_are_listed() -> None:
    page = select_help_page({"data": {"help": "true"}}, RunOptions)
    assert page == choices_page(Data, "data")
    assert re.findall(r"^  ([\w-]+)", page, re.MULTILINE) == [*DATA]


@pytest.mark.parametrize(
    ("words", "takes_own"),
    [
        ({"data": {"help": "true"}}, True),
        ({"guide": {"help": "true"}}, True),
        ({"logits": {"prior": {"help": "true"}}}, True),
        ({"train": {"optimizer": {"help": "true"}}}, False),
    ],
)
def test_a_list_says_whether_a_class_of_ones_own_may_be_named(
    words: dict[str, Any], takes_own: bool
) -> None:
    page = select_help_page(words, RunOptions)
    assert page is not None
    assert (" module:Class takes one of your own" in " ".join(page.split())) == takes_own


class Own(Prior):
    """A prior of the reader's own.

    Args:
        share: Share of what is below.
    """

    def __init__(self, share: float = 0.5, size: int = 3) -> None:
        self.share = share

    def __call__(self, block: Block) -> Family:
        return Gaussian(Identity(), HeadScale(block.heads, self.share))


def test_help_of_a_class_of_ones_own_has_its_options() -> None:
    done = inside("run.py", f"--logits.prior.help={__name__}:Own")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"--logits.prior {__name__}:Own:\nA prior of the reader's own.")
    assert "--logits.prior.share  Share of what is below. (default: 0.5)" in done.stdout
    assert "--logits.prior.size (default: 3)" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data.help=pears", "data.help must be one of grammar, grammar-text, "),
        ("--guide.help=no_such:Guide", "guide 'no_such:Guide' cannot be imported: No module "),
        (f"--guide.help={__name__}:Own", f"guide '{__name__}:Own' must be a subclass of "),
        ("--train.optimizer.help=no_such:Adam", "train.optimizer.help must be one of muon, "),
        ("--foo.help", "foo is not a group of options"),
        ("--seed.help", "seed is not a group of options"),
        ("--train.foo.help", "train.foo is not a group of options"),
    ],
)
def test_help_of_what_is_no_group_costs_one_line(words: str, message: str) -> None:
    assert_refused("run.py", words, says=f"run.py: error: --{message}")


@pytest.mark.parametrize(("name", "own"), [("compare", "seeds"), ("sweep", "head_numbers")])
def test_help_of_many_runs_shows_no_option_of_a_single_one(name: str, own: str) -> None:
    stdout = inside(f"{name}.py", "--help").stdout
    shown = set(re.findall(r"^  --([\w.-]+)", stdout, re.MULTILINE))
    single = {"recipe", "guide.", "latents", "seed", "trackers", "verbose"}
    assert not shown & single
    assert shown >= {"recipes", own, "network.", "logits."}
    assert f"(default: runs/{name})" in stdout
    assert "runs/RECIPE-seedSEED" not in stdout
    assert (" feed_forward, heads, layers" in stdout) == (name == "compare")


@pytest.mark.parametrize("name", ["compare.py", "sweep.py"])
def test_nor_does_any_page_of_theirs(name: str) -> None:
    for words in ("--help=all", "--network.help"):
        shown = set(re.findall(r"^ *--([\w.-]+)", inside(name, words).stdout, re.MULTILINE))
        assert "network.layers" in shown
        assert ("network.heads" in shown) == (name == "compare.py")
        assert not {option for option in shown if option.partition(".")[0] == "guide"}
    for words in ("--guide.help", "--guide.help=tied"):
        assert_refused(name, words, says="--guide belongs to run.py: here use --recipes")
