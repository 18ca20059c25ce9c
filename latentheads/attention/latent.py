"""Attention whose logits are a sample site: scores, sampled logits, weighted sum, projection."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from latentheads.attention.block import HeadBlock
from latentheads.attention.cache import AttentionCache
from latentheads.attention.projections import MultiHeadAttention
from latentheads.distributions.heads import BlockStates, HeadContext
from latentheads.families.family import Family
from latentheads.families.location import Identity
from latentheads.families.normal import Point, make_posterior
from latentheads.latents.network import Choice
from latentheads.latents.selector import Selector
from latentheads.mask import PairMask
from latentheads.names import Block


class LatentAttention(HeadBlock):
    """A block: attention whose logits are sampled at the site ``<block>.logits``.

    Hooks are called with the logits, values and mask of every pass, and which heads are active.

    Args:
        block: The block's address.
        width: Model width.
        prior: The prior of its logits; None makes the block deterministic, without a site.
        dropout: Dropout of the attention weights.
        selector: Selects the candidates that fill its slots, at ``<block>.selection``; None: the
            block has no candidates beyond its heads.
    """

    latent = "logits"
    has_attention_weights = True

    def __init__(
        self,
        block: Block,
        width: int,
        prior: Family | None,
        dropout: float = 0.0,
        selector: Selector | None = None,
    ) -> None:
        super().__init__(block, selector)
        size = width // selector.heads if selector else None
        candidates = selector.num_candidates(block.attention_type) if selector else None
        self.attention = MultiHeadAttention(width, block.heads, dropout, size, candidates)
        self.prior = prior

    @property
    def projection(self) -> nn.Linear:
        return self.attention.out

    @property
    def size(self) -> int:
        return self.attention.size

    @property
    def active_heads(self) -> list[int]:
        """Indices of the heads that the output projection uses, among those with logits."""
        active = self.attention.active
        return list(range(self.attention.heads)) if active is None else active.tolist()

    def make_posterior(self) -> Family:
        return make_posterior(Identity(), self.prior, self.block.heads)

    @property
    def can_skip_inactive(self) -> bool:
        """Whether its logits are its scores, independent of the logits below."""
        point = isinstance(self.prior, Point) and isinstance(self.prior.location, Identity)
        return self.prior is None or point

    def forward(
        self,
        query: Float[Tensor, "*batch query dim"],
        memory: Float[Tensor, "*memory key dim"] | None,
        mask: PairMask,
        below: Float[Tensor, "*below head query key"] | None = None,
        cache: AttentionCache | None = None,
        choice: Choice | None = None,
        keeps_logits: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends, and also returns the logits for the block above.

        Args:
            query: The states at the queries.
            memory: The states at the keys; None for self-attention.
            mask: Validity of the pairs.
            below: The sampled logits of the block below, of the same attention type.
            cache: Keys and values of earlier positions; a memory is projected once.
            choice: The heads in its slots.
            keeps_logits: Whether a block samples logits or reads those below it; if none does,
                attention is fused, unless a hook asks for the heads.

        Returns:
            The projected outputs, and the logits; for a block without heads the bias and None, and
            None for the logits of fused attention.
        """
        attention = self.attention
        if not attention.heads:
            return attention.out.bias.expand(query.shape), None
        q, k, v = self._project_all(query, memory, cache, choice)
        is_read = keeps_logits or self.hooks or cache is not None
        if not is_read and attention.can_fuse(q, k, v):
            return attention.attend_fused(q, k, v, mask, choice), None
        keys = memory if memory is not None else query if cache is None else None
        states = BlockStates(query, keys)
        context = HeadContext(attention.scores(q, k), below, mask, self.block, None, states)
        logits = self._sample_heads(context)
        active_logits = attention.select_active(logits)
        if self.hooks:
            dense_logits, dense_mask = mask.to_dense(active_logits)
            all_heads = (attention.scatter_active(heads, choice) for heads in (dense_logits, v))
            self._call_hooks(*all_heads, dense_mask, self._get_active_heads(dense_logits, choice))
        return attention.attend(active_logits, v, mask, choice), logits

    def cache(self) -> AttentionCache:
        """Makes an empty cache for incremental decoding."""
        return AttentionCache()

    def _prune_weights(self, computed: Sequence[int], active: Sequence[int]) -> None:
        self.attention.prune(computed, active)

    def _project_all(
        self,
        query: Tensor,
        memory: Tensor | None,
        cache: AttentionCache | None,
        choice: Choice | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if cache is None:
            return self.attention.project(query, memory, choice)
        if memory is None:
            q, k, v = self.attention.project(query, None, choice)
            return q, *cache.extend(k, v)
        q = self.attention.project_query(query, choice)
        if cache.keys is None or cache.values is None:
            return q, *cache.set_memory(*self.attention.project_memory(memory, choice))
        return q, cache.keys, cache.values
