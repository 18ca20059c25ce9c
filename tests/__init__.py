"""The tests; what checks the library's annotations comes before anything that it checks."""

import os

from tests.typechecking import install

if os.environ.get("CHECK_ANNOTATIONS"):  # a quarter more time: make test does it for a part
    install()
