"""Latents that decide which heads of a block are active: their interface, and what they choose."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyro
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.latents.active_heads import Selection
from latentheads.latents.l0_penalty import L0Penalty
from latentheads.latents.latent import (
    BlockPosteriors,
    ConditionOn,
    Latent,
    LatentModel,
    LatentPosterior,
    Structure,
)
from latentheads.latents.network import Choice, LatentNetwork, NetworkBlock
from latentheads.layers.numeric import full_precision
from latentheads.names import ATTENTION_TYPES, SELECTION, check_attention_types, side_of

START = 0.01
"""Standard deviation of the initial parameters, which breaks ties between candidates."""


@dataclass(frozen=True)
class Selector(Latent):
    """Selects the heads of a model's blocks: the interface of all selection strategies.

    A latent selection is a vector over a block's candidates for each task, at the site
    ``<block>.selection``. It is sampled once for all sentences, and every guide has its posterior.

    Attributes:
        has_candidates: Whether blocks have more heads than are active at once.
        is_foldable: Whether the mode of its posterior is a fixed factor of each head's output, that
            the weights can take over; heads with the factor 0 can then be removed.

    Args:
        heads: H, the heads of a block.
        attention_types: The attention types whose blocks select.
    """

    name: ClassVar[str] = "selection"
    selects_heads: ClassVar[bool] = True
    before_blocks: ClassVar[bool] = True
    has_candidates: ClassVar[bool] = False
    is_foldable: ClassVar[bool] = False

    heads: int
    attention_types: tuple[str, ...] = ATTENTION_TYPES

    def __post_init__(self) -> None:
        check_attention_types("attention_types", self.attention_types or ("",))

    def check_blocks(self, model: LatentModel) -> None:
        """Raises an error for a model without blocks that it selects heads of."""
        if not model.selecting_blocks:
            types = dict.fromkeys(module.block.attention_type for module in model.head_blocks)
            raise ValueError(
                f"{self.name}.blocks: this network has no such heads, it has {', '.join(types)}"
            )

    @property
    def num_slots(self) -> int:
        """Number of heads that enter a block's output projection."""
        return self.heads

    @property
    def has_penalty(self) -> bool:
        return self.penalty is not None

    @property
    def modules_to_save(self) -> Mapping[str, nn.Module]:
        return {} if self.penalty is None else {"l0_penalty": self.penalty}

    @property
    def penalty(self) -> L0Penalty | None:
        """The L0 penalty that the prior has in training, which the model saves; None: it has none.

        The KL then has weight 1 and its closed form.
        """
        return None

    @abstractmethod
    def for_heads(self, heads: int) -> Selector:
        """The selector for a block with this number of heads.

        Raises:
            ValueError: Blocks with this number of heads cannot select.
        """

    @abstractmethod
    def num_candidates(self, attention_type: str) -> int:
        """Number of heads with weights of their own in a block of an attention type."""

    @abstractmethod
    def num_tasks(self, attention_type: str) -> int:
        """Number of tasks that blocks of an attention type distinguish."""

    @abstractmethod
    def prior(self, attention_type: str, like: Tensor) -> Selection | None:
        """The prior of the selection for every task; None: the selection is not latent.

        Args:
            attention_type: The attention type of the block.
            like: A tensor of the model, for dtype and device.
        """

    @abstractmethod
    def sample(
        self, site: str, attention_type: str, like: Tensor
    ) -> Float[Tensor, "*sample task candidate"]:
        """Returns the selection of every task as zeros and ones: sampled at a site, or fixed."""

    def select_heads(
        self, model: LatentNetwork, batch: Batch, values: Mapping[str, Tensor] | None = None
    ) -> dict[str, Choice]:
        """Samples the selection of every task, once for all sentences, in the plate of tasks."""
        independent = _find_independent_types(model)
        blocks = model.selecting_blocks
        if values is not None:
            return {
                m.block.name: _select_in(m, batch, independent, values.get(m.block.site(SELECTION)))
                for m in blocks
            }
        choices: dict[str, Choice] = {}
        for side in ("encoder", "decoder"):
            on_side = [m for m in blocks if side_of(m.block.attention_type) == side]
            if on_side:
                tasks = self.num_tasks(on_side[0].block.attention_type)
                with pyro.plate(f"{side}_tasks", tasks):
                    choices |= {m.block.name: _select_in(m, batch, independent) for m in on_side}
        return choices

    def choose(
        self,
        value: Float[Tensor, "*sample task candidate"],
        task: Int[Tensor, " sentence"] | None,
        common: bool = False,
        num_samples: int = 1,
    ) -> Choice:
        """Turns the selection of every task into the choice of every sentence.

        Args:
            value: Zeros and ones.
            task: The task of every sentence; None: there is only one task.
            common: Whether all sentences have one task.
            num_samples: Number of samples that are stacked in ``value``, each for an equal part of
                the sentences, whose tasks must then be given.
        """
        if num_samples > 1:
            return self.make_choice(_choices_of_samples(value, task, num_samples))
        if task is not None and not common:
            return self.make_choice(value[..., task, :])
        if value.ndim > 2:  # particles are in front, so that the sentence dimension must stay
            only_task = value.new_zeros(1, dtype=torch.long) if task is None else task[:1]
            return self.make_choice(value[..., only_task, :])
        # index_select, since value[task[0]] would wait for a GPU
        return self.make_choice(value[0] if task is None else value.index_select(0, task[:1])[0])

    @abstractmethod
    def make_choice(self, value: Float[Tensor, "*sentences candidate"]) -> Choice:
        """Puts the selected heads into the slots."""


def _find_independent_types(model: LatentNetwork) -> set[str]:
    """The attention types whose blocks do not depend on latents of lower blocks."""
    attending = [module for module in model.head_blocks if module.has_attention_weights]
    dependent = {m.block.attention_type for m in attending if not m.can_skip_inactive}
    return {m.block.attention_type for m in attending} - dependent


def _select_in(
    module: NetworkBlock,
    batch: Batch,
    independent: Collection[str],
    selection: Tensor | None = None,
) -> Choice:
    attention_type = module.block.attention_type
    task, alone = batch.task_of(attention_type), attention_type in independent
    return module.choose(task, batch.one_task, selection, batch.num_samples, alone)


def _choices_of_samples(
    value: Float[Tensor, "row candidate"], task: Int[Tensor, " sentence"] | None, num_samples: int
) -> Float[Tensor, "sentence candidate"]:
    """The selection of each sentence by its sample and task; samples have the same size."""
    if task is None or len(task) % num_samples or len(value) % num_samples:
        raise ValueError(
            f"{num_samples} samples need the task of every sentence, each {num_samples} times"
        )
    sample_index = torch.arange(num_samples, device=task.device).repeat_interleave(
        len(task) // num_samples
    )
    return value.unflatten(0, (num_samples, -1))[sample_index, task]


def choose_in_order(value: Float[Tensor, "*sentences candidate"], number: int) -> Choice:
    """The selected candidates in ascending order; every row has the same number of them."""
    index = value.detach().topk(number, -1).indices.sort(-1).values
    return Choice(value.gather(-1, index), index)


@dataclass(frozen=True)
class LatentSelector(Selector):
    """A latent selection: its distribution has logits, and its posterior learns them.

    Attributes:
        gain: Ratio of a posterior's logits and its parameters; see :class:`SelectionFamily`.
    """

    is_shared: ClassVar[bool] = True
    gain: ClassVar[float] = 10.0
    posterior_name = "selections"  # in checkpoints, the same of all strategies and of gates

    @abstractmethod
    def distribution(
        self, logits: Float[Tensor, "*batch candidate"], temperature: float | None = 1.0
    ) -> Selection:
        """Makes the distribution with given logits; None: samples have no gradient."""

    @abstractmethod
    def initial_logits(self, attention_type: str, like: Tensor) -> Float[Tensor, "task candidate"]:
        """The logits that a posterior is initialised with, by default also those of the prior."""

    def prior(self, attention_type: str, like: Tensor) -> Selection:
        return self.distribution(self.initial_logits(attention_type, like))

    def make_posterior(
        self, model: LatentNetwork, structure: Structure, condition_on: ConditionOn
    ) -> BlockPosteriors:
        """Makes the posterior of every block's selection: it depends on no sentence."""
        return BlockPosteriors(
            {
                module.block: module.selector.posterior(
                    module.block.attention_type, module.output_weight
                )
                for module in model.selecting_blocks
            },
            SELECTION,
        )

    def posterior(self, attention_type: str, like: Tensor) -> SelectionFamily:
        """Makes a new posterior with its own parameters."""
        return SelectionFamily(self, self.initial_logits(attention_type, _widened(like.detach())))

    def temperature_at(self, step: int, steps: int) -> float | None:
        """The temperature of the relaxation at a step of training; None: nothing is relaxed."""
        return 1.0

    def sample(
        self, site: str, attention_type: str, like: Tensor
    ) -> Float[Tensor, "*sample task candidate"]:
        value: Tensor = pyro.sample(site, self.prior(attention_type, _widened(like)))
        return value


def _widened(like: Tensor) -> Tensor:
    """An empty tensor on the same device, in float32 or wider."""
    return full_precision(like[:0])


class SelectionFamily(LatentPosterior):
    """q(selection) of one block: the class of its prior, with learned logits.

    The parameter is ``logits / gain``: an optimiser whose steps do not depend on the size of the
    gradient, such as Adam, moves the logits ``gain`` times as far as a weight.

    Attributes:
        temperature: Temperature of the relaxation that gives the gradient; None: samples have none.

    Args:
        selector: Makes the distribution, and gives the temperature of each step.
        start: The initial logits, up to noise.
    """

    def __init__(self, selector: LatentSelector, start: Float[Tensor, "task candidate"]) -> None:
        super().__init__()
        self.selector, self.gain = selector, selector.gain
        self.temperature: float | None = 1.0
        self.weight = nn.Parameter(start / self.gain + START * torch.randn_like(start))

    @property
    def logits(self) -> Float[Tensor, "task candidate"]:
        """The logit of every candidate, for every task."""
        return self.gain * full_precision(self.weight)

    def forward(self) -> Selection:
        """Makes the distribution of every task's selection."""
        return self.selector.distribution(self.logits, self.temperature)

    def posterior_of(self, prior: Any, batch: Batch) -> Selection:
        selection: Selection = self()
        return selection

    def set_progress(self, step: int, steps: int, relaxes: bool) -> None:
        self.temperature = self.selector.temperature_at(step, steps) if relaxes else None
