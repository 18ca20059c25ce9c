"""Options as nested plain values: read, written, merged, and refused in one line."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from annotated_types import Le

from latentheads.contrib.heads.analysis import AnalysisKwargs, AnalysisOptions
from latentheads.contrib.speech import transcription
from latentheads.data import Data, Grammar, Pairs
from latentheads.decoding.options import Decoding, DecodingKwargs
from latentheads.guides import GUIDES
from latentheads.latents.logits.options import PriorSpec
from latentheads.latents.registry import LATENTS
from latentheads.models.network import Network, NetworkKwargs
from latentheads.options import (
    OPTION_ALIASES,
    Choice,
    Count,
    Flag,
    OptionError,
    Text,
    arguments_class,
    choices_of,
    classes_of,
    explain_unknown,
    flatten,
    from_dict,
    import_trusted,
    inner_kind,
    merge,
    options_class,
    options_of,
    to_dict,
)
from latentheads.runs import run, texts
from latentheads.runs.generation import (
    GenerationKwargs,
    Sampling,
    SamplingKwargs,
    TranslationKwargs,
)
from latentheads.runs.pairs import GuideSpec
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings
from latentheads.training.fit import OF_FOLDERS
from latentheads.training.options import FitKwargs, NAGOptimizer, TrainerKwargs, Training
from tests.typechecking import unchecked


class Shape(Choice, ABC):
    """A choice of classes."""

    @classmethod
    def choices(cls) -> Mapping[str, type]:
        return {"round": Round, "long-box": LongBox}

    @abstractmethod
    def area(self) -> float:
        """What makes it abstract."""


@options_class()
class Round(Shape):
    radius: float = 1.0

    def area(self) -> float:
        return 3 * self.radius**2


@options_class()
class LongBox(Shape):
    width: int
    names: tuple[str, ...] = ()

    def area(self) -> float:
        return self.width


@options_class()
class Needed:
    """A group whose first option has to be given."""

    kinds: str
    weight: float = 1.0


@options_class()
class Counts:
    """A group whose first option is a list."""

    numbers: tuple[int, ...]


@options_class()
class Inner:
    radius: float = 1.0
    share: float = 0.5

    def __post_init__(self) -> None:
        if self.radius < self.share:
            raise OptionError("radius", f" must be at least share, got {self.radius}")
        if self.share == 0.25:
            raise ValueError("a quarter is unlucky")


@options_class()
class All:
    shape: Shape = Round(2.0)
    needed: Needed | None = None
    inner: Inner = Inner()
    size: Annotated[int, Le(9)] = 3
    steps: Count = 5
    often: bool = False
    least: Count | None = None
    sizes: tuple[Count, ...] = ()
    by_name: Mapping[str, float] = field(default_factory=dict)
    counts: Counts | None = None


@pytest.mark.parametrize(
    ("values", "made"),
    [
        ({}, All()),
        ({"shape": {"class": "long-box", "width": 2}}, All(LongBox(2))),
        ({"shape": {"class": "LongBox", "width": 2}}, All(LongBox(2))),
        ({"shape": {"class": "long_box", "width": Text("2")}}, All(LongBox(2))),
        (
            {"shape": {"class": "long-box", "width": 2, "names": Text("[a, b]")}},
            LongBox(2, ("a", "b")),
        ),
        ({"shape": "round"}, All(Round())),
        ({"shape": {"radius": 5}}, All(Round(5.0))),
        ({"needed": "a,b"}, All(needed=Needed("a,b"))),
        ({"counts": Text("[3, 5]")}, All(counts=Counts((3, 5)))),
        ({"needed": {"class": "a", "weight": 3}}, All(needed=Needed("a", 3.0))),
        ({"needed": Text("none")}, All()),
        ({"needed": None}, All()),
        ({"least": Text("4")}, All(least=4)),
        ({"least": Text("none")}, All()),
        ({"often": Flag()}, All(often=True)),
        ({"often": Text("no")}, All()),
        ({"sizes": Text("3,5")}, All(sizes=(3, 5))),
        ({"sizes": Text("")}, All()),
        ({"by_name": Text("{a: 2}")}, All(by_name={"a": 2.0})),
        ({"size": np.int64(4)}, All(size=4)),
        ({"inner": {"radius": "1e0"}}, All()),  # YAML takes a number without a point for a text
    ],
)
def test_a_class_is_made_of_nested_values(values: dict[str, Any], made: Any) -> None:
    expected = All(made) if isinstance(made, Shape) else made
    assert from_dict(All, values) == expected
    assert from_dict(All, to_dict(expected)) == expected


def test_options_go_to_plain_values_and_back() -> None:
    one = All(LongBox(4, ("a", "b")), Needed("a"), size=5)
    plain = to_dict(one)
    assert plain == {
        "shape": {"class": "long-box", "width": 4, "names": ["a", "b"]},
        "needed": {"kinds": "a", "weight": 1.0},
        "inner": {"radius": 1.0, "share": 0.5},
        "size": 5,
        "steps": 5,
        "often": False,
        "least": None,
        "sizes": [],
        "by_name": {},
        "counts": None,
    }
    assert from_dict(All, plain) == one
    training = Training(optimizer=NAGOptimizer(momentum=0.9))
    assert from_dict(Training, to_dict(training)) == training
    assert unchecked(from_dict)(Data, to_dict(Pairs(folder="x", source="a"))) == Pairs(
        folder="x", source="a"
    )
    assert Pairs(folder=unchecked(Path)("x"), source="a").folder == "x"


MISTAKES = [
    ({"sise": 3}, "sise is not an option: did you mean size?"),
    ({"radius": 3}, "radius is not an option: did you mean shape.radius or inner.radius?"),
    ({"xyz": 3}, "xyz is not an option: choose from shape, needed, inner, size, steps"),
    ({"size": "x"}, "size must be a whole number, got 'x'"),
    ({"size": True}, "size must be a whole number, got True"),
    ({"size": 1.5}, "size must be a whole number, got 1.5"),
    ({"size": Flag()}, "size needs a value"),
    ({"size": 10}, "size must be at most 9, got 10"),
    ({"steps": 0}, "steps must be at least 1, got 0"),
    ({"steps": 2**63}, "steps must be below 9,223,372,036,854,775,808, got"),
    ({"steps": None}, "steps must be a whole number, got None"),
    ({"often": 2}, "often must be true or false, got 2"),
    ({"sizes": [3, 0]}, "sizes.1 must be at least 1, got 0"),
    ({"sizes": 3}, "sizes must be a list, got 3"),
    ({"by_name": Text("{a: x}")}, "by_name.a must be a number, got 'x'"),
    ({"inner": {"radius": 0}}, "inner.radius must be at least share, got 0.0"),
    ({"inner": {"radius": float("nan")}}, "inner.radius must be a finite number, got nan"),
    ({"inner": {"share": 0.25}}, "inner: a quarter is unlucky"),
    ({"inner": 3}, "inner is a group of options: did you mean inner.radius or inner.share?"),
    ({"shape": "flat"}, "shape must be one of round, long-box; got 'flat'"),
    ({"shape": "long-box"}, "shape.width is missing"),
    ({"shape": {"class": None}}, "shape must be one of round, long-box; got None"),
    ({"shape": {"width": 3}}, "shape.width is not an option of round, but of long-box"),
    ({"shape": {"radus": 3}}, "shape.radus is not an option: did you mean shape.radius?"),
    ({"shape": Flag()}, "shape needs a value"),
    ({"shape": {"class": "long-box", "width": None}}, "shape.width must be a whole number"),
    ({"needed": {"weight": 2}}, "needed.kinds is missing"),
    ({"needed": {"kinds": "a", "weight": {"b": 1}}}, "needed.weight must be a number, got {'b"),
]


@pytest.mark.parametrize(("values", "message"), MISTAKES)
def test_a_mistake_begins_with_the_path_of_its_option(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        from_dict(All, values)
    assert str(refused.value).startswith(message)
    assert message.startswith(refused.value.path)


def test_python_gets_the_same_line() -> None:
    python: Any = All
    for arguments, message in (
        ({"sise": 3}, "sise is not an option: did you mean size?"),
        ({"size": 10}, "size must be at most 9, got 10"),
        ({"needed": 3}, "needed.kinds must be a text, got 3"),
        ({"needed": ["a"]}, "needed.kinds must be a text, got ['a']"),
    ):
        with pytest.raises(OptionError) as refused:
            python(**arguments)
        assert str(refused.value) == message
    with pytest.raises(TypeError, match=r"multiple values for keyword argument 'shape'$"):
        python(Round(), shape=Round())
    with pytest.raises(TypeError, match=r"^Round: give options by name, not 2\.0$"):
        unchecked(Round)(1.0, 2.0)
    with pytest.raises(TypeError, match=r"^Grammar: give options by name, not 'velu'$"):
        unchecked(Grammar)("velu")


class OfOnesOwn:
    """A class whose first argument is no option, such as a guide's model."""

    num_inputs = 1


class Typed(OfOnesOwn):
    def __init__(self, net: Any, start: float) -> None: ...


def of_ones_own(constructor: Any) -> type:
    """A class whose constructor has no annotations."""
    return type("Own", (OfOnesOwn,), {"__init__": constructor})


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (Typed, {}, "start is missing"),
        (Typed, {"net": 1, "start": 2}, "net is not an option: choose from start"),
        (
            of_ones_own(lambda self, net, start=0.5: None),
            {"start": "x"},
            "start must be a number, got 'x'",
        ),
        (
            of_ones_own(lambda self, net, start: None),
            {"start": 1},
            "start needs a type or a default, as start: float = 1.0",
        ),
    ],
)
def test_options_of_a_class_of_ones_own_are_the_arguments_of_its_constructor(
    kind: type, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError) as refused:
        from_dict(arguments_class(kind), values)
    assert str(refused.value) == message


class Listed:
    def __init__(self, steps: list[int], words: Sequence[str] | None = None) -> None: ...


def test_a_list_is_read_from_words_whatever_type_a_class_of_ones_own_gives_it() -> None:
    values = {"steps": Text("3,5"), "words": Text("[a, b]")}
    options = from_dict(arguments_class(Listed), values)
    assert (options.steps, options.words) == ([3, 5], ["a", "b"])


def test_a_mistake_is_spelled_as_on_a_command_line() -> None:
    with pytest.raises(OptionError) as refused:
        from_dict(All, {"shape": {"radus": 3}})
    error = refused.value.below("here")
    assert error.spelled(lambda path: f"--{path}") == (
        "--here.shape.radus is not an option: did you mean --here.shape.radius?"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"epochs": 3},
            "epochs is not an option; steps are counted, not epochs: did you mean train.steps?",
        ),
        ({"momentum": 0.9}, "momentum is not an option: did you mean train.optimizer.momentum?"),
        (
            {"candidates": 9},
            "candidates is not an option: did you mean selection.strategy.candidates?",
        ),
        ({"guide": {"class": "cascaded", "hidden": "x"}}, "guide.hidden must be a whole number"),
        ({"guide": {"hiden": 3}}, "guide.hiden is not an option: did you mean guide.hidden?"),
        (
            {"latents": "none", "logits": {"blocks": "all"}},
            "logits is not latent: latents are none",
        ),
        (
            {"train": {"schedule": {"period": 3}}},
            "train.schedule.period is not an option of linear, b",
        ),
    ],
)
def test_so_does_one_in_the_settings_of_a_run(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        Settings.from_options(values)
    assert str(refused.value).startswith(message)


def every_option(kind: Any, path: str) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """The path of each option below a class, the values beside it, and its annotation."""
    table = choices_of(kind)
    for name, choice in table.items() if table is not None else [("", inner_kind(kind))]:
        needed = {
            n: 3
            if inner_kind(option.kind) is int
            else (3,)
            if option.kind == tuple[int, ...]
            else "a"
            for n, option in options_of(choice).items()
            if option.default is MISSING
        }
        beside = needed | ({"class": name} if name else {})
        for option_name, option in options_of(choice).items():
            where = f"{path}.{option_name}" if path else option_name
            if classes_of(option.kind):
                for inner, values, annotation in every_option(option.kind, where):
                    yield inner, beside | {option_name: values}, annotation
            else:
                yield where, beside | {option_name: None}, option.kind


def bad_values(annotation: Any) -> list[Any]:
    """Values that an annotation does not take."""
    kind = inner_kind(annotation)
    if kind is Any:
        return []
    if get_origin(kind) is Literal:
        return ["no such word", 3, ["a"]]
    if kind in (int, float):
        return ["x", True, [1], float("nan"), Flag(), {"a": 1}]
    if kind is bool:
        return ["x", 7, [True]]
    if kind is str:
        return [["a"], {"a": 1}, Flag()]
    if get_origin(kind) is tuple:
        return [7, {"a": 1}, [{"b": 1}], Flag()]
    assert str in get_args(kind), kind
    return [{"a": 1}, Flag()]


def put(values: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    first, *rest = path
    return values | {first: put(values[first], rest, value) if rest else value}


ROOTS: dict[str, Any] = {
    **{
        name: option.kind
        for name, option in options_of(Settings).items()
        if classes_of(option.kind)
    },
    **LATENTS,
}


@pytest.mark.parametrize("root", ROOTS)
def test_every_option_refuses_a_bad_value_with_its_path(root: str) -> None:
    tried = 0
    for path, values, annotation in every_option(ROOTS[root], root):
        _, *inner = path.split(".")
        for bad in bad_values(annotation):
            settings = {"latents": root} if root in LATENTS else {}
            with pytest.raises(OptionError) as refused:
                Settings.from_options({**settings, root: put(values, inner, bad)})
            assert refused.value.path.startswith(path), (path, bad, refused.value)
            assert "\n" not in str(refused.value)
            tried += 1
    assert tried > 3


@pytest.mark.parametrize(
    "name", [n for n, option in options_of(Settings).items() if not classes_of(option.kind)]
)
def test_so_does_every_option_of_a_run(name: str) -> None:
    bad = {"latents": ["x", 3]}.get(name) or bad_values(options_of(Settings)[name].kind)
    for value in bad:
        with pytest.raises(ValueError, match=name.removesuffix("s")):
            Settings.from_options({name: value})


@pytest.mark.parametrize(
    ("below", "above", "merged"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"d": {"class": "x", "f": 1}}, {"d": {"g": 2}}, {"d": {"class": "x", "f": 1, "g": 2}}),
        ({"d": {"class": "x", "f": 1}}, {"d": {"class": "y"}}, {"d": {"class": "y"}}),
        ({"d": {"class": "x", "f": 1}}, {"d": "x"}, {"d": {"class": "x", "f": 1}}),
        ({"d": {"class": "x-y", "f": 1}}, {"d": "X_y"}, {"d": {"class": "X_y", "f": 1}}),
        ({"d": {"class": "x", "f": 1}}, {"d": "none"}, {"d": None}),
        ({"d": "x"}, {"d": {"f": 1}}, {"d": {"class": "x", "f": 1}}),
        ({"d": None}, {"d": {"f": 1}}, {"d": {"f": 1}}),
        ({"d": "x"}, {"d": "y"}, {"d": "y"}),
    ],
)
def test_values_are_laid_over_others(below: Any, above: Any, merged: Any) -> None:
    assert merge(below, above) == merged


def test_nested_values_stand_side_by_side() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": 2}}, "e": [3]}) == {"a.b": 1, "a.c.d": 2, "e": [3]}


def test_a_class_of_constructor_arguments_is_named_with_them() -> None:
    assert unchecked(from_dict)(Data, "grammar") == Grammar()
    assert PriorSpec.read({"class": "cascaded", "scale": 2}).options["scale"] == 2.0
    assert to_dict(PriorSpec.read("cascaded"))["hidden"] == 4
    assert GuideSpec("cascaded") == GuideSpec.read({"class": "cascaded", "hidden": 4})
    assert hash(GuideSpec("cascaded")) == hash(GuideSpec("cascaded", {"hidden": 4}))
    assert GuideSpec("cascaded") != GuideSpec("cascaded", {"hidden": 5})
    assert GuideSpec("cascaded") != PriorSpec("cascaded")
    assert set(options_of(GUIDES["cascaded"])) > {"hidden", "scale"}
    with pytest.raises(OptionError, match=r"^'coda' is a recipe: use recipe coda$"):
        GuideSpec.read("coda")


@pytest.mark.parametrize("name", ["cascaded:", "a/b:C", "module", ":C", "module.Class"])
def test_a_path_of_a_class_has_a_module_and_a_name(name: str) -> None:
    with pytest.raises(OptionError, match=r"^must be one of .*, or module:Class for your own; got"):
        GuideSpec.read(name)


def test_a_class_is_imported_only_if_it_is_trusted() -> None:
    own = f"{__name__}:Round"
    assert import_trusted(Shape, own, [own]).__qualname__ == "Round"
    for base, name, trusted, message in (
        (Shape, own, [], "a file may import nothing; if the class is yours, say so: --trust"),
        (Data, own, [own], "must be a subclass of latentheads.data.base.Data"),
        (Shape, "no_such:C", ["no_such:C"], "cannot be imported: No module.*start in the folder"),
        (Shape, f"{__name__}:Shape", [f"{__name__}:Shape"], "is abstract: it must define area"),
    ):
        with pytest.raises(OptionError, match=message):
            import_trusted(base, name, trusted)


def test_an_option_outside_of_groups_is_meant_once() -> None:
    assert (
        str(explain_unknown([], "output", ["out"])) == "output is not an option: did you mean out?"
    )


def test_names_of_other_programs_lead_to_options_that_exist() -> None:
    for alias, option in OPTION_ALIASES.items():
        group, _, name = option.rpartition(".")
        if group in ("train", "decode", "network"):
            with pytest.raises(
                OptionError, match=rf"^{alias} is not an option.*: did you mean {name}"
            ):
                from_dict(options_of(Settings)[group].kind, {alias: 1})


@pytest.mark.parametrize(
    ("arguments", "options", "others"),
    [
        (TrainerKwargs, Training, {"loss"}),
        (FitKwargs, Training, {"loss", *OF_FOLDERS}),
        (NetworkKwargs, Network, set()),
        (DecodingKwargs, Decoding, set()),
        (SamplingKwargs, Sampling, set()),
        (AnalysisKwargs, AnalysisOptions, set()),
    ],
)
def test_a_type_checker_knows_the_options_that_functions_take_by_name(
    arguments: type, options: type, others: set[str]
) -> None:
    accepted = get_type_hints(arguments)
    kinds = {name: option.kind for name, option in options_of(options).items()}
    assert accepted.keys() == kinds.keys() - others
    for name, kind in accepted.items():
        assert alternatives(kinds[name]) <= alternatives(kind), name


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (texts.translate, texts.TranslationWithGuide),
        (texts.generate, texts.GenerationWithGuide),
        (Run.translate, run.TranslationByRuns),
        (Run.generate, GenerationKwargs),
        (transcription.transcribe, TranslationKwargs),
    ],
)
def test_overloads_have_all_arguments_of_their_function(function: Any, arguments: type) -> None:
    parameters = inspect.signature(function).parameters.values()
    named = {p.name for p in parameters if p.kind == p.KEYWORD_ONLY} - {"num_return_sequences"}
    (options,) = (get_type_hints(function)[p.name] for p in parameters if p.kind == p.VAR_KEYWORD)
    assert named | get_type_hints(*get_args(options)).keys() == get_type_hints(arguments).keys()


def alternatives(kind: Any) -> set[Any]:
    """The annotations of a union, or the one that it is."""
    return set(get_args(kind)) if get_origin(kind) in (Union, UnionType) else {kind}
