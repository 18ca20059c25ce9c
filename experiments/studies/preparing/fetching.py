"""The files that a corpus is made of, fetched from where they are published."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.error import HTTPError, URLError

from tqdm import tqdm

from latentheads.corpora.part import Log

DEBIAN = "https://deb.debian.org/debian/pool/main"
"""Where Debian keeps the packages of all its versions."""

WAIT = 60.0
"""Seconds without an answer after which a server is given up."""

PIECE = 2**20
"""Bytes that are read at once."""


def fetch_files(urls: Sequence[str], folder: Path, tell: Log | None = None) -> Path:
    """Fetches files into a new folder."""
    folder.mkdir()
    for url in urls:
        _fetch_file(url, folder, tell or str)
    return folder


def _fetch_file(url: str, folder: Path, tell: Log) -> None:
    tell(f"fetching {url}")
    try:
        _copy(url, folder / url.rpartition("/")[2])
    except (OSError, http.client.HTTPException) as reason:
        if isinstance(reason, HTTPError):
            reason.close()  # it is an answer, too
        why = reason.reason if type(reason) is URLError else reason
        raise OSError(
            f"cannot fetch {url}: {why}; fetch it by other means, and give it as the source"
        ) from reason


def _copy(url: str, path: Path) -> None:
    """Copies what an address holds, whole."""
    request = urllib.request.Request(url, headers={"User-Agent": "latentheads"})
    with urllib.request.urlopen(request, timeout=WAIT) as answer, path.open("wb") as file:
        size = int(answer.headers.get("Content-Length") or 0)
        with tqdm(
            desc=path.name, total=size or None, unit="B", unit_scale=True, leave=False, disable=None
        ) as bar:
            while piece := answer.read(PIECE):
                file.write(piece)
                bar.update(len(piece))
        if file.tell() < size:  # read says nothing of a connection that ends early
            raise OSError(f"{file.tell():,} of {size:,} bytes came")
