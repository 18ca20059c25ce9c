"""Facts of a run and its report: the head of the page, and a row of its table."""

from __future__ import annotations

import subprocess
from dataclasses import MISSING, is_dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from latentheads import files
from latentheads.files import read_json
from latentheads.metrics.compared import COMPARED
from latentheads.metrics.scores import SCORES
from latentheads.options import CLASS, ClassSpec, flatten, options_of, to_dict
from latentheads.runs.folder import TEXTS
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings

SHOWN = tuple(name for name in SCORES if name in {*COMPARED, "truth", "truth_gap", "pareto_k"})
"""The scores that a page has a column for, where they are known."""


def list_scores() -> dict[str, dict[str, Any]]:
    """Title, kind, unit and meaning of each score, in the order of the columns."""
    return {
        name: {
            "title": info.heading,
            "kind": info.kind,
            "unit": info.unit,
            "meaning": f"{info.meaning.format(k='several')}.",
            "estimates": info.estimates or None,
        }
        for name, info in ((name, SCORES[name]) for name in SHOWN)
    }


def gather_facts(run: Run, name: str) -> dict[str, Any]:
    """The facts of a run: its options and its metrics."""
    settings, results = run.settings, run.results
    options, defaults = flatten(settings.to_options()), _default_options(settings)
    return {
        "name": name,
        "path": str(run.path),
        "recipe": settings.recipe,
        "prior": settings.pair.prior_name,
        "guide": settings.pair.guide_name,
        "condition_on": run.guide.condition_on if run.guide.is_target_conditioned else None,
        "writes": "transcript" if settings.data.is_recognition else "translation",
        "corpus": results.corpus if results else settings.data.name,
        "text": _read_text_digest(run),
        "seed": settings.seed,
        "steps": _describe_steps(run),
        "other": _describe_reported_step(run),
        "parameters": results.parameters if results else None,
        "versions": dict(results.versions) if results else {},
        "finished": results is not None,
        "latents": dict(results.latents) if results else {},
        "missing": dict(results.missing) if results else {},
        "options": options,
        "changed": [name for name, value in options.items() if defaults.get(name) != value],
        "figures": _gather_figures(run),
        "perplexity": [vars(perplexity) for perplexity in results.perplexity] if results else [],
    }


def _default_options(settings: Settings) -> dict[str, Any]:
    """The defaults of all options; those of a class that was chosen are the defaults of it."""
    defaults = flatten(Settings().to_options())
    for name in options_of(Settings).keys() - {"latents"}:
        defaults |= _class_defaults(getattr(settings, name), name)
    for name, latent in zip(settings.latent_names, settings.latents, strict=True):
        defaults |= _class_defaults(latent, name)
    return defaults


def _class_defaults(group: Any, path: str) -> dict[str, Any]:
    """The defaults of the class of a group of options, under the names of the options."""
    if isinstance(group, ClassSpec):
        options = type(group)(group.name).to_options()
        return flatten({name: x for name, x in options.items() if name != CLASS}, path)
    kind, defaults = cast(Any, type(group)), dict[str, Any]()
    for name, option in options_of(kind).items() if is_dataclass(group) else ():
        where = f"{path}.{name}"
        if option.default is not MISSING:
            defaults |= flatten(to_dict(option.default), where)
        defaults |= _class_defaults(getattr(group, name), where)
    return defaults


def _read_text_digest(run: Run) -> str | None:
    """The digest of the test text of a run; None if its folder has none."""
    try:
        digest = read_json(run.path / TEXTS)["test"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return digest if isinstance(digest, str) else None


def _describe_steps(run: Run) -> str:
    """How long a run was trained, and which of its weights these are."""
    trained = run.results.steps if run.results else 0
    weights = f"weights of step {run.step:,}"
    return f"{trained:,} trained; {weights}" if trained else weights


def _describe_reported_step(run: Run) -> str | None:
    """The step of the reported weights, where heads and sentences are read with others."""
    reported = run.results.reported_step if run.results else 0
    if reported in (0, run.step):
        return None
    return f"reported of step {reported:,}; heads and sentences are of step {run.step:,}"


def _gather_figures(run: Run) -> dict[str, dict[str, Any]]:
    """The scores of each part that have a value."""
    if run.results is None:
        return {}
    parts = {"test": run.results.test, "validation": run.results.valid}
    scores_by_part = {
        part: {name: value for name, value in scores.items() if value is not None}
        for part, scores in parts.items()
    }
    return {part: values for part, values in scores_by_part.items() if values}


@cache
def get_revision() -> str:
    """The version of this library, and the commit of its checkout where it is one.

    Cached: the checkout may change later, but not the modules that this process has loaded.
    """
    root = Path(files.__file__).parents[1]
    try:
        release = version("latentheads")
    except PackageNotFoundError:  # a checkout that was never installed
        release = "of a checkout"
    if not (root / ".git").exists():
        return release
    command = ["git", "-C", str(root), "rev-parse", "--short=10", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return release
    return f"{release} ({result.stdout.strip()})"
