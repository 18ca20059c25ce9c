"""Which option acts only beside another: one table, looked at in one place for all programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

from jsonargparse import Namespace

from latentheads.alignment.options import AlignmentOptions
from latentheads.corpora.data import SPEECH_OPTIONS, TASK_OPTIONS, Data
from latentheads.corpora.hub import HUB, PROSE
from latentheads.experiments.cli.names import spec_of
from latentheads.guides import GUIDES, ModelGuide
from latentheads.models import Prior
from latentheads.models.mixing import STACKS, mixings
from latentheads.names import chains_of
from latentheads.runs.recipes import join_pair, own_options

__all__ = ["ALWAYS", "NEEDS", "Need", "find_idle", "find_idle_of_guide", "group_of", "refusals"]

T = TypeVar("T")


def group_of(kind: type[T], options: Namespace) -> T:
    """The options of a group, checked."""
    return kind(**{field.name: options[field.name] for field in fields(kind)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Plan:
    """What a run is about to do, as far as the needs of its options ask.

    Attributes:
        options: All options.
        data: The corpus.
        alignment: Blocks above the decoder.
        prior: Class of the prior.
        guide: Class of the guide.
    """

    options: Namespace
    data: Data
    alignment: AlignmentOptions
    prior: type[Prior]
    guide: type[ModelGuide]

    @classmethod
    def read(cls, options: Namespace) -> Plan:
        """Makes the plan of a command line that was parsed."""
        data, alignment = group_of(Data, options), group_of(AlignmentOptions, options)
        of_logits = not spec_of("prior", options).find("prior").deterministic
        alignment = alignment.settle(data.alone, of_logits)
        pair = join_pair(spec_of("prior", options), spec_of("guide", options), alignment.drawn)
        return cls(options, data, alignment, pair.prior_class, pair.guide_class)

    @property
    def translates(self) -> bool:
        """Whether there is a source."""
        return not self.data.alone

    @property
    def pairs(self) -> bool:
        """Whether the corpus is text in pairs of files or columns."""
        return not (self.data.made or self.data.running or self.data.hears)

    @property
    def subwords(self) -> bool:
        """Whether a vocabulary is learned by BPE."""
        subwords = self.data.running and self.data.unit == "subword"
        return self.pairs or self.data.hears or subwords

    @property
    def names_source(self) -> bool:
        """Whether the language translated from has to be said."""
        directions = [task.rpartition(":")[2] for task in self.data.tasks.split(",")]
        return self.pairs and not all("-" in direction for direction in directions)

    @property
    def mixers(self) -> set[str]:
        """What mixes positions, in an encoder too where there is one."""
        return {kind for stack in STACKS for kind in self.stack(stack)}

    def stack(self, name: str) -> list[str]:
        """What mixes positions in every layer of the encoder or the decoder."""
        if name == STACKS[0] and not self.translates:
            return []
        lower = name == STACKS[1] and self.options.decoder_layers
        said = (self.options.mixers, "", "", name, lower or self.options.layers)
        return [mixing.kind for mixing in mixings(*said)]

    @property
    def draws_logits(self) -> bool:
        """Whether attention heads are drawn."""
        return not self.prior.deterministic and chains_of(self.options.latent) != ()

    @property
    def draws_heads(self) -> bool:
        """Whether heads are drawn, of attention or of n-grams."""
        return self.draws_logits or self.options.ngram_noise > 0

    @property
    def draws_choice(self) -> bool:
        """Whether it is drawn which heads speak."""
        return self.options.select not in ("none", "static")

    @property
    def gates(self) -> bool:
        """Whether heads have gates."""
        return bool(self.options.gates != "none")

    @property
    def aligns(self) -> bool:
        """Whether alignment blocks stand above the decoder."""
        return self.alignment.blocks > 0

    @property
    def draws_alignments(self) -> bool:
        """Whether it is drawn where they point."""
        return self.alignment.drawn

    @property
    def weighs_alignments(self) -> bool:
        """Whether alignments are trained by a bound that has a KL, which may be weighed."""
        return self.draws_alignments and self.options.objective in ("bound", "sampled")

    @property
    def pays_for_heads(self) -> bool:
        """Whether drawn heads have a KL that is not 0 by construction."""
        drawn = self.draws_heads or self.weighs_alignments
        return drawn and self.guide is not GUIDES["tied"]

    @property
    def pays(self) -> bool:
        """Whether anything has a KL that is not 0 by construction."""
        return self.pays_for_heads or self.draws_choice or self.gates

    @property
    def draws_paid_logits(self) -> bool:
        """Whether anything has a KL that may be sampled: that of alignments is always a sum."""
        drawn = self.draws_heads and self.guide is not GUIDES["tied"]
        return drawn or self.draws_choice or self.gates


@dataclass(frozen=True)
class Need:
    """Options that act only where something else is said too.

    Attributes:
        options: Their names.
        what: What they need, as a command line says it.
        met: Whether a plan has it.
    """

    options: tuple[str, ...]
    what: str
    met: Callable[[Plan], bool]

    def refusal(self, names: list[str]) -> str:
        """Says that some of the options act on nothing, and what they need."""
        acts, need = ("acts", "it needs") if len(names) == 1 else ("act", "they need")
        shown = ", ".join(f"--{name}" for name in names)
        return f"{shown} {acts} on nothing here: {need} {self.what}"


TEXT = "a corpus of the hub or a folder"
PAIRS = f"pairs of texts ({TEXT})"
RUNNING = (
    f"running text for a language model (--data pydoc, {', '.join(PROSE)}, or a folder with --task "
    "language-model)"
)
LAW = "--select selection, subset or group"
NOISE = "heads that are drawn (a prior with noise and --latent, or --ngram_noise)"
OWN = (
    "a guide other than tied and heads that are drawn, of alignments too under --objective bound "
    "or sampled"
)
ALIGNMENTS = "--alignments"
KL = f"a KL that is not 0 by construction ({OWN}; {LAW}; or --gates)"
SAMPLED = (
    "a KL that is not 0 by construction and no sum over alignments (a guide other than tied and "
    f"{NOISE}; {LAW}; or --gates)"
)
NGRAM = "--mixers with ngram layers"
SPEECH = "speech (--task recognition, or speech-translation, and --data FOLDER)"

NEEDS = (
    # The corpus
    Need(
        ("language",),
        "--data grammar, for translation without --tasks",
        lambda p: p.data.data == "grammar" and p.translates and not p.data.tasks,
    ),
    Need(
        ("sentences",),
        "--data grammar without --task_sizes",
        lambda p: p.data.data == "grammar" and not p.data.task_sizes,
    ),
    Need(("held_out",), "--data grammar", lambda p: p.data.data == "grammar"),
    Need(
        ("source",),
        f"{PAIRS}, and no --tasks that all name both languages",
        lambda p: p.names_source,
    ),
    Need(
        ("target", "max_source"),
        f"{PAIRS} without --tasks",
        lambda p: p.pairs and not p.data.tasks,
    ),
    Need(
        ("references",),
        "pairs of texts in a folder, without --tasks",
        lambda p: p.pairs and not p.data.from_hub and not p.data.tasks,
    ),
    Need(("joint", "tokenised", "max_length", "max_ratio"), PAIRS, lambda p: p.pairs),
    Need(("lowercase",), TEXT, lambda p: not p.data.made),
    Need(
        ("max_line",),
        "text other than the grammar's, read line by line (without --block)",
        lambda p: p.data.data != "grammar" and not p.data.block,
    ),
    Need(
        ("train_name", "valid_name", "test_name"),
        "--data FOLDER",
        lambda p: not (p.data.made or p.data.from_hub),
    ),
    Need(
        ("types",),
        f"{PAIRS}, speech, or a language model's --unit subword",
        lambda p: p.subwords,
    ),
    Need(SPEECH_OPTIONS, SPEECH, lambda p: p.data.hears),
    Need(("unit", "block"), RUNNING, lambda p: p.data.running),
    Need(
        ("minimum",),
        f"{RUNNING} with --unit word",
        lambda p: p.data.running and p.data.unit == "word",
    ),
    Need(("context",), f"--block, for {RUNNING}", lambda p: p.data.running and p.data.block > 0),
    Need(
        ("first",),
        "--data other than grammar, without --task_sizes",
        lambda p: p.data.data != "grammar" and not p.data.task_sizes,
    ),
    Need(("cache",), "--data other than grammar", lambda p: p.data.data != "grammar"),
    Need(
        ("hub_path",),
        f"--data to name what it holds: {', '.join([*HUB, *PROSE])}, or a name of your own for "
        "rows with a column translation (text for a language model)",
        lambda p: not p.data.made,
    ),
    Need(("hub_config",), "--data of the hub, or --hub_path", lambda p: p.data.from_hub),
    Need(TASK_OPTIONS[1:], "--tasks", lambda p: bool(p.data.tasks)),
    # The network
    Need(("channels", "spec_augment", "ctc"), SPEECH, lambda p: p.data.hears),
    Need(("decoder_layers",), "a source: no language model", lambda p: p.translates),
    Need(("final_norm",), "--norm pre", lambda p: p.options.norm == "pre"),
    Need(("cutoffs",), "a language model", lambda p: not p.translates),
    Need(
        ("adaptive_factor", "adaptive_dropout"),
        "--cutoffs, of a language model",
        lambda p: not p.translates and bool(p.options.cutoffs),
    ),
    Need(
        ("attention_dropout",),
        "a layer that attends",
        lambda p: p.translates or p.mixers != {"ngram"},
    ),
    Need(
        ("windows",),
        "--mixers with local or ngram layers",
        lambda p: bool(p.mixers & {"local", "ngram"}),
    ),
    Need(
        ("ngram_heads", "ngram_width", "ngram_slices", "ngram_noise"),
        NGRAM,
        lambda p: "ngram" in p.mixers,
    ),
    Need(("ngram_context",), f"{NGRAM} in an encoder", lambda p: "ngram" in p.stack(STACKS[0])),
    # Training
    Need(("momentum",), "--optimiser nag", lambda p: p.options.optimiser == "nag"),
    Need(("period", "least_rate"), "--decay cosine", lambda p: p.options.decay == "cosine"),
    Need(
        ("period_growth", "shrink"),
        "--decay cosine with --period",
        lambda p: p.options.decay == "cosine" and p.options.period > 0,
    ),
    Need(("kl",), SAMPLED, lambda p: p.draws_paid_logits),
    Need(("kl_warmup_steps", "max_kl_weight"), KL, lambda p: p.pays),
    Need(
        ("min_kl_weight",),
        f"--kl_warmup_steps, and {KL}",
        lambda p: p.pays and p.options.kl_warmup_steps > 0,
    ),
    Need(
        ("free_bits",),
        f"{OWN}, and --select_gradient straight-through",
        lambda p: p.pays_for_heads and p.options.select_gradient == "straight-through",
    ),
    Need(("noise_warmup_steps",), NOISE, lambda p: p.draws_heads),
    Need(
        ("latent",),
        "a prior with noise, or --ngram_noise",
        lambda p: not p.prior.deterministic or p.options.ngram_noise > 0,
    ),
    Need(("select_gradient",), LAW, lambda p: p.draws_choice),
    Need(
        ("temperature", "least_temperature"),
        f"{LAW}, with --select_gradient straight-through",
        lambda p: p.draws_choice and p.options.select_gradient == "straight-through",
    ),
    Need(
        ("start_with",),
        f"--start RUN, and {SPEECH}",
        lambda p: bool(p.options.start) and p.data.hears,
    ),
    Need(("patience",), "a training without --gates", lambda p: not p.gates),
    Need(
        ("disagreement_weight", "disagreement_chains", "disagreement_diagonal"),
        "--disagreement",
        lambda p: p.options.disagreement != "none",
    ),
    # Alignments
    Need(
        ("alignment_heads", "alignment_prior", "alignment_width"),
        ALIGNMENTS,
        lambda p: p.aligns,
    ),
    Need(
        ("alignment_reach",),
        f"{ALIGNMENTS}, with --alignment_prior chain, or cascaded over two blocks",
        lambda p: (
            p.aligns
            and (
                p.options.alignment_prior == "chain"
                or (p.options.alignment_prior == "cascaded" and p.alignment.blocks > 1)
            )
        ),
    ),
    Need(
        ("alignment_components",),
        f"{ALIGNMENTS}, with --alignment_prior mixture",
        lambda p: p.aligns and p.options.alignment_prior == "mixture",
    ),
    Need(
        ("label_smoothing",),
        "a network without alignments (--recipe, or --prior)",
        lambda p: not p.aligns,
    ),
    Need(
        ("alignment_window",),
        f"{ALIGNMENTS}, of a language model",
        lambda p: p.aligns and not p.translates,
    ),
    Need(
        ("objective",),
        f"{ALIGNMENTS}, with a prior other than soft",
        lambda p: p.draws_alignments,
    ),
    Need(
        ("objective_draws",),
        f"{ALIGNMENTS}, with --objective iwae or rws",
        lambda p: p.draws_alignments and p.options.objective in ("iwae", "rws"),
    ),
    # What speaks
    Need(("candidates",), LAW, lambda p: p.draws_choice),
    Need(("select_chains",), f"{LAW}, or static", lambda p: p.options.select != "none"),
    Need(
        ("families",),
        "--select static and --tasks",
        lambda p: p.options.select == "static" and bool(p.data.tasks),
    ),
    Need(
        ("gate_open", "gate_start", "gate_temperature", "gate_penalty", "gate_heads"),
        "--gates all, or some chains",
        lambda p: p.gates,
    ),
    Need(
        ("gate_rate",),
        "--gates and --gate_heads",
        lambda p: p.gates and p.options.gate_heads > 0,
    ),
    # Decoding
    Need(
        ("beam", "min_tokens", "max_tokens", "no_repeat"),
        "translation, or speech",
        lambda p: p.translates,
    ),
    Need(
        ("paper_bleu",),
        "translation",
        lambda p: p.translates and not p.data.recognises,
    ),
    Need(("rouge",), "translation of text", lambda p: p.translates and not p.data.hears),
    Need(("paper_wer",), "--task recognition", lambda p: p.data.recognises),
    Need(
        ("length_penalty",),
        "translation, or speech, with --beam 2 or more",
        lambda p: p.translates and p.options.beam > 1,
    ),
    Need(
        ("draws",),
        f"translation, or speech, with {NOISE}; {LAW}; or --gates",
        lambda p: p.translates and (p.draws_heads or p.draws_choice or p.gates),
    ),
)
"""Every option that acts on nothing unless something else is there."""

ALWAYS = (
    *("config", "preset", "recipe", "guide", "prior"),
    *("data", "task", "tasks"),
    *("width", "feed_forward", "heads", "layers", "norm", "share", "mixers"),
    *("dropout", "activation_dropout"),
    *("steps", "tokens", "accumulate", "optimiser", "learning_rate", "warmup_steps", "decay"),
    *("weight_decay", "clip", "precision", "report_every", "checkpoint_every", "metric"),
    *("keep", "average", "disagreement"),
    *("select", "gates", "alignments", "adapters", "start", "train"),
    *("seed", "samples", "out", "overwrite", "tensorboard", "device", "verbose", "trust", "report"),
    *("recipes", "seeds", "head_numbers", "jobs", "devices", "shard"),
    *("launcher", "launcher_options"),
)
"""Options that act on every run, or refuse themselves what they cannot be together with."""


def find_idle(options: Namespace, plain: Namespace) -> dict[str, Need]:
    """The options that differ from their default and act on nothing, with what each needs.

    Args:
        options: All options.
        plain: Their defaults.
    """
    plan = Plan.read(options)
    idle = [need for need in NEEDS if not need.met(plan)]
    return {name: need for need in idle for name in need.options if options[name] != plain[name]}


READS = Need(
    ("guide.reads",),
    f"{ALIGNMENTS}, with a prior other than soft",
    lambda plan: plan.draws_alignments,
)
"""What a guide reads is of alignments alone; the option is the guide's own."""

SHAPES = Need(
    ("guide.hidden", "guide.link", "guide.scale", "guide.learned_scale", "guide.form"),
    "a prior with noise (as --prior independent) and --latent",
    lambda plan: plan.draws_logits,
)
"""All other options of a guide are of logits."""


def find_idle_of_guide(options: Namespace) -> dict[str, Need]:
    """The own options of a guide of the library that were set and act on nothing."""
    plan, said = Plan.read(options), spec_of("guide", options)
    if said.name not in GUIDES:
        return {}
    given = {each.name: each.default for each in own_options(GUIDES[said.name])}
    changed = [name for name, plain in given.items() if said.options.get(name, plain) != plain]
    needs = {f"guide.{name}": READS if name == "reads" else SHAPES for name in changed}
    return {name: need for name, need in needs.items() if not need.met(plan)}


def refusals(idle: Mapping[str, Need]) -> list[str]:
    """One line for each need that is not met."""
    needs = dict.fromkeys(idle.values())
    return [need.refusal([name for name in need.options if name in idle]) for need in needs]
