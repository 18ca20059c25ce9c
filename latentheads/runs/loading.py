"""A finished run, taken from its folder: settings, vocabularies, model and guide."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from latentheads.corpora import Corpus, Vocabulary, Words
from latentheads.corpora.subwords import vocabulary_from_json
from latentheads.experiments.cli.options import read_settings
from latentheads.files import read_json, read_yaml
from latentheads.guide import ModelGuide
from latentheads.model import Decoder, HeadModel
from latentheads.models import LanguageModel, Translation
from latentheads.models.adapters import Adapters
from latentheads.names import CHAINS
from latentheads.pruning import fold_gates, remove_heads
from latentheads.runs.folder import HEADS
from latentheads.runs.settings import Settings
from latentheads.training import checkpoints

__all__ = [
    "Loaded",
    "apply_pruning",
    "check_vocabulary",
    "load_finished",
    "load_run",
    "make_model",
    "read_heads",
    "same_vocabulary",
    "vocabularies_to_json",
]


@dataclass(frozen=True)
class Loaded:
    """What a run folder holds.

    Attributes:
        path: The folder.
        settings: Everything that says what the run is.
        target: Target vocabulary.
        source: Source vocabulary; None for a language model.
        model: With its weights, in evaluation mode.
        guide: The same.
        step: Updates that the weights have seen.
        heads: The heads of every block that stayed, by their places in the whole network; None of a
            run that was not pruned.
    """

    path: Path
    settings: Settings
    target: Vocabulary
    source: Vocabulary | None
    model: Decoder
    guide: ModelGuide
    step: int
    heads: dict[str, list[int]] | None = None


def make_model(settings: Settings, target: Vocabulary, source: Vocabulary | None) -> Decoder:
    """Makes the network with its priors, for the vocabularies of a corpus."""
    prior, network, smoothing = settings.prior, settings.network, settings.label_smoothing
    latent, types = settings.latent, len(target)
    if network.share == "all" and source not in (None, target):
        raise ValueError("share all needs one joint vocabulary of source and target")
    if source is None and settings.adapters:
        raise ValueError("adapters are for translation between several languages or domains")
    if source is None and network.cutoffs and not isinstance(target, Words):
        raise ValueError("cutoffs need types in the order of their frequency: use unit word")
    mixture = settings.data.mixture
    tasks = (("",), ("",)) if mixture is None else (mixture.sources, mixture.targets)
    chains = CHAINS if source is not None else CHAINS[1:2]
    more: dict[str, Any] = {
        "label_smoothing": smoothing,
        "selector": settings.gates.gating(network.heads, chains)
        or settings.selecting.selector(network.heads, *tasks),
    }
    model: Decoder
    if source is None:
        model = LanguageModel(types, prior, network, latent, **more)
    else:
        if settings.adapters:
            more["adapters"] = Adapters(settings.adapters, *map(len, tasks))
        model = Translation(len(source), types, prior, network, latent, **more)
    _check_heads(settings, model)
    model.disagreement = settings.disagreement
    return model


def _check_heads(settings: Settings, model: HeadModel) -> None:
    """Refuses what would act on no head of the network."""
    selecting, gates = settings.selecting, settings.gates.gates
    if selecting.select != "none" and not model.selecting:
        raise ValueError(
            f"--select {selecting.select}: this network has no heads in "
            f"select_chains {selecting.select_chains}"
        )
    if gates != "none" and not model.selecting:
        raise ValueError(f"--gates {gates}: this network has no heads in these chains")
    if settings.network.ngram_noise and not model.drawn_outputs:
        raise ValueError("ngram_noise: no chain of --latent has an ngram layer in this network")
    term = settings.disagreement
    if term is not None and not term.blocks(model):
        raise ValueError(
            f"--disagreement {','.join(term.kinds)}: no block of its chains has two heads with "
            "that; n-gram heads have an output alone"
        )


def vocabularies_to_json(target: Vocabulary, source: Vocabulary | None) -> dict[str, Any]:
    """Both vocabularies; a joint one once."""
    if source is target:
        return {"joint": target.to_json()}
    sides = {"target": target.to_json()}
    return sides if source is None else {**sides, "source": source.to_json()}


def _settings(path: Path, words: list[str]) -> Settings:
    """Reads a run's configuration; the parser's way of saying no is to leave the program."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return read_settings([*words, "--out", str(path)], "", "", lambda parser: None)[0]
    except SystemExit as reason:
        heart = said.getvalue().strip().removeprefix(": error: ")
        raise ValueError(f"{path} cannot be loaded: {heart}") from reason
    except (MemoryError, OverflowError) as reason:
        raise ValueError(f"{path} cannot be loaded: a size is beyond this machine") from reason


def _vocabularies(path: Path) -> tuple[Vocabulary, Vocabulary | None]:
    try:
        said = read_json(path / "vocabulary.json")
        if "joint" in said:
            both = vocabulary_from_json(said["joint"])
            return both, both
        source = vocabulary_from_json(said["source"]) if "source" in said else None
        return vocabulary_from_json(said["target"]), source
    except (OSError, KeyError, TypeError, ValueError) as reason:
        raise ValueError(f"{path / 'vocabulary.json'} cannot be read: {reason}") from reason


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


def load_run(
    path: Path,
    checkpoint: str = "reported",
    device: str = "auto",
    trusted: str | None = None,
) -> Loaded:
    """Loads a run. A run folder is data: none of its files runs or imports anything.

    Args:
        path: The run folder.
        checkpoint: ``best``, ``last``, ``average``, ``step-NNNNNNN``, or ``reported``, the weights
            that the run's figures are of.
        device: cpu, cuda, or auto.
        trusted: Guides and priors of the reader's own that it may be made of, as ``module:Class``
            with commas between; any other that is not the library's is refused.

    Raises:
        ValueError: It is no run folder, or lacks the checkpoint, or names a class not trusted.
    """
    configuration = path / "config.yaml"
    if not configuration.is_file():
        raise ValueError(f"{path} is no run folder: it has no config.yaml")
    try:
        read_yaml(configuration)  # its size is looked at before the parser reads it
    except (OSError, ValueError) as reason:
        raise ValueError(f"{path} cannot be loaded: {reason}") from reason
    words = ["--trust", trusted] if trusted else []
    settings = _settings(path, [*words, "--config", str(configuration), "--device", device])
    target, source = _vocabularies(path)
    if checkpoint == "reported":
        checkpoint = "average" if settings.training.average else "best"
    weights = path / "checkpoints" / f"{checkpoint}.safetensors"
    if not weights.is_file():
        names = sorted(file.stem for file in (path / "checkpoints").glob("*.safetensors"))
        there = ", ".join(names) or "none"
        raise ValueError(f"{path} has no checkpoint {checkpoint!r}; it has {there}")
    tensors, facts = checkpoints.load(weights)
    _refuse_larger(weights, settings, tensors)
    heads = read_heads(path)
    try:
        model = make_model(settings, target, source).to(settings.device)
        guide = settings.make_guide(model).to(settings.device)
    except (MemoryError, OverflowError, RuntimeError, TypeError) as reason:
        said = " ".join(str(reason).split())
        raise ValueError(
            f"{path} cannot be loaded: no network can be made of it: {said}"
        ) from reason
    apply_pruning(path, heads, model, guide)
    checkpoints.restore(weights, tensors, model=model, guide=guide)
    step = checkpoints.read_step(weights, facts)
    return Loaded(path, settings, target, source, model.eval(), guide.eval(), step, heads)


def _refuse_larger(path: Path, settings: Settings, tensors: Mapping[str, Tensor]) -> None:
    """Refuses a network that these weights are too few for, before it takes any memory."""
    network, held = settings.network, sum(tensor.numel() for tensor in tensors.values())
    least = network.layers * network.width * network.feed_forward
    if least > held:
        raise ValueError(
            f"{path} belongs to another model: it holds {held:,} numbers, and the layers of this "
            f"one have more than {least:,}"
        )


def load_finished(
    path: Path,
    checkpoint: str = "reported",
    device: str = "auto",
    trusted: str | None = None,
) -> Loaded:
    """Loads a run that has reported its figures; see :func:`load_run`."""
    if not path.is_dir():
        raise ValueError(f"{path} is no folder: give folders that run.py wrote")
    if (path / "config.yaml").is_file() and not (path / "results.json").is_file():
        raise ValueError(f"{path} is no finished run: it has no results.json")
    return load_run(path, checkpoint, device, trusted)


def same_vocabulary(run: Loaded, corpus: Corpus) -> bool:
    """Whether a corpus has the tokens that a run was trained on."""
    sides = ((run.target, corpus.target), (run.source, corpus.source))
    return all((mine and mine.to_json()) == (its and its.to_json()) for mine, its in sides)


def check_vocabulary(run: Loaded, corpus: Corpus) -> None:
    """Refuses a corpus whose text has changed since the run was trained on it."""
    if not same_vocabulary(run, corpus):
        raise ValueError(
            f"{run.path} was trained with another vocabulary than its corpus gives now: "
            "the text has changed since"
        )
