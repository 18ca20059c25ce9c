"""Streams of noise of their own: what is drawn in one moves no other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["NoiseStream", "fixed_noise"]


class NoiseStream:
    """Random numbers of their own, which go on where they stopped.

    Args:
        device: What is drawn on, beside the CPU.
        seed: Of the numbers.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        drawn = (torch.device("cpu"), *([device] if device.type == "cuda" else []))
        self._devices = {each.type: each for each in drawn}
        self._drawing = False
        self.seed(seed)

    @property
    def states(self) -> dict[str, Tensor]:
        """Where the generator of every device stands, by the device's kind."""
        return self._read() if self._drawing else self._states

    def seed(self, seed: int) -> None:
        """Begins anew."""
        self._states = {
            kind: torch.Generator(device).manual_seed(int(seed)).get_state()
            for kind, device in self._devices.items()
        }

    def set(self, states: Mapping[str, Tensor]) -> None:
        """Goes to where the generators stood once."""
        self._states = {kind: state.cpu().clone() for kind, state in states.items()}

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Whatever is drawn within comes from here; the numbers around go on as if it were not."""
        cuda = self._devices.get("cuda")
        with torch.random.fork_rng([] if cuda is None else [cuda]):
            torch.set_rng_state(self._states["cpu"])
            if cuda is not None:
                torch.cuda.set_rng_state(self._states["cuda"], cuda)
            self._drawing = True
            try:
                yield
            finally:
                self._states, self._drawing = self._read(), False

    def _read(self) -> dict[str, Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if (cuda := self._devices.get("cuda")) is not None:
            states["cuda"] = torch.cuda.get_rng_state(cuda)
        return states


@contextmanager
def fixed_noise(seed: int, device: torch.device) -> Iterator[None]:
    """Draws from a seed of its own and leaves the surrounding streams of noise untouched.

    Those of devices on which nothing is drawn too, which ``torch.manual_seed`` would begin anew.

    Args:
        seed: Of the noise.
        device: What is drawn on, beside the CPU.
    """
    with NoiseStream(device, seed).drawing():
        yield
