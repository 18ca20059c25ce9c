"""What can be measured without manual links: agreement of aligners, and identical words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from latentheads.contrib.align.api import align
from latentheads.contrib.align.symmetrization import grow_diag_final_and
from latentheads.contrib.align.tokenization import tokenize_line
from latentheads.experiments.studies.word_aligners.rivals import run_rival
from latentheads.metrics.alignment import Link, Links, count_links

Text = tuple[Sequence[str], Sequence[str]]


def measure_agreement(text: Text, python: Path) -> dict[str, Any]:
    """Aligns a text with the aligner and with eflomal, and compares their links.

    Args:
        text: The lines, whose punctuation is split off.
        python: The Python of an environment with eflomal.
    """
    source, target = (
        [" ".join(tokenize_line(line, "punctuation").tokens) for line in side] for side in text
    )
    forward, backward = run_rival("eflomal", python, source, target)[0]
    both = list(zip(forward, backward, strict=True))
    aligned = align(source, target)
    systems: dict[str, Sequence[Links]] = {
        "align.py, product": [frozenset(links) for links in aligned.links],
        "align.py, grow-diag-final-and": [
            frozenset(links) for links in aligned.select("grow-diag-final-and")
        ],
        "eflomal, intersection": [ahead & back for ahead, back in both],
        "eflomal, grow-diag-final-and": [grow_diag_final_and(*sides) for sides in both],
    }
    return compare_links(source, target, systems)


def compare_links(
    source: Sequence[str], target: Sequence[str], systems: Mapping[str, Sequence[Links]]
) -> dict[str, Any]:
    """The F1 of the links of every two aligners, and what each does with identical words.

    Args:
        source: The source lines.
        target: The target lines.
        systems: The links of each line by the name of the aligner.
    """
    identical = [identical_words(*lines) for lines in zip(source, target, strict=True)]
    words = sum(len(line.split()) for line in target)
    results: dict[str, Any] = {"pairs": len(source), "identical": sum(map(len, identical))}
    for name, links in systems.items():
        counts = count_links(links, identical)
        results[name] = {
            "links_per_target_word": round(counts.found / max(words, 1), 4),
            "identical_linked": round(counts.recall, 4),
        }
    results["f1"] = {
        f"{first} / {second}": round(count_links(systems[first], systems[second]).f1, 4)
        for first, second in combinations(systems, 2)
    }
    return results


def identical_words(source: str, target: str) -> frozenset[Link]:
    """The links of words that stand once in both lines: names, numbers, punctuation."""
    sides = source.split(), target.split()
    counts = [Counter(words) for words in sides]
    once = [word for word in sides[0] if all(count[word] == 1 for count in counts)]
    return frozenset((sides[0].index(word), sides[1].index(word)) for word in once)
