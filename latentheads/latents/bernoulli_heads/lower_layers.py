"""The layers below a block: run once, while those above run for many subsets of its heads.

The outputs of all layers that end before the block is called are recorded in one pass. In later
passes these layers return what was recorded. It works for any network whose layers stand in a
``torch.nn.ModuleList``: those of this library, and those of ``transformers``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils._pytree import tree_leaves, tree_map


class LowerLayers:
    """The outputs of the layers below the lowest of some blocks.

    Args:
        model: The model.
        called: The modules whose call computes the heads of the blocks.
        reuse: Whether to record; if not, all layers run again.
    """

    def __init__(self, model: nn.Module, called: Collection[nn.Module], reuse: bool = True) -> None:
        self._called = list(called)
        # layers of Gemma 4 pass keys and values on beside their outputs
        reuse &= not any(getattr(module, "is_kv_shared_layer", False) for module in model.modules())
        self._candidates = list(_layers_of(model)) if reuse else []
        self._outputs: dict[nn.Module, Any] = {}
        self._calls = Counter[nn.Module]()
        self._is_below = True
        self.is_recorded = False

    @contextmanager
    def record(self) -> Iterator[None]:
        """Context of the pass that is recorded."""
        self._outputs.clear()
        self._calls.clear()
        self._is_below = True
        hooks = [layer.register_forward_hook(self._keep_output) for layer in self._candidates]
        hooks += [module.register_forward_pre_hook(self._stop) for module in self._called]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        for layer, calls in self._calls.items():
            if calls > 1:  # each call of a layer that runs in a loop has its own output
                self._outputs.pop(layer, None)
        self.is_recorded = True

    @contextmanager
    def replay(self, copies: int = 1, rows: int = 1) -> Iterator[None]:
        """Context of passes in which the recorded layers return what was recorded.

        Args:
            copies: The batch of these passes is that of the recorded one, so often over.
            rows: Rows of the recorded batch.
        """
        with ExitStack() as patches:
            for layer, output in self._outputs.items():
                output = output if copies == 1 else _repeat_rows(output, copies, rows)
                patches.enter_context(_returning(layer, output))
            yield

    @property
    def size(self) -> int:
        """Number of elements of the largest recorded tensor; 0: nothing was recorded."""
        return max((tensor.numel() for tensor in self._tensors()), default=0)

    @property
    def particles(self) -> int:
        """Number of dimensions of particles in front of the recorded states."""
        return max((len(states.shape) - 3 for states in self._tensors()[:1]), default=0)

    def _tensors(self) -> list[Tensor]:
        """The recorded tensors; states are the first output of a layer."""
        leaves = (leaf for output in self._outputs.values() for leaf in tree_leaves(output))
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def _keep_output(self, layer: nn.Module, _: Any, output: Any) -> None:
        self._calls[layer] += 1
        if self._is_below:
            self._outputs[layer] = output

    def _stop(self, *_: Any) -> None:
        self._is_below = False


def _layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """The modules of all lists, except those that are compiled, whose code cannot be replaced.

    An output layer has no layers: it is copied, and its tables may be lists. Nor has a
    parametrization, which is a list too: it returns a weight.
    """
    output = getattr(model, "output", None)
    tables = set(output.modules()) if isinstance(output, nn.Module) else set()
    for module in model.modules():
        if isinstance(module, ParametrizationList) or module in tables:
            continue
        if isinstance(module, nn.ModuleList):
            for layer in module:
                if layer._compiled_call_impl is None:
                    yield layer


def _repeat_rows(output: Any, copies: int, rows: int) -> Any:
    """The output of a layer for a batch that is repeated."""

    def repeat(leaf: Any) -> Any:
        # what has no row for each sentence is shared by all: a bias of positions, a number
        if not isinstance(leaf, Tensor) or not leaf.ndim or len(leaf) != rows:
            return leaf
        return leaf.repeat(copies, *(1,) * (leaf.ndim - 1))

    return tree_map(repeat, output)


@contextmanager
def _returning(layer: nn.Module, output: Any) -> Iterator[None]:
    """Context in which a module returns a value instead of computing it."""
    own = vars(layer).get("forward")  # accelerate puts one there
    layer.forward = lambda *_, **__: output  # type: ignore[method-assign]
    try:
        yield
    finally:
        del layer.forward
        if own is not None:
            layer.forward = own
