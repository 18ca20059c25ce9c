"""Recipes by name: the latents, the prior and the guide that one word stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentheads.checks import check_choice
from latentheads.errors import shown
from latentheads.guides import GUIDES
from latentheads.latents.logits.priors import PRIORS
from latentheads.latents.options import LatentOptions
from latentheads.latents.registry import LATENTS
from latentheads.recipes import RECIPES


def _find_suffixes() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """What may stand behind a + in a recipe: a latent's name, and the options that it means."""
    return {
        label: (name, options)
        for name, kind in LATENTS.items()
        for label, options in kind.labels(name).items()
    }


def read_recipe(name: str) -> dict[str, Any]:
    """The options that a recipe stands for, as nested values.

    A recipe is one of ``RECIPES``, or ``PRIOR+GUIDE`` of logits, or ``GUIDE+LATENT`` of a latent
    that guides have a posterior of, as ``cascaded+alignments``; behind a further ``+`` may stand
    what selects heads, a selection strategy or gates, which alone is that of a plain network.
    ``module:Class`` stands for a user-defined prior or guide.
    """
    latent_suffixes = _find_suffixes()
    kinds = {suffix: LATENTS[latent] for suffix, (latent, _) in latent_suffixes.items()}
    first, *others = name.split("+")
    if first in latent_suffixes and kinds[first].kind.selects_heads and not others:
        first, others = "transformer", [first]
    suffixes = [suffix for suffix in others if suffix in latent_suffixes]
    pair = [part for part in others if part not in latent_suffixes]
    selecting = [suffix for suffix in suffixes if kinds[suffix].kind.selects_heads]
    if len(selecting) > 1 or others != [*pair, *suffixes]:
        raise ValueError(
            f"recipe {shown(name)}: one selection strategy, or gates, stands behind a recipe"
        )
    if not pair and any(_has_posterior(kinds[suffix]) for suffix in suffixes):
        options: dict[str, Any] = {"latents": "none", "guide": first}
    else:
        options = _read_pair(name, first, pair)
    for suffix in suffixes:
        latent, meant = latent_suffixes[suffix]
        latents = [] if options["latents"] == "none" else [options["latents"]]
        options["latents"] = "+".join([*latents, latent])
        options |= {latent: dict(meant)} if meant else {}
    return options


def _read_pair(name: str, first: str, others: list[str]) -> dict[str, Any]:
    """The options of a recipe without further latents."""
    if not others:
        for option, names in (("guide", GUIDES), ("logits.prior", PRIORS)):
            if first in names and first not in RECIPES:
                raise ValueError(f"{shown(first)} is not a recipe: use {option} {first}")
        check_choice(
            "recipe", first, sorted(RECIPES), more=f", {_list_of_latents()}, or PRIOR+GUIDE"
        )
        prior, guide = RECIPES[first]
    elif len(others) == 1:
        if first in RECIPES and first not in PRIORS:
            check_choice(f"latent of recipe {name}", others[0], _find_suffixes())
        prior, guide = first, others[0]
    else:
        raise ValueError(
            f"recipe {shown(name)} must be RECIPE, {_list_of_latents()}, or PRIOR+GUIDE"
        )
    if prior == "delta":
        return {"latents": "none", "guide": guide}
    return {"latents": "logits", "logits": {"prior": prior}, "guide": guide}


def _has_posterior(kind: type[LatentOptions]) -> bool:
    """Whether a recipe names a guide of a latent, which has no prior to be named."""
    return kind.may_be_summed_out or kind.has_sampled_posterior()


def _list_of_latents() -> str:
    """The recipes of latents that a guide alone is named of."""
    return ", ".join(f"GUIDE+{name}" for name, kind in LATENTS.items() if _has_posterior(kind))


def recipe_name(prior: str, guide: str) -> str:
    """The name of a pair of logits, or ``PRIOR+GUIDE`` where it has none."""
    named = (name for name, pair in RECIPES.items() if pair == (prior, guide))
    return next(named, f"{prior}+{guide}")
