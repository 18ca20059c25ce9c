"""Inflection, letter by letter: the CoNLL-SIGMORPHON 2017 shared task 1, its high setting.

A lemma and the features of a form are given, the form is asked for (Cotterell et al. 2017,
https://aclanthology.org/K17-2001). The files, https://github.com/sigmorphon/conll2017, name no
licence. Here a line of the source is a token for each feature, then the letters of the lemma, and a
line of the target the letters of the form; a blank is a letter too, ``▁``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from latentheads.corpora.part import Log
from latentheads.experiments.studies.preparing.folder import Origin, prepare_once

BLANK = "▁"
"""The letter that a blank inside a word becomes."""

PARTS = {"train": "train-high", "valid": "dev", "test": "uncovered-test"}
"""The names of the files of each part, behind the language."""

DIGESTS = {
    "arabic": "ebb85a7a38c435b7db62ff10979b805c2373eb77b63023d388be71598a478116",
    "finnish": "91a46eb006f8345f60d892d375564afa400f613291ababb6fbd0b93a87de605d",
    "german": "3fdad3743092feb1db4ae455ccbe1093da103a1f817a5169be557c5d55fc1703",
    "russian": "f0da8728a41daba35b38ebe5af96631a78f0844ce64266b6c761eaefe69156b2",
    "spanish": "b4faf8934fa41d7753781075f0c3617adcd7d5d380523c9a523d9175ec19ebaa",
    "turkish": "bc57bc5dd1a59f9e113de79bf831711be0af89664e216cf2bdb671ce0aec766a",
}
"""SHA-256 of the files that are written of a language, for the languages that were checked."""

ORIGIN = Origin(
    "sigmorphon",
    "those of the task",
    "features, letters",
    "Inflection, made of the high setting of the CoNLL-SIGMORPHON 2017 shared task 1, "
    "https://github.com/sigmorphon/conll2017, by its authors; the forms are of Wiktionary.\n"
    "Licence: the data set names none. Use it for research, and do not pass it on.\n",
    urls=("https://github.com/sigmorphon/conll2017/archive/HEAD.tar.gz",),
)
"""Its digest says how lines are written: any language may be prepared, those in ``DIGESTS`` are
checked one by one."""


def prepare_inflection(source: Path | None, out: Path, tell: Log | None = None) -> Path:
    """Writes a folder of parallel text for each language; does nothing where that is done.

    Without a source the files are fetched.
    """
    given = [source] if source else []

    def write(whole: Path) -> str:
        with ORIGIN.opened(given, list(PARTS.values()), whole, tell) as (folder,):
            languages = _find_languages(folder, ORIGIN.name_sources(given))
            for language, files in languages.items():
                _write_language(whole / language, files)
        known = ", ".join(sorted(languages.keys() & DIGESTS))
        return (
            f"inflection, languages: {len(languages)} (no licence is named: for research); "
            f"known by their checksum: {known or 'none of them'}"
        )

    return prepare_once(ORIGIN, out, write, tell)


def _find_languages(folder: Path, source: str) -> dict[str, dict[str, Path]]:
    """The files of each language that has all parts."""
    files = {path.name: path for path in sorted(folder.rglob("task1/*")) if path.is_file()}
    end = f"-{PARTS['train']}"
    names = [name.removesuffix(end) for name in files if name.endswith(end)]
    found = {name: {part: f"{name}-{last}" for part, last in PARTS.items()} for name in names}
    languages = {
        name: {part: files[file] for part, file in parts.items()}
        for name, parts in found.items()
        if files.keys() >= set(parts.values())
    }
    if not languages:
        wanted = ", ".join(f"LANGUAGE-{last}" for last in PARTS.values())
        raise ValueError(f"{source} has no files {wanted} in folders task1")
    return languages


def _write_language(folder: Path, files: dict[str, Path]) -> None:
    """Writes the parts of a language, and looks at their checksum where it is known."""
    folder.mkdir()
    total = hashlib.sha256()
    for part, path in files.items():
        lines = enumerate(_read_lines(path), 1)
        pairs = [write_pair(line, f"{path}, line {number}") for number, line in lines]
        for place, side in enumerate(("lemma", "form")):
            text = "".join(f"{pair[place]}\n" for pair in pairs).encode()
            (folder / f"{part}.{side}").write_bytes(text)
            total.update(text)
    wanted = DIGESTS.get(folder.name, total.hexdigest())
    if total.hexdigest() != wanted:
        raise ValueError(
            f"{files['train']} and its company are not the files of the task: their SHA-256 is "
            f"{total.hexdigest()[:16]}, not {wanted[:16]}"
        )


def _read_lines(path: Path) -> list[str]:
    return path.read_bytes().decode().replace("\r\n", "\n").removesuffix("\n").split("\n")


def write_pair(line: str, where: str = "the line") -> tuple[str, str]:
    r"""Writes a line of the task as source and target.

    >>> write_pair("ausmachen\tmachten aus\tV;IND;PST;3;PL")
    ('<V> <IND> <PST> <3> <PL> a u s m a c h e n', 'm a c h t e n ▁ a u s')
    """
    columns = line.split("\t")
    if len(columns) != 3 or not all(columns):
        raise ValueError(f"{where}: lemma, form and features are needed, got {line[:40]!r}")
    lemma, form, features = columns
    tags = [f"<{each}>" for each in features.split(";")]
    return " ".join([*tags, *_spell(lemma)]), " ".join(_spell(form))


def _spell(word: str) -> list[str]:
    return list(word.replace(" ", BLANK))
