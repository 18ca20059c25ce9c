"""Warm start: training starts from the weights of a finished run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from latentheads.corpora.corpus import Corpus
from latentheads.errors import describe_change, shown
from latentheads.guide import ModelGuide
from latentheads.latents.registry import LATENTS
from latentheads.model import HeadModel
from latentheads.options import CLASS, flatten, to_dict
from latentheads.runs.loading import load_finished
from latentheads.runs.run import Run, has_same_vocabulary
from latentheads.runs.settings import Settings, Trusted
from latentheads.training import checkpoints

TRAINING_OPTIONS = (
    "network.dropout",
    "network.attention_dropout",
    "network.activation_dropout",
    "network.adaptive.dropout",
    "network.speech.spec_augment",
    "selection.strategy.gradient",
)
"""Options of a network and of its latents that only matter in training."""
CTC_PREFIX = "model.ctc."
"""Prefix of the names of weights that are only used in training."""
TASK_OPTIONS = ("data.tasks.names", "data.tasks.distinguish_by")


ENCODER_PREFIXES = ("model.source_embedding.", "model.encoder.")
"""Prefixes of the names of the encoder's weights."""

SELECTION_PREFIX = "guide.selections.encoder_"
"""Prefix of the names of the weights that select the encoder's heads."""

DECODER_OPTIONS = ("network.decoder_layers", "network.share")
"""Options of a network that do not change its encoder."""


SHARED_PREFIXES = ("model.", "guide.selections.")
"""Prefixes of the names of weights that do not depend on the form of the guide."""


def load_initial_run(settings: Settings, trusted: Trusted = None) -> Run | None:
    """Loads the run that training starts from, on the CPU; None if it starts from scratch.

    Raises:
        ValueError: It is not a finished run, or its network differs from these settings.
    """
    if not settings.start:
        return None
    initial_run = load_finished(settings.start, "reported", "cpu", trusted)
    changed = dict(_changed_options(initial_run.settings, settings))
    guide_only = settings.train_only == "guide"  # then nothing else may differ
    names = _fixed_options(initial_run, settings)
    fixed = [option for option in changed if not _is_of(option, "guide")] if guide_only else names
    if differences := "; ".join(changed[name] for name in fixed if name in changed):
        raise ValueError(
            f"{initial_run.path} has another network: {differences}; "
            f"its options are in {initial_run.path}/config.yaml"
        )
    if settings.start_with == "encoder":
        _check_encoder_sources(initial_run, settings)
    if settings.start_with == "heads" and initial_run.heads is None:
        raise ValueError(f"start_with heads is for a pruned run, and {initial_run.path} has all")
    if initial_run.heads is not None:
        _check_pruned_heads(initial_run, settings)
    return initial_run


def initialise_from(
    initial_run: Run, settings: Settings, corpus: Corpus, model: HeadModel, guide: ModelGuide
) -> None:
    """Copies the weights of a run, or of its encoder, into a new model and guide.

    Weights that are not in the initial run stay as they are. So do those of a guide of another
    kind or with other options, and of any guide with ``start_with model``, except for its selection
    of heads. With an encoder its selection is copied for each source language that both runs have.
    With ``start_with heads`` nothing is copied: which heads there are is the shape of the model.

    Raises:
        ValueError: The initial run has another vocabulary, or a network of another shape.
    """
    if settings.start_with == "heads":
        return
    weights = _transferable_weights(initial_run, settings)
    own_weights = checkpoints.weights(model=model, guide=guide)
    if settings.start_with == "encoder":
        _check_filterbank(initial_run, corpus)
        selections = _encoder_selections(initial_run, settings, weights, own_weights)
        weights = {
            name: weight for name, weight in weights.items() if name.startswith(ENCODER_PREFIXES)
        } | selections
    else:
        _check_vocabulary(initial_run, settings, corpus)
        _check_latents(initial_run, settings, model)
    differences = "; ".join(
        difference for _, difference in _changed_options(initial_run.settings, settings)
    )
    message = f"{initial_run.path} has another network{differences and f' ({differences})'}"
    for name, tensor in weights.items():
        if (
            name not in own_weights
            and name.startswith("model.")
            and not name.startswith(CTC_PREFIX)
        ):
            raise ValueError(f"{message}: {name} has no place in this one")
        if name in own_weights and own_weights[name].shape != tensor.shape:
            shapes = f"{list(tensor.shape)}, not {list(own_weights[name].shape)}"
            raise ValueError(f"{message}: {name} has shape {shapes}")
    with torch.no_grad():
        for name in weights.keys() & own_weights.keys():
            own_weights[name].copy_(weights[name])


def _transferable_weights(initial_run: Run, settings: Settings) -> dict[str, Tensor]:
    """The weights that are copied; those of the guide only if the guides are equal."""
    weights = checkpoints.weights(model=initial_run.model, guide=initial_run.guide)
    if _transfers_guide(initial_run, settings):
        return weights
    return {name: weight for name, weight in weights.items() if name.startswith(SHARED_PREFIXES)}


def _encoder_selections(
    initial_run: Run,
    settings: Settings,
    weights: Mapping[str, Tensor],
    own_weights: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The encoder's selection for each source that both runs have; the new one for others."""
    selects = any(latent.depends_on_tasks for latent in settings.latents)
    old_sources, sources = (
        _source_names(run_settings) if selects else ("",)
        for run_settings in (initial_run.settings, settings)
    )
    selections = {
        name: own_weights[name].clone() for name in own_weights if name.startswith(SELECTION_PREFIX)
    }
    for name in selections.keys() & weights.keys():
        for index, source in enumerate(sources):
            if source in old_sources:
                selections[name][index] = weights[name][old_sources.index(source)]
    return selections


def _source_names(settings: Settings) -> tuple[str, ...]:
    """The names of source tasks: languages, domains or speakers."""
    return ("",) if settings.data.mixture is None else settings.data.mixture.sources


def _transfers_guide(initial_run: Run, settings: Settings) -> bool:
    old, new = (own.guide.to_options() for own in (initial_run.settings, settings))
    return settings.start_with == "all" and old == new


def describe_initialisation(initial_run: Run, settings: Settings) -> str:
    """Describes the initialisation: the part of a run that it takes, and whether its guide."""
    part = "model" if settings.start_with == "all" else settings.start_with
    return f"{part}{' and guide' * _transfers_guide(initial_run, settings)} of {initial_run.path}"


def _architecture(settings: Settings) -> dict[str, Any]:
    """The options that determine the shape of a network, by their paths."""
    options = settings.to_options()
    groups = {name: options.get(name) for name in (*LATENTS, "network", "guide", "latents")}
    tasks = options["data"].get("tasks") or {}
    own = {name: tasks.get(name.rpartition(".")[2]) for name in TASK_OPTIONS}
    flat = {
        name.removesuffix(f".{CLASS}"): value
        for name, value in flatten(groups).items()
        if not any(_is_of(name, option) for option in TRAINING_OPTIONS)
    }
    return flat | own | {"adapters": settings.adapters}


def _is_of(name: str, group: str) -> bool:
    """Whether an option belongs to a group, or is the group itself."""
    return name == group or name.startswith(f"{group}.")


def _changed_options(old: Settings, new: Settings) -> Iterator[tuple[str, str]]:
    """Yields every option that differs, with a description of both values."""
    return _differences(_architecture(old), _architecture(new))


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in [*old, *(name for name in new if name not in old)]:
        before, now = old.get(name), new.get(name)
        if before != now:
            yield name, describe_change(name, before, now)


def _fixed_options(initial_run: Run, settings: Settings) -> list[str]:
    """The options that must be equal, even if the weights would fit."""
    old, encoder = initial_run.settings, settings.start_with == "encoder"
    options = _architecture(old)
    names = [n for n in options | _architecture(settings) if _is_of(n, "network")]
    names += ["adapters"] if old.adapters else []
    has_tasks = bool(old.adapters)
    for name, latent in zip(old.latent_names, old.latents, strict=True):
        if latent.fixed_options and (latent.acts_on_encoder or not encoder):
            fixed = [f"{name}.{option}" for option in latent.fixed_options]
            names += [name, *(o for o in options if any(_is_of(o, group) for group in fixed))]
        has_tasks |= latent.depends_on_tasks
    names += TASK_OPTIONS if has_tasks and not encoder else ()
    return [name for name in names if not (encoder and name in DECODER_OPTIONS)]


def _check_encoder_sources(initial_run: Run, settings: Settings) -> None:
    """Checks that an encoder with source-specific weights has the same sources."""
    old, new = _source_names(initial_run.settings), _source_names(settings)
    latents = initial_run.settings.latents
    fixed = any(latent.fixes_task_weights and latent.acts_on_encoder for latent in latents)
    source_specific = initial_run.settings.adapters or fixed
    if source_specific and old != new:
        raise ValueError(
            f"{initial_run.path} has another network: its encoder has weights of its own for "
            f"{', '.join(old)} there, for {', '.join(new)} here"
        )


def _check_pruned_heads(initial_run: Run, settings: Settings) -> None:
    """Checks that the heads of a pruned network are neither selected nor gated."""
    for name, latent in zip(settings.latent_names, settings.latents, strict=True):
        if latent.kind.selects_heads:
            raise ValueError(
                f"{initial_run.path} is pruned: its heads can be neither selected nor gated; drop "
                f"{name} from latents"
            )


def _check_latents(initial_run: Run, settings: Settings, model: HeadModel) -> None:
    """Checks that each latent with weights is a latent here too, unless one here excludes it."""
    for name, latent in initial_run.model.latents.items():
        has_weights = any(checkpoints.weights(**latent.modules_to_save))
        excluded = any(o.excludes(latent) or latent.excludes(o) for o in model.latents.values())
        if has_weights and not excluded and name not in settings.latent_names:
            names = "+".join([name, *settings.latent_names])
            raise ValueError(f"{initial_run.path} has latents {name}: say latents {names}")


def _check_filterbank(initial_run: Run, corpus: Corpus) -> None:
    """Checks that both runs have speech input with the same filterbank."""
    old, new = initial_run.source, corpus.source
    if old is None or new is None or old.is_text or new.is_text:
        raise ValueError(f"start_with encoder is for speech, but {initial_run.path} has text input")
    if old.to_json() != new.to_json():
        raise ValueError(
            f"{initial_run.path} has input {shown(old)}, but this corpus has {shown(new)}"
        )


def _check_vocabulary(initial_run: Run, settings: Settings, corpus: Corpus) -> None:
    if has_same_vocabulary(initial_run, corpus):
        return
    # the cache folder does not change the data
    old, new = (
        flatten(to_dict(run_settings.data), "data")
        for run_settings in (initial_run.settings, settings)
    )
    old.pop("data.cache", None), new.pop("data.cache", None)
    differences = "; ".join(difference for _, difference in _differences(old, new))
    reason = differences or "its text has changed since"
    raise ValueError(f"{initial_run.path} has another vocabulary than this corpus: {reason}")
