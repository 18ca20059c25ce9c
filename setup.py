"""Stops a build where links were unpacked as text files; all else stands in pyproject.toml."""

from pathlib import Path

from setuptools import setup

for name in ("experiments", "guides", "models"):
    if not (Path(__file__).parent / "latentheads" / name).is_dir():
        raise SystemExit(
            f"latentheads/{name} must be a link to a folder, and is a text file, as where a zip "
            "file was unpacked without links: clone the repository with git, or take its tar.gz"
        )

setup()
