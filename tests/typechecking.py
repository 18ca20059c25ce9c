"""Calls of the library keep their annotations in the test run: types, and sizes among them.

The first calls of a function in each test are looked at. To look at all of them made the tests a
third slower: a function that is called a thousand times in one test is called alike.

jaxtyping has an import hook for this too. It binds the arguments of every call and looks at them
twice, which made the tests three times as slow. Here beartype looks at a call once, and a
scope of sizes is opened around those functions alone whose annotations have one. jaxtyping is
asked about each row of sizes once: what it said is remembered.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import update_wrapper
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from inspect import isgeneratorfunction
from threading import local
from types import CodeType, FunctionType, ModuleType
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, jaxtyped
from torch import Tensor

__all__ = ["begin_test", "check", "install", "unchecked"]

PACKAGE, PROGRAMS = "latentheads", "latentheads.experiments"
CHECK = "_check_annotations"
FIRST = 2
"""Calls of a function that are looked at in each test."""
CHECKED = beartype(  # an int is a float, as everywhere in Python
    conf=BeartypeConf(is_pep484_tower=True, violation_type=TypeError)
)


def check(thing: Any) -> Any:
    """Makes a function, or a dataclass when it is made, keep its annotations."""
    if isinstance(thing, type):
        if is_dataclass(thing) and "__init__" in vars(thing):
            thing.__init__ = check(thing.__init__)  # type: ignore[misc]
        return thing
    if not thing.__annotations__ or isgeneratorfunction(thing):  # whose body runs in no call
        return thing
    return update_wrapper(_check_first(thing), thing)


def check_once(thing: Any) -> Any:
    """As :func:`check`; of a function within a function the first in a process alone.

    For each is made anew, and beartype would build a checker each time.
    """
    code = getattr(thing, "__code__", None)
    if code is not None and "<locals>" in thing.__qualname__:
        if code in _within:
            return thing
        _within.add(code)
    return check(thing)


def unchecked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as users call it: it says itself what is wrong with an argument."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return getattr(function, "__func__", function)  # of a class: it is given the class
    found: Callable[..., Any] = vars(function).get("__wrapped__", function)
    return found


def begin_test() -> None:
    """From here on the first calls of every function are looked at again."""
    while _called:
        _called.pop()()


_within: set[CodeType] = set()
"""The code of functions within functions that were looked at."""
_called: list[Callable[[], None]] = []
"""What begins the count of a function anew, for each that was called."""


def _check_first(function: FunctionType) -> Callable[..., Any]:
    """The checked form of a function for its first calls in a test, then the function itself."""
    left, checked = FIRST, None

    def begin() -> None:
        nonlocal left
        left = FIRST

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal left, checked
        if not left:
            return function(*args, **kwargs)
        if left == FIRST:
            _called.append(begin)
        left -= 1
        checked = checked or _make_checked(function)  # most are never called
        return checked(*args, **kwargs)

    return call


def _make_checked(function: FunctionType) -> Callable[..., Any]:
    names = _Names(vars(builtins) | function.__globals__)
    hints = {name: _read_hint(said, names) for name, said in function.__annotations__.items()}
    found: Callable[..., Any] = CHECKED(_copy_with(function, hints))
    return _with_sizes(found) if any(map(_has_size, hints.values())) else found


class _Names(dict[str, Any]):
    """What an annotation may name; a lower-case name that nobody defines is a size."""

    def __missing__(self, name: str) -> str:
        if name.islower():
            return name
        raise KeyError(name)


def _read_hint(said: Any, names: _Names) -> Any:
    """What an annotation means; anything, where it is for the type checker alone."""
    try:
        return eval(said, {}, names) if isinstance(said, str) else said
    except (NameError, AttributeError, TypeError):
        return Any


def _copy_with(function: FunctionType, hints: dict[str, Any]) -> FunctionType:
    """The same function with other annotations."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, hints
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return copy


def _has_size(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(map(_has_size, get_args(hint)))


def _with_sizes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a size that a call names twice be one number."""

    def call(*args: Any, **kwargs: Any) -> Any:
        around, _here.scope = _here.scope, _Scope()
        try:
            return function(*args, **kwargs)
        finally:
            _here.scope = around

    return call


class _Sizes(dict[Any, "_Sizes | None"]):
    """What a call knows of its sizes; by annotation and tensor what it knows next, or a mistake."""


class _Scope:
    """One call: the sizes that it knows, and the tensors that told them."""

    def __init__(self) -> None:
        self.sizes, self.seen = NOTHING_KNOWN, list[tuple[Any, Tensor]]()

    def fits(self, hint: Any, tensor: Tensor) -> bool:
        key = hint, tensor.dtype, tensor.shape
        if key not in self.sizes:
            self.sizes[key] = None if self.explain(hint, tensor) else _Sizes()
        after = self.sizes[key]
        if after is None:
            return False
        self.sizes = after
        self.seen.append((hint, tensor))
        return True

    def explain(self, hint: Any, tensor: Tensor) -> str:
        """Lets jaxtyping look at the call's tensors once more, and then at another."""
        with jaxtyped("context"):
            assert not any(EXPLAIN(*each) for each in self.seen)
            return EXPLAIN(hint, tensor)


class _Here(local):
    """Each thread is in a call of its own."""

    scope: _Scope | None = None


ARRAY = type(AbstractArray)
EXPLAIN = ARRAY.__instancecheck_str__
NOTHING_KNOWN = _Sizes()
_here = _Here()


def _is_instance(hint: Any, thing: Any) -> bool:
    if _here.scope is None or not isinstance(thing, Tensor):
        return not EXPLAIN(hint, thing)
    return _here.scope.fits(hint, thing)


def _explain(hint: Any, thing: Any) -> str:
    return EXPLAIN(hint, thing) if _here.scope is None else _here.scope.explain(hint, thing)


def _remember_sizes() -> None:
    """Takes what jaxtyping said of an annotation and a tensor before, where it said something."""
    ARRAY.__instancecheck__ = _is_instance  # type: ignore[method-assign]
    ARRAY.__instancecheck_str__ = _explain  # type: ignore[method-assign]


class _Decorator(ast.NodeTransformer):
    """Decorates functions before all else does, and classes after it."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list.append(_name_at(node))
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list.insert(0, _name_at(node))
        return self.generic_visit(node)


def _name_at(node: ast.stmt) -> ast.expr:
    return ast.copy_location(ast.Name(CHECK, ast.Load()), node)


class _Loader(SourceFileLoader):
    """Loads a module from its source, every time."""

    def get_code(self, fullname: str) -> CodeType:
        tree = _Decorator().visit(ast.parse(self.get_data(self.path)))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, CHECK, check_once)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the library's modules; those of the programs take stand-ins in their tests."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != PACKAGE or fullname.startswith(PROGRAMS):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Checks all that is imported of the library from now on."""
    assert PACKAGE not in sys.modules
    _remember_sizes()
    sys.meta_path.insert(0, _Finder())
