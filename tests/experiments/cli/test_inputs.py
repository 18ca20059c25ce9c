"""Lines of standard input."""

from __future__ import annotations

import io
from pathlib import Path

from latentheads.corpora.text import read_lines
from latentheads.experiments.cli.inputs import read_chunks


def test_a_line_is_cut_as_the_corpus_cuts_it(tmp_path: Path) -> None:
    data = "\ufeffa\r\r\n\ufeffb\u0085c\rd\n\n e \r".encode()
    (tmp_path / "file").write_bytes(data)
    chunks = [line for chunk in read_chunks(io.BytesIO(data), 2) for line in chunk]
    assert chunks == read_lines(tmp_path / "file") == ["a\r", "\ufeffb\x85c\rd", "", " e "]
