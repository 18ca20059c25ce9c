"""Loading a run from its folder: settings, vocabularies, model and guide."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import torch

from latentheads.checks import check_instance
from latentheads.corpora.corpus import Corpus, check_corpus
from latentheads.corpora.vocabulary import Vocabulary, vocabulary_from_json
from latentheads.errors import shown
from latentheads.files import read_json, read_yaml, reading_file
from latentheads.noise import fixed_noise
from latentheads.options import import_path
from latentheads.runs.build import apply_pruning, make_model, read_heads, select_device
from latentheads.runs.folder import VOCABULARY, read_processor
from latentheads.runs.run import Run, check_vocabulary
from latentheads.runs.settings import Settings, Trusted, trusted_paths
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
        ValueError: It is not a run folder, has no such checkpoint, or names an untrusted class.
    """
    check_instance("folder", folder, str | PathLike, "that of a run")
    if corpus is not None:
        check_corpus(corpus)
    path, torch_device = Path(folder), select_device(device)
    settings = _read_settings(path, [*trusted_paths(trusted), *_class_of_data(corpus)])
    target, source = _read_vocabularies(path)
    if checkpoint == "reported":
        checkpoint = "average" if settings.train.average else "best"
    weights = path / "checkpoints" / f"{checkpoint}.safetensors"
    if not weights.is_file():
        names = sorted(file.stem for file in (path / "checkpoints").glob("*.safetensors"))
        available = ", ".join(names) or "none"
        raise ValueError(f"{path} has no checkpoint {shown(checkpoint)}; it has {available}")
    tensors, metadata = checkpoints.load(weights)
    heads = read_heads(path)
    try:
        with fixed_noise(settings.seed, torch.device("cpu")):  # for weights that are not kept
            model = make_model(settings, target, source).to(torch_device)
            guide = settings.pair.make_guide(model).to(torch_device)
    except (RuntimeError, TypeError, ValueError) as error:
        message = " ".join(str(error).split())
        raise ValueError(
            f"{path} cannot be loaded: no network can be made of it: {message}"
        ) from error
    apply_pruning(path, heads, model, guide)
    checkpoints.widen(tensors, model=model, guide=guide)
    checkpoints.restore(weights, tensors, model=model, guide=guide)
    step, averaged = checkpoints.read_counts(metadata)
    pair = model.eval(), guide.eval()
    processor = read_processor(path, settings.data, target, source)
    run = Run(path, settings, processor, *pair, step, heads, corpus, averaged)
    if corpus is not None:
        check_vocabulary(run, corpus)
    return run


def _class_of_data(corpus: Corpus | None) -> list[str]:
    """The class that a corpus was made by: whoever passes the corpus has imported it."""
    return [] if corpus is None or corpus.data is None else [import_path(type(corpus.data))]


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


def _read_vocabularies(path: Path) -> tuple[Vocabulary, Vocabulary | None]:
    with reading_file(path / VOCABULARY):
        record = read_json(path / VOCABULARY)
        if "joint" in record:
            joint = vocabulary_from_json(record["joint"])
            return joint, joint
        source = vocabulary_from_json(record["source"]) if "source" in record else None
        return vocabulary_from_json(record["target"]), source


def load_finished(folder: str | Path, checkpoint: str, device: str, trusted: Trusted) -> Run:
    """Loads a run that has finished with a report; see :func:`load_run`."""
    path = Path(folder)
    if (path / "config.yaml").is_file() and not (path / "results.json").is_file():
        raise ValueError(f"{path} is not a finished run: it has no results.json")
    return load_run(path, checkpoint, device, trusted)


def open_run(run: Run | str | Path) -> Run:
    """Returns a run as it is, or loads the run of a folder; see :func:`load_run`."""
    check_instance("run", run, Run | str | Path, "a run, or its folder")
    return run if isinstance(run, Run) else load_run(run)
