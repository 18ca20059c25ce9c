"""A run, taken from its folder: settings, vocabularies, model and guide."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from latentheads.corpora import Corpus, Vocabulary
from latentheads.corpora.corpus import check_corpus
from latentheads.corpora.subwords import vocabulary_from_json
from latentheads.files import read_json, read_yaml
from latentheads.runs.build import apply_pruning, find_device, make_model, read_heads
from latentheads.runs.folder import check_links
from latentheads.runs.run import Run, check_vocabulary
from latentheads.runs.settings import Settings
from latentheads.training import checkpoints
from latentheads.values import shown

__all__ = ["load_finished", "load_run", "open_run"]


def load_run(
    folder: str | Path,
    checkpoint: str = "reported",
    device: str = "auto",
    trusted: str | None = None,
    corpus: Corpus | None = None,
) -> Run:
    """Loads a run. A run folder is data: none of its files runs or imports anything.

    Args:
        folder: The run folder.
        checkpoint: ``best``, ``last``, ``average``, ``step-NNNNNNN``, or ``reported``, the weights
            that the run's figures are of.
        device: cpu, cuda, or auto.
        trusted: Guides and priors of the reader's own that it may be made of, as ``module:Class``
            with commas between; any other that is not the library's is refused.
        corpus: What it was trained on, where that was made by hand or is at hand; else the folder's
            settings make it when it is first asked for.

    Raises:
        ValueError: It is no run folder, or lacks the checkpoint, or names a class not trusted.
    """
    if not isinstance(folder, str | os.PathLike):
        raise ValueError(f"folder must be a run folder, got {shown(folder)}")
    if corpus is not None:
        check_corpus(corpus)
    path, found = Path(folder), find_device(device)
    check_links(path)
    settings = _read_settings(path, trusted)
    target, source = _read_vocabularies(path)
    if checkpoint == "reported":
        checkpoint = "average" if settings.train.average else "best"
    weights = path / "checkpoints" / f"{checkpoint}.safetensors"
    if not weights.is_file():
        names = sorted(file.stem for file in (path / "checkpoints").glob("*.safetensors"))
        there = ", ".join(names) or "none"
        raise ValueError(f"{path} has no checkpoint {checkpoint!r}; it has {there}")
    tensors, facts = checkpoints.load(weights)
    _refuse_larger(weights, settings, tensors)
    heads = read_heads(path)
    try:
        model = make_model(settings, target, source).to(found)
        guide = settings.pair.make_guide(model).to(found)
    except (MemoryError, OverflowError, RuntimeError, TypeError) as reason:
        said = " ".join(str(reason).split())
        raise ValueError(
            f"{path} cannot be loaded: no network can be made of it: {said}"
        ) from reason
    apply_pruning(path, heads, model, guide)
    checkpoints.widen(tensors, model=model, guide=guide)
    checkpoints.restore(weights, tensors, model=model, guide=guide)
    step = checkpoints.read_step(weights, facts)
    averaged = checkpoints.read_averaged(weights, facts)
    pair = model.eval(), guide.eval()
    run = Run(path, settings, target, source, *pair, step, heads, corpus, averaged)
    if corpus is not None:
        check_vocabulary(run, corpus)
    return run


def _read_settings(path: Path, trusted: str | None) -> Settings:
    """Reads a run's configuration."""
    configuration = path / "config.yaml"
    if not configuration.is_file():
        raise ValueError(f"{path} is no run folder: it has no config.yaml")
    try:
        return Settings.from_options(read_yaml(configuration), trusted)
    except (OSError, ValueError, TypeError) as reason:
        said = " ".join(str(reason).split())
        raise ValueError(f"{path} cannot be loaded: {said}") from reason
    except (MemoryError, OverflowError) as reason:
        raise ValueError(f"{path} cannot be loaded: a size is beyond this machine") from reason


def _read_vocabularies(path: Path) -> tuple[Vocabulary, Vocabulary | None]:
    try:
        said = read_json(path / "vocabulary.json")
        if "joint" in said:
            both = vocabulary_from_json(said["joint"])
            return both, both
        source = vocabulary_from_json(said["source"]) if "source" in said else None
        return vocabulary_from_json(said["target"]), source
    except (OSError, KeyError, TypeError, ValueError) as reason:
        raise ValueError(f"{path / 'vocabulary.json'} cannot be read: {reason}") from reason


def _refuse_larger(path: Path, settings: Settings, tensors: Mapping[str, Tensor]) -> None:
    """Refuses a network that these weights are too few for, before it takes any memory."""
    network, held = settings.network, sum(tensor.numel() for tensor in tensors.values())
    least = network.layers * network.width * network.feed_forward
    if least > held:
        raise ValueError(
            f"{path} belongs to another model: it holds {held:,} numbers, and the layers of this "
            f"one have more than {least:,}"
        )


def load_finished(folder: str | Path, checkpoint: str, device: str, trusted: str | None) -> Run:
    """Loads a run that has reported its figures; see :func:`load_run`."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"{path} is no folder: give folders that run.py wrote")
    if (path / "config.yaml").is_file() and not (path / "results.json").is_file():
        raise ValueError(f"{path} is no finished run: it has no results.json")
    return load_run(path, checkpoint, device, trusted)


def open_run(run: Run | str | Path) -> Run:
    """The run that is given, or the one of a folder; see :func:`load_run`.

    Raises:
        ValueError: It is neither, or the folder is none of a run.
    """
    if isinstance(run, Run):
        return run
    if isinstance(run, str | Path):
        return load_run(run)
    raise ValueError(f"run must be a run or its folder, got {type(run).__name__}")
