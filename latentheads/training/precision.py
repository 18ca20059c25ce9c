"""Precisions, and which of them ``auto`` is: bfloat16 where the processor multiplies it itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Precision = Literal["fp32", "bf16", "fp16"]
PrecisionOption = Literal["auto", "fp32", "bf16", "fp16"]

BFLOAT16_UNITS = {
    "_is_avx512_bf16_supported": "AVX512-BF16",
    "_is_amx_tile_supported": "AMX",
}
"""What multiplies bfloat16 in a CPU, by the function of ``torch.cpu`` that detects it."""


class ChosenPrecision(NamedTuple):
    """A precision, and why it was chosen.

    Attributes:
        name: The precision.
        reason: Why; None: it is the option's value.
    """

    name: Precision
    reason: str | None = None


def choose_precision(
    precision: PrecisionOption, parameters: Iterable[Tensor], device: torch.device
) -> ChosenPrecision:
    """The option's value; for ``auto`` the precision that a network is trained fastest in.

    A network in float64 stays as it is: whoever chose it needs its digits.
    """
    if precision != "auto":
        return ChosenPrecision(precision)
    if any(parameter.dtype == torch.float64 for parameter in parameters):
        return ChosenPrecision("fp32", "the network is in float64, which stays")
    if device.type == "cuda":
        with torch.cuda.device(device):
            is_fast = torch.cuda.is_bf16_supported(including_emulation=False)
        unit = "this GPU multiplies" if is_fast else None
    else:
        # these functions are private: where a version of PyTorch has none, no unit is detected
        units = [
            unit
            for name, unit in BFLOAT16_UNITS.items()
            if getattr(torch.cpu, name, lambda: False)()
        ]
        unit = f"the {units[0]} of this CPU multiplies" if units else None
    if unit is None:
        return ChosenPrecision("fp32", "nothing here multiplies bfloat16 faster than float32")
    return ChosenPrecision("bf16", f"{unit} bfloat16")
