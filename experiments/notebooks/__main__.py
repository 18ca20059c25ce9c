"""Executes the notebooks in full and writes each beside its script.

python experiments/notebooks [NAME ...]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def execute(script: Path, folder: str) -> Path:
    """Runs the cells of a percent script in an empty folder and keeps what they show.

    Args:
        script: The script; nothing else is edited by hand.
        folder: Where the runs go that it trains.
    """
    import jupytext
    import nbformat
    from nbclient import NotebookClient

    notebook = jupytext.read(script, fmt="py:percent")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})
    for place, cell in enumerate(notebook.cells):  # chance and time would change every line
        cell.id, cell.metadata = f"cell-{place:02}", {}
    where = {"metadata": {"path": folder}}
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm's, where nobody has widgets
    NotebookClient(notebook, timeout=None, record_timing=False, resources=where).execute()
    found = script.with_suffix(".ipynb")
    nbformat.write(notebook, found)
    return found


def main(names: Sequence[str]) -> int:
    """Executes the notebooks of these names, or all."""
    scripts = sorted(HERE.glob("[0-9]*.py"))
    unknown = set(names) - {script.stem for script in scripts}
    if unknown:
        known = ", ".join(script.stem for script in scripts)
        print(f"notebooks: unknown {min(unknown)!r}: choose from {known}", file=sys.stderr)
        return 2
    for script in scripts:
        if not names or script.stem in names:
            start = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                size = execute(script, folder).stat().st_size
            print(f"{script.stem}: {time.monotonic() - start:.0f} s, {size / 1000:,.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
