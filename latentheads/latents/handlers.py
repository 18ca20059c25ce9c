"""Effect handlers for a selection of heads: the posterior's instead of the prior's."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

from latentheads.guide import ModelGuide
from latentheads.latents.active_heads import Selection
from latentheads.latents.selector import SelectionFamily
from latentheads.passes import one_at_a_time


class WithSelection(Messenger):
    """Set selections of heads, and gates, to the mode of their posterior: the same at every step.

    Only one thread enters at a time: Pyro has one stack of handlers.

    Args:
        guide: The guide; one without a selection changes nothing.
        num_samples: Number of selections to sample from the posterior instead, each for one copy of
            the sentences in a batch of as many copies; 0: use the mode.
    """

    def __init__(self, guide: ModelGuide | None, num_samples: int = 0) -> None:
        super().__init__()
        self.families = {} if guide is None else guide.find_posteriors(SelectionFamily)
        self.num_samples = num_samples

    def __enter__(self) -> WithSelection:
        with ExitStack() as contexts:
            contexts.enter_context(one_at_a_time())
            super().__enter__()
            self._contexts = contexts.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        with self._contexts:
            super().__exit__(*exception)

    def _pyro_sample(self, msg: Any) -> None:
        family = self.families.get(msg["name"])
        if family is not None and not msg["is_observed"]:
            msg["value"] = self._value_of(family(), msg["fn"].shape())
            msg["infer"].pop("unselected", None)

    def _value_of(self, distribution: Selection, shape: torch.Size) -> Tensor:
        if not self.num_samples:
            return distribution.mode.expand(shape)
        return distribution.expand(shape[:-1]).sample(torch.Size([self.num_samples])).flatten(0, -2)
