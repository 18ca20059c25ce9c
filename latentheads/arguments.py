"""The arguments that an object was made with, noted for a run folder to name them."""

from __future__ import annotations

from inspect import signature
from typing import Any, ClassVar

__all__ = ["WithOptions"]


class WithOptions:
    """Notes the arguments of its constructor, so that no subclass has to.

    Attributes:
        options: The arguments that were given, by name.
        no_options: Arguments that are no options.
    """

    options: dict[str, Any]
    no_options: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Notes the options; a call that does not fit is refused by the constructor itself."""
        self = super().__new__(cls)
        try:
            # of the constructor: a class without one of its own has the signature of __new__
            _, *given = signature(cls.__init__).bind(self, *args, **kwargs).arguments.items()
        except (TypeError, ValueError):
            given = []
        options = {name: value for name, value in given if name not in cls.no_options}
        self.__dict__["options"] = options  # before a Module is ready for attributes
        return self
