"""Loading a run from its folder: settings, vocabularies, model and guide."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from latentheads.corpora.corpus import Corpus, check_corpus
from latentheads.corpora.vocabulary import Vocabulary, vocabulary_from_json
from latentheads.errors import shown
from latentheads.files import read_json, read_yaml, reading_file
from latentheads.runs.build import apply_pruning, make_model, read_heads, select_device
from latentheads.runs.folder import VOCABULARY, read_processor
from latentheads.runs.run import Run, check_vocabulary
from latentheads.runs.settings import Settings, Trusted
from latentheads.training import checkpoints


def load_run(
    folder: str | Path,
    checkpoint: str = "reported",
    device: str | torch.device = "auto",
    trusted: Trusted = None,
    corpus: Corpus | None = None,
) -> Run:
    """Loads a run. A run folder is data: loading it executes and imports none of its files.

    Args:
        folder: The run folder.
        checkpoint: ``best``, ``last``, ``average``, ``step-NNNNNNN``, or ``reported``, the weights
            of the run's report.
        device: cpu, cuda, a GPU as ``cuda:1`` or ``torch.device("cuda", 1)``, or auto.
        trusted: User-defined classes that it may use: a class, or ``module:Class``, or several;
            all other classes outside the library are rejected.
        corpus: Its corpus; needed if that was user-supplied. By default the folder's settings make
            it on first access.

    Raises:
        ValueError: It is not a run folder, lacks the checkpoint, or names an untrusted class.
    """
    if not isinstance(folder, str | os.PathLike):
        raise ValueError(f"folder must be a run folder, got {shown(folder)}")
    if corpus is not None:
        check_corpus(corpus)
    path, torch_device = Path(folder), select_device(device)
    settings = _read_settings(path, trusted)
    target, source = _read_vocabularies(path)
    if checkpoint == "reported":
        checkpoint = "average" if settings.train.average else "best"
    weights = path / "checkpoints" / f"{checkpoint}.safetensors"
    if not weights.is_file():
        names = sorted(file.stem for file in (path / "checkpoints").glob("*.safetensors"))
        available = ", ".join(names) or "none"
        raise ValueError(f"{path} has no checkpoint {shown(checkpoint)}; it has {available}")
    tensors, metadata = checkpoints.load(weights)
    _check_size(weights, settings, tensors)
    heads = read_heads(path)
    try:
        model = make_model(settings, target, source).to(torch_device)
        guide = settings.pair.make_guide(model).to(torch_device)
    except (MemoryError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        message = " ".join(str(error).split())
        raise ValueError(
            f"{path} cannot be loaded: no network can be made of it: {message}"
        ) from error
    apply_pruning(path, heads, model, guide)
    checkpoints.widen(tensors, model=model, guide=guide)
    checkpoints.restore(weights, tensors, model=model, guide=guide)
    step, averaged = checkpoints.read_counts(weights, metadata)
    pair = model.eval(), guide.eval()
    processor = read_processor(path, settings.data, target, source)
    run = Run(path, settings, processor, *pair, step, heads, corpus, averaged)
    if corpus is not None:
        check_vocabulary(run, corpus)
    return run


def _read_settings(path: Path, trusted: Trusted) -> Settings:
    """Reads a run's configuration."""
    configuration = path / "config.yaml"
    if not configuration.is_file():
        raise ValueError(f"{path} is not a run folder: it has no config.yaml")
    try:
        return Settings.from_options(read_yaml(configuration), trusted)
    except (OSError, ValueError, TypeError) as error:
        message = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be loaded: {message}") from error
    except (MemoryError, OverflowError) as error:
        raise ValueError(f"{path} cannot be loaded: a size is beyond this machine") from error


def _read_vocabularies(path: Path) -> tuple[Vocabulary, Vocabulary | None]:
    with reading_file(path / VOCABULARY):
        record = read_json(path / VOCABULARY)
        if "joint" in record:
            joint = vocabulary_from_json(record["joint"])
            return joint, joint
        source = vocabulary_from_json(record["source"]) if "source" in record else None
        return vocabulary_from_json(record["target"]), source


def _check_size(path: Path, settings: Settings, tensors: Mapping[str, Tensor]) -> None:
    """Checks, before memory is allocated, that the weights suffice for a network of this size."""
    network, numbers = settings.network, sum(tensor.numel() for tensor in tensors.values())
    minimum = network.layers * network.width * network.feed_forward
    if minimum > numbers:
        raise ValueError(
            f"{path} belongs to another model: it holds {numbers:,} numbers, the layers of this "
            f"one have more than {minimum:,}"
        )


def load_finished(folder: str | Path, checkpoint: str, device: str, trusted: Trusted) -> Run:
    """Loads a run that has finished with a report; see :func:`load_run`."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"{path} is not a folder: give folders that run.py wrote")
    if (path / "config.yaml").is_file() and not (path / "results.json").is_file():
        raise ValueError(f"{path} is not a finished run: it has no results.json")
    return load_run(path, checkpoint, device, trusted)


def open_run(run: Run | str | Path) -> Run:
    """Returns a run as it is, or loads the run of a folder; see :func:`load_run`."""
    if isinstance(run, Run):
        return run
    if isinstance(run, str | Path):
        return load_run(run)
    raise ValueError(f"run must be a run or its folder, got {type(run).__name__}")
