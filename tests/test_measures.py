"""What the measures of the code count."""

from __future__ import annotations

from pathlib import Path

from tests.experiments.programs import ROOT
from tests.imports import WHEEL, find_modules
from tests.measures import CONFIGURATION, ENTRIES, NAMED, measure, public_names

FILES = {
    "latentheads/__init__.py": "MODULES = {'a': 'b'}\nPACKAGES = ('c',)\n",
    "latentheads/guide.py": "from latentheads import checks\n\n",
    "latentheads/model.py": "def late():\n    import latentheads.guide\n",
    "latentheads/checks.py": "raise ValueError\n",
    "experiments/cli/help.py": "import latentheads.model\n\n\n",
    "experiments/studies/study.py": "\n" * 100,
    "tests/test_model.py": "found = [each for each in ()]\n\n\ndef test(law):\n    print(found)\n",
}


def test_a_measure_counts_what_is_read_and_what_the_wheel_holds(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    measures = measure(tmp_path)
    assert measures["read set, median of the entry modules"] == "4"  # guide 3, model 5
    assert measures["circles, files in them"] == "0, 0"
    assert measures["lines of the wheel"] == "10"
    assert measures["lines of options, checks, cli"] == "4"
    assert measures["raise, a thousand lines"] == "100.0"
    assert measures["lines of tests"] == "5"
    assert measures["filler names bound in tests"] == "3"
    assert measures["public names"] == "2"


def test_what_is_measured_by_its_name_is_there() -> None:
    files = find_modules(ROOT, WHEEL)
    assert {f"latentheads.{name}" for name in (*ENTRIES, *NAMED)} <= files.keys()
    packages = tuple(f"latentheads.{name}." for name in CONFIGURATION)
    assert any(f"{module}.".startswith(packages) for module in files)
    assert public_names(ROOT / "latentheads" / "__init__.py") > 0
