"""Optional packages, which an extra of the library installs; imported where they are used."""

from __future__ import annotations

from importlib import import_module
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
