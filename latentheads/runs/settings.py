"""Everything that defines a run, as plain values that a YAML file holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from annotated_types import Ge, Le, Lt
from pydantic import NonNegativeFloat

from latentheads.attention.disagreement import KINDS, Disagreement
from latentheads.checks import MAX_WIDTH, check_choice, split_items
from latentheads.corpora.corpus import Corpus, check_corpus
from latentheads.data.base import Data
from latentheads.data.grammar import Grammar
from latentheads.data.in_memory import InMemory, data_of
from latentheads.decoding.options import Decoding
from latentheads.errors import shown
from latentheads.families.guide import Guide
from latentheads.files import read_yaml, reading_file
from latentheads.guide import ModelGuide, check_pair
from latentheads.guides import GUIDES
from latentheads.latents.default import DEFAULT_LATENTS
from latentheads.latents.logits.options import DEFAULT_PRIOR, LogitsOptions, PriorSpec
from latentheads.latents.options import LatentOptions
from latentheads.latents.registry import DEFAULT_LATENT, LATENTS
from latentheads.metrics.protocol import Protocol
from latentheads.model import Decoder
from latentheads.models.front_end import FrontEnd
from latentheads.models.language_model import LanguageModel
from latentheads.models.network import Network
from latentheads.models.translation import Translation
from latentheads.names import ATTENTION_TYPES, AttentionTypes, parse_attention_types
from latentheads.options import (
    CLASS,
    Count,
    OptionError,
    UnusedOptionError,
    changed_options,
    flatten,
    from_dict,
    import_path,
    in_group,
    join_path,
    merge,
    options_class,
    to_dict,
)
from latentheads.runs.pairs import GuideSpec, ModelGuidePair, join_pair
from latentheads.runs.recipes import read_recipe, recipe_name
from latentheads.training.losses import HeadELBOLoss, MarginalLoss, RelaxedLoss
from latentheads.training.options import Training

SHOWN_TASKS = 3
"""Tasks that a title names; if there are more, it has their number."""


@options_class()
class DisagreementOptions:
    """A reward while training for heads that differ, as Li et al. 2018.

    Attributes:
        kinds: Some of subspace, position, output, comma between; n-gram heads have output alone.
        weight: lambda of it, in nats per target token and block; larger ones cost BLEU.
        blocks: Attention types that it acts on: all, or some with commas between.
        diagonal: Compare each head with itself too, as the paper does.
    """

    kinds: str
    weight: NonNegativeFloat = Disagreement.weight
    blocks: AttentionTypes = "all"
    diagonal: bool = True

    def __post_init__(self) -> None:
        for kind in split_items(self.kinds):
            check_choice("kinds", kind, KINDS)

    @classmethod
    def of(cls, term: Disagreement) -> DisagreementOptions:
        """The options of a term."""
        types = term.attention_types or ATTENTION_TYPES
        blocks = "all" if set(types) >= set(ATTENTION_TYPES) else ",".join(types)
        return cls(",".join(term.kinds), term.weight, blocks, term.diagonal)

    @property
    def term(self) -> Disagreement:
        """The term of the objective."""
        types = parse_attention_types(self.blocks)
        return Disagreement(tuple(split_items(self.kinds)), self.weight, types, self.diagonal)


@options_class()
class Settings:
    """Everything that defines a run: the same settings train the same weights.

    Attributes:
        guide: The posterior of all latents.
        latents: What is random: the options of each latent.
        data: The corpus.
        network: Sizes.
        train: How to train.
        decode: How to translate.
        seed: Of weights, data order and noise.
        num_samples: Samples of each sentence in the report, K of IWAE.
        label_smoothing: Of the likelihood while training; never of a reported score.
        disagreement: A reward while training for heads that differ; never part of a reported score.
        ctc: Factor of CTC, a second likelihood that trains an encoder of speech; never part of a
            reported score. .3 is usual.
        adapters: Hidden width of two adapter steps in every layer for each task; for all text where
            there are no tasks. 0: none.
        start: Run folder whose weights training starts with; of a pruned one, without the heads
            that were removed.
        start_with: What is taken of start: all, and so the guide where it is the same; the model,
            so that every guide starts anew; the heads of a pruned run alone, with new weights; or,
            of speech, the encoder alone and its selection, whatever the target and the decoder are,
            as for translation after recognition.
        train_only: What is trained: all; the adapters alone, in the network of start; or the guide
            alone, of the model of start: several guides then bound one and the same model.

    Example:
        >>> Settings().recipe
        'cascaded+alignments'
        >>> Settings.from_options({"recipe": "coda", "train": {"steps": 100}}).recipe
        'coda'
    """

    guide: GuideSpec = field(default_factory=lambda: GuideSpec("cascaded"))
    latents: tuple[Any, ...] = field(default_factory=lambda: (LATENTS[DEFAULT_LATENT](),))
    data: Data = field(default_factory=Grammar)
    network: Network = field(default_factory=Network)
    train: Training = field(default_factory=Training)
    decode: Decoding = field(default_factory=Decoding)
    seed: Annotated[int, Ge(0), Lt(2**63)] = 0
    num_samples: Count = 32
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    disagreement: DisagreementOptions | None = None
    ctc: NonNegativeFloat = 0.0
    adapters: Annotated[int, Ge(0), Le(MAX_WIDTH)] = 0
    start: str = ""
    start_with: Literal["all", "model", "heads", "encoder"] = "all"
    train_only: Literal["all", "adapters", "guide"] = "all"

    def __post_init__(self) -> None:
        for latent in self.latents:
            if type(latent) not in LATENTS.values():
                kinds = ", ".join(kind.__name__ for kind in LATENTS.values())
                raise OptionError("latents", f" must be {kinds}; got {shown(latent)}")
        object.__setattr__(self, "latents", tuple(self._resolve_latents()))
        self._check_data()
        if self.data.is_speech and self.network.speech is None:
            object.__setattr__(self, "network", replace(self.network, speech=FrontEnd.default()))
        self._check_start()
        self._check_latents()
        self._check_noise()
        self._check_kl()
        _ = self.pair

    @classmethod
    def of(cls, model: Decoder, guide: ModelGuide, corpus: Corpus, **run: Any) -> Settings:
        """The settings that model, guide and corpus keep of how they were made.

        Args:
            model: A model.
            guide: Its guide.
            corpus: The corpus.
            **run: The other settings, such as ``train``, ``decode``, ``seed`` and ``num_samples``.
        """
        check_corpus(corpus)
        check_pair(model, guide)
        adapters, ctc = getattr(model, "adapters", None), getattr(model, "ctc", None)
        term = model.disagreement
        return cls(
            guide=GuideSpec.of(guide),
            latents=_latents_of(model),
            data=data_of(corpus),
            network=cast(Network, model.network),
            label_smoothing=model.label_smoothing,
            disagreement=None if term is None else DisagreementOptions.of(term),
            ctc=0.0 if ctc is None else ctc.weight,
            adapters=0 if adapters is None else adapters.width,
            **run,
        )

    def _resolve_latents(self) -> Iterator[LatentOptions]:
        """The latents with defaults that depend on the data; an error names the option in full."""
        for name, latent in self._named_latents:
            with in_group(name):
                resolved = latent.resolve(self.data.is_language_model)
                resolved.check_block(self.data.block_size)
            yield resolved

    def _check_data(self) -> None:
        """Validates that options act on the kind of data that there is."""
        data = self.data
        groups = {"": self, "network": self.network, "decode": self.decode}
        given = [
            join_path(group, name)
            for group, options in groups.items()
            for name in changed_options(options)
        ]
        of_decoding = [name for name in given if name.startswith("decode.")]
        for names, acts, where in (
            (["network.speech", "ctc"], data.is_speech, "speech"),
            (["network.adaptive"], data.is_language_model, "a language model"),
            (
                ["network.decoder_layers", "adapters", *of_decoding],
                not data.is_language_model,
                "translation or speech",
            ),
            (["decode.paper_wer"], data.is_recognition, "the recognition of speech"),
            (["decode.paper_bleu", "decode.accuracy"], not data.is_recognition, "translation"),
            (["decode.rouge"], not data.is_speech, "a source that is text"),
        ):
            for name in names:
                if name in given and not acts:
                    raise OptionError(name, f" is for {where}, and {data.name} is not")

    def _check_start(self) -> None:
        """Validates the model that training starts from, and the part that is trained."""
        for name in ("start_with", "train_only"):
            if getattr(self, name) != "all" and not self.start:
                raise OptionError(name, f" {getattr(self, name)} needs the option start")
        if self.train_only == "adapters" and not self.adapters:
            raise OptionError("train_only", " adapters needs the option adapters")
        if self.start_with in ("encoder", "heads") and self.train_only != "all":
            raise OptionError(
                "train_only",
                f" {self.train_only} needs the whole model of start, not its {self.start_with}",
            )
        if self.train_only == "guide" and isinstance(self.train.loss, MarginalLoss):
            raise OptionError(
                "train.loss",
                " marginal trains the model, which stays as it is with train_only guide: "
                "drop it, and the guide is trained by its bound",
            )

    def _check_latents(self) -> None:
        """Validates that latents go together, and that the guide has a form for one of them."""
        named = self._named_latents
        choosing = [name for name, latent in named if latent.kind.selects_heads]
        if len(choosing) > 1:
            raise OptionError("latents", f" {' and '.join(choosing)} exclude each other: name one")
        loss = self.train.loss
        if isinstance(loss, HeadELBOLoss) and loss.kl != "analytic":
            for name in (name for name, latent in named if latent.needs_closed_form):
                raise OptionError(
                    "latents", f" {name} need the closed form of a KL: use train.loss.kl analytic"
                )
        sums = isinstance(loss, HeadELBOLoss) and loss.objective != "bound"
        if sums and not self._is_summed_out:  # in Python the engine raises this
            example = "bernoulli-heads" if isinstance(loss, RelaxedLoss) else "alignments"
            what = f" {loss.name} needs a latent that is summed out, such as {example}"
            raise UnusedOptionError("train.loss", what)
        self._check_guide()

    def _check_guide(self) -> None:
        """Validates that the guide has a form for what is latent."""
        guide, name = self.guide.find(), self.guide.name
        exact = [n for n, kind in LATENTS.items() if kind.may_be_summed_out]
        if guide is GUIDES["exact"] and not self._is_summed_out:
            raise OptionError(
                "guide", f" exact needs latents {' or '.join(exact)}, whose posterior is known"
            )
        noisy, inferred = self._is_noisy, self._inferred
        if guide in GUIDES.values() and guide is not GUIDES["tied"] and not (noisy or inferred):
            sampled = [n for n, kind in LATENTS.items() if kind.has_sampled_posterior()]
            raise OptionError(
                "guide",
                f" {name!r} is a posterior of {', '.join([*exact, *sampled])}, of noisy logits or "
                "of a latent of your own whose options name its kind, and none of them is "
                "latent: use guide tied",
            )
        if inferred and not noisy and issubclass(guide, Guide) and guide.structure is None:
            raise OptionError(
                "guide",
                f" {name!r} has no posterior of {' and '.join(inferred)}: use latents logits",
            )

    def _check_noise(self) -> None:
        """Validates that there is noise, where it is to be warmed up."""
        if self.train.noise_warmup_steps and not self._is_noisy:
            raise UnusedOptionError(
                "train.noise_warmup_steps",
                " acts on the noise of logits and of n-gram heads, and there is none",
            )

    def _check_kl(self) -> None:
        """Validates that there is a KL on which each option of a KL acts."""
        loss = self.train.loss
        if not isinstance(loss, HeadELBOLoss):
            return
        guide = self.pair.guide_class
        of_samples = guide not in (GUIDES["tied"], GUIDES["exact"]) and (
            self._is_noisy or any(latent.has_sampled_posterior() for latent in self.latents)
        )
        has_summed_kl = self._is_summed_out and loss.has_kl_of_alignments
        summed = guide is not GUIDES["tied"] and has_summed_kl
        of_sentences = of_samples or summed
        sampled = of_samples or any(latent.has_sampled_kl for latent in self.latents)
        shared = any(latent.has_shared_kl for latent in self.latents)
        with in_group("train.loss"):
            loss.check_kl(of_sentences=of_sentences, sampled=sampled, shared=shared)

    @classmethod
    def more_groups(cls) -> Mapping[str, type]:
        """The groups of the latents, which stand beside the fields."""
        return LATENTS

    def latent(self, name: str) -> Any:
        """The options of a latent by its name; None where it is not random."""
        return dict(self._named_latents).get(name)

    @property
    def _named_latents(self) -> list[tuple[str, LatentOptions]]:
        names = {kind: name for name, kind in LATENTS.items()}
        return [(names[type(latent)], latent) for latent in self.latents]

    @property
    def logits(self) -> LogitsOptions | None:
        """The options of latent logits."""
        return cast("LogitsOptions | None", self.latent("logits"))

    @property
    def prior(self) -> PriorSpec:
        """The prior of the logits."""
        return PriorSpec(DEFAULT_PRIOR) if self.logits is None else self.logits.prior

    @property
    def has_latent_logits(self) -> bool:
        """Whether logits of attention have a prior that differs from their score."""
        return self.prior.name != DEFAULT_PRIOR

    @property
    def disagreement_term(self) -> Disagreement | None:
        """A term of the objective that rewards heads for differing."""
        return None if self.disagreement is None else self.disagreement.term

    @property
    def latent_names(self) -> tuple[str, ...]:
        """The names of what is random."""
        return tuple(name for name, _ in self._named_latents)

    @property
    def resolved_latents(self) -> list[LatentOptions]:
        """The latents, with the prior that the guide's own form stands for."""
        prior = PriorSpec.of(self.pair.make_prior())
        return [
            replace(latent, prior=prior) if isinstance(latent, LogitsOptions) else latent
            for latent in self.latents
        ]

    @cached_property
    def pair(self) -> ModelGuidePair:
        """The classes of prior and guide, with their options."""
        return join_pair(self.prior, self.guide)

    @property
    def strategy(self) -> str:
        """What selects the heads of each task; none where nothing does."""
        named = self._named_latents
        return next((lat.label or name for name, lat in named if lat.depends_on_tasks), "none")

    @property
    def recipe(self) -> str:
        """The name of the pair, and behind each + what is selected, gated or aligned besides."""
        named_latents = self._named_latents
        labels = [latent.label or name for name, latent in named_latents if latent.labels(name)]
        prior, guide = self.pair.prior_name, self.pair.guide_name
        if not self._inferred:
            return "+".join([recipe_name(prior, guide), *labels])
        named = [] if prior == DEFAULT_PRIOR else [prior]
        return "+".join([*named, guide.rpartition(":")[2], *labels])

    @property
    def description(self) -> str:
        """What is latent, its prior and its guide, in a line."""
        phrases = [latent.phrase or name for name, latent in self._named_latents]
        phrases += [] if self.logits is not None else ["deterministic attention"]
        equal = f" (here the same as {', '.join(self.equal_guides)})" if self.equal_guides else ""
        return f"model: {', '.join(phrases)} · guide: {self.pair.guide_name}{equal}"

    @property
    def equal_guides(self) -> list[str]:
        """The names of guides with the same posterior, such as of one alignment head."""
        summed = [latent for latent in self.latents if latent.is_summed_out]
        structures: dict[str, Any] = {
            name: [latent.reduced_structure(kind.structure) for latent in summed]
            for name, kind in GUIDES.items()
            if issubclass(kind, Guide) and kind.structure is not None
        }
        own = structures.pop(self.pair.guide_name, None)
        if self._is_noisy or not summed or len(summed) < len(self._inferred):
            return []
        return [name for name, structure in structures.items() if structure == own]

    @property
    def _is_noisy(self) -> bool:
        """Whether logits or n-gram heads have noise."""
        return self.network.ngram_noise > 0 or bool(self.logits and self.logits.is_noisy)

    @property
    def _is_summed_out(self) -> bool:
        """Whether a latent is summed out."""
        return any(latent.is_summed_out for latent in self.latents)

    @property
    def _inferred(self) -> list[str]:
        """The latents beside the logits that a guide has a posterior of, for each sentence."""
        named = self._named_latents
        return [name for name, lat in named if lat.is_summed_out or lat.has_sampled_posterior()]

    @property
    def own_classes(self) -> list[str]:
        """The user-defined classes that the options name, as ``module:Class``."""
        named = flatten(self.to_options()).items()
        return [name for path, name in named if path.endswith(f".{CLASS}") and ":" in name]

    @property
    def title(self) -> str:
        """The title of a figure of the run where its corpus is not at hand."""
        return self.title_of(self.data.name)

    def title_of(self, corpus: str) -> str:
        """The title of a figure of the run: its recipe, corpus and seed."""
        names = self.data.mixture.names if self.data.mixture else ()
        if len(names) > SHOWN_TASKS:
            corpus = corpus.replace(",".join(names), f"{len(names)} tasks")
        return f"{self.recipe}, {corpus}, seed {self.seed}"

    @property
    def out(self) -> Path:
        """The folder of a run by default."""
        return Path(f"runs/{self.recipe}-seed{self.seed}")

    @property
    def in_memory(self) -> bool:
        """Whether no options make the corpus."""
        return isinstance(self.data, InMemory)

    @property
    def protocol(self) -> Protocol | None:
        """How the papers compute BLEU on the corpus; None without ``decode.paper_bleu``."""
        return self.data.protocol if self.decode.paper_bleu else None

    @classmethod
    def read(cls, path: str | Path, trusted: Trusted = None) -> Settings:
        """Reads a file that :meth:`to_yaml` or a user wrote.

        The file is data: nothing is imported that is not trusted.

        Args:
            path: A file of YAML, as ``config.yaml`` of a run folder.
            trusted: User-defined classes that it may name: a class, or ``module:Class``, or
                several.

        Raises:
            ValueError: It cannot be read, names an unknown option, or has a value of another
                kind.
        """
        with reading_file(Path(path)):
            options = read_yaml(Path(path))
        return cls.from_options(options, trusted)

    @classmethod
    def from_options(cls, options: Any, trusted: Trusted = None) -> Settings:
        """Makes the settings of nested options, as in a file; see :meth:`read`."""
        if not isinstance(options, Mapping):
            raise ValueError(f"a configuration must name options, got {shown(options)}")
        return cls.from_nested(options, trusted_paths(trusted))

    @classmethod
    def from_nested(cls, options: Mapping[str, Any], trusted: Collection[str] = ()) -> Settings:
        """Makes the settings of nested values, in which a recipe or the latents may be named."""
        values = expand_recipe(options)
        names = read_latents(values.pop("latents", DEFAULT_LATENT))
        latents: list[Any] = []
        for name, kind in LATENTS.items():
            if name in names:
                latents.append(from_dict(kind, values.pop(name, {}) or {}, trusted, name))
            elif values.get(name):
                now = "+".join(names) or "none"
                raise UnusedOptionError(name, f" is not latent: latents are {now}")
            values.pop(name, None)
        if not any(latent.has_guide_form for latent in latents):
            values.setdefault("guide", "tied")
        if values.get("data", {}) is None:  # a group without content
            del values["data"]
        guide = values.get("guide", "cascaded")
        named = {"class": guide} if isinstance(guide, str) else guide  # null is a name here
        values["guide"] = merge({"class": "cascaded"}, named)
        return from_dict(cls, {**values, "latents": tuple(latents)}, trusted)

    def to_options(self) -> dict[str, Any]:
        """All options as nested plain values, as a file has them."""
        options: dict[str, Any] = {"latents": "+".join(self.latent_names) or "none"}
        options |= {name: to_dict(latent) for name, latent in self._named_latents}
        others = (field.name for field in fields(self) if field.name != "latents")
        return {"guide": to_dict(self.guide), **options} | {
            name: to_dict(getattr(self, name)) for name in others
        }

    def to_yaml(self) -> str:
        """The settings as a file of YAML, which ``run.py --config`` reads too."""
        return yaml.safe_dump(self.to_options(), sort_keys=False, allow_unicode=True)


def _latents_of(model: Decoder) -> tuple[LatentOptions, ...]:
    """The options of the latents of a model, if it can be made again from a run folder.

    Raises:
        ValueError: Its class is user-defined, it was pruned, or a latent is not in ``LATENTS``.
    """
    if type(model) not in (Translation, LanguageModel):
        raise ValueError(
            f"model must be a Translation or a LanguageModel, got {type(model).__name__}: no run "
            "folder can say what another one is; train it with lh.fit"
        )
    if model.is_pruned:
        raise ValueError(
            "model was pruned, and no run folder can say how: train it with lh.fit, or use prune.py"
        )
    given = model.config.get("latents")
    latents = [
        latent
        for latent in (DEFAULT_LATENTS if given is None else given)
        if not (isinstance(latent, LogitsOptions) and latent.prior.name == DEFAULT_PRIOR)
    ]
    kinds = [*LATENTS.values()]
    for latent in latents:
        if type(latent) not in kinds:
            raise ValueError(
                f"latents: no run folder can name {type(latent).__name__}: add its options to "
                "LATENTS of latentheads.latents.registry, or train with lh.fit"
            )
    return tuple(sorted(latents, key=lambda latent: kinds.index(type(latent))))


def expand_recipe(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with what a recipe stands for in its place; others may change what goes with it.

    Raises:
        ValueError: There is no such recipe, or the guide is named beside it.
    """
    values = dict(options)
    recipe = values.pop("recipe", None)
    if recipe is None:
        return values
    if "guide" in values and not isinstance(values["guide"], Mapping):
        raise ValueError(f"recipe {recipe} sets prior and guide: drop guide, or recipe")
    below = read_recipe(str(recipe))
    return dict(merge(below, values))


def read_latents(names: Any) -> list[str]:
    """The names of latents, ``+`` between, or none."""
    parts = list(names) if isinstance(names, list | tuple) else str(names).split("+")
    latents = [] if parts in (["none"], ["None"]) else [str(name) for name in parts]
    for name in latents:
        check_choice(
            "latent",
            name,
            LATENTS,
            more=", joined by +, or none; an entry point adds your own (CONTRIBUTING.md)",
        )
    return latents


Trusted = str | type | Sequence[str | type] | None
"""User-defined classes: each is a class or ``module:Class``; a text may hold several, with
commas between."""


def trusted_paths(trusted: Trusted) -> Collection[str]:
    """The import paths of classes, as ``module:Class``."""
    if trusted is None or trusted == "":
        return frozenset()
    items = [trusted] if isinstance(trusted, str | type) else trusted
    return frozenset(
        path
        for item in items
        for path in ([import_path(item)] if isinstance(item, type) else split_items(item))
    )


def complete_options(options: Any, trusted: Trusted = None) -> Any:
    """The options of a file with the default of all others; other values stay as they are.

    Two files with the same options in two notations become equal.
    """
    try:
        return Settings.from_options(options, trusted).to_options()
    except (TypeError, ValueError):
        return options
