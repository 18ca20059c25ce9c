"""The stream of noise that a training draws from, whatever else is drawn in its process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["NoiseStream"]


class NoiseStream:
    """Random numbers of their own, which go on where they stopped.

    Args:
        device: What is drawn on, beside the CPU.
        seed: Of the numbers.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self._drawing = False
        self.seed(seed)

    @property
    def states(self) -> dict[str, Tensor]:
        """Where the generator of every device stands, by the device's kind."""
        return self._read() if self._drawing else self._states

    def seed(self, seed: int) -> None:
        """Begins anew."""
        with self._apart():
            torch.manual_seed(seed)
            self._states = self._read()

    def set(self, states: Mapping[str, Tensor]) -> None:
        """Goes to where the generators stood once."""
        self._states = {kind: state.cpu().clone() for kind, state in states.items()}

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Whatever is drawn within comes from here; the numbers around go on as if it were not."""
        with self._apart():
            torch.set_rng_state(self._states["cpu"])
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(self._states["cuda"], self.device)
            self._drawing = True
            try:
                yield
            finally:
                self._states, self._drawing = self._read(), False

    @contextmanager
    def _apart(self) -> Iterator[None]:
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            yield

    def _read(self) -> dict[str, Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)
        return states
