"""Results as data frames of pandas, by their method ``to_frame``, and in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd


MAX_ITEMS = 4
"""Most items of a sequence that stand in a line."""


def in_one_line(result: Any) -> str:
    """A dataclass of arrays in one line, the ``repr`` of it: shapes in place of numbers."""
    values = ((field.name, getattr(result, field.name)) for field in fields(result))
    described = ", ".join(f"{name}={_describe(value)}" for name, value in values)
    return f"{type(result).__name__}({described})"


def _describe(value: Any) -> str:
    """The shape of an array, the number of items of a long sequence, else the value."""
    if isinstance(value, Tensor | np.ndarray):
        return str(list(value.shape))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_describe(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        few = len(value) <= MAX_ITEMS
        return f"[{', '.join(map(_describe, value))}]" if few else f"{len(value):,} items"
    return repr(value)


def make_frame(columns: Mapping[Any, Any], index: str | None = None) -> pd.DataFrame:
    """A data frame of columns, of which some are tensors.

    Args:
        columns: The values of every row, by the name of the column.
        index: What a row is.
    """
    import pandas as pd  # takes long to load

    arrays = {
        name: _to_numpy(values) if isinstance(values, Tensor) else values
        for name, values in columns.items()
    }
    return pd.DataFrame(arrays).rename_axis(index)


def _to_numpy(values: Tensor) -> Any:
    """A tensor as an array; numpy has no bfloat16, so floating-point numbers become float64."""
    values = values.detach().cpu()
    return (values.double() if values.is_floating_point() else values).numpy()


def make_head_frame(maps: Mapping[str, Mapping[str, Tensor]]) -> pd.DataFrame:
    """A row for every head of every block; NaN where a quantity has no values of a block.

    Args:
        maps: Values of the heads of each block, by the name of the quantity.
    """
    import pandas as pd

    frames = []
    for quantity, blocks in maps.items():
        heads = [(block, head) for block, values in blocks.items() for head in range(len(values))]
        index = pd.MultiIndex.from_tuples(heads, names=["block", "head"])
        values = [value for row in blocks.values() for value in row.tolist()]
        frames.append(pd.Series(values, index, dtype=float, name=quantity))
    return pd.concat(frames, axis=1).reset_index()
