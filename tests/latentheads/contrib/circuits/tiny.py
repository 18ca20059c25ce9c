"""Tiny networks and prompts for circuits."""

from __future__ import annotations

from typing import Any

import torch

from latentheads.contrib.circuits import Prompts
from tests.latentheads.contrib.hf.networks import gpt2, grouped
from tests.tiny import jiggle

TOKENS = [[3, 4, 5, 6, 7], [8, 9, 2], [10, 11, 3, 4]]
PROMPTS = Prompts.of(TOKENS, right=[[1], [2, 3], [4]], wrong=[[2, 5], [1], [6]])


def network(name: str = "gpt2") -> Any:
    torch.manual_seed(0)
    return jiggle({"gpt2": gpt2, "grouped": grouped}[name](), 0.5).double().eval()
