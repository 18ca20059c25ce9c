"""The temperature of a relaxation: of selections of heads, and of gates between 0 and 1."""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveFloat

from latentheads.options import OptionError, options_class


@options_class()
class Relaxation:
    """Zeros and ones relaxed to numbers between them, at a temperature that may fall.

    Attributes:
        temperature: Temperature of the relaxation.
        least_temperature: What it falls to, geometrically, after the last step; 0: it stays.
    """

    temperature: PositiveFloat = 1.0
    least_temperature: NonNegativeFloat = 0.0

    def __post_init__(self) -> None:
        if self.least_temperature > self.temperature:
            raise OptionError(
                "least_temperature",
                f" must be at most the temperature, {self.temperature}, "
                f"got {self.least_temperature}",
            )

    def temperature_at(self, step: int, steps: int) -> float:
        r"""The temperature at a step counted from 0.

        .. math:: \tau_0 (\tau_{\min} / \tau_0)^{\text{step} / \text{steps}}
        """
        if not self.least_temperature:
            return self.temperature
        share = self.least_temperature / self.temperature
        return self.temperature * share ** (step / steps)
