"""Sentence length and vocabulary of the pages: ``python -m tests.docs.readability [PAGE ...]``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.docs.pages import CONTRIBUTING, FENCE, INLINE, NOTEBOOKS, PAGES, REPORTS, Page

LONGEST_MEAN = 20
"""Words of a sentence, on average over a page: fewer than this."""
LONGEST = 45
"""Most words of one sentence."""

AVOIDED: dict[str, str] = {
    r"laws?": "distribution, strategy",
    r"told": "conditioned on",
    r"tells?": "shows, prints",
    r"speaks?|spoke": "active",
    r"silent": "inactive",
    r"hears?|heard": "recorded, is recognised",
    r"says|said": "states, prints, names",
    r"knows": "has, contains",
    r"lacks": "gap",
    r"pressure": "L0 penalty",
    r"pays": "has nonzero KL",
    r"price": "KL weight",
    r"by hand": "plain PyTorch, in memory",
    r"truth less bound": "gap of the bound to true log p",
    r"types of (?:the|a) vocabulary": "vocabulary size",
    r"(?:nats|bits) an? (?:sub)?word|nats a (?:token|letter|character|sentence)": "nats per token",
    r"updates": "optimiser steps",
    r"committees?": "ensemble",
    r"dictionar(?:y|ies)": "vocabulary",
    r"portraits?|portrays?": "head analysis",
    r"confidants?|confiding": "confidence estimator",
    r"keepers?": "checkpoint manager",
    r"tires": "should stop",
    r"likewise": "also",
    r"a stretch of|so many": "a number",
    r"mended|spoilt|let go": "fixed, non-finite, freed",
    r"draw|drawn|drawing": "sample, sampled",
    r"not told apart|is shown of": "no significant difference",
    r"guides? (?:that )?reads?": "conditioned on",
    r"at the beginning of training|beginnings": "early in training",
    r"pictures?": "figure, plot",
}
"""Words of earlier versions, as patterns, and the field's words in their place."""

INDENTED = re.compile(r"(?<=\n\n)(?: {4}[^\n]*\n)+")
ROW = re.compile(r"^ *\|.*$", re.MULTILINE)
HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
ITEM = r"\s*(?:[*-]|\d+\.)\s+"
BREAK = re.compile(rf"\n\s*\n(?:{ITEM})?|\n{ITEM}")
STOP = re.compile(r"(?<=[.!?])[)*]*\s+(?=[*(\[\"]*[A-Z`\d])")
WORD = re.compile(r"\w[\w'\u2019-]*")
ABBREVIATED = re.compile(r"\b(?:et al|e\.g|i\.e|vs|Fig|al)\.")
AVOIDED_PATTERN = re.compile(rf"\b(?:{'|'.join(AVOIDED)})\b", re.IGNORECASE)


def running_text(page: Page) -> str:
    """The prose of a page without code, tables, headings, figures and addresses of links."""
    text = INDENTED.sub("\n", FENCE.sub("\n", page.text))
    for pattern in (ROW, HEADING, IMAGE):
        text = pattern.sub("\n", text)
    text = LINK.sub(lambda link: link[1] or "page", text)
    return ABBREVIATED.sub("et al", text)


def sentences(page: Page) -> list[str]:
    """The sentences of a page; a paragraph and an item of a list end one."""
    text = INLINE.sub("`code`", running_text(page))
    parts = (STOP.split(block) for block in BREAK.split(text))
    clean = (re.sub(r"\s+", " ", part).strip() for block in parts for part in block)
    return [sentence for sentence in clean if WORD.search(sentence)]


def mean_length(page: Page) -> float:
    """The mean number of words of a sentence; 0 without any."""
    lengths = [len(WORD.findall(sentence)) for sentence in sentences(page)]
    return sum(lengths) / max(1, len(lengths))


def avoided_words(page: Page) -> list[str]:
    """The avoided words of a page, tables and headings included, code left out."""
    text = LINK.sub(r"[\1]", INLINE.sub("code", FENCE.sub("", page.text)))
    return [match[0] for match in AVOIDED_PATTERN.finditer(text)]


def chosen_pages() -> list[Page]:
    """Every page of the site whose text stands in the repository as such."""
    return [*PAGES, *REPORTS, NOTEBOOKS, CONTRIBUTING]


def main(names: list[str]) -> None:
    """Prints mean sentence length, longest sentences and avoided words of pages."""
    pages = [Page(Path(name).resolve()) for name in names] or chosen_pages()
    for page in pages:
        words = avoided_words(page)
        print(f"{mean_length(page):5.1f}  {len(sentences(page)):4d}  {page.path.name}  {words}")
        if names:
            longest = sorted(sentences(page), key=lambda sentence: -len(WORD.findall(sentence)))[:8]
            print(*(f"    {len(WORD.findall(item))}: {item}" for item in longest), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
