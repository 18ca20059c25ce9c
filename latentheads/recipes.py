"""Recipes: named pairs of prior and guide."""

from __future__ import annotations

from typing import NamedTuple


class Recipe(NamedTuple):
    """The names of a prior in ``models.PRIORS`` and of a guide in ``guides.GUIDES``.

    Example:
        >>> RECIPES["coda"]
        Recipe(prior='cascaded', guide='tied')
    """

    prior: str
    guide: str


RECIPES: dict[str, Recipe] = {
    "transformer": Recipe("delta", "tied"),
    "realformer": Recipe("residual", "tied"),
    "coda-cs": Recipe("independent", "tied"),
    "coda": Recipe("cascaded", "tied"),
    "coda-released": Recipe("released", "tied"),
    "mean-field": Recipe("independent", "mean-field"),
    "autoregressive": Recipe("independent", "autoregressive"),
    "cascaded": Recipe("independent", "cascaded"),
}
