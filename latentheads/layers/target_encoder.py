"""The encoder of the target, for posteriors that condition on it."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from latentheads.layers.position import sinusoidal_positions


class TargetEncoder(nn.Module):
    """A bidirectional Transformer encoder of the target, of two layers."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.words = nn.Linear(width, size)
        layer = nn.TransformerEncoderLayer(
            size, 2, 2 * size, 0.0, batch_first=True, norm_first=True
        )
        self.stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(
        self, words: Float[Tensor, "sentence target dim"], valid: Bool[Tensor, "sentence target"]
    ) -> Float[Tensor, "sentence target size"]:
        """Encodes each token in the context of the whole target."""
        x = self.words(words)
        position = (valid.cumsum(-1) - 1).clamp_min(0)  # left padding shifts no token
        x = x + sinusoidal_positions(x.shape[1], x.shape[2], x.device, x.dtype)[position]
        attended = valid | ~valid.any(-1, keepdim=True)  # an empty text attends to its padding
        # a CPU's fused kernel takes several times as long for its gradient in half precision
        is_half = x.dtype.itemsize < 4 or torch.is_autocast_enabled(x.device.type)
        is_slow = x.device.type == "cpu" and is_half
        kernels = sdpa_kernel(SDPBackend.MATH) if is_slow else nullcontext()
        with kernels:
            states: Tensor = self.stack(x, src_key_padding_mask=~attended)
        return states
