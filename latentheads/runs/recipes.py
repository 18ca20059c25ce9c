"""Recipes by name: the latents, the prior and the guide that one word stands for."""

from __future__ import annotations

from typing import Any

from latentheads.checks import check_known
from latentheads.guides import GUIDES, RECIPES
from latentheads.latents.selection.strategies import STRATEGIES
from latentheads.models import PRIORS

__all__ = ["ALIGNED", "read_recipe", "recipe_name"]

ALIGNED = "alignments"
"""The ending of a recipe of alignments, as ``cascaded+alignments``."""

GATED = "gates"


def read_recipe(name: str) -> dict[str, Any]:
    """The options that a recipe stands for, as nested values.

    A recipe is one of ``RECIPES``, or ``PRIOR+GUIDE`` of logits, or ``GUIDE+alignments``; behind a
    further ``+`` may stand a selection strategy, or gates. A strategy alone is that of a plain
    network. ``module:Class`` stands for a prior or a guide of one's own.

    Raises:
        ValueError: There is no recipe of that name.
    """
    first, *others = name.split("+")
    extra = [suffix for suffix in others if suffix in STRATEGIES or suffix == GATED]
    if first in STRATEGIES and not others:
        first, extra = "transformer", [first]
    if len(extra) > 1 or (extra and name != extra[0] and others[-1] != extra[0]):
        raise ValueError(
            f"recipe {name!r}: one selection strategy, or gates, stands behind a recipe"
        )
    options = _read_pair(name, first, [suffix for suffix in others if suffix not in extra])
    for strategy in extra:
        latents = [] if options["latents"] == "none" else [options["latents"]]
        kind = GATED if strategy == GATED else "selection"
        options["latents"] = "+".join([*latents, kind])
        if kind == "selection":
            options["selection"] = {"strategy": strategy}
    return options


def _read_pair(name: str, first: str, others: list[str]) -> dict[str, Any]:
    """The options of a recipe without a selection strategy."""
    if not others:
        if first in GUIDES and first not in RECIPES:
            raise ValueError(f"{first!r} is no recipe but a guide: use guide {first}")
        if first in PRIORS and first not in RECIPES:
            raise ValueError(f"{first!r} is no recipe but a prior: use logits.prior {first}")
        more = f", GUIDE+{ALIGNED}, or PRIOR+GUIDE"
        check_known("recipe", first, sorted(RECIPES), more=more)
        prior, guide = RECIPES[first]
    elif others == [ALIGNED]:
        return {"latents": ALIGNED, "guide": first}
    elif len(others) == 1:
        if first in RECIPES and first not in PRIORS:
            check_known("selection strategy", others[0], STRATEGIES, f"recipe {name}", ", or gates")
        prior, guide = first, others[0]
    else:
        raise ValueError(f"recipe {name!r} must be RECIPE, GUIDE+{ALIGNED}, or PRIOR+GUIDE")
    if prior == "delta":
        return {"latents": "none", "guide": guide}
    return {"latents": "logits", "logits": {"prior": prior}, "guide": guide}


def recipe_name(prior: str, guide: str) -> str:
    """The name of a pair of logits, or ``PRIOR+GUIDE`` where it has none."""
    named = (name for name, pair in RECIPES.items() if pair == (prior, guide))
    return next(named, f"{prior}+{guide}")
