"""Every command and every option that a page names is one that its program knows."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

import pytest

from latentheads.experiments.cli.main import PROGRAMS
from latentheads.experiments.cli.options import read_program, read_settings
from latentheads.experiments.comparison.recipes import ComparisonOptions, plan_all
from tests.docs.commands import TRAINING, accept, commands, known_options
from tests.docs.pages import CHANGES, GONE, PAGES, REPORTS, RESULTS, ROOT, Page
from tests.experiments.programs import STUDIES

OTHERS = ("pip", "git", "torchrun", "make", "sphinx")
"""Words of a line whose options are not ours."""
OUTSIDE = {"--help", "--nproc-per-node", "--print_completion"}
ASSIGNMENT = re.compile(r'^ *([A-Z]+)="([^"]*)"', re.MULTILINE)
HERE = {*PROGRAMS, *STUDIES}
OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*")


def _runs_of(program: str, words: list[str]) -> Iterator[tuple[str, str]]:
    """The folder and the settings of each run that a command trains."""
    if program == "run":
        settings, options, _ = read_settings(words, "run.py", "")
        yield options.out or str(settings.out), settings.to_yaml()
    if program == "compare":
        common, line, comparison = read_program(words, "compare.py", "", ComparisonOptions)
        for plan in plan_all(common, line, comparison, Path(comparison.out), "compare.py"):
            yield str(plan.folder), plan.settings.to_yaml()
            yield comparison.out, "compare"


COMMANDS = sorted({tuple(words) for page in PAGES for words in commands(page)})


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder with what the commands of the pages read: a guide, a pruned run, folders of text."""
    folder = tmp_path_factory.mktemp("reader")
    guide, _, _, *others = Page(ROOT / "docs" / "guides.md").blocks("python")
    (folder / "my_guides.py").write_text("\n\n".join([guide, *others]), encoding="utf-8")
    first_guide = Page(ROOT / "docs" / "first-hour.md").blocks("python")[-1]
    (folder / "first_guide.py").write_text(first_guide, encoding="utf-8")
    by_folder = {dict(pairwise(words)).get("--out"): words for _, *words in COMMANDS}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("my_guides", "first_guide"):
            patch.setitem(sys.modules, name, None)
            del sys.modules[name]  # neither another test's, nor left to another
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        for _, *words in COMMANDS:
            for option, value in pairwise(words):
                if option == "--data" and (value.isupper() or "/" in value):
                    Path(value).mkdir(parents=True, exist_ok=True)
        for _, *words in COMMANDS:
            if "--config" in words:
                file = Path(words[words.index("--config") + 1])
                run = by_folder.get(str(file.parent), ["--recipe", "transformer"])
                settings, *_ = read_settings(run, "run.py", "")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(settings.to_yaml(), encoding="utf-8")
        yield


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_is_one_that_its_program_accepts(command: tuple[str, ...]) -> None:
    program, *words = command
    accept(program, words)


def test_enough_commands_are_found() -> None:
    assert len(COMMANDS) > 50
    assert {program for program, *_ in COMMANDS} == HERE


def test_every_option_of_a_reports_commands_is_known() -> None:
    """Their figures are of older revisions, but whoever repeats them has this one, or one named."""
    texts = [GONE.sub("", page.text) for page in REPORTS]
    texts += [path.read_text("utf-8") for path in RESULTS.glob("*/*.json")]
    text = "\n".join(texts).replace("\\\n", " ")
    assert {*re.findall(r"experiments/studies/(\w+)\.py", text)} <= STUDIES
    matches = re.findall(r"experiments/(?:studies/)?(\w+)\.py (--.*|\w.* --.*)", text)
    assert len(matches) > 30
    for program, message in matches:
        assert {*OPTION.findall(message)} <= known_options(program), message


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("page", REPORTS, ids=str)
def test_a_reports_training_is_accepted_and_names_its_optimizer(page: Page) -> None:
    """Itself or by a preset: the default has changed. Different runs have different folders."""
    text = page.text.replace("\\\n", " ")
    variables = dict(ASSIGNMENT.findall(text))
    runs: dict[str, str] = {}
    for program, words in re.findall(rf"experiments/({'|'.join(TRAINING)})\.py( .*)", text):
        command = words
        while used := re.search(r"\$([A-Z]+)\b", command):
            command = command.replace(used[0], variables[used[1]])
        named = ("--train.optimizer ", "--preset ")
        assert any(option in command for option in named), words
        if not re.search(r"[$\[`(]|\b(RECIPE|SEED|OPTIONS?|LANGUAGE)\b|wikitext2", command):
            for folder in re.findall(r"--data (\S+)", command):
                Path(folder).mkdir(parents=True, exist_ok=True)
            options = shlex.split(command, comments=True)
            accept(program, options)
            for folder, settings in _runs_of(program, options):
                assert runs.setdefault(folder, settings) == settings, folder


@pytest.mark.parametrize("page", [*PAGES, *REPORTS, CHANGES], ids=str)
def test_every_option_within_a_sentence_is_known(page: Page) -> None:
    """With a program's name before it to this program, else to any."""
    any_program = frozenset().union(*map(known_options, HERE)) | OUTSIDE
    for code in page.inline:
        program = re.match(r"(?:python experiments/)?(?:studies/)?(\w+)\.py ", code)
        if program and program[1] not in HERE:
            assert page is CHANGES or GONE.search(page.text), code
            continue
        expected = any_program if program is None else known_options(program[1]) | OUTSIDE
        if not code.startswith(OTHERS) and "-m pip" not in code:
            for option in OPTION.findall(code):
                assert option in expected, code


@pytest.mark.usefixtures("reader")
def test_different_runs_of_the_pages_are_in_different_folders() -> None:
    """Whoever pastes the commands of several pages finds no folder of other options."""
    runs: dict[str, set[str]] = {}
    for program, *words in COMMANDS:
        for folder, settings in _runs_of(program, words):
            runs.setdefault(folder, set()).add(settings)
    assert len(runs) > 100
    assert [folder for folder, settings in runs.items() if len(settings) > 1] == []


def test_commands_of_the_papers_run_in_their_order() -> None:
    """A run has a folder of its own, and what a command reads is written before it."""
    folders: list[str] = []
    for program, *words in commands(Page(ROOT / "docs" / "papers.md")):
        values = dict(pairwise(words))
        out = values.get("--out", "")
        for word in words:
            if word.startswith("runs/") and word != out:
                assert word.removesuffix("/config.yaml") in folders, (program, word)
        if program in TRAINING:
            assert out, words
            assert out not in folders, words
            folders.append(out)
        if program == "compare":
            names = product(values["--recipes"].split(","), values.get("--seeds", "0").split(","))
            folders += [f"{out}/{recipe}-seed{seed}" for recipe, seed in names]
    assert len(folders) > 20
