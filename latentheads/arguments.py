"""The arguments that an object was made with, noted for a run folder to name them."""

from __future__ import annotations

from abc import ABCMeta
from inspect import Signature, signature
from typing import Any, ClassVar, TypeVar

Made = TypeVar("Made", bound="WithOptions")


class _Making(ABCMeta):
    """Does what has to wait until every constructor of a class is through."""

    def __call__(cls: type[Made], *args: Any, **kwargs: Any) -> Made:  # type: ignore[misc]
        """Makes an object, notes its options and finishes it."""
        instance: Made = type.__call__(cls, *args, **kwargs)
        _, *arguments = signature(cls.__init__).bind(instance, *args, **kwargs).arguments.items()
        instance.options = {name: value for name, value in arguments if name not in cls.no_options}
        instance.finish()
        return instance

    @property
    def __signature__(cls) -> Signature:
        """That of the constructor, which a reader is shown; else it were that of the call above."""
        own = signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=list(own.parameters.values())[1:])


class WithOptions(metaclass=_Making):
    """Notes the arguments of its constructor, so that no subclass has to.

    Attributes:
        options: The arguments that were given, by name.
        no_options: Arguments that are no options.
    """

    options: dict[str, Any]
    no_options: ClassVar[tuple[str, ...]] = ()

    def finish(self) -> None:
        """Makes what hangs on options, behind every constructor; nothing unless overridden."""
