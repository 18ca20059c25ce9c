"""From objects to settings: a model, a guide and a corpus, as a run folder describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import nn

from latentheads.attention.disagreement import Disagreement
from latentheads.corpora import Corpus
from latentheads.corpora.corpus import check_corpus
from latentheads.data import Data, InMemory, Tasks
from latentheads.decoding.translate import Decoding
from latentheads.guide import ModelGuide, check_pair
from latentheads.latents.registry import LATENTS
from latentheads.model import Decoder
from latentheads.models import LanguageModel, Translation
from latentheads.names import ATTENTION_TYPES, name_attention_types
from latentheads.options import import_path
from latentheads.runs.build import make_model
from latentheads.runs.pairs import GuideSpec
from latentheads.runs.settings import DisagreementOptions, Settings
from latentheads.training.checkpoints import weights
from latentheads.training.options import Training


def describe_run(
    model: Decoder,
    guide: ModelGuide,
    corpus: Corpus,
    *,
    train: Training,
    decode: Decoding,
    seed: int,
    samples: int,
) -> Settings:
    """The settings of a run of objects that were made by hand.

    Raises:
        ValueError: No settings describe one of them.
    """
    if not isinstance(model, Translation | LanguageModel):
        raise ValueError(
            f"model must be a Translation or a LanguageModel, got {type(model).__name__}: no run "
            "folder can say what another one is; train it with lh.fit"
        )
    check_corpus(corpus)
    check_pair(model, guide)
    _check_registered(model)
    adapters = getattr(model, "adapters", None)
    described = [kind.describe(model, corpus.train.tokens) for kind in LATENTS.values()]
    return Settings(
        guide=GuideSpec.of(guide),
        latents=tuple(latent for latent in described if latent is not None),
        data=describe_data(corpus),
        network=model.network,
        train=train,
        decode=decode,
        seed=seed,
        samples=samples,
        label_smoothing=model.label_smoothing,
        disagreement=_describe_disagreement(model.disagreement),
        ctc=_describe_ctc(model),
        adapters=0 if adapters is None else adapters.width,
    )


def _check_registered(model: Decoder) -> None:
    """Validates that a run folder can name the latents of a model."""
    for name, latent in model.latents.items():
        if name not in LATENTS:
            raise ValueError(
                f"latent {name!r} of class {type(latent).__name__} is not registered, so no run "
                f"folder can name it: set LATENTS[{name!r}] of latentheads.latents.registry to the "
                "class of its options, or train with lh.fit"
            )


def describe_data(corpus: Corpus) -> Data:
    """The options of a corpus; of one that was put together in Python, those that a run needs."""
    if isinstance(corpus.data, Data):
        return corpus.data
    mixture = corpus.train.mixture
    tasks = None
    if mixture is not None:
        how = (mixture.temperature, mixture.one_task, mixture.task_key)
        tasks = Tasks(mixture.names, (), *how)
    return InMemory(
        task=_name_task(corpus),
        block=corpus.train.block,
        lowercase=corpus.target.lowercase,
        tokenised=corpus.target.tokenised,
        tasks=tasks,
    )


def _name_task(
    corpus: Corpus,
) -> Literal["translation", "language-model", "recognition", "speech-translation"]:
    if corpus.source is None:
        return "language-model"
    if corpus.source.is_text:
        return "translation"
    translates = any(task.source != task.target for task in corpus.tasks)
    return "speech-translation" if translates else "recognition"


def check_rebuilt(settings: Settings, model: Decoder, guide: ModelGuide, corpus: Corpus) -> None:
    """Validates that the settings make the objects again, so that each run can be opened.

    Raises:
        ValueError: It names the first part that is missing, or of another shape or class.
    """
    rebuilt_model, rebuilt_guide = _make_again(settings, corpus)
    if rebuilt_model.selector != model.selector:
        raise ValueError(
            "model is not what its options make: they say nothing of the families of its static "
            "selection; make it from Settings"
        )
    for kind, actual, rebuilt in (("model", model, rebuilt_model), ("guide", guide, rebuilt_guide)):
        _raise_on_difference(kind, "shape", _read_shapes(kind, actual), _read_shapes(kind, rebuilt))
        _raise_on_difference(
            kind, "class", _read_classes(kind, actual), _read_classes(kind, rebuilt)
        )


def _make_again(settings: Settings, corpus: Corpus) -> tuple[Decoder, ModelGuide]:
    """What settings make, without numbers unless a class of the reader's own looks at them."""

    def make() -> tuple[Decoder, ModelGuide]:
        model = make_model(settings, corpus.target, corpus.source)
        return model, settings.pair.make_guide(model)

    try:
        with torch.device("meta"):
            return make()
    except (RuntimeError, TypeError):  # as Pyro's flows; numpy's refusal is a TypeError
        return make()


def _raise_on_difference(
    kind: str, aspect: str, actual: Mapping[str, Any], rebuilt: Mapping[str, Any]
) -> None:
    """Raises an error that names the first part that differs from what the settings make."""
    for name in sorted(actual.keys() | rebuilt.keys()):
        if actual.get(name) != rebuilt.get(name):
            raise ValueError(
                f"{kind} is not what its options make: {name} has {aspect} {actual.get(name)}, not "
                f"{rebuilt.get(name)}; no run folder can say what it is: train it with lh.fit"
            )


def _read_shapes(kind: str, module: nn.Module) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in weights(**{kind: module}).items()}


def _read_classes(kind: str, module: nn.Module) -> dict[str, str]:
    return {name: import_path(type(part)) for name, part in module.named_modules(prefix=kind)}


def _describe_ctc(model: Decoder) -> float:
    ctc = getattr(model, "ctc", None)
    return 0.0 if ctc is None else ctc.weight


def _describe_disagreement(term: Disagreement | None) -> DisagreementOptions | None:
    if term is None:
        return None
    blocks = name_attention_types(term.attention_types or ATTENTION_TYPES, ATTENTION_TYPES)
    return DisagreementOptions(",".join(term.kinds), term.weight, blocks, term.diagonal)
