"""The pages a reader sees, taken apart: code, links, headings, tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"

GONE = re.compile(r"^```bash\ngit checkout [0-9a-f]{8}\b.*?^```$", re.DOTALL | re.MULTILINE)
"""Commands of an older revision, whose programs are no longer here."""

FENCE = re.compile(r"^ *```(\S*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """A page in Markdown."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        """The text without what is fenced off."""
        return FENCE.sub("", self.text)

    def blocks(self, language: str) -> list[str]:
        """What is fenced off as code of a language, without its margin."""
        texts = [text for message, text in FENCE.findall(self.text) if message == language]
        return [re.sub(rf"^{re.match(' *', text)[0]}", "", text, flags=re.M) for text in texts]

    @property
    def inline(self) -> list[str]:
        """Code within the prose; a bar of a table stands escaped there."""
        return [code.replace(r"\|", "|") for code in INLINE.findall(self.prose)]

    @property
    def links(self) -> list[str]:
        """Addresses of links and pictures."""
        return LINK.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """What a link to a heading says behind the #, as GitHub and the site make it."""
        return {slug(heading) for _, heading in HEADING.findall(self.prose)}

    @property
    def sections(self) -> list[str]:
        """The prose between two headings of the second level."""
        return re.split(r"^(?=## )", self.prose, flags=re.MULTILINE)


def slug(heading: str) -> str:
    """The anchor of a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return words.replace(" ", "-")


def rows_of(text: str) -> list[list[str]]:
    """The cells of every row of the tables in a text, heads left out."""
    lines = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]
    rules = [index for index, row in enumerate(rows) if all(set(cell) <= {*"-:"} for cell in row)]
    heads = {*rules, *(rule - 1 for rule in rules)}
    return [row for index, row in enumerate(rows) if index not in heads]


README = Page(ROOT / "README.md")
NOTEBOOKS = Page(ROOT / "experiments" / "notebooks" / "README.md")
CHANGES = Page(ROOT / "CHANGELOG.md")
CONTRIBUTING = Page(ROOT / "CONTRIBUTING.md")
PAGES = [README, *(Page(path) for path in sorted((ROOT / "docs").glob("*.md")))]
REPORTS = [Page(path) for path in sorted(RESULTS.glob("*/README.md"))]


NUMBER = re.compile(r"(?<![\w.])-?\d*\.\d+(?:e-?\d+)?|(?<![\w.< ])\d+e-\d+")


def numbers(cell: str) -> list[str]:
    """The numbers of a cell that are no whole ones and no bound such as < 1e-6."""
    return NUMBER.findall(re.sub(r"< \S+", "", cell.replace("\N{MINUS SIGN}", "-")))


def among(text: str, figures: list[float]) -> bool:
    """Whether a figure, rounded as a text says it, is one of some."""
    places = len(text.partition("e")[0].partition(".")[2])
    unit = 10.0 ** (int(text.partition("e")[2] or 0) - places)
    return any(abs(float(text) - figure) <= 0.500001 * unit for figure in figures)
