"""The packages; all else stands in pyproject.toml.

In a checkout ``latentheads/models`` and two others are links to the folders at the top. Where a zip
file was unpacked without links they are text files, so packages are found without them.
"""

from setuptools import find_namespace_packages, setup

ABOVE = ("experiments", "guides", "models")
"""Parts of latentheads that stand beside it."""

LEFT_OUT = [f"experiments.{name}*" for name in ("notebooks", "results", "studies")]

inside = find_namespace_packages(
    include=["latentheads*"], exclude=[f"latentheads.{name}*" for name in ABOVE]
)
above = find_namespace_packages(include=[f"{name}*" for name in ABOVE], exclude=LEFT_OUT)
setup(
    packages=[*inside, *(f"latentheads.{name}" for name in above)],
    package_dir={f"latentheads.{name}": name for name in ABOVE},
)
