r"""Real removal of heads: the same network with smaller matrices.

Michel, Levy and Neubig 2019, https://arxiv.org/abs/1905.10650; behind gates, Voita et al. 2019,
https://arxiv.org/abs/1905.09418.

To remove a head is to set what it says to zero. Its value and output weights go in any case. Its
logits may go too where nothing else depends on them, as the
:class:`~latentheads.families.Dependence` of prior and posterior tells:

* neither mixes heads nor reads what lies below: in each block the heads that speak are drawn;
* they read the logits of the same head below, as RealFormer does: the logits of a head are drawn in
  all blocks of its chain, up to the last that speaks, if it speaks in one of them;
* they mix heads within a block: all of them are drawn where one speaks;
* they mix heads below, as a cascade does: all are drawn, up to the last block that speaks.

N-gram heads have no logits: each goes whole, with the noise around what it says. Where that is
mixed, the heads of a block stay or go together.

So the network is equal in every case, under noise too, and always smaller. What is no longer drawn
has no KL either: the bound is that of the smaller model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.attention.block import HeadBlock
from latentheads.checks import check_number
from latentheads.families import Dependence
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel
from latentheads.names import ATTENTION_TYPES, attention_type_of, check_attention_types
from latentheads.selection.hard_concrete import HardConcrete
from latentheads.selection.hard_gates import Gating
from latentheads.values import shown

__all__ = ["every_head", "fold_gates", "most_important", "rank_by_chance", "remove_heads"]

ALONE = Dependence(across_heads=False, on_lower_logits=False)


def every_head(model: nn.Module) -> dict[str, list[int]]:
    """The heads that speak in every block, by their places 0, 1, ..."""
    return {m.block.name: list(range(m.num_active_heads)) for m in _blocks_of(model)}


def most_important(
    importance: Mapping[str, Float[Tensor, " head"]],
    number: int,
    chains: Collection[str] = ATTENTION_TYPES,
) -> dict[str, list[int]]:
    """The heads that stay when the least important ones go, as Michel et al. (2019) remove them.

    Args:
        importance: Of the heads of every block by name, comparable between blocks; NaN, as of a
            head that never speaks, is less than anything.
        number: Heads that stay in the whole model. Among equals the later ones go.
        chains: Those whose heads may go; the heads of all others stay.

    Raises:
        ValueError: There are fewer heads, or more in the chains that keep all of theirs.
    """
    check_attention_types("chains", chains)
    check_number("number", number, whole=True)
    importance = {name: torch.as_tensor(values) for name, values in importance.items()}
    free = {
        name: values for name, values in importance.items() if attention_type_of(name) in chains
    }
    total = sum(map(len, importance.values()))
    fixed = total - sum(map(len, free.values()))
    if not fixed <= number <= total:
        raise ValueError(f"heads must lie between {fixed} and {total}, got {number}")
    heads = [(name, place) for name, values in free.items() for place in range(len(values))]
    values = torch.cat([torch.zeros(0), *(each.double().cpu() for each in free.values())])
    values = values.nan_to_num(nan=-torch.inf, posinf=torch.inf)
    best = values.argsort(descending=True, stable=True)[: number - fixed].tolist()
    kept: dict[str, list[int]] = {
        name: [] if name in free else list(range(len(each))) for name, each in importance.items()
    }
    for name, place in sorted(heads[rank] for rank in best):
        kept[name].append(place)
    return kept


def rank_by_chance(like: Mapping[str, Sized], seed: int = 0) -> dict[str, Float[Tensor, " head"]]:
    """A number of chance for every head: what any ranking has to beat.

    Args:
        like: What is known of the heads of every block by name, one entry each.
        seed: Of chance.
    """
    chance = torch.Generator().manual_seed(seed)
    return {name: torch.rand(len(each), generator=chance) for name, each in like.items()}


def remove_heads(
    model: nn.Module, kept: Mapping[str, Sequence[int]], guide: ModelGuide | None = None
) -> None:
    """Removes heads from a model, and from its guide, for good.

    Args:
        model: The model; changed in place.
        kept: For blocks by name, the places of the heads that stay among those that speak now. A
            block that is not named stays whole; one with no place keeps its output bias alone.
        guide: A guide of this model; changed in place.

    Raises:
        ValueError: There is no such block or head, the block selects its heads, or it cannot lose
            them. Nothing is changed.
    """
    blocks = _blocks_of(model)
    active = _find_active(blocks, kept)
    chains: dict[tuple[str, str], list[HeadBlock]] = defaultdict(list)
    for module in blocks:
        chains[module.block.chain, module.latent].append(module)
    left = [
        (module, drawn)
        for chain in chains.values()
        for module, drawn in zip(chain, _find_drawn(chain, active, guide), strict=True)
    ]
    for module, drawn in left:
        module.check_removal(drawn, active[module.block.name])
    for module, drawn in left:
        block = module.block
        if guide is not None and module.prior is not None and len(drawn) < block.heads:
            guide.prune(block, drawn)
        module.prune(drawn, active[block.name])


@torch.no_grad()
def fold_gates(model: HeadModel, guide: ModelGuide) -> dict[str, HardConcrete]:
    """Replaces every gate by its value at test time, for good: the outputs are the same.

    Args:
        model: The model; changed in place. One without gates is left as it is.
        guide: Its guide, which knows the gates; changed in place.

    Returns:
        The law that the gates of every block had.
    """
    found: dict[str, HardConcrete] = {}
    for module in _blocks_of(model):
        if not isinstance(module.selector, Gating):
            continue
        law = guide.selections[module.block.key]()
        module.output_weight.mul_(law.mode[0].repeat_interleave(module.size))
        found[module.block.name] = law
        guide.settle(module.block)
        module.selector = None
    if found:
        model.selector = model.pressure = None
    return found


def _blocks_of(model: nn.Module) -> list[HeadBlock]:
    return [module for module in model.modules() if isinstance(module, HeadBlock)]


def _find_active(
    blocks: Sequence[HeadBlock], kept: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """The heads that are to speak in every block, by their places among those that are drawn."""
    there = {module.block.name: module.active_heads for module in blocks}
    for name, places in kept.items():
        if name not in there:
            raise ValueError(f"unknown block {name!r}: this model has {', '.join(there)}")
        if isinstance(places, str) or not isinstance(places, Iterable):
            raise ValueError(f"block {name!r} must have a list of heads, got {shown(places)}")
        for place in places:  # a mask of true and false would name the heads 1 and 0
            check_number(f"a head of block {name!r}", place, whole=True)
        wrong = [place for place in places if not 0 <= place < len(there[name])]
        if wrong:
            raise ValueError(f"block {name!r} has {len(there[name])} heads, got head {wrong[0]}")
    for module in blocks:
        if module.selector is not None:
            raise ValueError(
                f"block {module.block.name!r} selects its heads for every task: "
                "none of its candidates can be removed"
            )
    return {
        name: [now[place] for place in sorted(set(kept.get(name, range(len(now)))))]
        for name, now in there.items()
    }


def _find_drawn(
    chain: Sequence[HeadBlock], active: Mapping[str, Sequence[int]], guide: ModelGuide | None
) -> list[list[int]]:
    """The heads of every block of a chain whose logits are still read, and so drawn."""
    dependence = [_dependence_of(module, guide) for module in chain]
    across_heads, on_lower_logits = (
        any(r.across_heads for r in dependence),
        any(r.on_lower_logits for r in dependence),
    )
    own = [set(active[module.block.name]) for module in chain]
    if on_lower_logits:
        last = max((place for place, heads in enumerate(own) if heads), default=-1)
        united = set().union(*own)
        own = [united if place <= last else set() for place in range(len(own))]
    if across_heads:
        own = [set(range(m.block.heads)) if h else h for m, h in zip(chain, own, strict=True)]
    return [sorted(heads) for heads in own]


def _dependence_of(module: HeadBlock, guide: ModelGuide | None) -> Dependence:
    """What a draw of one head depends on, in its prior or its posterior."""
    if module.prior is None:
        return ALONE
    laws = [module.prior.dependence] + (
        [guide.dependence(module.block)] if guide is not None else []
    )
    on_lower_logits = module.has_attention_weights and any(law.on_lower_logits for law in laws)
    return Dependence(any(law.across_heads for law in laws), on_lower_logits)
