"""Neural n-grams: heads that are an MLP of a window of inputs; their outputs may be latent.

Loem, Takase, Kaneko and Okazaki 2022, https://arxiv.org/abs/2207.13354; with one head similar to
Sun and Iyyer 2021, https://arxiv.org/abs/2104.03474.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.attention.band import Band
from latentheads.attention.block import BlockCache, HeadBlock, gather_selected, keep_last
from latentheads.distributions.heads import BlockStates, HeadContext
from latentheads.families.family import Family
from latentheads.families.location import Affine
from latentheads.families.normal import make_posterior
from latentheads.latents.network import Choice
from latentheads.latents.selector import Selector
from latentheads.layers.numeric import dropout, full_precision
from latentheads.mask import AttentionMask
from latentheads.names import Block


@dataclass
class NGramCache(BlockCache):
    """The cache of an n-gram block in incremental decoding: its last n - 1 inputs.

    Attributes:
        max_length: n - 1.
        inputs: The inputs, ``sentence *hypothesis position dim``.
    """

    max_length: int
    inputs: Tensor | None = None

    def extend(self, x: Tensor) -> Tensor:
        """Appends new inputs and returns them with the cached ones."""
        if self.inputs is not None:
            x = torch.cat([self.inputs, x], -2)
        self.inputs = keep_last(x, self.max_length)
        return x


class NGram(HeadBlock):
    r"""The multi-head neural n-gram of Loem et al. 2022, eq. 3 and 4; its outputs may be latent.

    .. math:: m_{tk} = \mathrm{ReLU}([x_{t-n+1}; \dots; x_t] W_k + b_k), \quad
        h_{tk} \sim N(m_{tk}, s_k^2 I), \quad z_t = [h_{t1}; \dots; h_{tK}] W + b

    An encoder concatenates :math:`x_{t-n+1}, \dots, x_{t+n-1}` and, with a context, the maximum
    over the whole sentence. Positions past the ends, and padding, are zero. There are no logits:
    those of the block below are passed on to the block above. The latent variables, at
    ``<block>.outputs``, are the outputs of the heads; without a prior :math:`h_{tk} = m_{tk}`, as
    in the paper.

    As the equations stand, K heads of width w compute what one head of width K w does. They differ
    if the paper is understood to give head k only the k-th of K slices of each input (``slices``).
    The biases are ours.

    Hooks are called with the outputs of the heads, the queries at which they are latent, and which
    heads are active.

    Args:
        block: The block's address, and the number of heads K.
        width: Model width d.
        head_width: Width of a head; 0: so that there are about :math:`4 d^2` weights, as in
            attention.
        band: The window.
        slices: Whether a head takes its own slice of every input; candidate c takes slice c mod K.
        context: Whether the maximum over the sentence is concatenated.
        dropout: Dropout of the heads.
        prior: The prior of the outputs of its heads; None makes the block deterministic.
        selector: Selects the candidates that fill its slots, at ``<block>.selection``; None: the
            block has no candidates beyond its heads.
    """

    latent = "outputs"
    band: Band

    def __init__(
        self,
        block: Block,
        width: int,
        head_width: int,
        band: Band,
        slices: bool = False,
        context: bool = False,
        dropout: float = 0.0,
        prior: Family | None = None,
        selector: Selector | None = None,
    ) -> None:
        super().__init__(block, selector)
        heads = selector.heads if selector else block.heads
        candidates = selector.num_candidates(block.attention_type) if selector else heads
        inputs, input_width = band.width + context, width // heads if slices else width
        head_width = head_width or max(
            1, round(4 * width**2 / heads / (inputs * input_width + width))
        )
        self.band, self.dropout = band, dropout
        self.slices = heads if slices else 0
        self.slice_of_head = [candidate % heads for candidate in range(candidates)]
        self.weight = nn.Parameter(torch.empty(candidates, head_width, band.width * input_width))
        self.context = (
            nn.Parameter(torch.empty(candidates, head_width, input_width)) if context else None
        )
        self.bias = nn.Parameter(torch.zeros(candidates, head_width))
        self.out = nn.Linear(block.heads * head_width, width)
        self.prior = prior
        fan_sum = inputs * input_width + head_width * (1 if slices else heads)
        for weight in (self.weight, self.context):
            if weight is not None:
                nn.init.uniform_(weight, -math.sqrt(6 / fan_sum), math.sqrt(6 / fan_sum))
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def make_posterior(self) -> Family:
        """Makes a posterior with an affine map of every coordinate and a scale of every head."""
        return make_posterior(Affine(self.block.heads, self.size), self.prior, self.block.heads)

    @property
    def projection(self) -> nn.Linear:
        return self.out

    @property
    def size(self) -> int:
        return self.weight.shape[1]

    def forward(
        self,
        x: Float[Tensor, "*batch query dim"],
        attention_mask: AttentionMask,
        cache: NGramCache | None = None,
        choice: Choice | None = None,
    ) -> Float[Tensor, "*out query dim"]:
        """Computes the heads from the window at every position; without heads, returns the bias."""
        if not self.block.heads:
            return self.out.bias.expand(x.shape)
        heads = gather_selected(self._compute_heads(x, attention_mask, cache, choice), choice)
        if self.prior is not None:
            states = BlockStates(x, x if cache is None else None)
            scores, mask = full_precision(heads), attention_mask.outputs(self.size)
            context = HeadContext(scores, None, mask, self.block, None, states)
            heads = self._sample_heads(context).to(heads.dtype)
        if self.hooks:
            self._call_hooks(
                heads, attention_mask.latent_queries, self._get_active_heads(heads, choice)
            )
        if choice is not None:
            heads = heads * choice.weight[..., None, None].to(heads.dtype)
        joined = heads.transpose(-2, -3).flatten(-2)
        return self.out(dropout(joined, self.dropout, self.training))

    def _compute_heads(
        self,
        x: Tensor,
        attention_mask: AttentionMask,
        cache: NGramCache | None,
        choice: Choice | None,
    ) -> Float[Tensor, "*batch head query hidden"]:
        """Computes the deterministic outputs, of all candidates or of the selected heads."""
        shared = choice is not None and choice.common
        index = choice.index if shared and choice is not None else None
        if attention_mask.valid is not None:
            x = x.masked_fill(~attention_mask.valid.unsqueeze(-1), 0.0)
        inputs = x if cache is None else cache.extend(x)
        windows = self.band.windows(inputs, x.shape[-2])
        hidden = self._project_windows(windows, index, self.weight, self.bias)
        if self.context is not None:
            hidden = hidden + self._project_windows(
                self._max_pool_sentence(x, attention_mask), index, self.context
            )
        return F.relu(hidden)

    def _project_windows(
        self,
        x: Float[Tensor, "*batch query offset dim"],
        index: Int[Tensor, " slot"] | None,
        weight: Float[Tensor, "candidate hidden input"],
        bias: Float[Tensor, "candidate hidden"] | None = None,
    ) -> Float[Tensor, "*batch head query hidden"]:
        """One product for all heads and all positions of the window."""
        if index is not None:
            weight = weight.index_select(0, index)
            bias = None if bias is None else bias.index_select(0, index)
        if not self.slices:
            joint_bias = None if bias is None else bias.flatten()
            hidden = F.linear(x.flatten(-2), weight.flatten(0, 1), joint_bias)
            return hidden.unflatten(-1, (len(weight), -1)).transpose(-2, -3)
        hidden = torch.matmul(self._select_slices(x, index), weight.mT)
        return hidden if bias is None else hidden + bias.unsqueeze(-2)

    def _select_slices(
        self, x: Float[Tensor, "*batch query offset dim"], index: Int[Tensor, " slot"] | None
    ) -> Float[Tensor, "*batch head query input"]:
        """The slice of the window that enters each head."""
        slices = x.unflatten(-1, (self.slices, -1)).movedim(-2, -4).flatten(-2)
        if index is None and self.slice_of_head == list(range(self.slices)):
            return slices
        of_heads = torch.stack([slices.select(-3, number) for number in self.slice_of_head], -3)
        return of_heads if index is None else of_heads.index_select(-3, index)

    def _max_pool_sentence(
        self, x: Tensor, attention_mask: AttentionMask
    ) -> Float[Tensor, "*batch 1 1 dim"]:
        """Computes the maximum over all positions that are not padding."""
        if (valid := attention_mask.valid) is not None:
            padding = ~valid & valid.any(-1, keepdim=True)  # a row of padding keeps its zeros
            x = x.masked_fill(padding.unsqueeze(-1), -torch.inf)
        return x.amax(-2, keepdim=True).unsqueeze(-2)

    def mix(
        self,
        x: Float[Tensor, "*batch query dim"],
        attention_mask: AttentionMask,
        below: Tensor | None,
        cache: NGramCache | None = None,
        choice: Choice | None = None,
        keeps_logits: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes the heads; passes the logits below on to the next attention block."""
        return self(x, attention_mask, cache, choice), below

    def cache(self) -> NGramCache:
        """Makes an empty cache of the last n - 1 inputs."""
        return NGramCache(self.band.before)

    def check_removal(self, computed: Sequence[int], active: Sequence[int]) -> None:
        """Raises an error if a remaining head depends on a removed one."""
        if len(computed) > len(active):
            raise ValueError(
                f"block {self.block.name!r}: in the prior or guide a head depends on others, and "
                "an n-gram computes no head that its output projection does not use"
            )

    @torch.no_grad()
    def _prune_weights(self, computed: Sequence[int], active: Sequence[int]) -> None:
        """Removes the weights of all other heads: here active heads are those that are computed."""
        kept = list(active)
        columns = self.out.weight.unflatten(-1, (self.block.heads, self.size))[:, kept]
        self.out.weight = nn.Parameter(columns.flatten(-2))
        self.out.in_features = len(kept) * self.size
        self.weight = nn.Parameter(self.weight[kept])
        self.bias = nn.Parameter(self.bias[kept])
        if self.context is not None:
            self.context = nn.Parameter(self.context[kept])
        self.slice_of_head = [self.slice_of_head[head] for head in kept]
