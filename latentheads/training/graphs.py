"""Steps that are captured once for each kind of batch and replayed without Python: CUDA graphs.

On a GPU a latent step is limited by the Python that starts its operations, not by the operations
(``docs/gpu.md``). Forward and backward pass of a batch are therefore captured when batches of its
kind have come a few times, and later batches are copied into the memory of the captured one. No
batch is padded for this: sentences are sorted by length, so that most batches have a shape that
comes again. The kind of a batch is its shape and every number that Python reads in a step.

What Python does in a step happens at the capture alone. Noise is sampled anew in each replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from latentheads.batch import Batch
from latentheads.errors import is_out_of_memory
from latentheads.guards import Guards
from latentheads.noise import get_noise, kept_noise, set_noise

SEEN = 4
"""Batches of a kind that run as always before the next one is captured."""

MOST = 64
"""Kinds that are captured at most: a graph takes memory of the GPU's driver."""

Work = Callable[[Batch, Tensor | float], Tensor]
"""Forward and backward pass of a batch whose loss has a factor; returns the loss without it."""

Captured = tuple[Tensor, Bool[Tensor, ""] | None]
"""The loss of a captured step, and whether its guards failed."""


def record(
    work: Callable[[], Captured], pool: Any, stream: Any
) -> tuple[Captured, Callable[[], None]]:
    """Captures operations as a CUDA graph, which does not run them; returns what runs them.

    Args:
        work: Starts the operations.
        pool: Memory that all graphs share: they never run at once.
        stream: Where they were started before.
    """
    graph = torch.cuda.CUDAGraph()
    # the thread that prepares batches may pin memory meanwhile, which the default mode refuses
    capture = torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local")
    with torch.cuda.stream(stream), capture:  # which leaves its stream in place if it fails
        outputs = work()
    return outputs, graph.replay


class Inputs(TorchDispatchMode):
    """While it is open, the tensors that operations read and none of them made are held.

    A graph has their addresses alone, and what a network keeps for later, such as a table of
    positions, it may replace by a longer one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, Tensor] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation."""
        for tensor in _tensors((args, kwargs)):
            address = tensor.untyped_storage().data_ptr()
            if address not in self._made:
                self.held[address] = tensor
        outputs = func(*args, **(kwargs or {}))
        self._made |= {tensor.untyped_storage().data_ptr() for tensor in _tensors(outputs)}
        return outputs


def _tensors(values: Any) -> list[Tensor]:
    """The tensors in some values, at any depth."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


@dataclass(frozen=True)
class StepGraph:
    """A captured step.

    Attributes:
        batch: The batch in whose memory it computes.
        factor: The factor of its loss.
        loss: Its loss.
        failed: Whether a guard failed in the last replay; None without guards.
        parameters: The parameters that get a gradient.
        launch: Starts its operations.
        inputs: What it reads besides, held so that the memory stays theirs.
    """

    batch: Batch
    factor: Float[Tensor, ""]
    loss: Tensor
    failed: Bool[Tensor, ""] | None
    parameters: Sequence[Tensor]
    launch: Callable[[], None]
    inputs: Collection[Tensor]

    def fill(self, batch: Batch, factor: float) -> None:
        """Copies a batch of the same kind, and its factor, to where the graph reads them."""
        for name, own in tensors_of(self.batch).items():
            own.copy_(getattr(batch, name), non_blocking=True)
        self.factor.fill_(factor)


class StepGraphs:
    """The captured steps of a training.

    Args:
        parameters: The parameters that are trained.
        device: Where.

    Attributes:
        replays: Number of steps that were replayed.
    """

    def __init__(self, parameters: Iterable[Tensor], device: torch.device) -> None:
        self._parameters = list(parameters)
        self._device = device
        on_gpu = device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if on_gpu else None
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._graphs: dict[Hashable, StepGraph] = {}
        self._seen: Counter[Hashable] = Counter()
        self._numbers: Hashable = None
        # a graph adds to gradients at fixed addresses
        self._gradients: dict[Tensor, Tensor] = {}
        self.replays = 0

    @property
    def captures(self) -> int:
        """Number of steps that were captured."""
        return len(self._graphs)

    def run(self, work: Work, batch: Batch, factor: float, numbers: Hashable) -> Tensor:
        """Runs a step, or replays the captured one of its kind.

        Args:
            work: The step.
            batch: The batch, on any device.
            factor: The factor of its loss.
            numbers: What Python reads in the step besides the batch, such as the KL weight.

        Returns:
            The loss, until the next step of the same kind; gradients are added to those of the
            parameters.
        """
        numbers = numbers, tuple(parameter.requires_grad for parameter in self._parameters)
        if numbers != self._numbers:  # nothing is counted that does not come again
            self._numbers, self._seen = numbers, Counter()
        kind = kind_of(batch), numbers
        graph = self._graphs.get(kind)
        if graph is None:
            self._seen[kind] += 1
            if self._seen[kind] <= SEEN or len(self._graphs) == MOST:
                return work(batch.to(self._device), factor)
            graph = self._graphs[kind] = self._capture(work, batch)
            del self._seen[kind]
        return self._replay(graph, work, batch, factor)

    def _capture(self, work: Work, batch: Batch) -> StepGraph:
        """Captures a step; gradients and noise stay as they are."""
        tensors = tensors_of(batch).items()
        copies: dict[str, Any] = {n: tensor.to(self._device, copy=True) for n, tensor in tensors}
        own = replace(batch, **copies)
        factor = torch.ones((), dtype=torch.float64, device=self._device)

        def guarded() -> Captured:
            with Guards() as guards:
                loss = work(own, factor)
            return loss, guards.failed

        before = self._copy_gradients()
        with kept_noise(self._device):
            try:
                self._set_gradients([None] * len(before))
                self._warm_up(guarded)
                trained = [p for p in self._parameters if p.grad is not None]
                for parameter in trained:
                    self._gradients.setdefault(parameter, torch.zeros_like(parameter))
                    parameter.grad = self._gradients[parameter]
                with Inputs() as inputs:
                    (loss, failed), launch = self._record(guarded)
            finally:
                self._set_gradients(before)
        return StepGraph(own, factor, loss, failed, trained, launch, inputs.held.values())

    def _warm_up(self, work: Callable[[], Captured]) -> None:
        """Runs a step beside the main stream, as PyTorch asks for before a capture."""
        if self._stream is None:
            work()
            return
        main = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(main)
        with torch.cuda.stream(self._stream):
            work()
        main.wait_stream(self._stream)

    def _record(self, work: Callable[[], Captured]) -> tuple[Captured, Callable[[], None]]:
        """Captures the operations of a step.

        Raises:
            ValueError: One of them cannot be captured.
        """
        try:
            return record(work, self._pool, self._stream)
        except RuntimeError as error:
            # a capture that was broken off raises an error of its own as it ends
            reason = error.__context__ or error
            if is_out_of_memory(reason):
                raise reason from None
            line = next(iter(str(reason).splitlines()), type(reason).__name__)
            raise ValueError(f"graph could not capture a step, drop graph: {line}") from reason

    def _replay(self, graph: StepGraph, work: Work, batch: Batch, factor: float) -> Tensor:
        """Replays a step; one whose guards fail is run in its place."""
        if graph.failed is not None:  # the replay may have to be undone
            before, noise = self._copy_gradients(), get_noise(self._device)
        self._use_gradients(graph.parameters)
        graph.fill(batch, factor)
        graph.launch()
        if graph.failed is not None and graph.failed:
            set_noise(noise, self._device)
            self._set_gradients(before)
            return work(batch.to(self._device), factor)
        self.replays += 1
        return graph.loss

    def _use_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Moves the gradients of parameters to where graphs add to them."""
        fresh = [self._gradients[p] for p in parameters if p.grad is None]
        if fresh:
            torch._foreach_zero_(fresh)
        for parameter in parameters:
            own = self._gradients[parameter]
            if parameter.grad is not None and parameter.grad is not own:
                own.copy_(parameter.grad)
            parameter.grad = own

    def _copy_gradients(self) -> list[Tensor | None]:
        return [None if p.grad is None else p.grad.clone() for p in self._parameters]

    def _set_gradients(self, gradients: Sequence[Tensor | None]) -> None:
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient


def kind_of(batch: Batch) -> Hashable:
    """What the operations of a step on a batch depend on: shapes, and what is no tensor.

    Raises:
        ValueError: It is no plain batch, but one of another class, such as of pretrained networks.
    """
    if type(batch) is not Batch:
        raise ValueError(f"graph captures no step on {type(batch).__name__}: drop graph")
    return tuple(
        value.shape if isinstance(value, Tensor) else value for value in vars(batch).values()
    )


def tensors_of(batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch by their names."""
    return {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)}
