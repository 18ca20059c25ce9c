"""Where a program writes, tried before the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.experiments.cli.outputs import make_folder, open_output


def test_a_folder_is_tried_and_what_is_there_stays(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "a" / "b", "table.md")
    assert list(out.iterdir()) == []
    (out / "table.md").write_text("kept")
    assert make_folder(out, "table.md") == out
    assert (out / "table.md").read_text() == "kept"
    with pytest.raises(ValueError, match=r"^out: cannot write .*table.md/c: Not a directory$"):
        make_folder(out / "table.md" / "c", "table.md")


def test_an_output_is_opened_where_one_is_asked_for(tmp_path: Path) -> None:
    with open_output("alignments", None) as none:
        assert none is None
    with open_output("alignments", str(tmp_path / "links")) as file:
        assert file is not None
        file.write("0-0\n")
    assert (tmp_path / "links").read_text() == "0-0\n"
    with pytest.raises(ValueError, match=r"--alignments: cannot write .*: No such file"):  # noqa: SIM117
        with open_output("alignments", str(tmp_path / "nowhere" / "links")):
            pass
