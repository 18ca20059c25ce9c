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
from latentheads.training.needs import LAW, NOISE, OF_TRAINING, Requirement

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
    Requirement(
        ("language",),
        "--data grammar, for translation without --tasks",
        lambda it: it.data.data == "grammar" and it.translates and not it.data.tasks,
    ),
    Requirement(
        ("sentences",),
        "--data grammar without --task_sizes",
        lambda it: it.data.data == "grammar" and not it.data.task_sizes,
    ),
    Requirement(("held_out",), "--data grammar", lambda it: it.data.data == "grammar"),
    Requirement(
        ("source",),
        f"{PAIRS}, and no --tasks that all name both languages",
        lambda it: it.names_source,
    ),
    Requirement(
        ("target", "max_source"),
        f"{PAIRS} without --tasks",
        lambda it: it.pairs and not it.data.tasks,
    ),
    Requirement(
        ("references",),
        "pairs of texts in a folder, without --tasks",
        lambda it: it.pairs and not it.data.from_hub and not it.data.tasks,
    ),
    Requirement(("joint", "tokenised", "max_length", "max_ratio"), PAIRS, lambda it: it.pairs),
    Requirement(("lowercase",), TEXT, lambda it: not it.data.made),
    Requirement(
        ("max_line",),
        "text other than the grammar's, read line by line (without --block)",
        lambda it: it.data.data != "grammar" and not it.data.block,
    ),
    Requirement(
        ("train_name", "valid_name", "test_name"),
        "--data FOLDER",
        lambda it: not (it.data.made or it.data.from_hub),
    ),
    Requirement(
        ("types",),
        f"{PAIRS}, speech, or a language model's --unit subword",
        lambda it: it.subwords,
    ),
    Requirement(SPEECH_OPTIONS, SPEECH, lambda it: it.data.is_speech),
    Requirement(("unit", "block"), RUNNING, lambda it: it.data.running),
    Requirement(
        ("minimum",),
        f"{RUNNING} with --unit word",
        lambda it: it.data.running and it.data.unit == "word",
    ),
    Requirement(
        ("context",), f"--block, for {RUNNING}", lambda it: it.data.running and it.data.block > 0
    ),
    Requirement(
        ("first",),
        "--data other than grammar, without --task_sizes",
        lambda it: it.data.data != "grammar" and not it.data.task_sizes,
    ),
    Requirement(("cache",), "--data other than grammar", lambda it: it.data.data != "grammar"),
    Requirement(
        ("hub_path",),
        f"--data to name what it holds: {', '.join([*HUB, *PROSE])}, or a name of your own for "
        "rows with a column translation (text for a language model)",
        lambda it: not it.data.made,
    ),
    Requirement(("hub_config",), "--data of the hub, or --hub_path", lambda it: it.data.from_hub),
    Requirement(TASK_OPTIONS[1:], "--tasks", lambda it: bool(it.data.tasks)),
    # The network
    Requirement(("channels", "spec_augment", "ctc"), SPEECH, lambda it: it.data.is_speech),
    Requirement(("decoder_layers",), "a source: no language model", lambda it: it.translates),
    Requirement(("final_norm",), "--norm pre", lambda it: it.options.norm == "pre"),
    Requirement(("cutoffs",), "a language model", lambda it: not it.translates),
    Requirement(
        ("adaptive_factor", "adaptive_dropout"),
        "--cutoffs, of a language model",
        lambda it: not it.translates and bool(it.options.cutoffs),
    ),
    Requirement(
        ("attention_dropout",),
        "a layer that attends",
        lambda it: it.translates or it.mixers != {"ngram"},
    ),
    Requirement(
        ("windows",),
        "--mixers with local or ngram layers",
        lambda it: bool(it.mixers & {"local", "ngram"}),
    ),
    Requirement(
        ("ngram_heads", "ngram_width", "ngram_slices", "ngram_noise"),
        NGRAM,
        lambda it: "ngram" in it.mixers,
    ),
    Requirement(
        ("ngram_context",), f"{NGRAM} in an encoder", lambda it: "ngram" in it.stack(STACKS[0])
    ),
    # Training
    *OF_TRAINING,
    Requirement(
        ("latent",),
        "a prior with noise, or --ngram_noise",
        lambda it: not it.prior.deterministic or it.options.ngram_noise > 0,
    ),
    Requirement(
        ("start_with",),
        f"--start RUN, and with encoder {SPEECH}",
        lambda it: (
            bool(it.options.start) and (it.options.start_with == "model" or it.data.is_speech)
        ),
    ),
    Requirement(
        ("disagreement_weight", "disagreement_chains", "disagreement_diagonal"),
        "--disagreement",
        lambda it: it.options.disagreement != "none",
    ),
    # Alignments
    Requirement(
        ("alignment_heads", "alignment_prior", "alignment_width"),
        ALIGNMENTS,
        lambda it: it.aligns,
    ),
    Requirement(
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
    Requirement(
        ("alignment_components",),
        f"{ALIGNMENTS}, with --alignment_prior mixture",
        lambda p: p.aligns and p.options.alignment_prior == "mixture",
    ),
    Requirement(
        ("alignment_window",),
        f"{ALIGNMENTS}, of a language model",
        lambda it: it.aligns and not it.translates,
    ),
    # What speaks
    Requirement(("candidates",), LAW, lambda it: it.samples_selection),
    Requirement(("select_chains",), f"{LAW}, or static", lambda it: it.options.select != "none"),
    Requirement(
        ("families",),
        "--select static and --tasks",
        lambda it: it.options.select == "static" and bool(it.data.tasks),
    ),
    Requirement(
        ("gate_open", "gate_start", "gate_temperature", "gate_penalty", "gate_heads"),
        "--gates all, or some chains",
        lambda it: it.gates,
    ),
    Requirement(
        ("gate_rate",),
        "--gates and --gate_heads",
        lambda it: it.gates and it.options.gate_heads > 0,
    ),
    # Decoding
    Requirement(
        ("beam", "min_tokens", "max_tokens", "no_repeat"),
        "translation, or speech",
        lambda it: it.translates,
    ),
    Requirement(
        ("paper_bleu",),
        "translation",
        lambda it: it.translates and not it.data.is_recognition,
    ),
    Requirement(
        ("rouge", "accuracy"),
        "translation of text",
        lambda it: it.translates and not it.data.is_speech,
    ),
    Requirement(("paper_wer",), "--task recognition", lambda it: it.data.is_recognition),
    Requirement(
        ("length_penalty",),
        "translation, or speech, with --beam 2 or more",
        lambda it: it.translates and it.options.beam > 1,
    ),
    Requirement(
        ("draws",),
        f"translation, or speech, with {NOISE}; {LAW}; or --gates",
        lambda it: it.translates and (it.samples_heads or it.samples_selection or it.gates),
    ),
)
"""The needs of every option that has any."""


def find_idle(options: Namespace, plain: Namespace) -> dict[str, Requirement]:
    """The options that differ from their default and act on nothing, with what each needs.

    Args:
        options: All options.
        plain: Their defaults.
    """
    intent = Intent.read(options)
    idle = [need for need in NEEDS if not need.met(intent)]
    return {name: need for need in idle for name in need.options if options[name] != plain[name]}


READS = Requirement(
    ("guide.reads",),
    f"{ALIGNMENTS}, with a prior other than soft, or a prior with noise in "
    "a decoder's attention to all positions",
    lambda intent: intent.samples_alignments or intent.tells_logits,
)
"""The need of the one option of guides that is of all that may be told a text."""

SHAPES = Requirement(
    ("guide.hidden", "guide.link", "guide.scale", "guide.learned_scale", "guide.form"),
    "a prior with noise (as --prior independent) and --latent",
    lambda intent: intent.samples_logits,
)
"""The need of all other options of guides, which are of logits."""


def find_idle_of_guide(options: Namespace) -> dict[str, Requirement]:
    """The own options of a guide of the library that were set and act on nothing."""
    intent, said = Intent.read(options), spec_of("guide", options)
    if said.name not in GUIDES:
        return {}
    given = {each.name: each.default for each in own_options(GUIDES[said.name])}
    changed = [name for name, plain in given.items() if said.options.get(name, plain) != plain]
    needs = {f"guide.{name}": READS if name == "reads" else SHAPES for name in changed}
    return {name: need for name, need in needs.items() if not need.met(intent)}


def refusals(idle: Mapping[str, Requirement]) -> list[str]:
    """One line for each need that is not met."""
    needs = dict.fromkeys(idle.values())
    return [need.refusal([name for name in need.options if name in idle]) for need in needs]
