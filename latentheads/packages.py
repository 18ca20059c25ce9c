"""Packages that an extra of the library installs, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["MissingPackageError", "need_package"]

SPEECH = ("speech", "speech")

NEEDED = {
    "jiwer": SPEECH,
    "kaldi_native_fbank": SPEECH,
    "soundfile": SPEECH,
    "submitit": ("launcher", "slurm"),
    "tensorboard": ("tensorboard", "tensorboard"),
    "transformers": ("a network of Hugging Face", "transformers"),
}
"""What needs a package, and the extra that installs it, by the name that it is imported by."""


class MissingPackageError(ImportError, ValueError):
    """A package of an extra that is not installed: a mistake that the user can mend."""


def need_package(name: str) -> ModuleType:
    """Imports a package of an extra.

    Args:
        name: One of ``NEEDED``.

    Raises:
        MissingPackageError: It is not installed; the message says how to install it.
    """
    try:
        return import_module(name)
    except ImportError as reason:
        what, extra = NEEDED[name]
        raise MissingPackageError(
            f"{what} needs {name.replace('_', '-')}: pip install 'latentheads[{extra}]'"
        ) from reason
