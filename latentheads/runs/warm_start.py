"""A warm start: training begins with the weights and the heads of a finished run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from latentheads.corpora import Corpus
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel
from latentheads.names import ATTENTION_TYPES, parse_attention_types
from latentheads.options import flatten, to_dict
from latentheads.runs.latents import LATENTS
from latentheads.runs.loading import load_finished
from latentheads.runs.run import Run, same_vocabulary
from latentheads.runs.settings import Settings
from latentheads.training import checkpoints

__all__ = ["begin_with", "load_start", "name_start"]

OF_TRAINING = tuple(
    f"network.{name}"
    for name in (
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "adaptive_dropout",
        "spec_augment",
    )
)
"""Options of a network that act in training alone."""
CTC = "model.ctc."
"""Beginning of the names of weights that act in training alone."""
OF_TASKS = ("data.tasks.names", "data.tasks.distinguish_by")


ENCODER = ("model.source_embedding.", "model.encoder.")
"""Beginnings of the names of an encoder's weights."""

CHOICES = "guide.selections.encoder_"
"""Beginning of the names of the weights that choose the encoder's heads."""

NOT_OF_ENCODERS = tuple(
    f"network.{name}" for name in ("decoder_layers", "share", "cutoffs", "adaptive_factor")
)
"""Options of a network that do not change its encoder."""


OF_ANY_GUIDE = ("model.", "guide.selections.")
"""Beginnings of the names of weights that do not depend on the guide."""


def load_start(settings: Settings, trusted: str | None = None) -> Run | None:
    """Loads the run that training starts with, on the CPU; None where it starts from nothing.

    Args:
        settings: Those of the new run.
        trusted: Classes of the reader's own that the other one may be made of.

    Raises:
        ValueError: It is no finished run, or has another network than these settings.
    """
    if not settings.start:
        return None
    begun = load_finished(settings.start, "reported", "cpu", trusted)
    changed = dict(_changed(begun.settings, settings))
    alone = settings.train_only == "guide"  # then nothing else may differ
    names = _bound_of_encoder(begun) if settings.start_with == "encoder" else _bound(begun)
    for name in [each for each in changed if not _is_of(each, "guide")] if alone else names:
        if name in changed:
            raise ValueError(f"{begun.path} has another network: {changed[name]}")
    if settings.start_with == "encoder":
        _refuse_others(begun, settings)
    if begun.heads is not None:
        _refuse_choice(begun, settings)
    return begun


def begin_with(
    begun: Run, settings: Settings, corpus: Corpus, model: HeadModel, guide: ModelGuide
) -> None:
    """Copies the weights of a run, or of its encoder; what that run does not have starts anew.

    So does a guide of another kind or with other options, or with ``start_with model`` any guide,
    except for its selection of heads. With an encoder comes its own selection, for each language
    that both runs hear.

    Args:
        begun: The run, as :func:`load_start` gives it.
        settings: Those of the new one.
        corpus: What the new one is trained on.
        model: Its model, without the heads that the run has lost.
        guide: Its guide.

    Raises:
        ValueError: The run has another vocabulary, or a network of another shape.
    """
    given = _given(begun, settings)
    wanted = checkpoints.weights(model=model, guide=guide)
    if settings.start_with == "encoder":
        _refuse_source(begun, corpus)
        choices = _choices(begun, settings, given, wanted)
        given = {name: each for name, each in given.items() if name.startswith(ENCODER)} | choices
    else:
        _refuse_vocabulary(begun, settings, corpus)
    said = "; ".join(difference for _, difference in _changed(begun.settings, settings))
    why = f"{begun.path} has another network{said and f' ({said})'}"
    for name, tensor in given.items():
        if name not in wanted and name.startswith("model.") and not name.startswith(CTC):
            raise ValueError(f"{why}: {name} has no place in this one")
        if name in wanted and wanted[name].shape != tensor.shape:
            shapes = f"{list(tensor.shape)}, not {list(wanted[name].shape)}"
            raise ValueError(f"{why}: {name} has shape {shapes}")
    with torch.no_grad():
        for name in given.keys() & wanted.keys():
            wanted[name].copy_(given[name])


def _given(begun: Run, settings: Settings) -> dict[str, Tensor]:
    """The weights that a run hands to another; those of its guide to an equal guide alone."""
    found = checkpoints.weights(model=begun.model, guide=begun.guide)
    if _takes_guide(begun, settings):
        return found
    return {name: each for name, each in found.items() if name.startswith(OF_ANY_GUIDE)}


def _choices(
    begun: Run, settings: Settings, given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """What an encoder chose for each language that both runs hear; for others it chooses anew."""
    selects = settings.selection is not None  # gates are the same for all
    before, now = (_sources(each) if selects else ("",) for each in (begun.settings, settings))
    found = {name: wanted[name].clone() for name in wanted if name.startswith(CHOICES)}
    for name in found.keys() & given.keys():
        for place, source in enumerate(now):
            if source in before:
                found[name][place] = given[name][before.index(source)]
    return found


def _sources(settings: Settings) -> tuple[str, ...]:
    """What an encoder tells apart: languages, domains or speakers."""
    return ("",) if settings.data.mixture is None else settings.data.mixture.sources


def _takes_guide(begun: Run, settings: Settings) -> bool:
    before, now = (each.guide.to_options() for each in (begun.settings, settings))
    return settings.start_with == "all" and before == now


def name_start(begun: Run, settings: Settings) -> str:
    """What of a run training starts with: its encoder, its model, or its guide too."""
    parts = {"encoder": "encoder", "model": "model", "all": "model"}[settings.start_with]
    return f"{parts}{' and guide' * _takes_guide(begun, settings)} of {begun.path}"


def _options(settings: Settings) -> dict[str, Any]:
    """The options that a network's shape depends on, side by side."""
    options = settings.to_options()
    kept = {
        name: options.get(name) for name in (*LATENTS, "network", "guide", "latents", "adapters")
    }
    tasks = (options["data"].get("tasks") or {}) if "tasks" in options["data"] else {}
    named = {name: tasks.get(name.rpartition(".")[2]) for name in OF_TASKS}
    return {name: value for name, value in flatten(kept).items() if name not in OF_TRAINING} | named


def _is_of(name: str, group: str) -> bool:
    """Whether an option is one of a group, or the group itself."""
    return name == group or name.startswith(f"{group}.")


def _changed(before: Settings, now: Settings) -> Iterator[tuple[str, str]]:
    """Every option in which the new network differs, with both values."""
    return _differences(_options(before), _options(now))


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in [*before, *(name for name in now if name not in before)]:
        mine, its = before.get(name), now.get(name)
        if mine != its:
            yield name, f"{name} {_said(mine)} there, {_said(its)} here"


def _said(value: Any) -> str:
    return repr(value) if value == "" else str(value)


def _bound(begun: Run) -> list[str]:
    """Options that must be the same, whether or not the weights would fit."""
    settings, names = begun.settings, list(_options(begun.settings))
    bound = [name for name in names if _is_of(name, "network")]
    if begun.heads is None and settings.gates is not None:
        bound += ["gates", "gates.blocks"]
    bound += ["adapters"] if settings.adapters else []
    if settings.selection is not None:
        bound += ["selection", *(name for name in names if _is_of(name, "selection"))]
    tasks = settings.selection is not None or settings.adapters
    return [*bound, *(OF_TASKS if tasks else ())]


def _bound_of_encoder(begun: Run) -> list[str]:
    """Those of them that say something of the encoder."""
    settings = begun.settings
    free = {*NOT_OF_ENCODERS, *OF_TASKS}
    for group, options in (("selection", settings.selection), ("gates", settings.gates)):
        if options is None or not _names_encoder(options.blocks):
            free |= {name for name in _bound(begun) if _is_of(name, group)}
    return [name for name in _bound(begun) if name not in free]


def _names_encoder(chains: str) -> bool:
    """Whether attention types, comma between, hold the encoder's."""
    named = parse_attention_types(chains)
    return named is None or ATTENTION_TYPES[0] in named


def _refuse_others(begun: Run, settings: Settings) -> None:
    """Refuses an encoder that has weights of its own for other languages, domains or speakers."""
    before, now = _sources(begun.settings), _sources(settings)
    selection = begun.settings.selection
    static = selection is not None and selection.strategy == "static"
    static = static and _names_encoder(selection.blocks)  # type: ignore[union-attr]
    own = begun.settings.adapters or static
    if own and before != now:
        raise ValueError(
            f"{begun.path} has another network: its encoder has weights of its own for "
            f"{', '.join(before)} there, for {', '.join(now)} here"
        )


def _refuse_choice(begun: Run, settings: Settings) -> None:
    """Heads of a network that has lost some cannot be chosen among."""
    for name in ("selection", "gates"):
        if getattr(settings, name) is not None:
            raise ValueError(
                f"{begun.path} was pruned: the heads that are left are neither selected nor gated; "
                f"drop {name} of latents"
            )


def _refuse_source(begun: Run, corpus: Corpus) -> None:
    """Refuses an encoder that reads text, or hears other frames."""
    mine, its = begun.source, corpus.source
    if not isinstance(mine, Positions) or not isinstance(its, Positions):
        raise ValueError(f"start_with encoder is of speech, and {begun.path} reads text")
    if mine.filterbank != its.filterbank:
        raise ValueError(f"{begun.path} hears {mine!r}, and this corpus has {its!r}")


def _refuse_vocabulary(begun: Run, settings: Settings, corpus: Corpus) -> None:
    if same_vocabulary(begun, corpus):
        return
    # a cache changes nothing of what is in it
    before, now = (flatten(to_dict(each.data), "data") for each in (begun.settings, settings))
    before.pop("data.cache", None), now.pop("data.cache", None)
    said = "; ".join(difference for _, difference in _differences(before, now))
    why = said or "its text has changed since"
    raise ValueError(f"{begun.path} has another vocabulary than this corpus: {why}")
