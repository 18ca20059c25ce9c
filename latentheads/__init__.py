"""latentheads: attention heads as random variables, with priors and guides to swap.

What a notebook needs stands here: ``import latentheads as lh``. A name is loaded when it is first
used, so that the import costs no more than torch and Pyro do.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from latentheads.lazy import lazy_names

if TYPE_CHECKING:
    from latentheads import contrib as contrib
    from latentheads import data as data
    from latentheads import guides as guides
    from latentheads import inference as inference
    from latentheads import latents as latents
    from latentheads import models as models
    from latentheads.contrib import plot as plot
    from latentheads.contrib.align.api import align as align
    from latentheads.contrib.heads.alignment_heads import alignment_heads as alignment_heads
    from latentheads.contrib.heads.switch import heads as heads
    from latentheads.contrib.hf.model import latent as latent
    from latentheads.contrib.hf.posterior import head_posterior as head_posterior
    from latentheads.inference.bound import terms as terms
    from latentheads.inference.evaluation import evaluate as evaluate
    from latentheads.inference.objective import Head_ELBO as Head_ELBO
    from latentheads.runs.loading import load_run as load_run
    from latentheads.runs.texts import translate as translate
    from latentheads.runs.trainer import Trainer as Trainer
    from latentheads.training.comparison import compare as compare
    from latentheads.training.fit import fit as fit

    __version__: str

MODULES = {
    "Head_ELBO": "inference.objective",
    "Trainer": "runs.trainer",
    "align": "contrib.align.api",
    "alignment_heads": "contrib.heads.alignment_heads",
    "compare": "training.comparison",
    "evaluate": "inference.evaluation",
    "fit": "training.fit",
    "head_posterior": "contrib.hf.posterior",
    "heads": "contrib.heads.switch",
    "latent": "contrib.hf.model",
    "load_run": "runs.loading",
    "terms": "inference.bound",
    "translate": "runs.texts",
}
"""The module of every public name."""
PACKAGES = {
    "contrib": "contrib",
    "data": "data",
    "guides": "guides",
    "inference": "inference",
    "latents": "latents",
    "models": "models",
    "plot": "contrib.plot",
}
"""Parts of the library that are public as a whole, with their module."""

PARTS = ("data", "guides", "inference", "latents", "models")
"""Parts with names that notebooks use often: the error of an unknown name names its part."""

__all__ = [*MODULES, *PACKAGES]

_load, _ = lazy_names(__name__, MODULES, PACKAGES)


if not TYPE_CHECKING:  # a type checker would take any name for one that this returns

    def __getattr__(name: str) -> Any:
        """Loads a public name when it is first used."""
        if name == "__version__":
            return version(__name__)
        if name not in __all__ and not name.startswith("_"):
            for part in PARTS:
                if name in import_module(f"{__name__}.{part}").__all__:
                    raise AttributeError(f"write {__name__}.{part}.{name}, not {__name__}.{name}")
        return _load(name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "__version__"])
