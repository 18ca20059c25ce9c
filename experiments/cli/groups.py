"""Help that a person can scan: what a program does, an example, and its options in groups."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Mapping, Sequence

from jsonargparse import DefaultHelpFormatter

__all__ = [
    "OF_RUNS",
    "RUN_GROUPS",
    "Paragraphs",
    "TypedParagraphs",
    "arrange_options",
]

Groups = Mapping[str, Sequence[str]]

RUN_GROUPS: Groups = {
    "most used": (
        *("recipes", "seeds", "head_numbers"),
        *("recipe", "guide", "prior", "preset", "config"),
        *("data", "source", "target", "types", "width", "steps", "out"),
    ),
    "what to run": (
        *("guide.help", "prior.help", "start", "start_with", "train", "adapters"),
        *("seed", "device", "trust"),
    ),
    "many runs": ("jobs", "devices", "shard", "launcher", "launcher_options"),
    "data": (
        *("task", "language", "sentences", "held_out"),
        *("train_name", "valid_name", "test_name", "references", "first"),
        *("joint", "lowercase", "tokenised"),
        *("max_source", "max_line", "max_length", "max_ratio"),
        *("hub_path", "hub_config", "cache"),
    ),
    "data of several tasks": (
        *("tasks", "task_sizes", "task_temperature", "one_task", "tell_apart"),
    ),
    "data of a language model": ("block", "unit", "minimum"),
    "data of speech": ("bins", "top_frequency", "max_seconds"),
    "network": (
        *("feed_forward", "heads", "layers", "decoder_layers"),
        *("norm", "final_norm", "share", "channels", "spec_augment"),
        *("dropout", "attention_dropout", "activation_dropout"),
        *("cutoffs", "adaptive_factor", "adaptive_dropout"),
        *("mixers", "windows", "ngram_heads", "ngram_width", "ngram_slices", "ngram_context"),
    ),
    "training": (
        *("loss", "loss_samples"),
        *("tokens", "accumulate", "learning_rate", "warmup_steps", "decay"),
        *("period", "period_growth", "shrink", "least_rate"),
        *("optimiser", "momentum", "weight_decay", "clip", "precision", "label_smoothing", "ctc"),
        *("report_every", "checkpoint_every", "metric", "patience", "keep", "average"),
        *("disagreement", "disagreement_weight", "disagreement_chains", "disagreement_diagonal"),
    ),
    "latents": (
        *("latent", "ngram_noise", "noise_warmup_steps"),
        *("alignments", "alignment_heads", "alignment_prior"),
        *("alignment_width", "alignment_reach", "alignment_window", "alignment_components"),
        *("kl", "kl_warmup_steps", "min_kl_weight", "max_kl_weight", "free_bits"),
    ),
    "selection: which heads speak for each task": (
        *("select", "candidates", "select_chains", "families"),
        *("select_gradient", "temperature", "least_temperature"),
    ),
    "selection: gates that close heads for good": (
        *("gates", "gate_open", "gate_start", "gate_temperature"),
        *("gate_penalty", "gate_heads", "gate_rate"),
    ),
    "decoding": (*("beam", "length_penalty", "draws", "min_tokens", "max_tokens", "no_repeat"),),
    "report": (*("samples", "context", "accuracy", "paper_bleu", "paper_wer", "rouge", "verbose"),),
    "output": ("overwrite", "tensorboard", "report", "print_config", "print_shtab", "help"),
}
"""The options of run.py and of the programs that train several runs."""

OF_RUNS = ("checkpoint", "trust", "device", "seed")
"""Options of every program that reads finished runs; they come last, with its help."""


def arrange_options(parser: argparse.ArgumentParser, groups: Groups) -> None:
    """Shows the options of a parser in groups; one that stands in none stays where it is.

    Args:
        parser: The parser; only its help is changed.
        groups: The names of the options of each group, by its title.
    """
    actions = {action.dest: action for action in parser._actions}
    named = {name for names in groups.values() for name in names}
    for group in parser._action_groups:
        group._group_actions = [each for each in group._group_actions if each.dest not in named]
    first, *others = parser._action_groups  # what stands without a name in front, then the rest
    parser._action_groups = [first]
    for title, names in groups.items():
        group = parser.add_argument_group(title)
        group._group_actions.extend(actions[name] for name in names if name in actions)
    parser._action_groups += [group for group in others if group._group_actions]


class Paragraphs(argparse.HelpFormatter):
    """Keeps paragraphs of a description apart, and one that is indented as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(
            part if part.startswith("  ") else textwrap.fill(" ".join(part.split()), width)
            for part in parts
        )


class TypedParagraphs(Paragraphs, DefaultHelpFormatter):  # type: ignore[misc]
    """The same, and says of an option its default alone: its help and its values tell its type."""

    def _expand_help(self, action: argparse.Action) -> str:
        said = super()._expand_help(action)
        return re.sub(r"\s*\((?:required, )?type: .*\)$", _tell_default, said, flags=re.DOTALL)


def _tell_default(found: re.Match[str]) -> str:
    default = re.search(r", default: (.*?)(?:, known subclasses: .*)?\)$", found[0], re.DOTALL)
    plain = default is None or default[1].strip() in ("", "null")
    return "" if plain or default is None else f" (default: {default[1]})"
