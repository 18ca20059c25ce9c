"""Measures the code: lines, lengths of functions, names, and how far a latent or a metric reaches.

python -m tests.measures                 # this checkout
python -m tests.measures ../before .     # a column for each checkout
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles

PRODUCT = ("latentheads", "models", "guides", "experiments")
NOT_SHIPPED = ("results", "notebooks", "studies")
FILLER = {"found", "each", "known", "said", "made", "given", "place", "it"}
"""Names of variables that do not say what they hold."""

LATENTS = {
    "alignments": {"alignment", "alignments", "aligner"},
    "selection": {"selection", "selections", "selector", "selecting"},
    "gates": {"gate", "gates", "gated"},
    "speech": {"speech"},
}
"""The words that name a kind of latent, or of source."""

METRICS = ("wer", "bleu")
NOTE = re.compile(r"# *(noqa|type:|fmt:)")
"""A comment for a tool."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """A file of Python."""

    path: Path
    root: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @property
    def raises(self) -> int:
        return sum(isinstance(node, ast.Raise) for node in ast.walk(self.tree))

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    @property
    def comments(self) -> int:
        """Comments for a reader, beside code or alone."""
        comments = (token for token in self.tokens if token.type == tokenize.COMMENT)
        return sum(not NOTE.match(token.string) for token in comments)

    @cached_property
    def words(self) -> set[str]:
        """The parts of all identifiers and keys: those of ``paper_wer`` are paper and wer."""
        kinds = (tokenize.NAME, tokenize.STRING)
        names = [t.string for t in self.tokens if t.type in kinds and " " not in t.string]
        parts = (re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name) for name in names)
        return {part.lower() for found in parts for part in found}

    def belongs_to(self, words: set[str]) -> bool:
        """Whether a folder or the file itself is called by one of the words."""
        parts = self.path.relative_to(self.root).with_suffix("").parts
        return any(words & {*part.split("_")} for part in parts)


def lines_of(function: Function) -> int:
    """The lines of a function with its docstring, without its decorators."""
    return (function.end_lineno or 0) - function.lineno + 1


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions and classes within it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def binds_filler(function: Function) -> bool:
    """Whether a parameter or a variable of a function has a name that says nothing."""
    return any(
        (isinstance(node, ast.arg) and node.arg in FILLER)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in FILLER)
        for node in own_nodes(function)
    )


def sources(root: Path, folders: tuple[str, ...]) -> list[Source]:
    """The files below some folders; links are not followed."""
    paths = (path for folder in folders for path in sorted((root / folder).rglob("*.py")))
    return [Source(path, root) for path in paths]


def public_names(root: Path) -> int:
    """The names of ``import latentheads as lh``, and its parts."""
    tree = Source(root / "latentheads" / "__init__.py", root).tree
    values = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("PLACES", "FOLDERS")
    }
    return sum(map(len, values.values()))


def glossary_rows(root: Path) -> int:
    """Rows of the tables of the glossary, without their heads."""
    lines = (root / "docs" / "glossary.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|")]
    rules = [line for line in rows if not line.strip("|-: ")]
    return len(rows) - 2 * len(rules)  # a head stands above each rule


def measure(root: Path) -> dict[str, str]:
    """All measures of a checkout."""
    code = sources(root, PRODUCT)
    shipped = [s for s in code if not {*NOT_SHIPPED} & {*s.path.relative_to(root).parts}]
    functions = [function for source in shipped for function in source.functions]
    lengths, lines = [lines_of(function) for function in functions], sum(s.lines for s in shipped)
    fillers = sum(map(binds_filler, functions))
    named = {
        f"files outside its own that name {kind}": sum(
            bool(words & s.words) and not s.belongs_to(words) for s in shipped
        )
        for kind, words in LATENTS.items()
    }
    return {
        "lines of the wheel": f"{lines:,}",
        "lines of studies": f"{sum(s.lines for s in code if 'studies' in s.path.parts):,}",
        "lines of tests": f"{sum(s.lines for s in sources(root, ('tests',))):,}",
        "functions": f"{len(functions):,}",
        "their lines: median, p90, longest": f"{median(lengths):.0f}, "
        f"{quantiles(lengths, n=10)[-1]:.0f}, {max(lengths)}",
        "raise, a thousand lines": f"{1000 * sum(s.raises for s in shipped) / lines:.1f}",
        "comments": f"{sum(s.comments for s in shipped):,}",
        "functions that bind a filler name": f"{fillers:,}",
        "public names": str(public_names(root)),
        "rows of the glossary": str(glossary_rows(root)),
        **{name: str(number) for name, number in named.items()},
        **{f"files that name {m}": str(sum(m in s.words for s in shipped)) for m in METRICS},
    }


def main() -> None:
    """Prints a table, a column for each checkout."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures", description=__doc__)
    parser.add_argument("roots", type=Path, nargs="*", default=[Path(__file__).parents[1]])
    columns = {str(root): measure(root) for root in parser.parse_args().roots}
    print(f"| measure | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for name in next(iter(columns.values())):
        print(f"| {name} | {' | '.join(column[name] for column in columns.values())} |")


if __name__ == "__main__":
    main()
