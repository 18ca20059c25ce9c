"""How this folder becomes a site: ``make docs``."""

from __future__ import annotations

import io
import os
import re
import shutil
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.ext.autosummary.generate import find_autosummary_in_files
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from latentheads.experiments.cli.main import main

ROOT = Path(__file__).parents[1]
COLUMNS = "88"
"""Width of the programs' help, in characters."""
NOTEBOOKS = "experiments/notebooks/README.md"
CONTRIBUTING = "CONTRIBUTING.md"
ABOVE = {
    "index": "README.md",
    "changes": "CHANGELOG.md",
    "contributing": CONTRIBUTING,
    "notebooks": NOTEBOOKS,
}
"""Pages that begin with a file of the repository."""
IGNORED_NAMES = ("results", "notebooks")
"""Folders of ``experiments`` that are copied here: a site is made of what lies in one folder."""

project = "latentheads"
author = "the authors of latentheads"
project_copyright = "the authors of latentheads, Apache-2.0"
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "_templates", "_static", "results/*/table.md", "notebooks/README.md"]
templates_path = ["_templates"]
highlight_language = "none"

myst_heading_anchors = 4
nb_execution_mode = "off"

TWICE = ("importance", "analysis.relevance", "report", "terms")
"""Functions whose names are those of classes but for the case, which some file systems ignore."""
autosummary_filename_map = {f"latentheads.{name}": f"latentheads.{name}-of" for name in TWICE}

autodoc_default_options = {"exclude-members": "set"}  # what matplotlib adds to a figure
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"latentheads {release}"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


def copy_folders(app: Sphinx) -> None:
    """Copies what lies beside this folder and is part of the site."""
    for name in IGNORED_NAMES:
        copy = Path(app.srcdir) / name
        shutil.rmtree(copy, ignore_errors=True)
        if (ROOT / "experiments" / name).is_dir():
            unread = shutil.ignore_patterns("*.py", "__pycache__")
            shutil.copytree(ROOT / "experiments" / name, copy, ignore=unread)


def remove_pages(app: Sphinx) -> None:
    """Removes pages of names that api.md no longer lists, which no page would lead to."""
    listed = {entry.name for entry in find_autosummary_in_files([app.srcdir / "api.md"])}
    for page in (app.srcdir / "api").glob("*.rst"):
        if page.stem.removesuffix("-of") not in listed:
            page.unlink()


class ProgramHelp(SphinxDirective):
    """What a program says when it is asked for ``--help``: it is run while the site is made."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Runs the program and shows what it prints."""
        os.environ["COLUMNS"] = COLUMNS
        said = io.StringIO()
        with redirect_stdout(said):
            _ask_for_help(self.arguments[0])
        text = said.getvalue()
        return [nodes.literal_block(text, text, language="none")]


def _ask_for_help(program: str) -> None:
    """Runs a program with ``--help``, which ends it."""
    try:
        main([program, "--help"])
    except SystemExit as end:
        if end.code:
            raise ValueError(f"{program} --help ended with status {end.code}") from end


LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s]+)(?=\))")
"""The address of a link of Markdown to a file."""


def adapt_links(app: Sphinx, page: str, source: list[str]) -> None:
    """Makes links that hold in the repository hold on the site, whose root is this folder."""
    if page in ABOVE:
        file = ROOT / ABOVE[page]
        folder = Path("..", ABOVE[page]).parent
        app.env.note_dependency(str(file))
        source[0] = LINK.sub(rf"{folder}/\1", file.read_text(encoding="utf-8")) + source[0]
    source[0] = source[0].replace(f"](../{NOTEBOOKS})", "](notebooks.md)")
    source[0] = source[0].replace(f"](../{CONTRIBUTING})", "](contributing.md)")
    source[0] = re.sub(r"\]\(\.\./docs/", "](", source[0])
    source[0] = re.sub(rf"\]\(\.\./experiments/(?={'|'.join(IGNORED_NAMES)})", "](", source[0])


TYPE = ":type: "
MODULES = re.compile(r"\bjaxtyping\.|~?\b(latentheads\.)")


def mend_docstring(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Shows types as they are written, and what stands before a colon as what it is.

    The star of a shape such as ``*batch`` begins no emphasis, names stand without their modules,
    and a property's "The states: ..." names no type.
    """
    for place, line in enumerate(lines):
        if line.startswith(":vartype"):
            short = MODULES.sub(lambda found: f"~{found[1]}" if found[1] else "", line)
            lines[place] = short.replace("*", r"\*")
    if what == "property" and lines and lines[-1].startswith(TYPE):
        lines[:] = [f"{lines[-1].removeprefix(TYPE)}: {lines[0]}", *lines[1:-1]]


FRACTION = re.compile(r"\\t?frac(\w)(\w)")
"""A fraction of two signs, without braces."""


def _write_formula(text: str, display: bool) -> str:
    """A formula as MathML, which needs no script of another site."""
    return tex2mathml(FRACTION.sub(r"\\frac{\1}{\2}", text), as_block=display)


def write_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Writes a formula within a line."""
    writer.body.append(_write_formula(node.astext(), display=False))
    raise nodes.SkipNode


def write_display(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Writes a formula that stands alone."""
    writer.body.append(f"<p>{_write_formula(node.astext(), display=True)}</p>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Tells Sphinx of what stands above."""
    app.add_directive("program-help", ProgramHelp)
    app.add_html_math_renderer("mathml", (write_inline, None), (write_display, None))
    app.connect("builder-inited", copy_folders, priority=100)
    app.connect("builder-inited", remove_pages, priority=100)
    app.connect("source-read", adapt_links)
    app.connect("autodoc-process-docstring", mend_docstring, priority=900)
