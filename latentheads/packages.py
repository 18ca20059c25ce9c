"""Packages: optional ones, which an extra of the library installs, and versions for results."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

SPEECH = ("speech", "speech")

EXTRAS = {
    "jiwer": SPEECH,
    "kaldi_native_fbank": SPEECH,
    "soundfile": SPEECH,
    "shtab": ("tab completion", "completion"),
    "submitit": ("slurm", "slurm"),
    "tensorboard": ("tensorboard", "tensorboard"),
    "transformers": ("a network of Hugging Face", "transformers"),
}
"""By import name: what needs the package, and the extra that installs it."""


PACKAGES = ("latentheads", "torch", "pyro-ppl", "numpy", "tokenizers", "matplotlib")
"""Packages whose versions results name."""


def package_versions() -> dict[str, str]:
    """The versions of Python and of ``PACKAGES``, for results."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # a folder on PYTHONPATH has none
            versions[name] = version(name)
    return versions


class MissingPackageError(ImportError, ValueError):
    """A package of an extra is not installed."""


def import_optional(name: str) -> ModuleType:
    """Imports an optional package, one of ``EXTRAS``."""
    try:
        return import_module(name)
    except ImportError as error:
        purpose, extra = EXTRAS[name]
        raise MissingPackageError(
            f"{purpose} needs {name.replace('_', '-')}: pip install 'latentheads[{extra}]'"
        ) from error
