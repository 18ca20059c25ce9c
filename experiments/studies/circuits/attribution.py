"""Scores of single heads that a posterior over subsets is compared with, of each prompt alone.

attribution: (paired output - own output) times the gradient of the logit difference, as in
attribution patching of nodes (Syed et al. 2023, https://arxiv.org/abs/2310.10348). integrated: the
gradient averaged over inputs between the paired and the own one (EAP-IG, Hanna et al. 2024,
https://arxiv.org/abs/2403.17806). gradient: own output times gradient (Michel et al. 2019). All are
sums over positions.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.contrib.circuits import Prompts, logit_difference, only_at
from latentheads.contrib.hf.addresses import find_heads

STEPS = 5
"""Steps of integrated gradients, as MIB's."""

Outputs = dict[str, Float[Tensor, "prompt position head w"]]


def head_attributions(
    network: Any, prompts: Prompts, paired: Prompts, steps: int = STEPS
) -> dict[str, Float[Tensor, "prompt block head"]]:
    """The scores of all heads, by method.

    Args:
        network: The network.
        prompts: The prompts.
        paired: Their pairs.
        steps: Steps of integrated gradients.
    """
    table = network.get_input_embeddings()
    own, other = (table(p.inputs["input_ids"]).detach() for p in (prompts, paired))
    outputs, gradients = _gradients(network, prompts, own)
    other_outputs, _ = _gradients(network, prompts, other)
    integrated = [
        _gradients(network, prompts, other + (own - other) * step / steps)[1]
        for step in range(1, steps + 1)
    ]
    change = {name: other_outputs[name] - outputs[name] for name in outputs}
    mean = {name: torch.stack([g[name] for g in integrated]).mean(0) for name in outputs}
    return {
        "attribution": _stack({name: change[name] * gradients[name] for name in outputs}),
        "integrated": _stack({name: change[name] * mean[name] for name in outputs}),
        "gradient": _stack({name: outputs[name] * gradients[name] for name in outputs}),
    }


def _gradients(network: Any, prompts: Prompts, embedded: Tensor) -> tuple[Outputs, Outputs]:
    """The outputs of all heads, and the gradient of the logit difference with respect to them."""
    joined: dict[str, tuple[Tensor, int]] = {}
    with ExitStack() as hooks:
        for address in find_heads(network):

            def keep(_: Any, args: Any, block: Any = address.block) -> Any:
                leaf = args[0].detach().requires_grad_() if not joined else args[0]
                leaf.retain_grad()
                joined[block.name] = leaf, block.heads
                return (leaf,)

            hooks.callback(address.joined.register_forward_pre_hook(keep).remove)
        hooks.enter_context(only_at(network, prompts.scored))
        hooks.enter_context(torch.enable_grad())
        mask = prompts.inputs["attention_mask"]
        logits = network(inputs_embeds=embedded, attention_mask=mask, use_cache=False).logits
        logit_difference(logits, prompts).sum().backward()
    outputs = {name: x.detach().unflatten(-1, (heads, -1)) for name, (x, heads) in joined.items()}
    gradients: Outputs = {}
    for name, (x, heads) in joined.items():
        assert x.grad is not None
        gradients[name] = x.grad.unflatten(-1, (heads, -1))
    network.zero_grad(set_to_none=True)
    return outputs, gradients


def _stack(products: Outputs) -> Float[Tensor, "prompt block head"]:
    """The sum over positions and width."""
    return torch.stack([x.sum((1, 3)) for x in products.values()], 1)
