"""Results as data frames of pandas: each result with rows has a method ``to_frame``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd


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
    """A row for every head of every block; a block that a quantity lacks has NaN.

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
