"""The arguments that ``transformers`` calls its decoders and attention modules with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor


def device_of_inputs(network: Any) -> torch.device:
    """The device where a network computes; accelerate may keep its weights elsewhere."""
    if network.device.type != "meta":
        return torch.device(network.device)
    hooks = (getattr(module, "_hf_hook", None) for module in network.modules())
    devices = (getattr(hook, "execution_device", None) for hook in hooks)
    return torch.device(next((device for device in devices if device is not None), "cpu"))


def get_cache(arguments: Mapping[str, Any]) -> Any:
    """The cache of keys and values that a module is called with; None: there is none.

    It is ``past_key_values`` in versions of ``transformers`` before 5.24, and ``cache`` since;
    attention modules of GPT-NeoX and GPT-BigCode call it ``layer_past``.
    """
    caches = map(arguments.get, ("cache", "past_key_values", "layer_past"))
    return next((cache for cache in caches if cache is not None), None)


def mask_name(arguments: Mapping[str, Any]) -> str:
    """The name of the mask of an attention module; T5 has another one."""
    return "mask" if "mask" in arguments else "attention_mask"


def is_readable(mask: Tensor) -> Bool[Tensor, "*pairs"]:
    """True at unmasked keys, of a boolean mask or of one that is added to the scores."""
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
