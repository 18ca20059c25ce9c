"""Warm start: training starts from the weights of a finished run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from latentheads.corpora import Corpus
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel
from latentheads.names import ATTENTION_TYPES, parse_attention_types
from latentheads.runs.loading import load_finished
from latentheads.runs.run import Run, has_same_vocabulary
from latentheads.runs.settings import Settings
from latentheads.training import checkpoints

__all__ = ["describe_initialisation", "initialise_from", "load_initial_run"]

TRAINING_OPTIONS = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "adaptive_dropout",
    "spec_augment",
)
"""Options of a network that only matter in training."""
CTC_PREFIX = "model.ctc."
"""Prefix of the names of weights that are only used in training."""
TASK_OPTIONS = ("tasks", "tell_apart")
SELECTION_OPTIONS = ("select", "candidates", "select_chains", "families")


ENCODER_PREFIXES = ("model.source_embedding.", "model.encoder.")
"""Prefixes of the names of the encoder's weights."""

SELECTION_PREFIX = "guide.selections.encoder_"
"""Prefix of the names of the weights that select the encoder's heads."""

DECODER_OPTIONS = ("decoder_layers", "share", "cutoffs", "adaptive_factor")
"""Options of a network that do not change its encoder."""


SHARED_PREFIXES = ("model.", "guide.selections.")
"""Prefixes of the names of weights that do not depend on the form of the guide."""


def load_initial_run(settings: Settings, trusted: str | None = None) -> Run | None:
    """Loads the run that training starts from, on the CPU; None if it starts from scratch.

    Args:
        settings: The settings of the new run.
        trusted: User-defined classes that the initial run may use.

    Raises:
        ValueError: It is not a finished run, or its network differs from these settings.
    """
    if not settings.start:
        return None
    initial_run = load_finished(settings.start, "reported", "cpu", trusted)
    changed = dict(_changed_options(initial_run.settings, settings))
    guide_only = settings.train == "guide"  # then nothing else may differ
    names = (
        _fixed_encoder_options(initial_run)
        if settings.start_with == "encoder"
        else _fixed_options(initial_run)
    )
    for name in [option for option in changed if option != "guide"] if guide_only else names:
        if name in changed:
            raise ValueError(f"{initial_run.path} has another network: {changed[name]}")
    if settings.start_with == "encoder":
        _check_encoder_sources(initial_run, settings)
    if initial_run.heads is not None:
        _check_pruned_heads(initial_run, settings)
    return initial_run


def initialise_from(
    initial_run: Run, settings: Settings, corpus: Corpus, model: HeadModel, guide: ModelGuide
) -> None:
    """Copies the weights of a run, or of its encoder, into a new model and guide.

    Weights that the initial run lacks keep their initialisation. So do those of a guide of another
    kind or with other options, and of any guide with ``start_with model``, except for its selection
    of heads. With an encoder its selection is copied for each source language that both runs have.

    Args:
        initial_run: The initial run, from :func:`load_initial_run`.
        settings: The settings of the new run.
        corpus: The corpus of the new run.
        model: The new model, pruned as the initial run's.
        guide: The new guide.

    Raises:
        ValueError: The initial run has another vocabulary, or a network of another shape.
    """
    weights = _transferable_weights(initial_run, settings)
    own_weights = checkpoints.weights(model=model, guide=guide)
    if settings.start_with == "encoder":
        _check_filterbank(initial_run, corpus)
        selections = _encoder_selections(initial_run, settings, weights, own_weights)
        weights = {
            name: each for name, each in weights.items() if name.startswith(ENCODER_PREFIXES)
        } | selections
    else:
        _check_vocabulary(initial_run, settings, corpus)
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
    return {name: each for name, each in weights.items() if name.startswith(SHARED_PREFIXES)}


def _encoder_selections(
    initial_run: Run,
    settings: Settings,
    weights: Mapping[str, Tensor],
    own_weights: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The encoder's selection for each source that both runs have; the new one for others."""
    selects = settings.selecting.select != "none"  # gates do not depend on the source
    old_sources, sources = (
        _source_names(each) if selects else ("",) for each in (initial_run.settings, settings)
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
    old, new = (own.guide.to_yaml("guide") for own in (initial_run.settings, settings))
    return settings.start_with == "all" and old == new


def describe_initialisation(initial_run: Run, settings: Settings) -> str:
    """Describes the initialisation: the encoder, the model, or model and guide of a run."""
    parts = {"encoder": "encoder", "model": "model", "all": "model"}[settings.start_with]
    return f"{parts}{' and guide' * _transfers_guide(initial_run, settings)} of {initial_run.path}"


def _architecture(settings: Settings) -> dict[str, Any]:
    """The options that determine the shape of a network."""
    options = {name: getattr(settings.data, name) for name in TASK_OPTIONS}
    options |= {name: getattr(settings.selecting, name) for name in SELECTION_OPTIONS}
    network = asdict(settings.network)
    return {
        **{name: value for name, value in network.items() if name not in TRAINING_OPTIONS},
        "prior": settings.prior_name,
        "guide": settings.guide_name,
        "latent": settings.latent,
        "gates": settings.gates.gates,
        "adapters": settings.adapters,
        **asdict(settings.alignment),
        **options,
    }


def _changed_options(old: Settings, new: Settings) -> Iterator[tuple[str, str]]:
    """Yields every option that differs, with a description of both values."""
    return _differences(_architecture(old), _architecture(new))


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in old.items():
        if value != new[name]:
            yield name, f"{name} {_format_value(value)} there, {_format_value(new[name])} here"


def _format_value(value: Any) -> str:
    return repr(value) if value == "" else str(value)


def _fixed_options(initial_run: Run) -> list[str]:
    """The options that must be equal, even if the weights would fit."""
    settings = initial_run.settings
    names = [name for name in asdict(settings.network) if name not in TRAINING_OPTIONS]
    has_gates = initial_run.heads is None and settings.gates.gates != "none"
    selects = settings.selecting.select != "none"
    names += ["gates"] if has_gates else []
    names += ["adapters"] if settings.adapters else []
    names += SELECTION_OPTIONS if selects else []
    return [*names, *(TASK_OPTIONS if selects or settings.adapters else ())]


def _fixed_encoder_options(initial_run: Run) -> list[str]:
    """The options that must be equal if only the encoder is copied."""
    free = [*DECODER_OPTIONS, *TASK_OPTIONS]
    free += (
        () if _includes_encoder(initial_run.settings.selecting.select_chains) else SELECTION_OPTIONS
    )
    free += () if _includes_encoder(initial_run.settings.gates.gates) else ("gates",)
    return [name for name in _fixed_options(initial_run) if name not in free]


def _includes_encoder(attention_types: str) -> bool:
    """Whether an option of attention types includes encoder self-attention."""
    named = parse_attention_types(attention_types)
    return named is None or ATTENTION_TYPES[0] in named


def _check_encoder_sources(initial_run: Run, settings: Settings) -> None:
    """Checks that an encoder with source-specific weights has the same sources."""
    old, new = _source_names(initial_run.settings), _source_names(settings)
    selecting = initial_run.settings.selecting
    static = selecting.select == "static" and _includes_encoder(selecting.select_chains)
    source_specific = initial_run.settings.adapters or static
    if source_specific and old != new:
        raise ValueError(
            f"{initial_run.path} has another network: its encoder has weights of its own for "
            f"{', '.join(old)} there, for {', '.join(new)} here"
        )


def _check_pruned_heads(initial_run: Run, settings: Settings) -> None:
    """Checks that the heads of a pruned network are neither selected nor gated."""
    for name, value in (("select", settings.selecting.select), ("gates", settings.gates.gates)):
        if value != "none":
            raise ValueError(
                f"{initial_run.path} is pruned: its heads can be neither selected nor gated, "
                f"got {name} {value}"
            )


def _check_filterbank(initial_run: Run, corpus: Corpus) -> None:
    """Checks that both runs have speech input with the same filterbank."""
    old, new = initial_run.source, corpus.source
    if not isinstance(old, Positions) or not isinstance(new, Positions):
        raise ValueError(f"start_with encoder is for speech, but {initial_run.path} has text input")
    if old.filterbank != new.filterbank:
        raise ValueError(f"{initial_run.path} has input {old!r}, but this corpus has {new!r}")


def _check_vocabulary(initial_run: Run, settings: Settings, corpus: Corpus) -> None:
    if has_same_vocabulary(initial_run, corpus):
        return
    # the cache folder does not change the data
    old, new = (asdict(replace(each.data, cache="")) for each in (initial_run.settings, settings))
    differences = "; ".join(difference for _, difference in _differences(old, new))
    reason = differences or "its text has changed since"
    raise ValueError(f"{initial_run.path} has another vocabulary than this corpus: {reason}")
