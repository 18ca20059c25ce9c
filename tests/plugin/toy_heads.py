"""A package of someone else's: a prior, a metric, a section of the report, and a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from latentheads.families import Family, Gaussian, HeadScale, Identity
from latentheads.metrics.resampling import Metric, References
from latentheads.metrics.scores import SCORES, ScoreInfo
from latentheads.models import PRIORS, Prior
from latentheads.names import Block

if TYPE_CHECKING:
    from latentheads.runs.reporter import Reporter


class Sharp(Prior):
    """Attention logits with little noise."""

    def __init__(self, scale: float = 0.1) -> None:
        self.scale = scale

    def __call__(self, block: Block) -> Family:
        """Makes a Gaussian at the scores."""
        return Gaussian(Identity(), HeadScale(block.heads, self.scale))


PRIORS["sharp"] = Sharp


def length(references: References) -> Metric:
    """The mean number of words of an output."""
    return Metric(
        lambda lines: np.array([[len(line.split()), 1.0] for line in lines]),
        lambda total: float(total[0] / total[1]),
        lambda: "",
    )


SCORES["length"] = ScoreInfo("length", "words of an output", metric=length, compared=True)


def report_scales(reporter: Reporter) -> dict[str, Any]:
    """The scale of the prior, and the number of sites in the sections before this one."""
    prior = reporter.settings.latent("logits").prior
    return {"toy": {"scale": prior.options["scale"], "sites": len(reporter.results["kl_by_site"])}}


def main(arguments: Sequence[str]) -> int:
    """Prints the number of latent heads of a run."""
    from latentheads.runs.loading import load_run

    (folder,) = arguments
    print(sum(block.block.heads for block in load_run(folder).model.head_blocks))
    return 0
