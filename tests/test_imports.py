"""What takes long to load is loaded where it is used; what tests share is in no file of tests."""

from __future__ import annotations

import re
import subprocess
import sys

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
        found = re.search(r"^from tests[\w.]*\.test_\w+", file.read_text("utf-8"), re.MULTILINE)
        assert found is None, f"{file}: {found}"
