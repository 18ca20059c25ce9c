r"""Head pruning: the same network with smaller matrices.

Michel, Levy and Neubig 2019, https://arxiv.org/abs/1905.10650; after training with gates, Voita et
al. 2019, https://arxiv.org/abs/1905.09418.

Pruning a head sets its output to zero. Its value and output weights are always removed. Its logits
are removed if nothing else depends on them, as the :class:`~latentheads.families.Dependence` of
prior and posterior states:

* If they neither mix heads nor depend on lower blocks, only logits of active heads are sampled.
* If they depend on the logits of the same head below, as in RealFormer, the logits of a head that
  is active in a block are sampled in all of its type up to the last block with an active head.
* If they mix heads of a block, all of its heads are sampled if one is active.
* If they mix heads of lower blocks, as a cascade does, all heads are sampled up to the last active
  block.

N-gram heads have no logits: each is removed with the noise of its output. If the noise is mixed
over heads, all heads of a block stay or go together.

The smaller network computes the same function, with noise too. Latents that are no longer sampled
have no KL: the bound is that of the smaller model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Sized

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.attention.block import HeadBlock
from latentheads.checks import check_choice, check_list, check_number, check_within
from latentheads.errors import shown
from latentheads.families.family import Dependence
from latentheads.guide import ModelGuide, check_pair
from latentheads.latents.active_heads import Selection
from latentheads.latents.selector import SelectionFamily
from latentheads.model import HeadModel
from latentheads.names import ATTENTION_TYPES, SELECTION, attention_type_of, check_attention_types

__all__ = ["all_heads", "fold_selection", "most_important", "random_importance", "remove_heads"]

INDEPENDENT = Dependence(across_heads=False, on_lower_logits=False)


def all_heads(model: nn.Module) -> dict[str, list[int]]:
    """The active heads of every block, by index."""
    return {m.block.name: list(range(m.num_active_heads)) for m in _head_blocks(model)}


def most_important(
    importance: Mapping[str, Float[Tensor, " head"]],
    number: int,
    attention_types: Collection[str] = ATTENTION_TYPES,
) -> dict[str, list[int]]:
    """Select the most important heads, as Michel et al. (2019) do.

    Args:
        importance: Importance of the heads of every block by name, comparable between blocks; NaN,
            as for a head that is never active, ranks last.
        number: Number of heads to keep in the whole model; of equal ones the later are pruned.
        attention_types: Attention types whose heads may be pruned; all others keep theirs.

    Raises:
        ValueError: There are fewer heads, or more in the attention types that keep theirs.
    """
    check_attention_types("attention_types", attention_types)
    check_number("number", number, whole=True)
    importance = {name: torch.as_tensor(values) for name, values in importance.items()}
    removable = {
        name: values
        for name, values in importance.items()
        if attention_type_of(name) in attention_types
    }
    total = sum(map(len, importance.values()))
    fixed = total - sum(map(len, removable.values()))
    check_within("heads", number, fixed, total)
    heads = [(name, index) for name, values in removable.items() for index in range(len(values))]
    scores = torch.cat([torch.zeros(0), *(values.double().cpu() for values in removable.values())])
    scores = scores.nan_to_num(nan=-torch.inf)
    best = scores.argsort(descending=True, stable=True)[: number - fixed].tolist()
    kept_heads: dict[str, list[int]] = {
        name: [] if name in removable else list(range(len(values)))
        for name, values in importance.items()
    }
    for name, index in sorted(heads[rank] for rank in best):
        kept_heads[name].append(index)
    return kept_heads


def random_importance(
    heads: Mapping[str, Sized], seed: int = 0
) -> dict[str, Float[Tensor, " head"]]:
    """Random importance of every head: the baseline of any ranking.

    Args:
        heads: The heads of every block by name, one entry for each.
        seed: The seed.
    """
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.rand(len(entries), generator=generator) for name, entries in heads.items()}


def remove_heads(
    model: nn.Module, kept: Mapping[str, Sequence[int]], guide: ModelGuide | None = None
) -> None:
    """Prune heads of a model, and of its guide, permanently.

    Args:
        model: The model; changed in place.
        kept: For blocks by name, the indices of the heads to keep among those that are active now.
            A block that is not named keeps all; one without heads keeps its output bias only.
        guide: A guide of this model; changed in place.

    Raises:
        ValueError: There is no such block or head, the block selects its heads, or they cannot be
            removed. Nothing is changed.
    """
    if guide is not None:
        check_pair(model, guide)
    blocks = _head_blocks(model)
    active = _active_heads(blocks, kept)
    _check_latents(model, blocks, active)
    stacks: dict[tuple[str, str], list[HeadBlock]] = defaultdict(list)
    for module in blocks:
        stacks[module.block.attention_type, module.latent].append(module)
    removals = [
        (module, latent)
        for stack in stacks.values()
        for module, latent in zip(stack, _latent_heads(stack, active, guide), strict=True)
    ]
    for module, latent in removals:
        module.check_removal(latent, active[module.block.name])
    if isinstance(model, HeadModel):
        model.is_pruned |= any(len(active[m.block.name]) < m.block.heads for m, _ in removals)
    for module, latent in removals:
        block = module.block
        if guide is not None and module.prior is not None and len(latent) < block.heads:
            guide.prune(block, latent)
        module.prune(latent, active[block.name])


@torch.no_grad()
def fold_selection(model: HeadModel, guide: ModelGuide) -> dict[str, Selection]:
    """Replace the factor of every head, such as a gate, by its value at test time, permanently.

    The outputs are the same.

    Args:
        model: The model; changed in place. One without such factors is unchanged.
        guide: Its guide, with their posterior; changed in place.

    Returns:
        The posterior of each block's factors.
    """
    check_pair(model, guide)
    folded: dict[str, Selection] = {}
    selector = model.selector
    if selector is None or not selector.is_foldable:
        return folded
    families = guide.find_posteriors(SelectionFamily)
    for module in model.selecting_blocks:
        posterior = families[module.block.site(SELECTION)]()
        module.scale_output(posterior.mode[0].repeat_interleave(module.size))
        folded[module.block.name] = posterior
        module.selector = None
    guide.remove_posterior(selector)
    model.remove_latent(selector.name)
    model.is_pruned = True
    return folded


def _head_blocks(model: nn.Module) -> list[HeadBlock]:
    return [module for module in model.modules() if isinstance(module, HeadBlock)]


def _active_heads(
    blocks: Sequence[HeadBlock], kept: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """The heads of every block that stay active, by their indices among the sampled ones."""
    active = {module.block.name: module.active_heads for module in blocks}
    listed: dict[str, list[int]] = {}  # a generator is read once
    for name, heads in kept.items():
        check_choice("block", name, active)
        check_list(f"heads of block {shown(name)}", heads)
        listed[name] = [*heads]
        for head in listed[name]:  # a boolean mask would name the heads 1 and 0
            check_number(f"a head of block {shown(name)}", head, whole=True)
        unknown = [head for head in listed[name] if not 0 <= head < len(active[name])]
        if unknown:
            raise ValueError(
                f"block {shown(name)} has {len(active[name])} heads, got head {unknown[0]}"
            )
    for module in blocks:
        if module.selector is not None:
            raise ValueError(
                f"block {module.block.name!r} selects its heads for every task: none of its "
                "candidates can be removed; of gates call fold_selection(model, guide) first"
            )
    return {
        name: [current[head] for head in sorted(set(listed.get(name, range(len(current)))))]
        for name, current in active.items()
    }


def _check_latents(
    model: nn.Module, blocks: Sequence[HeadBlock], active: Mapping[str, Sequence[int]]
) -> None:
    """Check that no latent of a model needs a head that is removed."""
    heads = {module.block.name: module.num_active_heads for module in blocks}
    for latent in model.latents.values() if isinstance(model, HeadModel) else ():
        for name in latent.fixed_blocks:
            if len(active[name]) < heads[name]:
                raise ValueError(
                    f"block {shown(name)} has latents {latent.name} of its heads: none can be "
                    "removed"
                )


def _latent_heads(
    stack: Sequence[HeadBlock], active: Mapping[str, Sequence[int]], guide: ModelGuide | None
) -> list[list[int]]:
    """The heads of every block of one attention type whose logits are still sampled."""
    dependences = [_joint_dependence(module, guide) for module in stack]
    latent = [set(active[module.block.name]) for module in stack]
    if any(dependence.on_lower_logits for dependence in dependences):
        last = max((index for index, heads in enumerate(latent) if heads), default=-1)
        union = set().union(*latent)
        latent = [union if index <= last else set() for index in range(len(latent))]
    if any(dependence.across_heads for dependence in dependences):
        pairs = zip(stack, latent, strict=True)
        latent = [set(range(m.block.heads)) if heads else heads for m, heads in pairs]
    return [sorted(heads) for heads in latent]


def _joint_dependence(module: HeadBlock, guide: ModelGuide | None) -> Dependence:
    """What a sample of one head depends on, in its prior or its posterior."""
    if module.prior is None:
        return INDEPENDENT
    dependences = [module.prior.dependence]
    if guide is not None:
        dependences.append(guide.dependence(module.block))
    on_lower_logits = module.has_attention_weights and any(
        dependence.on_lower_logits for dependence in dependences
    )
    return Dependence(any(dependence.across_heads for dependence in dependences), on_lower_logits)
