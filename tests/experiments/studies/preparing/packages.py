"""Packages made for the tests, and the digests of what is in them."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from latentheads.experiments.studies.preparing.recordings import RecordedCorpus

__all__ = ["digest_of", "known_by", "write_package"]


def digest_of(files: Mapping[str, Path]) -> str:
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(name.encode() + hashlib.sha256(files[name].read_bytes()).digest())
    return total.hexdigest()


def known_by(corpus: RecordedCorpus, digest: str) -> RecordedCorpus:
    return replace(corpus, origin=replace(corpus.origin, digest=digest))


def write_package(path: Path, folder: Path, data: str = "data.tar.xz") -> Path:
    """Packs a folder as Debian does: an archive of ar that holds a tar file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as file:
        file.add(folder, "./")
    members = {"debian-binary": b"2.0", data: packed.getvalue()}
    text = b"!<arch>\n"
    for name, content in members.items():
        head = f"{name:16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n"
        text += head.encode() + content + b"\n" * (len(content) % 2)
    path.write_bytes(text)
    return path
