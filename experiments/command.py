"""The command line that run.py and compare.py share: names, options, one-line errors."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import torch
import yaml
from jsonargparse import ActionConfigFile, ArgumentParser, Namespace, set_loader

from guides import GUIDES, RECIPES, Reader
from latentheads.corpora.grammar import LANGUAGES
from latentheads.training import Training
from models import PRIORS, Network, Prior

__all__ = ["Data", "Parser", "Settings", "read_settings"]

PRESETS = Path(__file__).parent / "presets"
T = TypeVar("T")


@dataclass(frozen=True)
class Data:
    """The corpus, made by the program itself: no file is needed.

    Attributes:
        data: ``grammar``, sentences drawn from a synchronous grammar whose exact log p(y | x) is
            known, or ``pydoc``, the prose of Python's own reference.
        task: translation, or language-model (pydoc: always; grammar: of its English-like side).
        language: Target language of the grammar.
        sentences: Training sentences drawn from the grammar.
        held_out: Sentences of valid and of test drawn from the grammar.
    """

    data: Literal["grammar", "pydoc"] = "grammar"
    task: Literal["translation", "language-model"] = "translation"
    language: str = next(iter(LANGUAGES))
    sentences: int = 20_000
    held_out: int = 500

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ValueError(
                f"unknown language {self.language!r}: choose from {', '.join(LANGUAGES)}"
            )
        for name in ("sentences", "held_out"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


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
        training: How to train.
        seed: Of weights, data order and noise.
        samples: Draws of each sentence in the final report.
        device: Where to run.
        out: The run folder.
        overwrite: Whether a finished run there may be replaced.
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
    training: Training
    seed: int
    samples: int
    device: torch.device
    out: Path
    overwrite: bool
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
    set_loader("names", _load)
    parser = Parser(prog=prog, description=description, parser_mode="names")
    parser.add_argument("--config", action=ActionConfigFile, help="YAML file of options")
    parser.add_argument(
        "--preset", type=str, help=f"a YAML file of ours: {', '.join(sorted(_presets()))}"
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
        help=f"posterior: {', '.join(GUIDES)}, or module:Class for your own",
    )
    parser.add_subclass_arguments(
        Prior,
        "prior",
        required=False,
        metavar="NAME",
        help=f"prior: {', '.join(PRIORS)}, or tied for the guide's own form (the paper's choice)",
    )
    for group in (Data, Network, Training):
        parser.add_class_arguments(group, nested_key=None)
    parser.add_argument("--seed", type=int, default=0, help="of weights, data order and noise")
    parser.add_argument(
        "--samples", type=int, default=32, help="draws of each sentence in the report, K of IWAE"
    )
    parser.add_argument("--out", type=str, help="run folder (default: runs/RECIPE-seedSEED)")
    parser.add_argument("--overwrite", type=bool, default=False, help="replace a finished run")
    parser.add_argument(
        "--device", type=str, default="auto", help="cpu, cuda, or auto: cuda where there is one"
    )
    parser.add_argument("--verbose", type=bool, default=False, help="print the KL of every site")
    return parser


def _presets() -> dict[str, Path]:
    return {path.stem: path for path in PRESETS.glob("*.yaml")}


class Tied(Prior):
    """Stands for the prior that has the guide's own form; resolved before anything is built."""

    def __call__(self, block: Any) -> NoReturn:
        """Is never built."""
        raise TypeError("--prior tied must be resolved first")


FLAGS = ("--overwrite", "--verbose")


def expand_words(arguments: Sequence[str]) -> list[str]:
    """Turns the short words of a command line into what the parser knows.

    A recipe becomes a prior and a guide, a preset a configuration file read first, a name a class,
    a bare flag ``true``.
    """
    words = _with_names(_split_equals(arguments))
    first: list[str] = []
    rest: list[str] = []
    for place, word in enumerate(words):
        previous = words[place - 1] if place else ""
        if word in FLAGS and (place + 1 == len(words) or words[place + 1].startswith("--")):
            rest += [word, "true"]
        elif previous == "--preset":
            first += ["--config", str(_lookup("preset", word, _presets()))]
            rest.append(word)
        elif previous in ("--guide", "--prior"):
            rest.append(_class_path(previous[2:], word))
        elif previous == "--recipe":
            recipe = _lookup("recipe", word, RECIPES)
            if "--guide" in words or "--prior" in words:
                raise ValueError("--recipe sets both prior and guide: drop --guide and --prior")
            rest += [word, "--prior", _class_path("prior", recipe.prior)]
            rest += ["--guide", _class_path("guide", recipe.guide)]
        else:
            rest.append(word)
    return first + rest


DEFAULTS = {"guide": "cascaded", "prior": "independent"}


def _with_names(words: list[str]) -> list[str]:
    """Names the default guide or prior before options of its own that stand alone."""
    for kind, name in DEFAULTS.items():
        lonely = any(word.startswith(f"--{kind}.") and "help" not in word for word in words)
        if lonely and not {f"--{kind}", "--recipe", "--config", "--preset"} & set(words):
            words = [f"--{kind}", name, *words]
    return words


def _split_equals(arguments: Sequence[str]) -> list[str]:
    words: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        named = name in ("--guide", "--prior", "--recipe", "--preset") and equals
        words += [name, value] if named else [argument]
    return words


def _lookup(kind: str, name: str, table: dict[str, T]) -> T:
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}: choose from {', '.join(sorted(table))}")
    return table[name]


def _class_path(kind: str, name: str) -> str:
    """The import path of a guide or prior from its name in the table or from ``module:Class``."""
    table: dict[str, type] = {**GUIDES} if kind == "guide" else {**PRIORS, "tied": Tied}
    if name in table:
        return f"{table[name].__module__}.{table[name].__qualname__}"
    if ":" not in name and "." not in name:
        own = "" if kind == "prior" else ", or module:Class for your own"
        raise ValueError(f"unknown {kind} {name!r}: choose from {', '.join(table)}{own}")
    module, _, class_name = name.replace(":", ".").rpartition(".")
    _import(kind, name, module, class_name)
    return f"{module}.{class_name}"


def _import(kind: str, name: str, module: str, class_name: str) -> None:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), class_name)
    except (ImportError, AttributeError) as reason:
        raise ValueError(f"{kind} {name!r} cannot be imported: {reason}") from reason
    base = Reader if kind == "guide" else Prior
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{kind} {name!r} must be a subclass of {base.__module__}.{base.__name__}")


def _load(text: str) -> Any:
    """Reads YAML; in a configuration, names stand for classes as on the command line."""
    value = yaml.safe_load(text)
    if isinstance(value, dict):
        if "recipe" in value and value["recipe"] is not None:
            recipe = _lookup("recipe", value["recipe"], RECIPES)
            value = {"prior": recipe.prior, "guide": recipe.guide, **value}
        for kind in ("guide", "prior"):
            value = _named(value, kind)
    return value


def _named(value: dict[str, Any], kind: str) -> dict[str, Any]:
    given = value.get(kind)
    if isinstance(given, str):
        return {**value, kind: {"class_path": _class_path(kind, given)}}
    if isinstance(given, dict) and "class_path" in given:
        return {**value, kind: {**given, "class_path": _class_path(kind, given["class_path"])}}
    return value


def _settings(parser: Parser, configuration: Namespace) -> Settings:
    guide_spec = configuration.guide or _default("guide")
    prior_spec = configuration.prior or _default("prior")
    guide_class, prior_class = _resolve(guide_spec), _resolve(prior_spec)
    guide_options = dict(guide_spec.get("init_args") or {})
    prior_options = dict(prior_spec.get("init_args") or {})
    if prior_class is Tied:
        prior_class, prior_options = _tied_prior(guide_class), {}
        guide_class, guide_options = GUIDES["tied"], {}
    if prior_class.deterministic and guide_class is not GUIDES["tied"]:
        raise ValueError(f"prior {_name(prior_class, PRIORS)!r} has no noise: use --guide tied")
    if configuration.samples < 1:
        raise ValueError(f"samples must be at least 1, got {configuration.samples}")
    prior_name, guide_name = _name(prior_class, PRIORS), _name(guide_class, GUIDES)
    recipe = _recipe(prior_name, guide_name)
    return Settings(
        recipe=recipe,
        prior=prior_class(**prior_options),
        make_guide=lambda model: guide_class(model, **guide_options),
        prior_name=prior_name,
        guide_name=guide_name,
        data=_group(Data, configuration),
        network=_group(Network, configuration),
        training=_group(Training, configuration),
        seed=configuration.seed,
        samples=configuration.samples,
        device=_device(configuration.device),
        out=Path(configuration.out or f"runs/{recipe}-seed{configuration.seed}"),
        overwrite=configuration.overwrite,
        verbose=configuration.verbose,
        text=parser.dump(configuration, skip_validation=True),
    )


def _default(kind: str) -> Namespace:
    return Namespace(class_path=_class_path(kind, DEFAULTS[kind]))


def _resolve(spec: Namespace) -> Any:
    module, _, name = spec.class_path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _tied_prior(guide: type[Reader]) -> type[Prior]:
    if guide.tied_prior is None:
        raise ValueError(
            f"--prior tied: guide {_name(guide, GUIDES)!r} names no prior of its own form; "
            f"choose a prior from {', '.join(PRIORS)}"
        )
    return PRIORS[guide.tied_prior]


def _name(found: type, table: dict[str, Any]) -> str:
    for name, known in table.items():
        if known is found:
            return name
    return f"{found.__module__}:{found.__qualname__}"


def _recipe(prior: str, guide: str) -> str:
    for name, recipe in RECIPES.items():
        if recipe == (prior, guide):
            return name
    return f"{prior}+{guide.rpartition(':')[2]}"


def _group(kind: type[T], configuration: Namespace) -> T:
    return kind(**{field.name: configuration[field.name] for field in fields(kind)})  # type: ignore[arg-type]


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}: choose from cpu, cuda, auto")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda was asked for, but torch sees none: use cpu")
    return torch.device(name)
