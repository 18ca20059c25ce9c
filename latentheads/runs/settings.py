"""Everything that says what a run is, made from a command line that was read."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from jsonargparse import ArgumentParser, Namespace

from latentheads.attention.disagreement import KINDS, Disagreement
from latentheads.checks import check_least, check_seed
from latentheads.corpora.options import TASK_OPTIONS, Data
from latentheads.decoding.translate import Decoding
from latentheads.experiments.cli.names import (
    DEFAULTS,
    Tied,
    chains_of,
    check_untyped,
    class_path,
    name_of,
    resolve,
)
from latentheads.guides import GUIDES, RECIPES, ModelGuide
from latentheads.metrics.translation import Protocol
from latentheads.models import PRIORS, Network, Prior
from latentheads.selection.gate_options import Gates
from latentheads.selection.options import Selecting
from latentheads.training.options import Training

__all__ = ["Settings", "group_of", "make_settings", "pair_of"]

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """Everything that says what a run is.

    Attributes:
        recipe: The recipe's name, or ``prior+guide`` where the pair has none.
        prior: Makes the model's priors.
        make_guide: Makes the guide of a model.
        prior_name: Name of the prior.
        guide_name: Name of the guide.
        data: The corpus.
        network: Sizes.
        latent: The chains whose heads are drawn; None for all.
        training: How to train.
        decoding: How to translate.
        selecting: Which heads speak for each task.
        adapters: Hidden width of the adapters of each task; 0: none.
        start: A finished run whose weights training starts with; None: random ones.
        trusted: Classes that the run of ``start`` may be made of, as ``--trust`` names them.
        train: What is trained: all, or the adapters alone.
        gates: Which heads may close while training.
        seed: Of weights, data order and noise.
        samples: Draws of each sentence in the final report.
        device: Where to run.
        out: The run folder.
        label_smoothing: Of the likelihood while training; never of a reported figure.
        disagreement: A term of the model while training that rewards heads for differing.
        overwrite: Whether another run there may be replaced.
        tensorboard: Whether to write TensorBoard's file too.
        verbose: Whether to print the KL of every site.
        text: The whole configuration as YAML.
    """

    recipe: str
    prior: Prior
    make_guide: Callable[[Any], Any]
    prior_name: str
    guide_name: str
    data: Data
    network: Network
    latent: tuple[str, ...] | None
    training: Training
    decoding: Decoding
    selecting: Selecting
    adapters: int
    start: Path | None
    trusted: str
    train: Literal["all", "adapters"]
    gates: Gates
    seed: int
    samples: int
    device: torch.device
    out: Path
    label_smoothing: float
    disagreement: Disagreement | None
    overwrite: bool
    tensorboard: bool
    verbose: bool
    text: str

    @property
    def protocol(self) -> Protocol | None:
        """How the papers count BLEU on the corpus; None where that was not asked for."""
        return self.data.protocol if self.decoding.paper_bleu else None


def make_settings(
    parser: ArgumentParser, configuration: Namespace, said: Namespace | None = None
) -> Settings:
    """Makes the settings of a run.

    Args:
        parser: What read the command line.
        configuration: What it read.
        said: The same where some of it acts on nothing and was left out of the configuration: what
            a run of the same words is known by.

    Raises:
        ValueError: Options that exclude each other, or figures out of range.
    """
    prior_class, prior_options, guide_class, guide_options = pair_of(configuration)
    prior_name, guide_name = name_of(prior_class, PRIORS), name_of(guide_class, GUIDES)
    check_seed(configuration.seed)
    check_least(vars(configuration), samples=1, adapters=0)
    recipe = _recipe(prior_name, guide_name, configuration)
    return Settings(
        recipe=recipe,
        prior=prior_class(**prior_options),
        make_guide=lambda model: guide_class(model, **guide_options),
        prior_name=prior_name,
        guide_name=guide_name,
        data=group_of(Data, configuration),
        network=group_of(Network, configuration),
        latent=chains_of(configuration.latent),
        training=group_of(Training, configuration),
        decoding=group_of(Decoding, configuration),
        selecting=group_of(Selecting, configuration),
        adapters=configuration.adapters,
        start=Path(configuration.start) if configuration.start else None,
        trusted=_trusted(configuration, prior_class, guide_class),
        train=_train(configuration),
        gates=_gates(configuration),
        seed=configuration.seed,
        samples=configuration.samples,
        device=_device(configuration.device),
        out=Path(configuration.out or f"runs/{recipe}-seed{configuration.seed}"),
        label_smoothing=configuration.label_smoothing,
        disagreement=_disagreement(configuration),
        overwrite=configuration.overwrite,
        tensorboard=configuration.tensorboard,
        verbose=configuration.verbose,
        text=_text(parser, said or configuration),
    )


NO_PART_OF_A_RUN = (
    *("config", "out", "overwrite", "verbose", "tensorboard", "device"),
    *("recipes", "seeds", "trust"),
)


def _text(parser: ArgumentParser, configuration: Namespace) -> str:
    """The configuration as YAML that run.py reads: what is computed, not where it goes."""
    kept = configuration.clone()
    for name in (*NO_PART_OF_A_RUN, *(() if configuration.tasks else TASK_OPTIONS)):
        kept.pop(name, None)
    return parser.dump(kept, skip_validation=True)


def pair_of(configuration: Namespace) -> tuple[Any, dict[str, Any], Any, dict[str, Any]]:
    """The classes of prior and guide, each with its options."""
    guide_spec = configuration.guide or _default("guide")
    prior_spec = configuration.prior or _default("prior")
    guide_class, prior_class = resolve(guide_spec.class_path), resolve(prior_spec.class_path)
    guide_options = dict(guide_spec.get("init_args") or {})
    prior_options = dict(prior_spec.get("init_args") or {})
    check_untyped("guide", guide_class, guide_options)
    check_untyped("prior", prior_class, prior_options)
    if prior_class is Tied:
        prior_class = _tied_prior(guide_class)
        prior_options = _tied_options(guide_class, guide_options, prior_class)
        guide_class, guide_options = GUIDES["tied"], {}
    if prior_class.deterministic and guide_class is not GUIDES["tied"]:
        raise ValueError(f"prior {name_of(prior_class, PRIORS)!r} has no noise: use --guide tied")
    return prior_class, prior_options, guide_class, guide_options


def _trusted(configuration: Namespace, *used: type) -> str:
    """What the command line names, and what this run itself is made of."""
    named = [configuration.trust] if configuration.trust else []
    return ",".join([*named, *(f"{each.__module__}:{each.__qualname__}" for each in used)])


def _default(kind: str) -> Namespace:
    return Namespace(class_path=class_path(kind, DEFAULTS[kind]))


def _tied_prior(guide: type[ModelGuide]) -> type[Prior]:
    if guide.tied_prior is None:
        raise ValueError(
            f"--prior tied: guide {name_of(guide, GUIDES)!r} names no prior of its own form; "
            f"choose a prior from {', '.join(PRIORS)}"
        )
    return PRIORS[guide.tied_prior]


def _recipe(prior: str, guide: str, configuration: Namespace) -> str:
    """The name of a pair, and behind a + how its heads are selected or gated."""
    named = [name for name, recipe in RECIPES.items() if recipe == (prior, guide)]
    parts = named[:1] or [prior, guide.rpartition(":")[2]]
    if configuration.select != "none":
        parts.append(configuration.select)
    if configuration.gates != "none":
        parts.append("gates")
    return "+".join(parts)


def _tied_options(
    guide: type[ModelGuide], given: dict[str, Any], prior: type[Prior]
) -> dict[str, Any]:
    """The guide's options that its tied prior has too; a changed one that it lacks is refused."""
    defaults = {n: p.default for n, p in inspect.signature(guide).parameters.items()}
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    for name in set(changed) - set(inspect.signature(prior).parameters):
        raise ValueError(f"--prior tied: the prior of this form has no option {name!r}")
    return changed


def group_of(kind: type[T], configuration: Namespace) -> T:
    """The options of a group, checked."""
    return kind(**{field.name: configuration[field.name] for field in fields(kind)})  # type: ignore[arg-type]


def _train(configuration: Namespace) -> Literal["all", "adapters"]:
    if configuration.train == "adapters" and not (configuration.adapters and configuration.start):
        raise ValueError("--train adapters needs --adapters WIDTH and --start RUN")
    found: Literal["all", "adapters"] = configuration.train
    return found


def _gates(configuration: Namespace) -> Gates:
    if configuration.gates != "none":
        if configuration.select != "none":
            raise ValueError("heads are either selected or gated: use --select or --gates")
        if configuration.kl != "analytic":
            raise ValueError("gates are learned by the closed form of their KL: use --kl analytic")
    return group_of(Gates, configuration)


def _disagreement(configuration: Namespace) -> Disagreement | None:
    if configuration.disagreement == "none":
        return None
    kinds = tuple(configuration.disagreement.split(","))
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"unknown disagreement {kind!r}: choose from none, {', '.join(KINDS)}")
    weight = configuration.disagreement_weight
    if not math.isfinite(weight):
        raise ValueError(f"disagreement_weight must be finite, got {weight}")
    chains = chains_of(configuration.disagreement_chains)
    return Disagreement(kinds, weight, chains, configuration.disagreement_diagonal)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}: choose from cpu, cuda, auto")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch sees none: use cpu")
    return torch.device(name)
