"""From objects to settings: a model, a guide and a corpus, as a run folder describes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from torch import nn

from latentheads.attention.disagreement import Disagreement
from latentheads.corpora import Corpus
from latentheads.corpora.corpus import check_corpus
from latentheads.corpora.speech.vocabulary import bins_of
from latentheads.data import Data, InMemory, Tasks
from latentheads.decoding.translate import Decoding
from latentheads.guide import ModelGuide, check_pair
from latentheads.model import Decoder
from latentheads.models import LanguageModel, Translation
from latentheads.names import ATTENTION_TYPES
from latentheads.runs.build import make_model
from latentheads.runs.latents import LogitsOptions
from latentheads.runs.pairs import DEFAULT_PRIOR, GuideSpec, PriorSpec, import_path
from latentheads.runs.settings import DisagreementOptions, Settings
from latentheads.selection.gate_options import GateOptions
from latentheads.selection.hard_gates import Gating
from latentheads.selection.options import SelectionOptions
from latentheads.selection.selector import CandidateSelector, Selector
from latentheads.selection.strategies import STRATEGIES
from latentheads.training.checkpoints import weights
from latentheads.training.options import Training

__all__ = ["check_rebuilt", "describe_data", "describe_run"]


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
    adapters = getattr(model, "adapters", None)
    return Settings(
        guide=GuideSpec.of(guide),
        latents=tuple(_describe_latents(model, corpus)),
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


def _describe_latents(model: Translation | LanguageModel, corpus: Corpus) -> Iterator[Any]:
    """The options of what is random in a model."""
    if model.alignments is not None:
        yield model.alignments.options
    types = ATTENTION_TYPES if corpus.source else ATTENTION_TYPES[1:2]
    blocks, prior = _name_types(model.latent, types), PriorSpec.of(model.prior)
    if prior.name != DEFAULT_PRIOR or blocks != "all":
        yield LogitsOptions(prior, blocks)
    if isinstance(model.selector, Gating):
        yield _describe_gates(model.selector, corpus.train.tokens)
    elif model.selector is not None:
        yield _describe_selection(model.selector)


def describe_data(corpus: Corpus) -> Data:
    """The options of a corpus; of one that was put together in Python, those that a run needs."""
    if corpus.data is not None:
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
    if not bins_of(corpus.source):
        return "translation"
    translates = any(task.source != task.target for task in corpus.tasks)
    return "speech-translation" if translates else "recognition"


def check_rebuilt(settings: Settings, model: Decoder, guide: ModelGuide, corpus: Corpus) -> None:
    """Refuses objects that the settings would not make again, so that each run can be opened.

    Raises:
        ValueError: It names the first part that is missing, or of another shape or class.
    """
    again, other = _make_again(settings, corpus)
    if settings.gates is None and again.selector != model.selector:
        raise ValueError(
            "model is not what its options make: they say nothing of the families of its static "
            "selection; make it from Settings"
        )
    for kind, mine, its in (("model", model, again), ("guide", guide, other)):
        _refuse_difference(kind, "shape", _read_shapes(kind, mine), _read_shapes(kind, its))
        _refuse_difference(kind, "class", _read_classes(kind, mine), _read_classes(kind, its))


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


def _refuse_difference(
    kind: str, aspect: str, mine: Mapping[str, Any], its: Mapping[str, Any]
) -> None:
    """Refuses what differs from what the settings make, and names the first part that does."""
    for name in sorted(mine.keys() | its.keys()):
        if mine.get(name) != its.get(name):
            raise ValueError(
                f"{kind} is not what its options make: {name} has {aspect} {mine.get(name)}, not "
                f"{its.get(name)}; no run folder can say what it is: train it with lh.fit"
            )


def _read_shapes(kind: str, module: nn.Module) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in weights(**{kind: module}).items()}


def _read_classes(kind: str, module: nn.Module) -> dict[str, str]:
    return {name: import_path(type(part)) for name, part in module.named_modules(prefix=kind)}


def _name_types(chains: tuple[str, ...], every: tuple[str, ...]) -> str:
    """Chains as an option names them."""
    return "all" if set(chains) >= set(every) else ",".join(chains) or "none"


def _describe_selection(selector: Selector) -> SelectionOptions:
    strategy = next(name for name, kind in STRATEGIES.items() if type(selector) is kind)
    blocks = _name_types(selector.attention_types, ATTENTION_TYPES)
    candidates = selector.candidates if isinstance(selector, CandidateSelector) else 0
    return SelectionOptions(strategy, candidates, blocks)


def _describe_gates(gating: Gating, tokens: int) -> GateOptions:
    return GateOptions(
        blocks=_name_types(gating.attention_types, ATTENTION_TYPES),
        open=gating.gate_open,
        start=gating.gate_start,
        temperature=gating.gate_temperature,
        penalty=float(gating.l0_penalty.value) / tokens,
    )


def _describe_ctc(model: Decoder) -> float:
    ctc = getattr(model, "ctc", None)
    return 0.0 if ctc is None else ctc.weight


def _describe_disagreement(term: Disagreement | None) -> DisagreementOptions | None:
    if term is None:
        return None
    blocks = _name_types(term.attention_types or ATTENTION_TYPES, ATTENTION_TYPES)
    return DisagreementOptions(",".join(term.kinds), term.weight, blocks, term.diagonal)
