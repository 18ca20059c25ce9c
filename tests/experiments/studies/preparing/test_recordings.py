"""Texts as they are said, and recordings that nobody can learn from."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.experiments.studies.preparing.recordings import (
    Recording,
    fold_text,
    keep_usable,
    said_in,
    split_by_text,
)
from tests.latentheads.contrib.speech.sounds import make_noise, write_sound


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("«Un  chat»; l\N{RIGHT SINGLE QUOTATION MARK}ami !", "Un chat l'ami"),
        ("Jääb, 'k weet-niet.", "Jääb k weet-niet"),
        ("Al·ligàtor · pel·lícula.", "Al·ligàtor pel·lícula"),
        ("e\N{COMBINING ACUTE ACCENT}te\N{COMBINING ACUTE ACCENT}", "été"),
        ("Une pièce de 2 euros.", ""),
        ("Le signe €.", ""),
        ("- ...", ""),
    ],
)
def test_what_is_said_has_no_punctuation(written: str, message: str) -> None:
    assert said_in(written) == message


def test_what_cannot_be_learned_from_is_left_out(tmp_path: Path) -> None:
    files = {
        seconds: write_sound(tmp_path / f"{seconds}.wav", make_noise(seconds, rate=16000), 16000)
        for seconds in (0.05, 0.5, 31)
    }
    low = write_sound(tmp_path / "low.wav", make_noise(0.5))
    texts = {"en": "a cat and a dog", "fr": "un chat"}
    given = [
        Recording("short", files[0.05], "en", texts),
        Recording("fast", files[0.5], "en", texts),
        Recording("low", low, "fr", texts),
        Recording("right", files[0.5], "fr", texts),
        Recording("long", files[31], "en", texts),
        Recording("silent", files[0.5], "de", texts),
    ]
    kept = keep_usable(given)
    assert [recording.name for recording in kept.recordings] == ["right"]
    assert kept.seconds == {"right": 0.5}
    assert kept.count({"train": kept.recordings}) == (
        "1 of train, 0 min of speech; 5 left out: 1 too short, "
        "1 whose text is longer than what is said, 1 of less than 15,200 samples a second, "
        "1 too long, 1 without text in words"
    )


def test_what_shares_a_text_stays_together() -> None:
    items = [(f"{index % 7} a", f"{index % 11} b") for index in range(77)]
    parts = split_by_text(items, lambda item: item)
    assert sorted(map(len, parts.values())) == [0, 0, 77]  # all are linked
    items = [(f"text {index // 2}", f"translation {index // 3}") for index in range(3000)]
    parts = split_by_text(items, lambda item: item)
    assert sum(map(len, parts.values())) == 3000
    assert min(len(parts["valid"]), len(parts["test"])) > 200
    seen = [{text for item in part for text in item} for part in parts.values()]
    assert not seen[0] & seen[1] | seen[0] & seen[2] | seen[1] & seen[2]
    again = split_by_text(reversed(items), lambda item: item)
    assert {part: sorted(item) for part, item in again.items()} == {
        part: sorted(one_part) for part, one_part in parts.items()
    }


def test_texts_are_compared_without_case_and_punctuation() -> None:
    assert fold_text("Élan, vital!") == fold_text("élan vital") == "élanvital"
    assert fold_text("?!") == "?!"
