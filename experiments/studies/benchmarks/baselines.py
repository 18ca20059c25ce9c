"""The rows of the benchmark: the same network as five ways of writing it, each taking steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any, cast

import pyro
import torch
from pyro.infer import Trace_ELBO
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from latentheads.attention.latent import LatentAttention
from latentheads.batch import EOS, PAD, SPECIALS, Batch
from latentheads.experiments.studies.benchmarks.plain_pytorch import PlainTransformer, take_weights
from latentheads.families import Family
from latentheads.guides import Cascaded, Tied
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.logits.latent import Logits
from latentheads.layers.linear_log_prob import linear_log_prob
from latentheads.layers.numeric import dropout, softmax
from latentheads.models import Network, Translation, make_prior
from latentheads.names import SENTENCES

BASELINE = "by hand"
SAME_KERNELS = "by hand, same kernels"
RECIPES = {
    "transformer": ("delta", Tied),
    "coda": ("cascaded", Tied),
    "cascaded": ("independent", Cascaded),
}
PRECISIONS = ("fp32", "bf16")
Made = tuple[Callable[[], Tensor], list[Tensor]]
"""A loss to call, and the parameters that it trains."""


@dataclass(frozen=True)
class Size:
    """The size of a network and its batch; both sides of a pair have the same length."""

    width: int = 256
    feed_forward: int = 512
    layers: int = 4
    heads: int = 4
    batch: int = 32
    length: int = 28
    vocabulary: int = 1000

    @property
    def network(self) -> Network:
        """The network's part, dropout 0.1 and post-norm."""
        sizes = self.width, self.feed_forward, self.heads, self.layers
        return Network(*sizes, dropout=0.1)


@dataclass
class Setting:
    """Where and how steps are taken."""

    device: str = "cpu"
    seed: int = 0
    adam: bool = False

    def time(self, work: Callable[[], object]) -> float:
        """Seconds of some work, the accelerator's included; on one thread those of the processor.

        What other programs of a shared machine take from a thread is then not counted.
        """
        alone = self.device == "cpu" and torch.get_num_threads() == 1
        clock = process_time if alone else perf_counter
        self._synchronise()
        start = clock()
        work()
        self._synchronise()
        return clock() - start

    def _synchronise(self) -> None:
        """Waits for the accelerator."""
        if self.device == "cuda":
            torch.cuda.synchronize()


@dataclass
class Runner:
    """One row: a network that takes steps."""

    name: str
    loss: Callable[[], Tensor]
    parameters: list[Tensor]
    setting: Setting
    precision: str
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.parameters, lr=1e-5)

    def step(self) -> None:
        """Forward, loss, backward, the optimiser if asked for, gradients cleared."""
        self.differentiate()
        if self.setting.adam:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def differentiate(self) -> Tensor:
        """Forward, loss and backward; returns the loss."""
        half = self.precision == "bf16"
        with torch.autocast(self.setting.device, torch.bfloat16, enabled=half):
            loss = self.loss()
        loss.backward()
        return loss.detach()

    def timed(self, seed: int) -> float:
        """Seconds of one step."""
        torch.manual_seed(seed)
        return self.setting.time(self.step)

    def operations(self) -> int:
        """Floating-point operations of the matrix products of one step."""
        with FlopCounterMode(display=False) as counted:
            self.step()
        return counted.get_total_flops()

    def memory(self) -> int:
        """Bytes of one step, measured as ``MEMORY`` says."""
        if self.setting.device == "cpu":
            return self._saved()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.step()
        return torch.cuda.max_memory_allocated() - before

    def _saved(self) -> int:
        storages: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            self.step()
        for parameter in self.parameters:
            storages.pop(parameter.untyped_storage().data_ptr(), None)
        return sum(storages.values())


class Forward(Runner):
    """A row that runs forward alone."""

    @torch.no_grad()
    def step(self) -> None:
        """Forward, without gradients."""
        half = self.precision == "bf16"
        with torch.autocast(self.setting.device, torch.bfloat16, enabled=half):
            self.loss()


class Replayed(nn.Module):
    """The usual Pyro guide: runs the network itself, each head sampled from its posterior."""

    def __init__(self, model: Translation, guide: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(model, {id(p): p for p in model.parameters()})
        if isinstance(guide, Cascaded):
            for module in self.network.modules():
                if isinstance(module, LatentAttention):
                    module.prior = cast(Family, guide.families[module.block.key])

    def forward(self, batch: Batch) -> None:
        """Samples every head."""
        with pyro.plate(SENTENCES, size=batch.size, subsample=batch.sentences):
            self.network.states(batch)


def make_batch(size: Size, setting: Setting) -> Batch:
    """Random sentences without padding."""
    generator = torch.Generator().manual_seed(setting.seed)
    shape = (2, size.batch, size.length)
    tokens = torch.randint(len(SPECIALS), size.vocabulary, shape, generator=generator)
    tokens[..., -1] = EOS
    return Batch(tokens[0], tokens[1]).to(setting.device)


def make_pair(
    recipe: str, size: Size, setting: Setting, latent: tuple[str, ...] | None = None
) -> tuple[Translation, Any]:
    """Model and guide of a recipe; the same seed gives the same weights."""
    torch.manual_seed(setting.seed)
    prior, guide = RECIPES[recipe]
    words = size.vocabulary
    model = Translation(words, words, size.network, latents=[Logits(make_prior(prior), latent)])
    model.to(setting.device)
    return model, guide(model).to(setting.device)


def under(objective: Trace_ELBO, model: nn.Module, guide: nn.Module, batch: Batch) -> Made:
    """A loss to call and the parameters it trains."""
    module = objective(model, guide)
    return (lambda: module(batch)), list({id(p): p for p in module.parameters()}.values())


def without_latents(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """The network without latents."""
    model, _ = make_pair(recipe, size, setting, ())
    return under(Head_ELBO(), model, Tied(model), batch)


def in_memory(recipe: str, size: Size, setting: Setting, batch: Batch, **kernels: Any) -> Made:
    """The latent network in plain PyTorch."""
    model, guide = make_pair(recipe, size, setting)
    weights = take_weights(model.state_dict(), guide.state_dict())
    network = PlainTransformer(weights, recipe, size.heads, size.network.dropout, **kernels)
    assert batch.source is not None
    source = batch.source
    return (lambda: network.loss(source, batch.target)), list(weights.values())


def with_same_kernels(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """The same with the library's dropout, softmax and output layer."""

    def drop(x: Tensor, probability: float) -> Tensor:
        return dropout(x, probability, training=True)

    def nll(states: Tensor, table: Tensor, labels: Tensor) -> Tensor:
        valid = labels != PAD
        return -linear_log_prob(states[valid], table, labels[valid]).sum()

    return in_memory(recipe, size, setting, batch, drop=drop, softmax=softmax, nll=nll)


def guide_then_replay(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """The usual Pyro way."""
    model, guide = make_pair(recipe, size, setting)
    return under(Trace_ELBO(), model, Replayed(model, guide), batch)


def ours(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """The library, as a run trains."""
    return under(Head_ELBO(analytic=True), *make_pair(recipe, size, setting), batch)


def ours_stock(recipe: str, size: Size, setting: Setting, batch: Batch) -> Made:
    """The library under Pyro's own objective."""
    return under(Trace_ELBO(), *make_pair(recipe, size, setting), batch)


ROWS: dict[str, Callable[[str, Size, Setting, Batch], Made]] = {
    "no latents": without_latents,
    BASELINE: in_memory,
    SAME_KERNELS: with_same_kernels,
    "guide, replay": guide_then_replay,
    "ours": ours,
    "ours, stock": ours_stock,
}
