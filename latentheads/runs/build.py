"""Building a model and its guide from settings: device, vocabularies, pruned heads, digests."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch

from latentheads.corpora.corpus import Corpus
from latentheads.corpora.part import Part
from latentheads.corpora.text import PARTS
from latentheads.corpora.vocabulary import Vocabulary, Words
from latentheads.errors import naming
from latentheads.files import read_json, reading_file
from latentheads.guide import ModelGuide
from latentheads.model import Decoder, HeadModel
from latentheads.models.adapters import Adapters
from latentheads.models.language_model import LanguageModel
from latentheads.models.network import task_names
from latentheads.models.translation import Translation
from latentheads.noise import fixed_noise
from latentheads.pruning import fold_selection, remove_heads
from latentheads.runs.folder import HEADS
from latentheads.runs.settings import Settings
from latentheads.training.checkpoints import weights

DIGESTED = 2**16
"""Frames in the digest of a speech corpus: hashing all of a large one would take long."""

PROCESS_TIMEOUT = timedelta(hours=6)
"""How long processes wait for the first one, which alone evaluates, before the run ends."""


def select_device(name: str | torch.device) -> torch.device:
    """Selects the device: cpu, cuda, a GPU as cuda:1, or auto, which is cuda if available."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = re.fullmatch(r"(cpu|cuda)(:\d{1,3})?", str(name))
    if kind is None or not isinstance(name, str | torch.device):
        shown_name = repr(name) if isinstance(name, str) else str(name)
        raise ValueError(f"unknown device {shown_name}: choose from cpu, cuda, auto, cuda:NUMBER")
    device, number = torch.device(name), torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= number:
        counted = f"{number} of them" if number else "none"
        raise ValueError(f"device {name} was requested, but torch finds {counted}: use cpu")
    return device


def is_first_process() -> bool:
    """Whether this is the first of several processes, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def make_accelerator(
    out: Path, settings: Settings, device: torch.device, trackers: Sequence[str]
) -> Any:
    """Makes an Accelerator for several processes or trackers; otherwise returns None.

    It initialises the process group. The engine does autocast and loss
    scaling itself: accelerate fixes one precision per process, and would take that of ``accelerate
    launch`` instead of the settings.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not trackers:
        return None
    from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs

    folders = [out, *([Path(settings.start)] if settings.start else [])]
    # blocks without heads, and user-defined classes, may leave parameters unused
    pruned = any((folder / HEADS).exists() for folder in folders)
    unused = pruned or settings.pair.own or bool(settings.own_classes)
    return Accelerator(
        kwargs_handlers=[
            DistributedDataParallelKwargs(find_unused_parameters=unused),
            InitProcessGroupKwargs(timeout=PROCESS_TIMEOUT),
        ],
        mixed_precision="no",
        cpu=device.type == "cpu",
        log_with=[*trackers] or None,
        project_dir=out,
    )


def make_model(settings: Settings, target: Vocabulary, source: Vocabulary | None) -> Decoder:
    """Makes the model with its priors for the given vocabularies."""
    network, smoothing = settings.network, settings.label_smoothing
    vocab_size = len(target)
    if network.share == "all" and source not in (None, target):
        raise ValueError("network.share all needs one joint vocabulary of source and target")
    if source is None and network.adaptive is not None and not isinstance(target, Words):
        raise ValueError("network.adaptive needs words in the order of frequency: use unit word")
    tasks = task_names(settings.data.mixture)
    options: dict[str, Any] = {"label_smoothing": smoothing, "targets": tasks[1]}
    options["latents"] = settings.resolved_latents
    model: Decoder
    if source is None:
        model = LanguageModel(vocab_size, network, **options)
    else:
        if settings.adapters:
            options["adapters"] = Adapters(settings.adapters, *map(len, tasks))
        options |= {"sources": tasks[0], "bins": source.bins, "ctc": settings.ctc}
        model = Translation(len(source), vocab_size, network, **options)
    model.set_vocabularies(source, target)
    _check_heads(settings, model)
    model.disagreement = settings.disagreement_term
    return model


def check_is_remade(settings: Settings, corpus: Corpus, model: Decoder, guide: ModelGuide) -> None:
    """Checks that a run folder with these settings could be opened: they make the same weights."""
    with fixed_noise(settings.seed, torch.device("cpu")):
        other = make_model(settings, corpus.target, corpus.source)
        other_guide = settings.pair.make_guide(other)
    actual, remade = (
        {name: list(tensor.shape) for name, tensor in weights(**modules).items()}
        for modules in ({"model": model, "guide": guide}, {"model": other, "guide": other_guide})
    )
    for name in [*actual, *remade]:
        if actual.get(name) != remade.get(name):
            raise ValueError(
                f"{name} has shape {actual.get(name)}, and {remade.get(name)} in what a run folder "
                f"makes for this corpus: make {type(model).__name__}.of(corpus), or use lh.fit"
            )


def _check_heads(settings: Settings, model: HeadModel) -> None:
    """Checks that latent logits, n-gram noise and disagreement apply to some head."""
    if settings.has_latent_logits and not model.latent_blocks:
        raise ValueError("logits.blocks: no such block has attention: drop logits")
    if settings.network.ngram_noise and not model.latent_outputs:
        raise ValueError("network.ngram_noise: no ngram layer of this network is latent")
    term = settings.disagreement_term
    if term is not None and not term.blocks(model):
        raise ValueError(
            f"disagreement {','.join(term.kinds)}: none of its blocks has two heads with "
            "that; n-gram heads have an output alone"
        )


def read_heads(path: Path) -> dict[str, list[int]] | None:
    """Reads the remaining heads of every block of a pruned network; None if it is not pruned."""
    if not (path / HEADS).exists():
        return None
    with reading_file(path / HEADS):
        heads: dict[str, list[int]] = read_json(path / HEADS)
    return heads


def apply_pruning(
    path: Path, heads: dict[str, list[int]] | None, model: HeadModel, guide: ModelGuide
) -> None:
    """Prunes a new model and its guide to the heads of a pruned run.

    Args:
        path: The run folder.
        heads: The remaining heads, from :func:`read_heads`; None keeps all.
        model: The model; changed in place.
        guide: Its guide; changed in place.
    """
    if heads is None:
        return
    with naming(f"{path / HEADS} cannot be used"):
        fold_selection(model, guide)
        remove_heads(model, heads, guide)


def freeze_parameters(settings: Settings, model: HeadModel, guide: ModelGuide) -> None:
    """Freezes the parameters that ``train_only`` does not include."""
    for module in (model, guide):
        for name, parameter in module.named_parameters():
            trained = {
                "all": True,
                "adapters": ".adapters." in name,
                "guide": module is guide,
            }[settings.train_only]
            parameter.requires_grad_(parameter.requires_grad and trained)
    all_frozen = not any(p.requires_grad for p in (*model.parameters(), *guide.parameters()))
    # a guide without parameters can still be evaluated
    if all_frozen and settings.train_only != "guide":
        raise ValueError(f"train_only {settings.train_only}: there is nothing to train")


def digest_corpus(corpus: Corpus) -> str:
    """A digest of the training text and its vocabularies."""
    train, vocabularies = corpus.train, vocabularies_to_json(corpus.target, corpus.source)
    digest = hashlib.sha256(vocabularies.encode())
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
    """Digests of the text of every part; for speech, of its texts and lengths."""
    return {name: _digest_part(getattr(corpus, name)) for name in PARTS}


def changed_parts(path: Path, corpus: Corpus) -> list[str]:
    """The parts of a corpus whose digests differ from those in a run's file, if there is one."""
    if not path.exists():
        return []
    actual = digest_parts(corpus)
    with reading_file(path):
        stored = {name: read_json(path)[name] for name in actual}
    return [name for name, digest in actual.items() if stored[name] != digest]


def _digest_part(part: Part) -> str:
    texts = [list(part.references), [list(right) for right in part.alternatives]]
    digest = hashlib.sha256(json.dumps(texts).encode())
    for side in part.sides:
        digest.update(side.ends.tobytes())
        digest.update(np.ascontiguousarray(side.tokens).data)
    return digest.hexdigest()[:16]


def vocabularies_to_json(target: Vocabulary, source: Vocabulary | None) -> str:
    """Both vocabularies as JSON for a run folder; a joint one once."""
    sides: dict[str, Vocabulary | None] = {"target": target, "source": source}
    sides = {"joint": target} if source is target else sides
    record = {name: side.to_json() for name, side in sides.items() if side is not None}
    return json.dumps(record, ensure_ascii=False)
