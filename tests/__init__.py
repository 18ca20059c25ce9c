"""The tests; what checks the library's annotations comes before anything that it checks."""

from tests.typechecking import install

install()
