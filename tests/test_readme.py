"""The README's code runs as it stands."""

import re
from pathlib import Path

import pytest

from tests.experiments.programs import unpainted

ROOT = Path(__file__).parents[1]


def snippets() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_guide_of_twenty_lines_trains_in_the_notebooks_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, guide, notebook, reading = snippets()
    names: dict = {}
    exec(compile(guide, "README guide", "exec"), names)
    exec(compile(notebook, "README notebook", "exec"), names)
    assert len(names["losses"]) == 3
    assert set(names["bound"].how.values()) == {"analytic"}
    assert "analytic" in capsys.readouterr().out
    exec(compile(reading, "README reading", "exec"), names)
    assert "torch.Size([2, 2, 4, 4])" in capsys.readouterr().out


def test_a_notebook_trains_opens_and_reads_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = snippets()[0]
    for said, here in (
        ("sentences=5000", "sentences=60, held_out=5"),
        ("steps=500", "steps=2"),
        ("width=64", "width=8"),
    ):
        assert said in script
        script = script.replace(said, here)
    with unpainted():
        exec(compile(script, "README notebook", "exec"), {})
    assert "Report(elbo=" in capsys.readouterr().out
    assert (tmp_path / "runs" / "mine" / "results.json").is_file()


def test_the_guides_own_lines_are_about_twenty() -> None:
    _, guide, *_ = snippets()
    code = [line for line in guide.splitlines() if line.strip()]
    assert len([line for line in code if not line.startswith(("import", "from"))]) <= 22


def test_every_file_the_readme_shows_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (ROOT / name).is_file(), name


def test_every_recipe_stands_in_the_readmes_table() -> None:
    from latentheads.guides import RECIPES

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in RECIPES)
