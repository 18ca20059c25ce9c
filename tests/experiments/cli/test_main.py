"""One command for all programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from latentheads import __version__ as VERSION
from latentheads.experiments.cli.main import PROGRAMS, main
from tests.experiments.programs import ROOT, deserted


def test_every_page_is_a_program_of_the_command() -> None:
    pages = {page.stem for page in (ROOT / "experiments").glob("*.py")} - {"__init__"}
    assert pages == set(PROGRAMS)


def test_a_program_gets_the_words_behind_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["translate", str(tmp_path / "nothing")])
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("latentheads translate: error: ")


def test_help_lists_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in PROGRAMS)
    assert main([]) == 2


def test_an_unknown_program_costs_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("latentheads: error: program must be one of run, ")
    assert stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["--print_completion", "zsh"]])
def test_a_reader_that_goes_away_costs_no_word(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with deserted():
        assert main(words) == 0
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_goes_away_costs_no_word_at_the_end_of_the_process() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    called = [sys.executable, "-m", "latentheads.experiments.cli.main", "--help"]
    done = subprocess.run(called, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_closed_streams_take_what_is_written() -> None:
    write = "import sys, latentheads.experiments.cli.startup; sys.stdout.buffer.write(b'links')"
    line = ["sh", "-c", f'"{sys.executable}" -c "{write}" <&- >&- 2>&-']
    assert subprocess.run(line, cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_has_the_name_by_which_a_program_was_called(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = import_module(f"latentheads.experiments.{name}").main
    for called, title in ((program, f"{name}.py"), (partial(call, name), f"latentheads {name}")):
        with pytest.raises(SystemExit) as left:
            called(["--help"])
        assert left.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: {title} [options]")
        with pytest.raises(SystemExit) as left:
            called(["--version"])
        assert (left.value.code, capsys.readouterr().out) == (0, f"latentheads {VERSION}\n")
        with pytest.raises(SystemExit):
            called(["--nonsense"])
        assert capsys.readouterr().err.startswith(f"{title}: error: ")


def call(name: str, words: list[str]) -> int:
    """Runs a program by the command."""
    return main([name, *words])


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"latentheads {VERSION}\n"


def test_a_shell_completes_programs_and_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print_completion", "bash"]) == 0
    script = capsys.readouterr().out
    for word in (
        "translate",
        "--train.learning_rate",
        "--alignments.blocks",
        "--num_beams",
        "--recipes",
    ):
        assert f" {word} " in script
    *_, compare = script.partition("_compare_option_strings=")
    options = compare.partition("\n")[0]
    assert " --seeds " in options
    assert " --seed " not in options
    assert main(["--print_completion", "fish"]) == 2
    assert capsys.readouterr().err == (
        "latentheads: error: --print_completion must be one of bash, zsh, tcsh; got 'fish'\n"
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_completes_in_bash(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["--print_completion", "bash"])
    script = tmp_path / "completion.bash"
    words = "COMP_WORDS=(latentheads run --train.lear); COMP_CWORD=2; _shtab_latentheads"
    script.write_text(f'{capsys.readouterr().out}\n{words}\necho "${{COMPREPLY[@]}}"\n')
    done = subprocess.run(["bash", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--train.learning_rate"]
