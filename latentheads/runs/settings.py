"""Everything that says what a run is, as plain values that a YAML file holds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_type_hints

import yaml

from latentheads.alignment.options import AlignmentOptions
from latentheads.attention.disagreement import KINDS, Disagreement
from latentheads.checks import check_known, check_least, check_seed, split_items
from latentheads.corpora.data import SPEECH_OPTIONS, TASK_OPTIONS, Data
from latentheads.decoding.translate import Decoding
from latentheads.files import read_yaml
from latentheads.metrics.translation import Protocol
from latentheads.models import Network
from latentheads.names import parse_attention_types
from latentheads.runs.naming import read_names
from latentheads.runs.pairs import ClassSpec, ModelGuidePair, join_pair
from latentheads.runs.recipes import DEFAULTS, split_path
from latentheads.runs.trust import refuse_code
from latentheads.selection.gate_options import Gates
from latentheads.selection.options import SelectionOptions
from latentheads.training.options import Training
from latentheads.values import convert, convert_fields, plain, refuse_unknown, take_group

__all__ = ["GROUPS", "IN_MEMORY", "Settings", "complete_options", "join_unused", "trusted_paths"]

GROUPS: dict[str, type] = {
    "data": Data,
    "network": Network,
    "training": Training,
    "decoding": Decoding,
    "selecting": SelectionOptions,
    "gates": Gates,
    "alignment": AlignmentOptions,
}
"""The fields of the settings whose options stand side by side in a file."""

IN_MEMORY = "by hand"
"""The name, in a run folder, of a corpus that no options describe."""

OF_SPEECH = (*SPEECH_OPTIONS, "channels", "spec_augment", "paper_wer", "ctc")
"""Options that a run folder leaves out where the source is text."""

SHOWN_TASKS = 3
"""Tasks that a title names; of more it says how many."""

OF_HAND = (
    *("task", "block", "lowercase", "tokenised"),
    *("tasks", "task_temperature", "one_task", "tell_apart"),
)
"""Options that a run folder has of a corpus made by hand."""


@dataclass(frozen=True)
class Settings:
    """Everything that says what a run is: the same settings train the same weights.

    Attributes:
        guide: The posterior.
        prior: The prior, or tied for the guide's own form.
        latent: Chains whose heads are drawn: all, none, or some with commas between.
        data: The corpus.
        network: Sizes.
        training: How to train.
        decoding: How to translate.
        selecting: Which heads speak for each task.
        gates: Which heads may close while training.
        alignment: Blocks above the decoder that point at source positions, or at earlier words.
        seed: Of weights, data order and noise.
        samples: Draws of each sentence in the report, K of IWAE.
        label_smoothing: Of the likelihood while training; never of a reported figure.
        disagreement: Reward heads for differing while training, as Li et al. 2018: none, or some of
            subspace, position, output, of which n-gram heads have output alone; never part of a
            reported figure.
        disagreement_weight: lambda of it, in nats a target token and block.
        disagreement_chains: Chains that it acts on: all, or some with commas between.
        disagreement_diagonal: Compare each head with itself too, as the paper does.
        ctc: Factor of CTC, a second likelihood of the text by which an encoder of speech is trained
            too; never part of a reported figure. .3 is usual.
        adapters: Hidden width of two steps of its own for each task in every layer, or for all text
            where there are no tasks; 0: none.
        start: Run folder whose weights training starts with; of a pruned one, without the heads
            that it has lost.
        start_with: What is taken of start: all, and so the guide where it is the same; the model,
            so that every guide starts anew; or, of speech, the encoder alone and what it selected,
            whatever is written and however deep the decoder is, as for translation behind
            recognition.
        train: What is trained: all; the adapters alone, in the network of start; or the guide
            alone, of the model of start: several guides then bound one and the same model.
        unused: Options of a file that act on nothing here. They are written down apart, so that
            the same file is the same run.

    Example:
        >>> lh.Settings().recipe
        'cascaded+alignments'
        >>> lh.Settings.from_options({"prior": "cascaded", "guide": "tied", "steps": 100}).recipe
        'coda'
    """

    guide: ClassSpec = field(default_factory=lambda: ClassSpec(DEFAULTS["guide"]))
    prior: ClassSpec = field(default_factory=lambda: ClassSpec(DEFAULTS["prior"]))
    latent: str = "all"
    data: Data = field(default_factory=Data)
    network: Network = field(default_factory=Network)
    training: Training = field(default_factory=Training)
    decoding: Decoding = field(default_factory=Decoding)
    selecting: SelectionOptions = field(default_factory=SelectionOptions)
    gates: Gates = field(default_factory=Gates)
    alignment: AlignmentOptions = field(default_factory=AlignmentOptions)
    seed: int = 0
    samples: int = 32
    label_smoothing: float = 0.0
    disagreement: str = "none"
    disagreement_weight: float = 1.0
    disagreement_chains: str = "all"
    disagreement_diagonal: bool = True
    ctc: float = 0.0
    adapters: int = 0
    start: str = ""
    start_with: Literal["all", "model", "encoder"] = "all"
    train: Literal["all", "adapters", "guide"] = "all"
    unused: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        convert_fields(self)
        check_seed(self.seed)
        check_least(vars(self), samples=1, adapters=0, ctc=0.0)
        if self.train == "adapters" and not (self.adapters and self.start):
            raise ValueError("train adapters needs adapters WIDTH and start RUN")
        if self.start_with == "encoder" and self.train != "all":
            raise ValueError(f"train {self.train} needs the whole model of start, not its encoder")
        if self.train == "guide" and not self.start:
            raise ValueError("train guide needs start RUN, whose model stays as it is")
        if self.train == "guide" and self.training.objective == "marginal":
            raise ValueError(
                "objective marginal trains the model, which stays as it is with train guide: "
                "drop it, and the guide is trained by its bound"
            )
        if self.gates.gates != "none":
            if self.selecting.select != "none":
                raise ValueError("heads are either selected or gated: use select or gates")
            if self.training.kl != "analytic":
                raise ValueError(
                    "gates are learned by the closed form of their KL: use kl analytic"
                )
        past = self.data.alone
        of_logits = not self.prior.find("prior").deterministic
        object.__setattr__(self, "alignment", self.alignment.with_default_blocks(past, of_logits))
        self.alignment.check_window(past)
        _ = self.pair, self.chains, self.disagreement_term
        for kind in DEFAULTS:  # what no reader would take from a folder is not trained
            said = getattr(self, kind).to_yaml(kind)
            refuse_code(kind, said.get("init_args"), said["class_path"])

    @cached_property
    def pair(self) -> ModelGuidePair:
        """The classes of prior and guide, with their options."""
        return join_pair(self.prior, self.guide, self.alignment.is_latent)

    @property
    def prior_name(self) -> str:
        """What the prior is called."""
        return self.pair.prior_name

    @property
    def guide_name(self) -> str:
        """What the guide is called."""
        return self.pair.guide_name

    @property
    def recipe(self) -> str:
        """The name of the pair, and behind each + what is selected, gated or aligned besides."""
        select = self.selecting.select
        more = [*([select] if select != "none" else []), *(["gates"] if self.has_gates else [])]
        if self.alignment.is_latent:
            return "+".join([self.pair.full_name, "alignments", *more])
        if self.alignment.blocks:
            more.append("soft")
        return "+".join([self.pair.name, *more])

    @property
    def laws(self) -> str:
        """What prior and guide are, in a line."""
        if not self.alignment.is_latent:
            return f"prior {self.prior_name}, guide {self.guide_name}"
        said = f"alignments with prior {self.alignment.alignment_prior}, guide {self.guide_name}"
        without = self.prior.find("prior").deterministic
        return f"{said}; {'attention without noise' if without else f'logits {self.prior_name}'}"

    @property
    def title(self) -> str:
        """What stands above a picture of the run where its corpus is not at hand."""
        return self.title_of("a corpus made by hand" if self.in_memory else self.data.name)

    def title_of(self, corpus: str) -> str:
        """What stands above a picture of the run: its recipe, corpus and seed.

        Args:
            corpus: What the corpus is called.
        """
        names = self.data.mixture.names if self.data.mixture else ()
        if len(names) > SHOWN_TASKS:
            corpus = corpus.replace(",".join(names), f"{len(names)} tasks")
        return f"{self.recipe}, {corpus}, seed {self.seed}"

    @property
    def has_gates(self) -> bool:
        """Whether heads have gates."""
        return self.gates.gates != "none"

    @property
    def chains(self) -> tuple[str, ...] | None:
        """The chains whose heads are drawn; None for all."""
        return parse_attention_types(self.latent)

    @property
    def out(self) -> Path:
        """The folder of a run by default."""
        return Path(f"runs/{self.recipe}-seed{self.seed}")

    @property
    def in_memory(self) -> bool:
        """Whether no options name the corpus."""
        return self.data.data == IN_MEMORY

    @property
    def protocol(self) -> Protocol | None:
        """How the papers count BLEU on the corpus; None where that was not asked for."""
        return self.data.protocol if self.decoding.paper_bleu else None

    @property
    def disagreement_term(self) -> Disagreement | None:
        """A term of the model while training that rewards heads for differing."""
        if self.disagreement == "none":
            return None
        kinds = tuple(split_items(self.disagreement))
        for kind in kinds:
            check_known("disagreement", kind, KINDS, more=", or none")
        weight = self.disagreement_weight
        if not math.isfinite(weight):
            raise ValueError(f"disagreement_weight must be finite, got {weight}")
        chains = parse_attention_types(self.disagreement_chains)
        return Disagreement(kinds, weight, chains, self.disagreement_diagonal)

    @classmethod
    def read(cls, path: str | Path, trusted: str | None = None) -> Settings:
        """Reads a file that :meth:`to_yaml` wrote, or that was written by hand.

        The file is data: it imports nothing that the reader did not name.

        Args:
            path: A file of YAML, as ``config.yaml`` of a run folder.
            trusted: Guides and priors of the reader's own that it may name, as ``module:Class``
                with commas between.

        Raises:
            OSError: It cannot be read.
            ValueError: It names an option that there is not, or another kind of value.
        """
        try:
            said = read_yaml(Path(path))
        except ValueError as reason:
            raise ValueError(f"{path} cannot be read: {reason}") from reason
        return cls.from_options(said, trusted)

    @classmethod
    def from_options(cls, said: Any, trusted: str | None = None) -> Settings:
        """Makes the settings that options say, side by side as in a file; see :meth:`read`."""
        if not isinstance(said, dict):
            raise ValueError(f"a configuration must name options, got {said!r}")
        known = _read_in_memory(read_names(said, trusted_paths(trusted)))
        unused = _unused_of(known)
        known.pop("unused", None)
        refuse_unknown({**known, **unused}, option_names())
        hints = get_type_hints(cls)
        own = {n: convert(n, hints[n], known[n]) for n in _own_names() if n in known}
        own |= {name: take_group(kind, known) for name, kind in GROUPS.items()}
        own |= {kind: ClassSpec.read(kind, known[kind]) for kind in DEFAULTS if kind in known}
        return cls(**own, unused=unused)

    def to_options(self) -> dict[str, Any]:
        """All options side by side, as a file says them."""
        found: dict[str, Any] = {k: getattr(self, k).to_yaml(k) for k in DEFAULTS}
        found["latent"] = self.latent
        for name in GROUPS:
            found |= asdict(getattr(self, name))
        found |= {name: getattr(self, name) for name in _own_names()}
        unsaid: tuple[str, ...] = () if self.data.tasks else TASK_OPTIONS
        if not self.data.is_speech:
            unsaid += OF_SPEECH
        found = {name: value for name, value in found.items() if name not in unsaid}
        if self.in_memory:
            mine = {each.name for each in fields(Data)} - set(OF_HAND)
            found = {"corpus": IN_MEMORY} | {n: v for n, v in found.items() if n not in mine}
        if unused := {n: value for n, value in self.unused.items() if n not in unsaid}:
            found["unused"] = unused
        return {name: plain(value) for name, value in found.items()}

    def to_yaml(self) -> str:
        """The settings as a file of YAML, which ``run.py --config`` reads too."""
        return yaml.dump(self.to_options(), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes a value that stands in two places twice: run folders are read without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Whether to write a value out."""
        return True


def _own_names() -> list[str]:
    """The options that stand in no group."""
    others = {*GROUPS, *DEFAULTS, "unused"}
    return [each.name for each in fields(Settings) if each.name not in others]


def option_names() -> list[str]:
    """The names of all options."""
    grouped = [each.name for kind in GROUPS.values() for each in fields(kind)]
    return [*DEFAULTS, *grouped, *_own_names()]


def trusted_paths(trusted: str | None) -> Collection[str]:
    """The import paths that ``module:Class`` stands for, commas between."""
    if not (trusted is None or isinstance(trusted, str)):
        raise ValueError(
            f"trusted must be a text, module:Class with commas between, got {trusted!r}"
        )
    return frozenset(split_path("trust", name) for name in split_items(trusted)) if trusted else ()


def _read_in_memory(known: dict[str, Any]) -> dict[str, Any]:
    """The options of a folder, with a corpus made by hand as one of them."""
    if "corpus" not in known:
        return known
    if known["corpus"] != IN_MEMORY:
        raise ValueError(f"corpus: choose from {IN_MEMORY}, got {known['corpus']}")
    return {name: value for name, value in known.items() if name != "corpus"} | {"data": IN_MEMORY}


def _unused_of(said: Mapping[str, Any]) -> dict[str, Any]:
    unused = said.get("unused", {})
    if not isinstance(unused, dict):
        raise ValueError(f"unused must be options with their values, got {unused!r}")
    return dict(unused)


def join_unused(said: Mapping[str, Any]) -> dict[str, Any]:
    """Options side by side with those that act on nothing, as a command line says them."""
    acting = {name: value for name, value in said.items() if name != "unused"}
    return acting | _unused_of(said)


def complete_options(said: Any, trusted: str | None = None) -> Any:
    """What a file says with the default of all that it does not say; another thing as it is.

    Two files that say the same in two ways become equal.
    """
    try:
        settings = Settings.from_options(said, trusted)
    except (TypeError, ValueError):
        return said
    return join_unused(settings.to_options())
