"""Which option of training acts only beside another, or in some models alone.

The table is one for the command line, which knows options before there is a model, and for Python,
which has the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any

from latentheads.guide import ModelGuide
from latentheads.model import HeadModel
from latentheads.selection.static import StaticSelector
from latentheads.training.options import Training

__all__ = ["LAW", "NOISE", "OF_TRAINING", "Draws", "Requirement", "check_idle"]


@dataclass(frozen=True)
class Requirement:
    """A need of some options, without which they act on nothing.

    Attributes:
        options: Their names.
        what: The need, in the words of a command line.
        met: Whether a run meets it, given all that it depends on.
    """

    options: tuple[str, ...]
    what: str
    met: Callable[[Any], bool]

    def refusal(self, names: Collection[str], marked: bool = True) -> str:
        """The line that says that some of the options act on nothing, and what they need.

        Args:
            names: The options.
            marked: Whether names have the dashes of a command line.
        """
        acts, need = ("acts", "it needs") if len(names) == 1 else ("act", "they need")
        shown = ", ".join(f"--{name}" for name in names)
        line = f"{shown} {acts} on nothing here: {need} {self.what}"
        return line if marked else line.replace("--", "")


class Draws(ABC):
    """What is drawn in a run, and what of it has a KL: options of training depend on it.

    Attributes:
        options: Those of training, among others.
    """

    options: Any

    @property
    @abstractmethod
    def samples_heads(self) -> bool:
        """Whether heads are drawn, of attention or of n-grams."""

    @property
    @abstractmethod
    def samples_selection(self) -> bool:
        """Whether the choice of heads is drawn."""

    @property
    @abstractmethod
    def samples_alignments(self) -> bool:
        """Whether alignments are drawn."""

    @property
    @abstractmethod
    def gates(self) -> bool:
        """Whether heads have gates."""

    @property
    @abstractmethod
    def is_tied(self) -> bool:
        """Whether the guide is the prior."""

    @property
    def weighs_alignments(self) -> bool:
        """Whether alignments are trained by a bound that has a KL, which may be weighed."""
        return self.samples_alignments and self.options.objective in ("bound", "sampled")

    @property
    def has_nonzero_kl(self) -> bool:
        """Whether drawn heads have a KL that is not 0 by construction."""
        return (self.samples_heads or self.weighs_alignments) and not self.is_tied

    @property
    def has_kl_weight(self) -> bool:
        """Whether a KL that is not 0 by construction may be weighed: with gates it may not."""
        return (self.has_nonzero_kl or self.samples_selection) and not self.gates

    @property
    def draws_paid_logits(self) -> bool:
        """Whether anything has a KL that may be sampled: that of alignments is always a sum."""
        return (self.samples_heads and not self.is_tied) or self.samples_selection or self.gates


LAW = "--select selection, subset or group"
NOISE = "heads that are drawn (a prior with noise and --latent, or --ngram_noise)"
OWN = (
    "a guide other than tied and heads that are drawn, of alignments too under --objective bound "
    "or sampled"
)
KL = f"a KL that is not 0 by construction ({OWN}; or {LAW}), and no --gates"
SAMPLED = (
    "a KL that is not 0 by construction and no sum over alignments (a guide other than tied and "
    f"{NOISE}; {LAW}; or --gates)"
)
DRAWN = "--alignments, with a prior other than soft"

OF_TRAINING = (
    Requirement(("momentum",), "--optimiser nag", lambda it: it.options.optimiser == "nag"),
    Requirement(
        ("period", "least_rate"), "--decay cosine", lambda it: it.options.decay == "cosine"
    ),
    Requirement(
        ("period_growth", "shrink"),
        "--decay cosine with --period",
        lambda it: it.options.decay == "cosine" and it.options.period > 0,
    ),
    Requirement(("kl",), SAMPLED, lambda it: it.draws_paid_logits),
    Requirement(("kl_warmup_steps", "max_kl_weight"), KL, lambda it: it.has_kl_weight),
    Requirement(
        ("min_kl_weight",),
        f"--kl_warmup_steps, and {KL}",
        lambda it: it.has_kl_weight and it.options.kl_warmup_steps > 0,
    ),
    Requirement(
        ("free_bits",),
        f"{OWN}, and --select_gradient straight-through",
        lambda it: it.has_nonzero_kl and it.options.select_gradient == "straight-through",
    ),
    Requirement(("noise_warmup_steps",), NOISE, lambda it: it.samples_heads),
    Requirement(("select_gradient",), LAW, lambda it: it.samples_selection),
    Requirement(
        ("temperature", "least_temperature"),
        f"{LAW}, with --select_gradient straight-through",
        lambda it: it.samples_selection and it.options.select_gradient == "straight-through",
    ),
    Requirement(("patience",), "a training without --gates", lambda it: not it.gates),
    Requirement(("objective",), DRAWN, lambda it: it.samples_alignments),
    Requirement(
        ("objective_draws",),
        "--alignments, with --objective iwae or rws",
        lambda it: it.samples_alignments and it.options.objective in ("iwae", "rws"),
    ),
)
"""The needs of every option of training that has any."""


@dataclass(frozen=True)
class _InModel(Draws):
    """What is drawn in a model under a guide.

    Of a guide of the reader's own nothing is known: it may pay for a latent that the library does
    not know either.
    """

    options: Training
    model: HeadModel
    guide: ModelGuide

    @property
    def samples_heads(self) -> bool:
        """Whether heads are drawn, or what only a guide of the reader's own knows of."""
        return self.model.samples_heads or not type(self.guide).__module__.startswith(
            "latentheads."
        )

    @property
    def samples_selection(self) -> bool:
        """Whether some module draws which heads speak."""
        return any(not isinstance(m.selector, StaticSelector) for m in self.model.selecting_blocks)

    @property
    def samples_alignments(self) -> bool:
        """Whether alignments are drawn."""
        return self.model.has_latent_alignments

    @property
    def gates(self) -> bool:
        """Whether heads have gates."""
        return self.model.pressure is not None

    @property
    def is_tied(self) -> bool:
        """Whether the guide itself says so: a subclass may pay for something."""
        return bool(vars(type(self.guide)).get("is_tied"))


def check_idle(training: Training, model: HeadModel, guide: ModelGuide) -> None:
    """Refuses options of training that were changed and act on nothing in a model.

    Raises:
        ValueError: It names those of the first need that is not met.
    """
    plain = {each.name: each.default for each in fields(Training)}
    known = _InModel(training, model, guide)
    for need in OF_TRAINING:
        changed = [name for name in need.options if getattr(training, name) != plain[name]]
        if changed and not need.met(known):
            raise ValueError(need.refusal(changed, marked=False))
