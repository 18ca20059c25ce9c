"""The options of the benchmarks, and of the plan for a GPU, in groups."""

from __future__ import annotations

from latentheads.experiments.cli.groups import Groups

BENCH_GROUPS: Groups = {
    "what to do": ("minutes", "parts", "data", "at_once", "smoke"),
    "what to time": ("recipe", "task", "beam", "window", "length", "adam", "precision", "limit"),
    "the network and its batch": (
        *("width", "feed_forward", "layers", "heads", "vocabulary", "cutoffs", "batch", "tokens"),
    ),
    "how often, and where": ("rounds", "warmup", "quick", "device", "threads", "seed"),
    "output": ("out", "json", "figure", "help"),
}
"""The names of the options of each group, by its title."""
