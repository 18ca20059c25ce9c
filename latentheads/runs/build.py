"""From settings to a model and its guide, their device, vocabularies and heads."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from latentheads.checks import check_known
from latentheads.corpora import Corpus, Part, Vocabulary, Words
from latentheads.corpora.speech.vocabulary import bins_of
from latentheads.corpora.text import PARTS
from latentheads.files import read_json
from latentheads.guide import ModelGuide
from latentheads.model import Decoder, HeadModel
from latentheads.models import LanguageModel, Translation
from latentheads.models.adapters import Adapters
from latentheads.names import ATTENTION_TYPES
from latentheads.packages import need_package
from latentheads.pruning import fold_gates, remove_heads
from latentheads.runs.folder import HEADS
from latentheads.runs.settings import Settings

__all__ = [
    "apply_pruning",
    "changed_parts",
    "choose_trained",
    "digest_corpus",
    "digest_parts",
    "find_device",
    "make_accelerator",
    "make_model",
    "read_heads",
    "vocabularies_text",
]


DIGESTED = 2**16
"""Frames of a corpus of speech that tell it from others: all of a large one would take long."""


def find_device(name: str) -> torch.device:
    """The device of a name: cpu, cuda, or auto, which is cuda where there is one."""
    check_known("device", name, ("cpu", "cuda", "auto"))
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch sees none: use cpu")
    return torch.device(name)


def make_accelerator(out: Path, settings: Settings, device: torch.device, tensorboard: bool) -> Any:
    """Makes an Accelerator where there is something to do for it, else None.

    It starts the processes' group and keeps TensorBoard's file. Autocast and loss scaling stay
    with the engine: accelerate fixes one precision for a whole process, and would take that of
    ``accelerate launch``, of which the settings know nothing.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not tensorboard:
        return None
    if tensorboard:
        need_package("tensorboard")
    from accelerate import Accelerator, DistributedDataParallelKwargs

    folders = [out, *([Path(settings.start)] if settings.start else [])]
    pruned = any((folder / HEADS).exists() for folder in folders)  # what reads no head is unused
    unused = pruned or settings.pair.own  # a class of the reader's own may leave parameters unused
    return Accelerator(
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=unused)],
        mixed_precision="no",
        cpu=device.type == "cpu",
        log_with="tensorboard" if tensorboard else None,
        project_dir=out,
    )


def make_model(settings: Settings, target: Vocabulary, source: Vocabulary | None) -> Decoder:
    """Makes the network with its priors, for the vocabularies of a corpus."""
    network, smoothing = settings.network, settings.label_smoothing
    prior, latent, types = settings.pair.make_prior(), settings.chains, len(target)
    if network.share == "all" and source not in (None, target):
        raise ValueError("share all needs one joint vocabulary of source and target")
    if source is None and settings.adapters:
        raise ValueError("adapters are for translation between several languages or domains")
    if source is None and network.cutoffs and not isinstance(target, Words):
        raise ValueError("cutoffs need types in the order of their frequency: use unit word")
    mixture = settings.data.mixture
    tasks = (("",), ("",)) if mixture is None else (mixture.sources, mixture.targets)
    chains = ATTENTION_TYPES if source is not None else ATTENTION_TYPES[1:2]
    more: dict[str, Any] = {
        "label_smoothing": smoothing,
        "alignments": settings.alignment,
        "selector": settings.gates.gating(network.heads, chains)
        or settings.selecting.selector(network.heads, *tasks),
    }
    model: Decoder
    if source is None:
        model = LanguageModel(types, prior, network, latent, **more)
    else:
        if settings.adapters:
            more["adapters"] = Adapters(settings.adapters, *map(len, tasks))
        more |= {"bins": bins_of(source), "ctc": settings.ctc}
        model = Translation(len(source), types, prior, network, latent, **more)
    _check_heads(settings, model)
    model.disagreement = settings.disagreement_term
    return model


def _check_heads(settings: Settings, model: HeadModel) -> None:
    """Refuses options that would act on no head of the network."""
    selecting, gates = settings.selecting, settings.gates.gates
    if selecting.select != "none" and not model.selecting_blocks:
        raise ValueError(
            f"select {selecting.select}: this network has no heads in "
            f"select_chains {selecting.select_chains}"
        )
    if gates != "none" and not model.selecting_blocks:
        raise ValueError(f"gates {gates}: this network has no heads in these chains")
    if settings.network.ngram_noise and not model.latent_outputs:
        raise ValueError("ngram_noise: no chain of latent has an ngram layer in this network")
    term = settings.disagreement_term
    if term is not None and not term.blocks(model):
        raise ValueError(
            f"disagreement {','.join(term.kinds)}: no block of its chains has two heads with "
            "that; n-gram heads have an output alone"
        )


def read_heads(path: Path) -> dict[str, list[int]] | None:
    """The heads of every block that stayed in a pruned network; None of a run that has them all.

    Args:
        path: The run folder.
    """
    if not (path / HEADS).exists():
        return None
    try:
        said = read_json(path / HEADS)
    except (OSError, ValueError) as reason:
        raise ValueError(f"{path / HEADS} cannot be used: {reason}") from reason
    if not isinstance(said, dict) or not all(map(_are_places, said.values())):
        raise ValueError(f"{path / HEADS} cannot be used: it must name places of heads by block")
    return said


def _are_places(value: Any) -> bool:
    return isinstance(value, list) and all(type(place) is int for place in value)


def apply_pruning(
    path: Path, heads: dict[str, list[int]] | None, model: HeadModel, guide: ModelGuide
) -> None:
    """Gives a new model and its guide the shape of a pruned run's.

    Args:
        path: The run folder.
        heads: Those that stay, as :func:`read_heads` gives them; None leaves all.
        model: The model; changed in place.
        guide: Its guide; changed in place.
    """
    if heads is None:
        return
    try:
        fold_gates(model, guide)
        remove_heads(model, heads, guide)
    except ValueError as reason:
        raise ValueError(f"{path / HEADS} cannot be used: {reason}") from reason


def choose_trained(settings: Settings, model: HeadModel, guide: ModelGuide) -> None:
    """Freezes the parameters that ``train`` does not name, and those that are empty."""
    for module in (model, guide):
        for name, parameter in module.named_parameters():
            trained = {
                "all": True,
                "adapters": ".adapters." in name,
                "guide": module is guide,
            }[settings.train]
            parameter.requires_grad_(parameter.requires_grad and trained and parameter.numel() > 0)
    fixed = not any(p.requires_grad for p in (*model.parameters(), *guide.parameters()))
    if fixed and settings.train != "guide":  # a guide that learns nothing is reported on as it is
        raise ValueError(f"train {settings.train}: this guide has nothing to learn")


def digest_corpus(corpus: Corpus) -> str:
    """A digest of the training text and its vocabularies."""
    train, words = corpus.train, vocabularies_text(corpus.target, corpus.source)
    digest = hashlib.sha256(words.encode())
    for side in (train.targets, train.sources):
        if side is not None:
            digest.update(side.ends.tobytes())
            digest.update(np.ascontiguousarray(side.tokens).data)
    if train.frames is not None:
        digest.update(train.frames.evenly_spaced(DIGESTED).data)
    if train.task is not None:
        digest.update(",".join(task.name for task in corpus.tasks).encode())
        digest.update(train.task.tobytes())
    return digest.hexdigest()[:16]


def digest_parts(corpus: Corpus) -> dict[str, str]:
    """A digest of the text of every part; of speech, of its texts and lengths."""
    return {name: _digest_part(getattr(corpus, name)) for name in PARTS}


def changed_parts(path: Path, corpus: Corpus) -> list[str]:
    """The parts of a corpus with other text than a run's file tells of; none where there is none.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        known = read_json(path)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as reason:
        raise ValueError(f"{path} cannot be read: {reason}") from reason
    if not isinstance(known, dict):
        raise ValueError(f"{path} cannot be read: it must name the parts of a corpus")
    return [name for name, now in digest_parts(corpus).items() if known.get(name) != now]


def _digest_part(part: Part) -> str:
    texts = [list(part.references), [list(right) for right in part.alternatives]]
    digest = hashlib.sha256(json.dumps(texts).encode())
    for side in part.sides:
        digest.update(side.ends.tobytes())
        digest.update(np.ascontiguousarray(side.tokens).data)
    return digest.hexdigest()[:16]


def vocabularies_text(target: Vocabulary, source: Vocabulary | None) -> str:
    """Both vocabularies as a run folder holds them; a joint one once."""
    sides: dict[str, Vocabulary | None] = {"target": target, "source": source}
    sides = {"joint": target} if source is target else sides
    said = {name: side.to_json() for name, side in sides.items() if side is not None}
    return json.dumps(said, ensure_ascii=False)
