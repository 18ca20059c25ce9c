"""The arguments that an object was made with, noted for a run folder to name them."""

from __future__ import annotations

from abc import ABCMeta
from inspect import Signature, signature
from typing import Any, ClassVar, TypeVar

Instance = TypeVar("Instance", bound="Configured")


class _ConfiguredMeta(ABCMeta):
    """Does what has to wait until every constructor of a class is through."""

    def __call__(cls: type[Instance], *args: Any, **kwargs: Any) -> Instance:  # type: ignore[misc]
        """Makes an object, notes its arguments and finishes it."""
        instance: Instance = type.__call__(cls, *args, **kwargs)
        arguments = signature(cls).bind(*args, **kwargs).arguments
        instance.config = dict(list(arguments.items())[cls.num_inputs :])
        instance.post_init()
        return instance

    @property
    def __signature__(cls) -> Signature:
        """That of the constructor, which a reader is shown; else it were that of the call above."""
        own = signature(cls.__init__)  # type: ignore[misc]
        return own.replace(parameters=list(own.parameters.values())[1:])


class Configured(metaclass=_ConfiguredMeta):
    """Notes the arguments of its constructor, so that no subclass has to.

    Attributes:
        config: The arguments that were given, by name.
        num_inputs: How many of them, the first ones, are no options.
    """

    config: dict[str, Any]
    num_inputs: ClassVar[int] = 0

    def post_init(self) -> None:
        """Makes what hangs on options, behind every constructor; nothing unless overridden."""
