r"""Disagreement regularisation: rewards heads of a block for differing (Li et al. 2018).

https://arxiv.org/abs/1810.10183

For the vectors :math:`x_t^i` of heads :math:`i = 1 \dots H` at a token t, the agreement is

.. math:: \frac1{H^2} \sum_{i,j} x_t^i \cdot x_t^j = \Bigl\| \frac1H \sum_i x_t^i \Bigr\|^2

with x the normalised values of the head (``subspace``), its normalised output (``output``), or its
attention weights (``position``); n-gram heads have only outputs. The sum is over the heads that are
active in a sentence: selected, and with an open gate. A block has the mean over tokens; the paper
sums ``position`` over them, and does not say whether a cosine is of a token or of all.

The model is multiplied by :math:`\exp(-\lambda \cdot \text{agreement})` for each target token and
block. The factor is absent in evaluation, so that every reported bound is one on the tokens alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.attention.block import HeadBlock, Hook
from latentheads.checks import check_choice, check_least, check_not_empty
from latentheads.layers.numeric import full_precision, softmax
from latentheads.mask import PairMask
from latentheads.names import ATTENTION_TYPES

KINDS = ("subspace", "position", "output")
"""The vectors by which heads can be compared."""


def agreement(
    x: Float[Tensor, "*batch head token dim"],
    diagonal: bool = True,
    active: Bool[Tensor, "*batch head"] | None = None,
) -> Float[Tensor, "*batch token"]:
    """The mean inner product of the heads' vectors at every token; 0 where no head is active.

    Args:
        x: A vector for each head and token.
        diagonal: Whether a head is compared with itself too, as in the paper. For unit vectors this
            adds a constant; for attention weights it penalises peaked heads.
        active: The heads that are compared; None: all.
    """
    if active is None:
        active = x.new_ones(x.shape[-3], dtype=torch.bool)
    x = x * active[..., None, None]
    heads = active.sum(-1, keepdim=True)
    products = x.sum(-3).square().sum(-1)
    if diagonal:
        return products / heads.square().clamp_min(1)
    self_products = x.square().sum(-1).sum(-2)
    return (products - self_products) / (heads * (heads - 1)).clamp_min(1)


@dataclass(frozen=True)
class Disagreement:
    """The disagreement term of a model.

    Attributes:
        kinds: The vectors that are compared; the agreements of several kinds are added.
        weight: lambda, at least 0, in nats per target token and block.
        attention_types: The attention types whose blocks are included; None: all.
        diagonal: As in :func:`agreement`.
    """

    kinds: tuple[str, ...]
    weight: float = 0.01
    attention_types: tuple[str, ...] | None = None
    diagonal: bool = True

    def __post_init__(self) -> None:
        for kind in self.kinds:
            check_choice("kinds", kind, KINDS)
        for name in self.attention_types or ():
            check_choice("attention_types", name, ATTENTION_TYPES)
        check_not_empty("kinds", self.kinds)
        check_least({"weight": self.weight}, weight=0.0)

    def agreement_of_block(
        self,
        logits: Float[Tensor, "*batch head query key"],
        values: Tensor,
        mask: PairMask,
        active: Bool[Tensor, "*batch head"] | None = None,
    ) -> Float[Tensor, "*batch"]:
        """The agreement of a block's heads, averaged over tokens and summed over kinds.

        Padding, rows with a single readable key, and inactive heads do not count.
        """
        weights = softmax(logits + mask.bias)
        queries, keys = mask.latent.amax(-1), mask.latent.amax(-2)
        total = logits.new_zeros(())
        for kind in self.kinds:
            if kind == "subspace":
                total = total + _masked_mean(self._unit_agreement(values, active), keys)
            elif kind == "output":
                heads = torch.matmul(weights.to(values.dtype), values)
                total = total + _masked_mean(self._unit_agreement(heads, active), queries)
            else:
                total = total + _masked_mean(agreement(weights, self.diagonal, active), queries)
        return total

    def agreement_of_outputs(
        self,
        heads: Float[Tensor, "*batch head query dim"],
        queries: Bool[Tensor, "*mask query"],
        active: Bool[Tensor, "*batch head"] | None = None,
    ) -> Float[Tensor, "*batch"]:
        """The agreement of the outputs of an n-gram block, averaged over queries."""
        return _masked_mean(self._unit_agreement(heads, active), queries.to(heads.dtype))

    def _unit_agreement(
        self,
        x: Float[Tensor, "*batch head token dim"],
        active: Bool[Tensor, "*batch head"] | None,
    ) -> Float[Tensor, "*batch token"]:
        return agreement(F.normalize(full_precision(x), dim=-1), self.diagonal, active)

    @contextmanager
    def record_agreement(self, model: nn.Module) -> Iterator[dict[str, Tensor]]:
        """Records the agreement of every block that runs inside the context, by block name."""
        agreements: dict[str, Tensor] = {}
        block_hooks = [(block, self._make_hook(block, agreements)) for block in self.blocks(model)]
        for block, hook in block_hooks:
            block.hooks.append(hook)
        try:
            yield agreements
        finally:
            for block, hook in block_hooks:
                block.hooks.remove(hook)

    def _make_hook(self, block: HeadBlock, agreements: dict[str, Tensor]) -> Hook:
        """Makes the hook that records the agreement of a block."""
        compute_agreement = (
            self.agreement_of_block if block.has_attention_weights else self.agreement_of_outputs
        )

        def hook(*heads: Any) -> None:
            agreements[block.block.name] = compute_agreement(*heads)

        return hook

    def blocks(self, model: nn.Module) -> list[HeadBlock]:
        """The blocks whose heads are compared: two heads or more, and the vectors to compare."""
        return [
            module
            for module in model.modules()
            if isinstance(module, HeadBlock)
            and module.num_active_heads > 1
            and (
                self.attention_types is None or module.block.attention_type in self.attention_types
            )
            and (module.has_attention_weights or "output" in self.kinds)
        ]


def _masked_mean(
    values: Float[Tensor, "*batch token"], mask: Float[Tensor, "*mask token"]
) -> Float[Tensor, "*batch"]:
    """The mean over unmasked tokens, 0 where there are none."""
    return (values * mask).sum(-1) / mask.sum(-1).clamp_min(1)
