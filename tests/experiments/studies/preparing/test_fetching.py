"""Files are fetched whole, or the error says which could not be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from latentheads.experiments.studies.preparing.fetching import fetch_files
from latentheads.experiments.studies.preparing.recordings import prepare_recordings
from latentheads.experiments.studies.preparing.stamps import INSTALLED, STAMPS, find_stamps
from tests.experiments.studies.preparing.packages import digest_of, known_by, write_package
from tests.experiments.studies.preparing.servers import serving
from tests.experiments.studies.preparing.tables import read_tables
from tests.latentheads.contrib.speech.sounds import write_noise


@pytest.fixture
def served(tmp_path: Path) -> Path:
    folder = tmp_path / "served"
    folder.mkdir()
    for name in ("one.tar", "short.tar"):
        (folder / name).write_bytes(name.encode() * 2**18)
    return folder


def test_files_are_fetched(served: Path, tmp_path: Path) -> None:
    lines = list[str]()
    with serving(served) as address:
        folder = fetch_files([f"{address}/one.tar"], tmp_path / "fetched", lines.append)
        assert lines == [f"fetching {address}/one.tar"]
    assert [path.name for path in folder.iterdir()] == ["one.tar"]
    assert (folder / "one.tar").read_bytes() == (served / "one.tar").read_bytes()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.tar", "HTTP Error 404"),
        ("short.tar", "2,359,296 of 2,359,299 bytes came"),
    ],
)
def test_what_does_not_come_whole_is_refused(
    served: Path, tmp_path: Path, name: str, message: str
) -> None:
    with serving(served) as address, pytest.raises(OSError, match=f"cannot fetch .*{message}.*; f"):
        fetch_files([f"{address}/one.tar", f"{address}/{name}"], tmp_path / "fetched")


def test_a_corpus_is_fetched_once_and_prepared(tmp_path: Path) -> None:
    """Of a package and, beside it, files that are as they are needed."""
    root = tmp_path / "unpacked" / INSTALLED
    write_noise(root / "animals/cat_desc_fr.ogg", 0.7, 0)
    (root / "animals/cat.txt").write_text("A cat.\nfr.utf8=Un chat.\n", encoding="utf-8")
    digest, lines = digest_of(find_stamps([tmp_path / "unpacked"]).files), list[str]()
    served = tmp_path / "served"
    served.mkdir()
    write_package(served / "stamps.deb", tmp_path / "unpacked")
    (served / "list.txt").write_text("no stamp\n")
    with serving(served) as address:
        urls = f"{address}/stamps.deb", f"{address}/list.txt"
        corpus = known_by(STAMPS, digest)
        corpus = replace(corpus, origin=replace(corpus.origin, urls=urls))
        out = prepare_recordings(corpus, [], tmp_path / "data" / "stamps", lines.append)
        assert lines[:2] == [f"fetching {url}" for url in urls]
        other = replace(corpus, origin=replace(corpus.origin, digest="0" * 64))
        with pytest.raises(ValueError, match=rf"^{urls[0]} {urls[1]} holds 2 files that are not"):
            prepare_recordings(other, [], tmp_path / "data" / "others")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["stamps"]
    texts = {utterance.text for part in read_tables(out).values() for utterance in part}
    assert texts == {"Un chat", "A cat."}
    prepare_recordings(corpus, [], out, lines.append)
    assert lines[-1] == f"{out} is prepared already"
