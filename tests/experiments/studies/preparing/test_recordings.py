"""Texts as they are said, and recordings that nobody can learn from."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.experiments.studies.preparing.recordings import Recording, keep_usable, said_in
from tests.latentheads.corpora.speech.sounds import make_noise, write_sound


@pytest.mark.parametrize(
    ("written", "said"),
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
def test_what_is_said_has_no_punctuation(written: str, said: str) -> None:
    assert said_in(written) == said


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
    assert [each.name for each in kept.recordings] == ["right"]
    assert kept.seconds == {"right": 0.5}
    assert kept.count({"train": kept.recordings}) == (
        "1 of train, 0 min of speech; 5 left out: 1 too short, "
        "1 whose text is longer than what is said, 1 of less than 15,200 samples a second, "
        "1 too long, 1 without text in words"
    )
