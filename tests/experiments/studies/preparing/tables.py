"""What prepared folders hold."""

from __future__ import annotations

from pathlib import Path

from latentheads.contrib.speech.table import Utterance, read_utterances

__all__ = ["PARTS", "read_tables"]

PARTS = ("train", "valid", "test")


def read_tables(out: Path) -> dict[str, list[Utterance]]:
    """The utterances of each part; none of a table that has only its first line."""
    tables = {part: out / f"{part}.tsv" for part in PARTS}
    return {
        part: list(read_utterances(table)) if table.read_text().count("\n") > 1 else []
        for part, table in tables.items()
    }
