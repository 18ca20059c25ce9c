"""What takes long to load is loaded where it is used; what tests share is in no file of tests."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

import pytest

from latentheads.guides import Cascaded, Guide
from latentheads.options import OptionError, import_trusted
from tests.experiments.programs import ROOT, STUDIES, module_of

SLOW = ("accelerate", "arviz_base", "arviz_stats", "datasets", "matplotlib", "nltk", "pandas")
SLOW += ("rouge_score", "scipy", "tensorboard", "transformers", "xarray")
CODE = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_neither_the_library_nor_a_program_loads_what_it_may_not_need() -> None:
    programs = [*(path.stem for path in (ROOT / "experiments").glob("[!_]*.py")), *STUDIES]
    names = ["latentheads", *map(module_of, programs)]
    done = subprocess.run(
        [sys.executable, "-c", CODE, *names], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert {"torch", "pyro", "latentheads"} <= set(loaded)
    assert not set(loaded) & set(SLOW)


def test_no_file_of_tests_is_imported_by_another() -> None:
    for file in (ROOT / "tests").rglob("*.py"):
        match = re.search(r"^from tests[\w.]*\.test_\w+", file.read_text("utf-8"), re.MULTILINE)
        assert match is None, f"{file}: {match}"


@pytest.mark.parametrize("name", ["models", "models.translation", "guides.cascaded", "experiments"])
def test_a_folder_at_the_top_has_one_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    folder = name.partition(".")[0]
    with pytest.raises(ImportError, match=rf"^write latentheads\.{folder} for {folder}: "):
        import_module(name)
    assert import_module(f"latentheads.{name}").__name__ == f"latentheads.{name}"


def test_a_class_that_a_command_names_by_its_folder_alone_is_told_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    short, long = "guides.cascaded:Cascaded", "latentheads.guides.cascaded:Cascaded"
    with pytest.raises(OptionError, match=r"'guides\.cascaded:Cascaded' .*: write latent"):
        import_trusted(Guide, short, [short])
    assert import_trusted(Guide, long, [long]) is Cascaded
