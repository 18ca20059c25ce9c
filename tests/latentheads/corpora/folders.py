"""Folders of text, as a user has them."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

WORDS = [
    *("the", "of", "", "gap", "ça", "naïve", "Straße", "Ω", "—", "ﬁ", "<eos>", "😀"),
    *("👩\u200d👩\u200d👧", "x\u0085y", "a\u2028b", "e\u0301t\xa0et", "\ufeff"),
]
TASK_WORDS = ["the", "naïve", "gap", "<2de>", "Straße", "of"]
SIZES = {"train": 40, "valid": 6, "test": 7}
LANGUAGES = ["--data.source", "en", "--data.target", "de", "--data.vocab_size=300"]


def write_corpus(folder: Path, compress: bool = False) -> Path:
    """A folder of raw text as awkward as real text is, the same every time."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    for part, number in SIZES.items():
        for language in ("en", "de"):
            lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(number)]
            data = "".join(f"{line}\n" for line in lines).encode()
            if compress:
                (folder / f"{part}.{language}.gz").write_bytes(gzip.compress(data))
            else:
                (folder / f"{part}.{language}").write_bytes(data)
    return folder


def write_text(folder: Path, compress: bool = False) -> Path:
    """The same for a running text; lines may be empty."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    for part, number in SIZES.items():
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(0, 9))) for _ in range(number)]
        data = "".join(f"{line}\n" for line in lines).encode()
        name = f"{part}.txt.gz" if compress else f"{part}.txt"
        (folder / name).write_bytes(gzip.compress(data) if compress else data)
    return folder


def with_references(folder: Path) -> Path:
    """A folder whose held-out lines have two references, the first of them the target."""
    write_corpus(folder)
    for part in ("valid", "test"):
        right = (folder / f"{part}.de").read_text().split("\n")[:-1]
        lines = [f"{line}\tgap" for line in right]
        (folder / f"{part}.refs").write_text("".join(f"{line}\n" for line in lines))
    return folder


def write_languages(folder: Path, languages: str, seed: int = 0) -> Path:
    """Parts in some languages; a line says its language, so that nothing is mistaken."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    for part, number in SIZES.items():
        for language in languages.split():
            rows = [" ".join(rng.choices(TASK_WORDS, k=rng.randint(1, 6))) for _ in range(number)]
            text = "".join(f"{language} {row}\n" for row in rows)
            (folder / f"{part}.{language}").write_text(text, encoding="utf-8")
    return folder


def write_all(folder: Path) -> Path:
    """en, de and fr, and a domain whose only direction has a folder of its own."""
    write_languages(folder, "en de fr")
    write_languages(folder / "bible" / "en-de", "en de", seed=1)
    return folder
