"""Analyses the heads of finished runs: divergence, confidence, importance, roles.

python experiments/analyse.py runs/transformer-seed0 runs/coda-seed0
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Literal

import latentheads.experiments.cli.startup  # noqa: F401

from latentheads.contrib.heads.analysis import AnalysisOptions, analyse_heads
from latentheads.contrib.heads.head_report import HeadReport
from latentheads.experiments.analysis.record import to_json
from latentheads.experiments.analysis.tables import (
    caption,
    describe_text,
    gaps,
    head_table,
    link_rows,
    link_table,
    notes,
    summary,
    table,
    warn_of_texts,
)
from latentheads.experiments.analysis.texts import Text, texts
from latentheads.experiments.cli.errors import error_handling, print_result
from latentheads.experiments.cli.outputs import check_distinct_files, make_output_folder
from latentheads.experiments.cli.parser import Options, Parser, add_run_options, make_reader
from latentheads.files import write_text
from latentheads.runs.trained_model import check_is_stochastic

DESCRIPTION = (
    "Analyses the heads of finished runs on the same sentences.\n\n"
    "    python experiments/analyse.py runs/transformer-seed0 runs/coda-seed0 --out runs/heads\n\n"
    "Writes figures, a table and JSON: Jensen-Shannon divergence of head pairs as heat maps; "
    "confidence, entropy, importance, relevance and cosine of outputs; roles of heads; for a run "
    "with alignments, the alignment of a sentence. On the grammar, whose alignments are known, "
    "links are scored against them. Heads are at their prior's location unless "
    "--num_samples is given. "
    "Files of an earlier call are replaced."
)
DIGITS = "%.6g"

WRITTEN = (
    *("analysis.json", "table.md", "table.csv", "heads.csv", "alignments.csv"),
    *("alignments.png", "divergence.png", "heads.png", "roles.png"),
)
"""The files that every call may write."""


def make_parser() -> Parser:
    """Makes the parser."""
    sections = {
        "data": ("part", "sentences", "num_samples", "relevance", "conllu", "exclude"),
        "thresholds of roles": ("positional", "margin", "rare", "top"),
        "output": ("out",),
    }
    parser = make_reader("analyse.py", DESCRIPTION, sections)
    parser.add_argument("--out", default="runs/analysis", help="output folder")
    parser.add_argument(
        "--part",
        type=Literal["valid", "test"],
        default="valid",
        help="part of the corpus",
    )
    parser.add_dataclass(AnalysisOptions, skip=("seed",))
    parser.add_argument(
        "--conllu",
        help="file of parsed source sentences, or of a language model's own, for syntactic roles; "
        "not needed on the grammar. The sentences have no translations for a guide",
    )
    add_run_options(parser, "of sampling")
    return parser


def write(
    texts: Sequence[Text], head_reports: Sequence[HeadReport], options: Options, out: Path
) -> str:
    """Writes figures, tables and JSON, in place of those of an earlier call; returns the table."""
    import pandas as pd  # slow to import

    remove_earlier(out)
    rows = [summary(*pair) for pair in zip(texts, head_reports, strict=True)]
    parts = (
        table(rows, notes(texts, head_reports, options)),
        link_table(head_reports, options.part),
    )
    tables = "\n".join(part for part in parts if part)
    write_text(out / "analysis.json", to_json(texts, head_reports, options))
    write_text(out / "table.md", tables)
    heads = head_table(texts, head_reports)
    links = pd.DataFrame(row for head_report in head_reports for row in link_rows(head_report))
    for name, frame in (("table", pd.DataFrame(rows)), ("heads", heads), ("alignments", links)):
        if not len(frame):
            continue
        write_text(out / f"{name}.csv", frame.to_csv(index=False, float_format=DIGITS))
    draw(texts, head_reports, options, out)
    draw_alignments(texts, head_reports, options, out)
    return tables


def remove_earlier(out: Path) -> None:
    """Removes the files of an earlier call that need not be written again, such as of a run."""
    patterns = ("divergence-*.png", "alignments-*.png", "alignments.csv", "alignments.png")
    for pattern in patterns if (out / "analysis.json").exists() else ():
        for path in out.glob(pattern):
            path.unlink()


def draw_alignments(
    texts: Sequence[Text], head_reports: Sequence[HeadReport], options: Options, out: Path
) -> None:
    """Draws the scores of links, and the alignments of a sentence."""
    from latentheads.contrib.plot import draw_links, save
    from latentheads.contrib.plot.alignments import batch_alignments, pair_to_show

    links = {
        head_report.name: head_report.links for head_report in head_reports if head_report.links
    }
    if links:
        title = f"{describe_text(texts, options)}\n{warn_of_texts(texts)}"
        save(draw_links(links, title), out / "alignments.png")
    for text in texts:
        if text.run.source is None or not text.run.model.samples_alignments:
            continue  # a block of running text has too many words for a figure
        figure = batch_alignments(text.run, text.run.settings, *pair_to_show(text.part))
        save(figure, out / f"alignments-{_file_name(text.name)}.png")


def _file_name(run: str) -> str:
    """The name of a run as part of a file name."""
    return run.strip("/").replace("/", "-")


def draw(
    texts: Sequence[Text], head_reports: Sequence[HeadReport], options: Options, out: Path
) -> None:
    """Draws all figures; those of single runs share one scale."""
    from latentheads.contrib.plot import draw_averages, draw_divergence, draw_maps, draw_roles, save
    from latentheads.contrib.plot.canvas import largest_value  # matplotlib takes long to load

    top = largest_value(
        matrix for head_report in head_reports for matrix in head_report.divergence.summed.values()
    )
    for text, head_report in zip(texts, head_reports, strict=True):
        own_title = f"{head_report.name}: {caption([text], options)}"
        figure = draw_divergence(head_report.divergence, own_title, top)
        save(figure, out / f"divergence-{_file_name(head_report.name)}.png")
    title = f"{caption(texts, options)}\n{warn_of_texts(texts)}"
    save(draw_averages(head_reports, title), out / "divergence.png")
    save(draw_maps(head_reports, title), out / "heads.png")
    roles = draw_roles(head_reports, "\n".join([title, *gaps(texts, head_reports)]))
    save(roles, out / "roles.png")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    options = make_parser().parse_args(arguments)
    with error_handling("analyse.py", on_interrupt="nothing was written"):
        analysis_options = AnalysisOptions(
            **{field.name: getattr(options, field.name) for field in fields(AnalysisOptions)}
        )
        outputs = (("--out", Path(options.out) / name) for name in WRITTEN)
        check_distinct_files(outputs, (*options.runs, options.conllu))
        loaded_texts = texts(options)
        if options.num_samples:
            check_is_stochastic(
                (text.run for text in loaded_texts),
                "num_samples",
                ("heads", "alignments"),
            )
        out = make_output_folder(Path(options.out))
        head_reports = [
            analyse_heads(t.run, t.run.corpus, t.part, analysis_options, t.parses, t.name)
            for t in loaded_texts
        ]
    with error_handling("analyse.py", on_interrupt=f"what was written is in {out}"):
        tables = write(loaded_texts, head_reports, options, out)
    print_result("analyse.py", f"{tables}\nwritten to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
