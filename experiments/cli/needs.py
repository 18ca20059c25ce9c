"""Which option acts only beside another: one table, looked at in one place for all programs."""

from __future__ import annotations

from collections.abc import Mapping

from jsonargparse import Namespace

from latentheads.corpora.data import SPEECH_OPTIONS, TASK_OPTIONS
from latentheads.corpora.hub import HUB, PROSE
from latentheads.experiments.cli.intent import Intent
from latentheads.experiments.cli.names import spec_of
from latentheads.guides import GUIDES
from latentheads.models.mixing import STACKS
from latentheads.runs.recipes import own_options
from latentheads.training.needs import LAW, NOISE, OF_TRAINING, Need

__all__ = ["NEEDS", "find_idle", "find_idle_of_guide", "refusals"]


TEXT = "a corpus of the hub or a folder"
PAIRS = f"pairs of texts ({TEXT})"
RUNNING = (
    f"running text for a language model (--data pydoc, {', '.join(PROSE)}, or a folder with --task "
    "language-model)"
)
ALIGNMENTS = "--alignments"
NGRAM = "--mixers with ngram layers"
SPEECH = "speech (--task recognition, or speech-translation, and --data FOLDER)"

NEEDS = (
    # The corpus
    Need(
        ("language",),
        "--data grammar, for translation without --tasks",
        lambda it: it.data.data == "grammar" and it.translates and not it.data.tasks,
    ),
    Need(
        ("sentences",),
        "--data grammar without --task_sizes",
        lambda it: it.data.data == "grammar" and not it.data.task_sizes,
    ),
    Need(("held_out",), "--data grammar", lambda it: it.data.data == "grammar"),
    Need(
        ("source",),
        f"{PAIRS}, and no --tasks that all name both languages",
        lambda it: it.names_source,
    ),
    Need(
        ("target", "max_source"),
        f"{PAIRS} without --tasks",
        lambda it: it.pairs and not it.data.tasks,
    ),
    Need(
        ("references",),
        "pairs of texts in a folder, without --tasks",
        lambda it: it.pairs and not it.data.from_hub and not it.data.tasks,
    ),
    Need(("joint", "tokenised", "max_length", "max_ratio"), PAIRS, lambda it: it.pairs),
    Need(("lowercase",), TEXT, lambda it: not it.data.made),
    Need(
        ("max_line",),
        "text other than the grammar's, read line by line (without --block)",
        lambda it: it.data.data != "grammar" and not it.data.block,
    ),
    Need(
        ("train_name", "valid_name", "test_name"),
        "--data FOLDER",
        lambda it: not (it.data.made or it.data.from_hub),
    ),
    Need(
        ("types",),
        f"{PAIRS}, speech, or a language model's --unit subword",
        lambda it: it.subwords,
    ),
    Need(SPEECH_OPTIONS, SPEECH, lambda it: it.data.hears),
    Need(("unit", "block"), RUNNING, lambda it: it.data.running),
    Need(
        ("minimum",),
        f"{RUNNING} with --unit word",
        lambda it: it.data.running and it.data.unit == "word",
    ),
    Need(("context",), f"--block, for {RUNNING}", lambda it: it.data.running and it.data.block > 0),
    Need(
        ("first",),
        "--data other than grammar, without --task_sizes",
        lambda it: it.data.data != "grammar" and not it.data.task_sizes,
    ),
    Need(("cache",), "--data other than grammar", lambda it: it.data.data != "grammar"),
    Need(
        ("hub_path",),
        f"--data to name what it holds: {', '.join([*HUB, *PROSE])}, or a name of your own for "
        "rows with a column translation (text for a language model)",
        lambda it: not it.data.made,
    ),
    Need(("hub_config",), "--data of the hub, or --hub_path", lambda it: it.data.from_hub),
    Need(TASK_OPTIONS[1:], "--tasks", lambda it: bool(it.data.tasks)),
    # The network
    Need(("channels", "spec_augment", "ctc"), SPEECH, lambda it: it.data.hears),
    Need(("decoder_layers",), "a source: no language model", lambda it: it.translates),
    Need(("final_norm",), "--norm pre", lambda it: it.options.norm == "pre"),
    Need(("cutoffs",), "a language model", lambda it: not it.translates),
    Need(
        ("adaptive_factor", "adaptive_dropout"),
        "--cutoffs, of a language model",
        lambda it: not it.translates and bool(it.options.cutoffs),
    ),
    Need(
        ("attention_dropout",),
        "a layer that attends",
        lambda it: it.translates or it.mixers != {"ngram"},
    ),
    Need(
        ("windows",),
        "--mixers with local or ngram layers",
        lambda it: bool(it.mixers & {"local", "ngram"}),
    ),
    Need(
        ("ngram_heads", "ngram_width", "ngram_slices", "ngram_noise"),
        NGRAM,
        lambda it: "ngram" in it.mixers,
    ),
    Need(("ngram_context",), f"{NGRAM} in an encoder", lambda it: "ngram" in it.stack(STACKS[0])),
    # Training
    *OF_TRAINING,
    Need(
        ("latent",),
        "a prior with noise, or --ngram_noise",
        lambda it: not it.prior.deterministic or it.options.ngram_noise > 0,
    ),
    Need(
        ("start_with",),
        f"--start RUN, and with encoder {SPEECH}",
        lambda it: bool(it.options.start) and (it.options.start_with == "model" or it.data.hears),
    ),
    Need(
        ("disagreement_weight", "disagreement_chains", "disagreement_diagonal"),
        "--disagreement",
        lambda it: it.options.disagreement != "none",
    ),
    # Alignments
    Need(
        ("alignment_heads", "alignment_prior", "alignment_width"),
        ALIGNMENTS,
        lambda it: it.aligns,
    ),
    Need(
        ("alignment_reach",),
        f"{ALIGNMENTS}, with --alignment_prior chain, or cascaded over two blocks",
        lambda it: (
            it.aligns
            and (
                it.alignment.chained
                or (it.options.alignment_prior == "cascaded" and it.alignment.blocks > 1)
            )
        ),
    ),
    Need(
        ("alignment_components",),
        f"{ALIGNMENTS}, with --alignment_prior mixture",
        lambda p: p.aligns and p.options.alignment_prior == "mixture",
    ),
    Need(
        ("alignment_window",),
        f"{ALIGNMENTS}, of a language model",
        lambda it: it.aligns and not it.translates,
    ),
    # What speaks
    Need(("candidates",), LAW, lambda it: it.draws_choice),
    Need(("select_chains",), f"{LAW}, or static", lambda it: it.options.select != "none"),
    Need(
        ("families",),
        "--select static and --tasks",
        lambda it: it.options.select == "static" and bool(it.data.tasks),
    ),
    Need(
        ("gate_open", "gate_start", "gate_temperature", "gate_penalty", "gate_heads"),
        "--gates all, or some chains",
        lambda it: it.gates,
    ),
    Need(
        ("gate_rate",),
        "--gates and --gate_heads",
        lambda it: it.gates and it.options.gate_heads > 0,
    ),
    # Decoding
    Need(
        ("beam", "min_tokens", "max_tokens", "no_repeat"),
        "translation, or speech",
        lambda it: it.translates,
    ),
    Need(
        ("paper_bleu",),
        "translation",
        lambda it: it.translates and not it.data.recognises,
    ),
    Need(
        ("rouge", "accuracy"),
        "translation of text",
        lambda it: it.translates and not it.data.hears,
    ),
    Need(("paper_wer",), "--task recognition", lambda it: it.data.recognises),
    Need(
        ("length_penalty",),
        "translation, or speech, with --beam 2 or more",
        lambda it: it.translates and it.options.beam > 1,
    ),
    Need(
        ("draws",),
        f"translation, or speech, with {NOISE}; {LAW}; or --gates",
        lambda it: it.translates and (it.draws_heads or it.draws_choice or it.gates),
    ),
)
"""The needs of every option that has any."""


def find_idle(options: Namespace, plain: Namespace) -> dict[str, Need]:
    """The options that differ from their default and act on nothing, with what each needs.

    Args:
        options: All options.
        plain: Their defaults.
    """
    intent = Intent.read(options)
    idle = [need for need in NEEDS if not need.met(intent)]
    return {name: need for need in idle for name in need.options if options[name] != plain[name]}


READS = Need(
    ("guide.reads",),
    f"{ALIGNMENTS}, with a prior other than soft, or a prior with noise in "
    "a decoder's attention to all positions",
    lambda intent: intent.draws_alignments or intent.tells_logits,
)
"""The need of the one option of guides that is of all that may be told a text."""

SHAPES = Need(
    ("guide.hidden", "guide.link", "guide.scale", "guide.learned_scale", "guide.form"),
    "a prior with noise (as --prior independent) and --latent",
    lambda intent: intent.draws_logits,
)
"""The need of all other options of guides, which are of logits."""


def find_idle_of_guide(options: Namespace) -> dict[str, Need]:
    """The own options of a guide of the library that were set and act on nothing."""
    intent, said = Intent.read(options), spec_of("guide", options)
    if said.name not in GUIDES:
        return {}
    given = {each.name: each.default for each in own_options(GUIDES[said.name])}
    changed = [name for name, plain in given.items() if said.options.get(name, plain) != plain]
    needs = {f"guide.{name}": READS if name == "reads" else SHAPES for name in changed}
    return {name: need for name, need in needs.items() if not need.met(intent)}


def refusals(idle: Mapping[str, Need]) -> list[str]:
    """One line for each need that is not met."""
    needs = dict.fromkeys(idle.values())
    return [need.refusal([name for name in need.options if name in idle]) for need in needs]
