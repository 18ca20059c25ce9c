"""The command line that run.py and compare.py share: names, options, one-line errors."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import allocation  # noqa: F401
import torch
from data import TASK_OPTIONS, Data
from gates import Gates
from jsonargparse import ActionConfigFile, ArgumentParser, Namespace, set_loader
from words import DEFAULTS, Tied, chains_of, class_path, expand_words, load_yaml, name_of, presets

from guides import GUIDES, RECIPES, Reader
from latentheads.disagreement import KINDS, Disagreement
from latentheads.names import CHAINS
from latentheads.selecting import LAWS, Selector
from latentheads.training import Training
from models import PRIORS, Network, Prior

__all__ = ["Decoding", "Parser", "Selecting", "Settings", "read_settings", "streamed"]

T = TypeVar("T")


@dataclass(frozen=True)
class Decoding:
    """How the test part is translated.

    Attributes:
        beam: Hypotheses kept of a sentence; 1 takes the likeliest token each time.
        length_penalty: Exponent of the length that a hypothesis's log-probability is divided by.
        draws: Draws of the heads whose probabilities are averaged; 0 keeps them at their prior's
            location, as the papers do. Selections and gates are drawn too, else the likeliest.
        paper_bleu: Score by the papers' protocol too: tokenised, lower-cased, compounds split.
        rouge: Score by ROUGE too, beside the first sentence of every source.
        min_tokens: Fewest tokens of a translation, its end counted.
        max_tokens: Most tokens of a translation, its end counted; 0: ten and twice the source's.
        no_repeat: No n-gram of so many tokens comes twice in a translation; 0: any may.
    """

    beam: int = 1
    length_penalty: float = 1.0
    draws: int = 0
    paper_bleu: bool = False
    rouge: bool = False
    min_tokens: int = 1
    max_tokens: int = 0
    no_repeat: int = 0

    def __post_init__(self) -> None:
        counts = (("beam", 1), ("min_tokens", 1), ("max_tokens", 0), ("no_repeat", 0))
        for name, least in (*counts, ("length_penalty", 0), ("draws", 0)):
            if not least <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if 0 < self.max_tokens < self.min_tokens:
            raise ValueError(
                f"max_tokens must be at least min_tokens, {self.min_tokens}, got {self.max_tokens}"
            )


@dataclass(frozen=True)
class Selecting:
    """Which heads speak for each task.

    Attributes:
        select: Each task has its own choice among more heads than it uses: every candidate on its
            own (selection), exactly so many (subset), one of each group (group); or a fixed set of
            heads for each task or family of tasks (static); or none. Behind a ``+`` it is part of
            a guide's or recipe's name, as in ``cascaded+group``.
        candidates: Heads of a block to choose from; 0: twice those that speak.
        select_chains: Chains whose blocks select: all that there are, or some, comma between.
        families: With static, tasks that share a set of heads, as ``de,nl|fr,ro|cs``; empty: each
            task has its own.
    """

    select: Literal["none", "selection", "subset", "group", "static"] = "none"
    candidates: int = 0
    select_chains: str = "encoder-self,decoder-self"
    families: str = ""

    def __post_init__(self) -> None:
        if self.candidates and self.select in ("none", "static"):
            raise ValueError("candidates needs --select selection, subset or group")
        if self.families and self.select != "static":
            raise ValueError("families needs --select static")
        if chains_of(self.select_chains) == ():
            raise ValueError(f"select_chains must name a chain: all, or some of {','.join(CHAINS)}")

    def selector(self, heads: int, sources: Sequence[str], targets: Sequence[str]) -> Any:
        """Makes the selector of a model; None where all heads speak.

        Args:
            heads: Of every block.
            sources: Names of the tasks that the encoder tells apart.
            targets: The same for the decoder.
        """
        if self.select == "none":
            return None
        return Selector(
            self.select,
            heads,
            0 if self.select == "static" else self.candidates or 2 * heads,
            chains_of(self.select_chains) or CHAINS,
            len(sources),
            len(targets),
            self._sets(sources, targets, sources),
            self._sets(sources, targets, targets),
        )

    def _sets(
        self, sources: Sequence[str], targets: Sequence[str], side: Sequence[str]
    ) -> tuple[int, ...]:
        """The family of every task of a side; those in none have one of their own."""
        if not self.families:
            return ()
        if not any((*sources, *targets)):
            raise ValueError("families are of tasks: give --tasks")
        families = [family.split(",") for family in self.families.split("|")]
        for name in (name for family in families for name in family):
            if name not in {*sources, *targets}:
                known = ", ".join(dict.fromkeys([*sources, *targets]))
                raise ValueError(f"families: unknown task {name!r}: choose from {known}")
        named = [name for family in families for name in family]
        if len(set(named)) < len(named):
            twice = next(name for name in named if named.count(name) > 1)
            raise ValueError(f"families: task {twice!r} is in two families")
        keys = [next((tuple(f) for f in families if name in f), (name,)) for name in side]
        order = list(dict.fromkeys(keys))
        return tuple(order.index(key) for key in keys)


@dataclass(frozen=True)
class Settings:
    """Everything that says what a run is.

    Attributes:
        recipe: The recipe's name, or ``prior+guide`` where the pair has none.
        prior: Makes the model's priors.
        make_guide: Makes the guide of a model.
        prior_name: Name of the prior.
        guide_name: Name of the guide.
        data: The corpus.
        network: Sizes.
        latent: The chains whose heads are drawn; None for all.
        training: How to train.
        decoding: How to translate.
        selecting: Which heads speak for each task.
        adapters: Hidden width of the adapters of each task; 0: none.
        start: A finished run whose weights training starts with; None: random ones.
        train: What is trained: all, or the adapters alone.
        gates: Which heads may close while training.
        seed: Of weights, data order and noise.
        samples: Draws of each sentence in the final report.
        device: Where to run.
        out: The run folder.
        label_smoothing: Of the likelihood while training; never of a reported figure.
        disagreement: A term of the model while training that rewards heads for differing.
        overwrite: Whether another run there may be replaced.
        tensorboard: Whether to write TensorBoard's file too.
        verbose: Whether to print the KL of every site.
        text: The whole configuration as YAML.
    """

    recipe: str
    prior: Prior
    make_guide: Callable[[Any], Any]
    prior_name: str
    guide_name: str
    data: Data
    network: Network
    latent: tuple[str, ...] | None
    training: Training
    decoding: Decoding
    selecting: Selecting
    adapters: int
    start: Path | None
    train: Literal["all", "adapters"]
    gates: Gates
    seed: int
    samples: int
    device: torch.device
    out: Path
    label_smoothing: float
    disagreement: Disagreement | None
    overwrite: bool
    tensorboard: bool
    verbose: bool
    text: str


class Parser(ArgumentParser):
    """A parser whose errors are one line on stderr and exit status 2."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Prints the heart of a message and exits."""
        lines = [line.strip(" -") for line in str(message).splitlines()]
        noise = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Expected a <class 'N")
        heart = " ".join(line for line in lines if line and not line.startswith(noise))
        print(f"{self.prog}: error: {_plain(heart)}", file=sys.stderr)
        sys.exit(2)


def _plain(message: str) -> str:
    """Says in words what the parser says in types."""
    message = re.sub(r'Parser key "(\w+)":', r"--\1:", message)
    message = re.sub(r"Expected a <class '(\w+)'>\. Got value:", r"expected \1, got", message)
    return re.sub(
        r"Expected a typing\.Literal\[(.*?)\]\. Got value:", r"choose from \1; got", message
    )


def streamed(program: str, write: Callable[[], None]) -> int:
    """Runs what writes to standard output; returns the exit status, an error in one line.

    A reader that goes away ends it in silence, as the shell's own tools do.

    Args:
        program: Its name.
        write: What writes.
    """
    try:
        write()
    except ValueError as mistake:
        print(f"{program}: error: {mistake}", file=sys.stderr)
        return 1
    except OSError as trouble:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(trouble, BrokenPipeError):
            return 141
        print(f"{program}: error: {trouble.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def read_settings(
    arguments: Sequence[str], prog: str, description: str, extend: Callable[[Parser], None]
) -> tuple[Settings, Namespace]:
    """Reads a command line; a mistake ends the program with one line and status 2.

    Args:
        arguments: The words after the program's name.
        prog: The program's name.
        description: What ``--help`` says it does.
        extend: Adds a program's own options.
    """
    parser = _parser(prog, description)
    extend(parser)
    try:
        configuration = parser.parse_args(expand_words(arguments))
        return _settings(parser, configuration), configuration
    except (ValueError, TypeError) as mistake:
        parser.error(str(mistake))


def _parser(prog: str, description: str) -> Parser:
    set_loader("names", load_yaml)
    parser = Parser(prog=prog, description=description, parser_mode="names")
    parser.add_argument("--config", action=ActionConfigFile, help="YAML file of options")
    parser.add_argument(
        "--preset", type=str, help=f"a YAML file of ours: {', '.join(sorted(presets()))}"
    )
    parser.add_argument(
        "--recipe", type=str, help=f"prior and guide in one word: {', '.join(RECIPES)}"
    )
    parser.add_subclass_arguments(
        Reader,
        "guide",
        skip={"model"},
        required=False,
        metavar="NAME",
        help=f"posterior: {', '.join(GUIDES)}, or module:Class for your own; a law of "
        f"selection alone or behind a +: {', '.join(LAWS)}",
    )
    parser.add_subclass_arguments(
        Prior,
        "prior",
        required=False,
        metavar="NAME",
        help=f"prior: {', '.join(PRIORS)}, or tied for the guide's own form (the paper's choice)",
    )
    for group in (Data, Network, Training, Decoding, Selecting, Gates):
        parser.add_class_arguments(group, nested_key=None)
    parser.add_argument(
        "--latent",
        type=str,
        default="all",
        help=f"chains whose heads are drawn: all, none, or some of {','.join(CHAINS)}",
    )
    titles = {"A guide that": "The guide", "Makes the prior": "The prior"}
    for group in parser._action_groups:
        for start, title in titles.items():
            if (group.title or "").startswith(start):
                group.title = title
    parser.add_argument("--seed", type=int, default=0, help="of weights, data order and noise")
    parser.add_argument(
        "--samples", type=int, default=32, help="draws of each sentence in the report, K of IWAE"
    )
    parser.add_argument("--out", type=str, help="run folder (default: runs/RECIPE-seedSEED)")
    parser.add_argument(
        "--label_smoothing",
        type=float,
        default=0.0,
        help="of the likelihood while training; never of a reported figure",
    )
    parser.add_argument(
        "--disagreement",
        type=str,
        default="none",
        help="reward heads for differing while training, as Li et al. 2018: none, or some of "
        f"{','.join(KINDS)}, of which n-gram heads have output alone; never part of a reported "
        "figure",
    )
    parser.add_argument(
        "--disagreement_weight",
        type=float,
        default=1.0,
        help="lambda of it, in nats a target token and block",
    )
    parser.add_argument(
        "--disagreement_chains",
        type=str,
        default="all",
        help=f"chains that it acts on: all, or some of {','.join(CHAINS)}",
    )
    parser.add_argument(
        "--disagreement_diagonal",
        type=bool,
        default=True,
        help="compare each head with itself too, as the paper does",
    )
    parser.add_argument(
        "--adapters",
        type=int,
        default=0,
        help="hidden width of two steps of its own for each task in every layer; 0: none",
    )
    parser.add_argument(
        "--start", type=str, default="", help="run folder whose weights training starts with"
    )
    parser.add_argument(
        "--train",
        type=Literal["all", "adapters"],
        default="all",
        help="what is trained: all, or the adapters alone, in the network of --start",
    )
    parser.add_argument("--overwrite", type=bool, default=False, help="start anew in a used folder")
    parser.add_argument(
        "--tensorboard", type=bool, default=False, help="write TensorBoard's file too"
    )
    parser.add_argument(
        "--device", type=str, default="auto", help="cpu, cuda, or auto: cuda where there is one"
    )
    parser.add_argument("--verbose", type=bool, default=False, help="print the KL of every site")
    return parser


def _settings(parser: Parser, configuration: Namespace) -> Settings:
    guide_spec = configuration.guide or _default("guide")
    prior_spec = configuration.prior or _default("prior")
    guide_class, prior_class = _resolve(guide_spec), _resolve(prior_spec)
    guide_options = dict(guide_spec.get("init_args") or {})
    prior_options = dict(prior_spec.get("init_args") or {})
    if prior_class is Tied:
        prior_class = _tied_prior(guide_class)
        prior_options = _tied_options(guide_class, guide_options, prior_class)
        guide_class, guide_options = GUIDES["tied"], {}
    if prior_class.deterministic and guide_class is not GUIDES["tied"]:
        raise ValueError(f"prior {name_of(prior_class, PRIORS)!r} has no noise: use --guide tied")
    if not 0 <= configuration.seed < 2**63:
        raise ValueError(f"seed must lie between 0 and 2^63, got {configuration.seed}")
    if configuration.samples < 1:
        raise ValueError(f"samples must be at least 1, got {configuration.samples}")
    prior_name, guide_name = name_of(prior_class, PRIORS), name_of(guide_class, GUIDES)
    recipe = _recipe(prior_name, guide_name)
    if configuration.select != "none":
        recipe = f"{recipe}+{configuration.select}"
    drawn = configuration.select not in ("none", "static")
    if not drawn and (configuration.temperature != 1.0 or configuration.least_temperature):
        raise ValueError("temperature is of a selection of heads: it needs --select")
    if not drawn and configuration.select_gradient != "straight-through":
        raise ValueError("select_gradient needs --select selection, subset or group")
    if configuration.gates != "none":
        recipe = f"{recipe}+gates"
    return Settings(
        recipe=recipe,
        prior=prior_class(**prior_options),
        make_guide=lambda model: guide_class(model, **guide_options),
        prior_name=prior_name,
        guide_name=guide_name,
        data=_group(Data, configuration),
        network=_group(Network, configuration),
        latent=chains_of(configuration.latent),
        training=_group(Training, configuration),
        decoding=_group(Decoding, configuration),
        selecting=_group(Selecting, configuration),
        adapters=configuration.adapters,
        start=Path(configuration.start) if configuration.start else None,
        train=_train(configuration),
        gates=_gates(configuration),
        seed=configuration.seed,
        samples=configuration.samples,
        device=_device(configuration.device),
        out=Path(configuration.out or f"runs/{recipe}-seed{configuration.seed}"),
        label_smoothing=configuration.label_smoothing,
        disagreement=_disagreement(configuration),
        overwrite=configuration.overwrite,
        tensorboard=configuration.tensorboard,
        verbose=configuration.verbose,
        text=_text(parser, configuration),
    )


NO_PART_OF_A_RUN = (
    *("config", "out", "overwrite", "verbose", "tensorboard", "device"),
    *("recipes", "seeds"),
)


def _text(parser: Parser, configuration: Namespace) -> str:
    """The configuration as YAML that run.py reads: what is computed, not where it goes."""
    kept = configuration.clone()
    for name in (*NO_PART_OF_A_RUN, *(() if configuration.tasks else TASK_OPTIONS)):
        kept.pop(name, None)
    return parser.dump(kept, skip_validation=True)


def _default(kind: str) -> Namespace:
    return Namespace(class_path=class_path(kind, DEFAULTS[kind]))


def _resolve(spec: Namespace) -> Any:
    module, _, name = spec.class_path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _tied_prior(guide: type[Reader]) -> type[Prior]:
    if guide.tied_prior is None:
        raise ValueError(
            f"--prior tied: guide {name_of(guide, GUIDES)!r} names no prior of its own form; "
            f"choose a prior from {', '.join(PRIORS)}"
        )
    return PRIORS[guide.tied_prior]


def _recipe(prior: str, guide: str) -> str:
    for name, recipe in RECIPES.items():
        if recipe == (prior, guide):
            return name
    return f"{prior}+{guide.rpartition(':')[2]}"


def _tied_options(guide: type[Reader], given: dict[str, Any], prior: type[Prior]) -> dict[str, Any]:
    """The guide's options that its tied prior has too; a changed one that it lacks is refused."""
    defaults = {n: p.default for n, p in inspect.signature(guide).parameters.items()}
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    for name in set(changed) - set(inspect.signature(prior).parameters):
        raise ValueError(f"--prior tied: the prior of this form has no option {name!r}")
    return changed


def _group(kind: type[T], configuration: Namespace) -> T:
    return kind(**{field.name: configuration[field.name] for field in fields(kind)})  # type: ignore[arg-type]


def _train(configuration: Namespace) -> Literal["all", "adapters"]:
    if configuration.adapters < 0:
        raise ValueError(f"adapters must be at least 0, got {configuration.adapters}")
    if configuration.train == "adapters" and not (configuration.adapters and configuration.start):
        raise ValueError("--train adapters needs --adapters WIDTH and --start RUN")
    found: Literal["all", "adapters"] = configuration.train
    return found


def _gates(configuration: Namespace) -> Gates:
    if configuration.gates != "none":
        if configuration.select != "none":
            raise ValueError("heads are either selected or gated: use --select or --gates")
        if configuration.kl != "analytic":
            raise ValueError("gates are learned by the closed form of their KL: use --kl analytic")
    return _group(Gates, configuration)


def _disagreement(configuration: Namespace) -> Disagreement | None:
    if configuration.disagreement == "none":
        return None
    kinds = tuple(configuration.disagreement.split(","))
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"unknown disagreement {kind!r}: choose from none, {', '.join(KINDS)}")
    weight = configuration.disagreement_weight
    if not math.isfinite(weight):
        raise ValueError(f"disagreement_weight must be finite, got {weight}")
    chains = chains_of(configuration.disagreement_chains)
    return Disagreement(kinds, weight, chains, configuration.disagreement_diagonal)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}: choose from cpu, cuda, auto")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch sees none: use cpu")
    return torch.device(name)
