"""A second device without a GPU: its numbers are those of the CPU, and it notes who waits for it.

With ``pytest --device cuda -m device`` a GPU stands in its place, and draws the CPU's noise.

A tensor there says that it is on ``meta``, which no other test computes on, and holds one of the
CPU that does the work. So every program path runs that looks at a tensor's device; a tensor that
was made on the wrong one stops the test, and figures are those of the CPU to the last digit.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

NAME = "meta"
"""What the device is called: a kind that torch knows, and of which this machine has one."""

READ = "_local_scalar_dense"
"""A number that Python asks for."""

READS = {
    *(aten._local_scalar_dense, aten.equal, aten.nonzero, aten.masked_select, aten.bincount),
    *(aten._unique2, aten.unique_dim, aten.unique_consecutive, aten._ctc_loss),
}
"""What cannot go on before the device has caught up: a number, or a shape, is to be known."""


class FarTensor(Tensor):
    """A tensor of the second device.

    Args:
        near: The tensor of the CPU that holds its numbers.
    """

    near: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls: type[FarTensor], near: Tensor) -> FarTensor:
        index = {"strides": near.stride(), "storage_offset": near.storage_offset()}
        shape, kind = near.shape, near.dtype
        return Tensor._make_wrapper_subclass(cls, shape, dtype=kind, device=NAME, **index)

    def __init__(self, near: Tensor) -> None:
        self.near = near

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        raise AssertionError(f"{func}: the second device is closed")

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("numpy reads tensors of the CPU alone")


There = Callable[..., AbstractContextManager[Any]]
"""Opens the device; with ``own_noise`` a GPU draws from a generator of its own."""


class SecondDevice(TorchDispatchMode):
    """While it is open tensors can be made there and moved there.

    Attributes:
        waits: What the CPU has waited for, in order: ``copy``, or the name of an operation.
    """

    name = NAME

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing here is compiled, and to say so takes as long as an operation

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        given = list(tensors_in((*args, *options.values())))
        far = there = FarTensor in types
        if options.get("device") is not None:
            there = torch.device(options["device"]).type == NAME
            options["device"] = "cpu"
        how = _kind(func)
        if func is aten._to_copy.default:
            self._note_copy(given[0], there, options.get("non_blocking", False))
        elif func is aten.copy_.default:
            there = isinstance(given[0], FarTensor)
            self._note_copy(given[1], there, len(args) > 2 and args[2])
        else:
            _check_devices(func, given, far)
            if far and (how.reads or (how.indexes and _counts(args))):
                self.waits.append(func.overloadpacket.__name__)
        output = func(*near(args), **{name: near(option) for name, option in options.items()})
        if not there:
            return output
        return (kwargs or {}).get("out", args[0]) if how.writes else _moved(output)

    def forget(self) -> None:
        """Begins to note anew."""
        self.waits.clear()

    def assert_waited(self, names: Sequence[str]) -> None:
        """The CPU has waited for these, and for nothing else."""
        assert self.waits == [*names]

    def _note_copy(self, source: Tensor, far: bool, non_blocking: bool) -> None:
        """A copy between devices is waited for, unless it is told not to be."""
        if isinstance(source, FarTensor) == far:
            return
        if not non_blocking:
            self.waits.append("copy")
        elif not far:
            raise RuntimeError("a copy to the CPU that is not waited for may be read too early")


def tensors_in(given: Iterable[Any]) -> Iterator[Tensor]:
    """All tensors, also those in lists."""
    for item in given:
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, list | tuple):
            yield from tensors_in(item)


def near(value: Any) -> Any:
    """What is there, as the CPU has it; also in a list."""
    if isinstance(value, list | tuple):
        return [*map(near, value)]
    return value.near if isinstance(value, FarTensor) else value


def home(values: Sequence[Tensor]) -> list[Tensor]:
    """Some tensors on the CPU."""
    return [near(value).detach().cpu() for value in values]


def _moved(actual: Any) -> Any:
    """What an operation gives, on the device."""
    if isinstance(actual, list | tuple):
        return type(actual)(map(_moved, actual))
    return FarTensor(actual) if isinstance(actual, Tensor) else actual


class Kind(NamedTuple):
    """What an operation does.

    Attributes:
        reads: Whether it asks for a number, or for how many there are.
        indexes: Whether it asks where it is given a mask.
        writes: Whether it gives what it has written to.
    """

    reads: bool
    indexes: bool
    writes: bool


@cache
def _kind(func: Any) -> Kind:
    packet, returned = func.overloadpacket, func._schema.returns
    indexes = packet in (aten.index, aten.index_put, aten.index_put_)
    writes = any(value.alias_info is not None and value.alias_info.is_write for value in returned)
    return Kind(packet in READS, indexes, writes)


def _check_devices(func: Any, given: list[Tensor], far: bool) -> None:
    """Refuses tensors of both devices, but for single numbers, as a GPU does."""
    here = [item for item in given if not isinstance(item, FarTensor)]
    if any(item.is_meta for item in here):
        raise RuntimeError(f"{func}: numbers of the CPU were written on the device, and waited for")
    # a single number of the CPU may stand beside a tensor there, but not the other way round
    if far and any(item.ndim for item in here):
        shapes = [(tensor.device.type, tuple(tensor.shape)) for tensor in given]
        raise RuntimeError(f"{func}: tensors of two devices, {shapes}")


def _counts(args: Sequence[Any]) -> bool:
    """Whether it counts where a mask is true; to write one number there it need not."""
    fills = len(args) > 2 and args[2].numel() == 1
    return not fills and any(item.dtype == torch.bool for item in tensors_in(args[1]))


@contextmanager
def second_device(own_noise: bool = True) -> Iterator[SecondDevice]:
    """Opens the device; nothing is cast there by itself, and its optimisers are fused."""
    cast = torch.autocast

    def autocast(device: str, *given: Any, **options: Any) -> Any:
        return nullcontext() if device == NAME else cast(device, *given, **options)

    with ExitStack() as around:
        patch = mock.patch.object
        around.enter_context(patch(torch, "autocast", autocast))
        around.enter_context(patch(torch, "is_autocast_enabled", lambda *_: False))
        around.enter_context(patch(torch, "get_autocast_dtype", lambda *_: torch.bfloat16))
        fused = [*_foreach_utils._get_fused_kernels_supported_devices(), NAME]
        kinds = {"_get_fused_kernels_supported_devices": lambda: [*fused]}
        around.enter_context(mock.patch.dict(sys.modules[Optimizer.__module__].__dict__, kinds))
        yield around.enter_context(SecondDevice())


class Gpu:
    """A GPU, of which PyTorch says that it is waited for.

    Args:
        told: The warnings.
    """

    name = "cuda"

    def __init__(self, warning_messages: list[warnings.WarningMessage]) -> None:
        self.told = warning_messages

    def forget(self) -> None:
        """Begins to note anew."""
        self.told.clear()

    def assert_waited(self, names: Sequence[str]) -> None:
        """The CPU has waited, if it should; for how much one operation waits is PyTorch's own."""
        waits = [str(item.message) for item in self.told if "synchroniz" in str(item.message)]
        assert bool(waits) == bool(names)


class _NoiseOfCPU(TorchDispatchMode):
    """Noise is drawn on the CPU and copied, so that a GPU's figures can be compared with its."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        like = args[0] if args and isinstance(args[0], Tensor) else None
        device = options.get("device") or (like.device if like is not None else "cpu")
        if torch.Tag.nondeterministic_seeded not in func.tags or torch.device(device).type == "cpu":
            return func(*args, **options)
        if "device" in options:
            options["device"] = "cpu"
        given = args if like is None else (torch.empty_like(like, device="cpu"), *args[1:])
        output = func(*given, **options)
        if like is not None and func.overloadpacket.__name__.endswith("_"):
            return like.copy_(output, non_blocking=True)
        return output.to(device, non_blocking=True)


@contextmanager
def gpu(own_noise: bool = False) -> Iterator[Gpu]:
    """Opens the GPU.

    Args:
        own_noise: Whether its own generator draws; if not, the CPU's does.
    """
    before = torch.cuda.get_sync_debug_mode()
    noise = nullcontext() if own_noise else _NoiseOfCPU()
    with warnings.catch_warnings(record=True) as caught, noise:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield Gpu(caught)
        finally:
            torch.cuda.set_sync_debug_mode(before)
