"""Runs the commands of the first hour and of the miniatures, and stores what they print.

python -m tests.docs.hour FOLDER
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import FENCE, RESULTS, ROOT, Page, slug

HOUR = Page(ROOT / "docs" / "first-hour.md")
MINIATURES = Page(ROOT / "docs" / "papers-in-miniature.md")
BOTH = [HOUR, MINIATURES]
OUTPUTS = RESULTS / "first-hour"

RUN = "python experiments/run.py --guide cascaded"
"""What ``make run`` does."""

SECTIONS = [
    (page, text)
    for page in BOTH
    for text in re.split(r"^(?=## )", page.text, flags=re.MULTILINE)[1:]
]
"""What stands below each heading of the second level, code included."""


def output_of(section: str) -> Path:
    """The file of all that the commands of a section printed."""
    return OUTPUTS / f"{slug(section.splitlines()[0].strip('# '))}.txt"


def run_section(section: str, folder: Path) -> None:
    """Runs the commands of a section in a folder, and stores what they print."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    with output_of(section).open("w", encoding="utf-8") as file:
        for language, text in FENCE.findall(section):
            if name := re.match(r"# (\w+\.py)\n", text):
                (folder / name[1]).write_text(text, encoding="utf-8")
            if language == "bash":
                command = ["bash", "-ec", text.replace("make run", RUN)]
                subprocess.run(command, cwd=folder, env=environment, stdout=file, check=True)


def main(folder: Path) -> None:
    """Each section in turn; ``folder`` keeps the runs. Prints the CPU seconds of each."""
    folder.mkdir(parents=True)
    (folder / "experiments").symlink_to(ROOT / "experiments")
    spent = 0.0
    for _, section in SECTIONS:
        run_section(section, folder)
        before, spent = spent, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        print(output_of(section).stem, round(spent - before), flush=True)
    for table in folder.glob("runs/*/runs.csv"):
        shutil.copy(table, OUTPUTS / f"{table.parent.name}-runs.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
