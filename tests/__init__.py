"""The tests; the checker of annotations is imported before anything it checks."""

from tests import typechecking

__all__ = ["typechecking"]
