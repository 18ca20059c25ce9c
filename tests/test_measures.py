"""What the measures of the code count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measures import Source, binds_filler, glossary_rows, lines_of, measure

TEXT = '''def first(paper_wer):  # a comment
    """Says what it does."""
    found = paper_wer

    def second():
        return WERScore

    return found  # noqa: F821


def third():
    if lines:
        raise ValueError
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("latentheads/selection", "models", "guides", "experiments/studies", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "latentheads" / "__init__.py").write_text("PLACES = {'a': 'b'}\nFOLDERS = ('c',)\n")
    (tmp_path / "latentheads" / "selection" / "own.py").write_text("selector = 1\n")
    (tmp_path / "models" / "model.py").write_text(TEXT)
    (tmp_path / "guides" / "guide.py").write_text("from latentheads.latents.selection import own\n")
    (tmp_path / "experiments" / "studies" / "study.py").write_text("bleu = 1\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "glossary.md").write_text("| a | b |\n|---|---:|\n| c | d |\n| e | f |\n")
    return tmp_path


def test_functions_are_counted_with_their_docstrings_and_each_for_itself(root: Path) -> None:
    source = Source(root / "models" / "model.py", root)
    lengths = {function.name: lines_of(function) for function in source.functions}
    assert lengths == {"first": 8, "second": 2, "third": 3}
    assert [f.name for f in source.functions if binds_filler(f)] == ["first"]
    assert source.comments == 1
    assert {"paper", "wer", "score"} <= source.words


def test_a_measure_counts_what_the_wheel_holds(root: Path) -> None:
    assert glossary_rows(root) == 2
    measures = measure(root)
    assert measures["lines of studies"] == "1"
    assert measures["lines of the wheel"] == str(2 + 1 + len(TEXT.splitlines()) + 1)
    assert measures["public names"] == "2"
    assert measures["files outside its own that name selection"] == "1"
    assert (measures["files that name wer"], measures["files that name bleu"]) == ("1", "0")
