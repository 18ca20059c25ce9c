"""Guides: q(heads | x[, y]), one family in each file. ``GUIDES`` maps names to classes."""

if __name__ != "latentheads.guides":  # two names would make two classes of each
    raise ImportError(f"write latentheads.{__name__} for {__name__}: a class has one module")

from latentheads.families.guide import Guide
from latentheads.guide import ModelGuide
from latentheads.guides.autoregressive import Autoregressive
from latentheads.guides.cascaded import Cascaded
from latentheads.guides.exact import Exact
from latentheads.guides.mean_field import MeanField
from latentheads.guides.tied import Tied
from latentheads.recipes import RECIPES, Recipe

__all__ = [
    "GUIDES",
    "RECIPES",
    "Autoregressive",
    "Cascaded",
    "Exact",
    "Guide",
    "MeanField",
    "ModelGuide",
    "Recipe",
    "Tied",
]

GUIDES: dict[str, type[ModelGuide]] = {
    "tied": Tied,
    "mean-field": MeanField,
    "autoregressive": Autoregressive,
    "cascaded": Cascaded,
    "exact": Exact,
}
