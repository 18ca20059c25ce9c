"""Guides: q(heads | x[, y]), one family a file. ``GUIDES`` is the table of names."""

from guides.autoregressive import Autoregressive
from guides.base import Guide, Reader
from guides.cascaded import Cascaded
from guides.mean_field import MeanField
from guides.recipes import RECIPES, Recipe
from guides.tied import Tied

__all__ = [
    "GUIDES",
    "RECIPES",
    "Autoregressive",
    "Cascaded",
    "Guide",
    "MeanField",
    "Reader",
    "Recipe",
    "Tied",
]

GUIDES: dict[str, type[Reader]] = {
    "tied": Tied,
    "mean-field": MeanField,
    "autoregressive": Autoregressive,
    "cascaded": Cascaded,
}
