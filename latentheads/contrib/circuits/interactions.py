r"""Interactions of heads, exactly, from the value of every subset.

The interaction of a set S of heads in a context of other heads is the discrete derivative

.. math:: \Delta_S v(b) = \sum_{T \subseteq S} (-1)^{|S| - |T|} v(b_{\setminus S} \cup T)

For one head it is what the head brings. For two it is negative where they can stand in for each
other, and positive where each needs the other. It is taken with all other heads kept, as ablations
do, or averaged over all contexts (the Banzhaf interaction index).
"""

from __future__ import annotations

from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.checks import check_choice
from latentheads.latents.bernoulli_heads.subsets import all_subsets

CONTEXTS = ("whole", "average")


def interactions(
    values: Float[Tensor, "*row subset"], order: int, context: str = "whole"
) -> tuple[list[tuple[int, ...]], Float[Tensor, "*row interaction"]]:
    """The interactions of all sets of ``order`` heads.

    Args:
        values: The value of every subset, such as a logit difference, as :func:`.all_subsets`
            orders them.
        order: Number of heads of a set.
        context: whole: all other heads are kept; average: the mean over all subsets of them.

    Returns:
        The sets, and the interaction of each.

    Example:
        >>> values = torch.tensor([0.0, 1.0, 1.0, 1.0])  # either of two heads is enough
        >>> lh.contrib.circuits.interactions(values, 2)
        ([(0, 1)], tensor([-1.]))
    """
    check_choice("context", context, CONTEXTS)
    heads = values.shape[-1].bit_length() - 1
    if 2**heads != values.shape[-1] or not 1 <= order <= heads:
        raise ValueError(
            f"values of all subsets of {order} or more heads are needed, got {values.shape[-1]}"
        )
    subsets = all_subsets(heads, values)
    signs = 2 * subsets - 1
    sets = list(combinations(range(heads), order))
    rows = []
    for chosen in sets:
        row = signs[:, list(chosen)].prod(-1)
        if context == "whole":
            others = [head for head in range(heads) if head not in chosen]
            row = row * subsets[:, others].prod(-1)
        else:
            row = row / 2 ** (heads - order)
        rows.append(row)
    return sets, values @ torch.stack(rows, -1)
