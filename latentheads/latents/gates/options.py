"""Options of Hard Concrete gates, which prune heads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, cast

import torch
from annotated_types import Gt, Lt
from pydantic import NonNegativeFloat, PositiveFloat

from latentheads.latents.gates.hard_gates import LARGEST_FLOAT, GateController, Gating
from latentheads.latents.latent import HasPosteriors, Latent
from latentheads.latents.options import LatentOptions, ModelShape
from latentheads.latents.selector import SelectionFamily
from latentheads.metrics.scores import format_value
from latentheads.model import HeadModel
from latentheads.names import ATTENTION_TYPES, AttentionTypes, parse_attention_types
from latentheads.options import Coerced, Count, Probability, options_class


@options_class()
class TargetHeads:
    """A target number of open gates.

    Attributes:
        number: How many are to stay open.
        rate: The change of lambda per step for one head too many.
    """

    number: Count
    rate: PositiveFloat = 1e-4


@options_class()
class GateOptions(LatentOptions):
    """Gates that close heads while training, for prune.py to remove.

    Attributes:
        blocks: Attention types all of whose heads have a Hard Concrete gate, one for all sentences:
            all, or some of encoder-self, decoder-self and decoder-cross, comma between.
        open: Prior probability that a gate is open; the KL is computed from it.
        start: log alpha of every gate at the start; at test time a gate is wholly open from 2.4
            on, and closed below -2.4.
        temperature: beta of the gates' distribution.
        penalty: L0 penalty while training: lambda, in nats per target token and open head; with a
            target number of heads, where it starts.
        heads: Target number of open gates, reached by a Lagrangian that adapts lambda; none: lambda
            is constant.
    """

    blocks: AttentionTypes = "all"
    open: Probability = 0.5
    start: Annotated[float, Gt(-LARGEST_FLOAT), Lt(LARGEST_FLOAT)] = 3.0
    temperature: Annotated[float, Gt(0), Lt(LARGEST_FLOAT)] = 0.33
    penalty: NonNegativeFloat = 0.0
    heads: Coerced[TargetHeads | None, int | Mapping[str, Any]] = cast(Any, None)

    kind: ClassVar[type[Latent]] = Gating
    is_foldable: ClassVar[bool] = True
    needs_closed_form: ClassVar[bool] = True
    plug_in: ClassVar[str] = "each gate has its value at test time under the guide"
    fixed_options: ClassVar[tuple[str, ...]] = ("blocks",)
    has_shared_kl = True

    def make(self, shape: ModelShape) -> Gating | None:
        return self.gating(shape.heads, shape.attention_types)

    @property
    def named_types(self) -> Collection[str]:
        return parse_attention_types(self.blocks) or ()

    @classmethod
    def rows(cls, facts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
        """How many gates are open, the target number, and the L0 penalty of an open one."""
        rows = [
            (f"gates open at test time, of {facts['gated']}", "", str(facts["open"])),
            ("  open on average, under the gates' noise", "", f"{facts['expected']:.1f}"),
            ("  lambda, nats per token for an open gate", "", format_value(facts["lambda"])),
        ]
        if facts["wanted"] is not None:
            missed = abs(facts["open"] - facts["wanted"])
            label = f"  wanted by --gates.heads{f', missed by {missed}' if missed else ''}"
            rows.append((label, "", str(facts["wanted"])))
        return rows

    def gating(
        self, heads: int, attention_types: Collection[str] = ATTENTION_TYPES
    ) -> Gating | None:
        """Makes the gates of a model; None if no attention type has gates."""
        chosen = parse_attention_types(self.blocks)
        gated_types = tuple(
            attention_type
            for attention_type in attention_types
            if chosen is None or attention_type in chosen
        )
        if not gated_types:
            return None
        return Gating(heads, gated_types, self.open, self.start, self.temperature)

    def make_callback(
        self, model: HeadModel, guide: HasPosteriors, steps: int, tokens: int
    ) -> GateController | None:
        """Sets the L0 penalty of a new model, and makes its controller if it is adapted."""
        if model.l0_penalty is None:
            return None
        model.l0_penalty.value.fill_(self.penalty * tokens)
        if self.heads is None:
            return None
        number, rate = self.heads.number, self.heads.rate
        try:
            return GateController(model, guide, number, steps, rate, tokens)
        except ValueError as reason:
            raise ValueError(str(reason).replace("gate_heads", "gates.heads")) from reason

    @torch.no_grad()
    def facts(self, model: HeadModel, guide: HasPosteriors, tokens: int) -> dict[str, Any] | None:
        """The numbers of gates of a trained model; None without gates."""
        if model.l0_penalty is None:
            return None
        gates = [family() for family in guide.find_posteriors(SelectionFamily).values()]
        return {
            "gated": sum(gate.mode.numel() for gate in gates),
            "open": sum(int((gate.mode > 0).sum()) for gate in gates),
            "expected": sum(float(gate.open.sum()) for gate in gates),
            "wanted": None if self.heads is None else self.heads.number,
            "lambda": float(model.l0_penalty.value) / tokens,
        }
