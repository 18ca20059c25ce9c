"""Parts share no text."""

from __future__ import annotations

from latentheads.experiments.studies.preparing.parts import fold_text, split_by_text


def test_what_shares_a_text_stays_together() -> None:
    items = [(f"{place % 7} a", f"{place % 11} b") for place in range(77)]
    parts = split_by_text(items, lambda item: item)
    assert sorted(map(len, parts.values())) == [0, 0, 77]  # all are linked
    items = [(f"text {place // 2}", f"translation {place // 3}") for place in range(3000)]
    parts = split_by_text(items, lambda item: item)
    assert sum(map(len, parts.values())) == 3000
    assert min(len(parts["valid"]), len(parts["test"])) > 200
    seen = [{text for item in part for text in item} for part in parts.values()]
    assert not seen[0] & seen[1] | seen[0] & seen[2] | seen[1] & seen[2]
    again = split_by_text(reversed(items), lambda item: item)
    assert {part: sorted(each) for part, each in again.items()} == {
        part: sorted(each) for part, each in parts.items()
    }


def test_texts_are_compared_without_case_and_punctuation() -> None:
    assert fold_text("Élan, vital!") == fold_text("élan vital") == "élanvital"
    assert fold_text("?!") == "?!"
