"""Separate streams of random numbers: sampling from one leaves all others unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from latentheads.passes import one_at_a_time


class NoiseStream:
    """A random number stream of its own, which continues where it stopped."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self._devices = {"cpu": torch.device("cpu")}
        if device.type == "cuda":
            self._devices["cuda"] = device
        self._is_active = False
        self.seed(seed)

    @property
    def states(self) -> dict[str, Tensor]:
        """The state of every device's generator, by device type."""
        return self._get_states() if self._is_active else self._states

    def seed(self, seed: int) -> None:
        """Restart from a seed."""
        self._states = {
            kind: torch.Generator(device).manual_seed(int(seed)).get_state()
            for kind, device in self._devices.items()
        }

    def set(self, states: Mapping[str, Tensor]) -> None:
        """Restore the states of the generators."""
        self._states = {kind: state.cpu().clone() for kind, state in states.items()}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Context in which all random numbers come from this stream; the outer ones go on after.

        PyTorch has one generator for all threads, so that only one enters at a time.
        """
        cuda = self._devices.get("cuda")
        with one_at_a_time(), torch.random.fork_rng([] if cuda is None else [cuda]):
            torch.set_rng_state(self._states["cpu"])
            if cuda is not None:
                torch.cuda.set_rng_state(self._states["cuda"], cuda)
            self._is_active = True
            try:
                yield
            finally:
                self._states, self._is_active = self._get_states(), False

    def _get_states(self) -> dict[str, Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if (cuda := self._devices.get("cuda")) is not None:
            states["cuda"] = torch.cuda.get_rng_state(cuda)
        return states


@contextmanager
def fixed_noise(seed: int, device: torch.device) -> Iterator[None]:
    """Context with a seed of its own, which leaves all outer random number generators unchanged.

    ``torch.manual_seed`` would reseed those of all devices.
    """
    with NoiseStream(device, seed).active():
        yield
