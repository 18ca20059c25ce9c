"""Packages that an extra of the library installs, and versions."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from latentheads import packages
from latentheads.packages import EXTRAS, import_optional


@pytest.mark.parametrize("name", EXTRAS)
def test_a_package_that_is_not_there_is_named_with_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    message = rf"^[\w ]+ needs {name.replace('_', '-')}: pip install 'latentheads\[\w+\]'$"
    with pytest.raises(ImportError, match=message) as caught:
        import_optional(name)
    assert isinstance(caught.value, ValueError)


def test_every_package_is_of_its_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    for name, (_, extra) in EXTRAS.items():
        assert any(line.startswith(name.replace("_", "-")) for line in extras[extra])


def test_a_package_without_a_version_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "PACKAGES", ("numpy", "not-installed"))
    assert packages.package_versions().keys() == {"python", "numpy"}
