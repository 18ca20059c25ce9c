"""Packs attention maps as text: quantised to bytes, deflated, in base64."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

MAX_CELLS, MAX_SIDE = 256 * 64, 256
"""Maximum number of cells of a map, and of cells along one side."""

Bytes = NDArray[np.uint8]


def pooling_stride(queries: int, keys: int) -> tuple[int, int]:
    """The number of queries and of keys that share a cell, so that a map is not too large."""
    stride = [max(1, math.ceil(queries / MAX_SIDE)), max(1, math.ceil(keys / MAX_SIDE))]
    while math.ceil(queries / stride[0]) * math.ceil(keys / stride[1]) > MAX_CELLS:
        longer = queries / stride[0] < keys / stride[1]
        stride[longer] += 1
    return stride[0], stride[1]


def pool_weights(
    weights: Float[Tensor, "*batch query key"], stride: tuple[int, int]
) -> Float[Tensor, "*batch row column"]:
    """Averages over neighbouring queries and sums over neighbouring keys; rows still sum to 1."""
    queries, keys = stride
    if queries > 1:
        weights = torch.stack([part.mean(-2) for part in weights.split(queries, -2)], -2)
    if keys > 1:
        weights = torch.stack([part.sum(-1) for part in weights.split(keys, -1)], -1)
    return weights


def quantise_weights(weights: Tensor) -> Bytes:
    """Quantises numbers in [0, 1] to bytes: 255 times the square root, finer for small numbers.

    NaN, as of an inactive head, becomes 0.
    """
    values = weights.double().nan_to_num().clamp(0, 1).sqrt() * 255
    return np.asarray(values.round().to(torch.uint8).cpu().numpy())


def pack_maps(maps: Iterable[Bytes]) -> str:
    """Concatenates maps, deflates them, and encodes them in base64."""
    raw = b"".join(values.tobytes() for values in maps)
    return base64.b64encode(zlib.compress(raw, 9)).decode("ascii")
