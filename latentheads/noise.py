"""Separate streams of random numbers: sampling from one leaves all others unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

from latentheads.passes import one_at_a_time


def get_noise(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a pass on a device samples from, by device type."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_noise(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Restores states of :func:`get_noise`."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)


def kept_noise(device: torch.device) -> AbstractContextManager[None]:
    """Context after which the generators of :func:`get_noise` go on as if it had not been."""
    return torch.random.fork_rng(_cuda(device))


def _cuda(device: torch.device) -> list[torch.device]:
    """The device if it has a generator of its own."""
    return [device] if device.type == "cuda" else []


class NoiseStream:
    """A random number stream of its own, which continues where it stopped."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self._device = device
        self._is_active = False
        self.seed(seed)

    @property
    def states(self) -> dict[str, Tensor]:
        """The state of every device's generator, by device type."""
        return get_noise(self._device) if self._is_active else self._states

    def seed(self, seed: int) -> None:
        """Restart from a seed."""
        devices = [torch.device("cpu"), *_cuda(self._device)]
        self._states = {
            device.type: torch.Generator(device).manual_seed(int(seed)).get_state()
            for device in devices
        }

    def set(self, states: Mapping[str, Tensor]) -> None:
        """Restore the states of the generators."""
        self._states = {kind: state.cpu().clone() for kind, state in states.items()}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Context in which all random numbers come from this stream; the outer ones go on after.

        PyTorch has one generator for all threads, so that only one enters at a time.
        """
        with one_at_a_time(), kept_noise(self._device):
            set_noise(self._states, self._device)
            self._is_active = True
            try:
                yield
            finally:
                self._states, self._is_active = get_noise(self._device), False


@contextmanager
def fixed_noise(seed: int, device: torch.device) -> Iterator[None]:
    """Context with a seed of its own, which leaves all outer random number generators unchanged.

    ``torch.manual_seed`` would reseed those of all devices.
    """
    with NoiseStream(device, seed).active():
        yield
