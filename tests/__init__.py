"""The tests; what checks the library's annotations comes before anything that it checks."""

import sys

from tests.typechecking import install

if "pytest" in sys.modules:  # the attack on the programs takes them as they are
    install()
