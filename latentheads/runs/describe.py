"""From objects to settings: a model, a guide and a corpus, as a run folder describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

import torch
from torch import nn

from latentheads.alignment.options import AlignmentOptions
from latentheads.attention.disagreement import Disagreement
from latentheads.corpora import Corpus
from latentheads.corpora.corpus import check_corpus
from latentheads.corpora.data import Data
from latentheads.corpora.speech.vocabulary import bins_of
from latentheads.decoding.translate import Decoding
from latentheads.guide import ModelGuide, check_pair
from latentheads.model import Decoder
from latentheads.models import LanguageModel, Translation
from latentheads.names import ATTENTION_TYPES
from latentheads.runs.build import make_model
from latentheads.runs.pairs import ClassSpec
from latentheads.runs.recipes import path_of
from latentheads.runs.settings import IN_MEMORY, Settings
from latentheads.selection.gate_options import Gates
from latentheads.selection.hard_gates import Gating
from latentheads.selection.options import SelectionOptions
from latentheads.selection.selector import CandidateSelector
from latentheads.selection.strategies import STRATEGIES
from latentheads.training.checkpoints import weights
from latentheads.training.options import Training

__all__ = ["check_rebuilt", "describe_data", "describe_run"]


def describe_run(
    model: Decoder,
    guide: ModelGuide,
    corpus: Corpus,
    *,
    training: Training,
    decoding: Decoding,
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
        guide=ClassSpec.of("guide", guide),
        prior=ClassSpec.of("prior", model.prior),
        latent=_name_chains(
            model.latent, ATTENTION_TYPES if corpus.source else ATTENTION_TYPES[1:2]
        ),
        data=describe_data(corpus),
        network=model.network,
        training=training,
        decoding=decoding,
        selecting=_describe_selecting(model),
        gates=_describe_gates(model, corpus.train.tokens),
        alignment=AlignmentOptions(0) if model.alignments is None else model.alignments.options,
        seed=seed,
        samples=samples,
        label_smoothing=model.label_smoothing,
        ctc=_describe_ctc(model),
        adapters=0 if adapters is None else adapters.width,
        **_describe_disagreement(model.disagreement),
    )


def describe_data(corpus: Corpus) -> Data:
    """The options of a corpus; of one made by hand, those that a run needs."""
    if corpus.data is not None:
        return corpus.data
    data = Data(
        data=IN_MEMORY,
        task=_name_task(corpus),
        block=corpus.train.block,
        lowercase=corpus.target.lowercase,
        tokenised=corpus.target.tokenised,
    )
    mixture = corpus.train.mixture
    if mixture is None:
        return data
    return replace(
        data,
        tasks=",".join(mixture.names),
        tell_apart=mixture.task_key,
        task_temperature=mixture.temperature,
        one_task=mixture.one_task,
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
    if not settings.has_gates and again.selector != model.selector:
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
    return {name: path_of(type(part)) for name, part in module.named_modules(prefix=kind)}


def _name_chains(chains: tuple[str, ...], every: tuple[str, ...]) -> str:
    """Chains as an option names them."""
    return "all" if set(chains) >= set(every) else ",".join(chains) or "none"


def _describe_selecting(model: Decoder) -> SelectionOptions:
    selector = model.selector
    if selector is None or isinstance(selector, Gating):
        return SelectionOptions()
    law = next(name for name, kind in STRATEGIES.items() if type(selector) is kind)
    chains = _name_chains(selector.attention_types, ATTENTION_TYPES)
    candidates = selector.candidates if isinstance(selector, CandidateSelector) else 0
    return SelectionOptions(select=law, candidates=candidates, select_chains=chains)


def _describe_gates(model: Decoder, tokens: int) -> Gates:
    selector = model.selector
    if not isinstance(selector, Gating):
        return Gates()
    return Gates(
        gates=_name_chains(selector.attention_types, ATTENTION_TYPES),
        gate_open=selector.gate_open,
        gate_start=selector.gate_start,
        gate_temperature=selector.gate_temperature,
        gate_penalty=float(selector.l0_penalty.value) / tokens,
    )


def _describe_ctc(model: Decoder) -> float:
    ctc = getattr(model, "ctc", None)
    return 0.0 if ctc is None else ctc.weight


def _describe_disagreement(term: Disagreement | None) -> dict[str, Any]:
    if term is None:
        return {}
    said = asdict(term)
    return {
        "disagreement": ",".join(said["kinds"]),
        "disagreement_weight": said["weight"],
        "disagreement_chains": _name_chains(
            term.attention_types or ATTENTION_TYPES, ATTENTION_TYPES
        ),
        "disagreement_diagonal": said["diagonal"],
    }
