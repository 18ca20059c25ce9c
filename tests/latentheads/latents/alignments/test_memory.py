"""A training step and an evaluation: no scores of the whole batch are in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from latentheads.batch import Batch
from latentheads.inference.evaluation import evaluate
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.logits.latent import Logits
from latentheads.models import Translation
from tests.guides.attached import attach
from tests.latentheads.latents.alignments.memory import Largest, cut
from tests.latentheads.latents.alignments.models import MIXTURE, SHAPES, SOFT
from tests.tiny import SOURCE_TYPES, jiggle, sizes

TYPES, SENTENCES, WORDS, KEYS = 1009, 29, 5, 7
ALL = {**SHAPES, **SOFT, "mixture": MIXTURE["mixture"]}
CASES = [
    *((shape, "cascaded", "marginal") for shape in SHAPES),
    *(("two heads", "mean-field", objective) for objective in ("sampled", "iwae", "rws")),
    ("two heads", "autoregressive", "bound"),
    ("two blocks", "cascaded", "bound"),
    ("chain", "exact", "marginal"),
    ("soft", "tied", "bound"),
    ("mixture", "tied", "marginal"),
]


HALF = [
    ("two heads", "mean-field", "sampled"),
    ("chain", "exact", "marginal"),
    ("soft", "tied", "bound"),
    ("mixture", "tied", "marginal"),
]
"""Those of them that are trained in half precision too."""


@pytest.mark.parametrize(
    ("shape", "name", "objective", "half"),
    [*((*case, False) for case in CASES), *((*case, True) for case in HALF)],
)
def test_scores_of_a_whole_batch_are_never_in_memory(
    shape: str, name: str, objective: Any, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_default_dtype(torch.float32)
    cut(monkeypatch, 3 * TYPES)
    model = Translation(
        SOURCE_TYPES, TYPES, sizes(), latents=[Logits(attention_types=()), ALL[shape]]
    )
    guide = attach(name, jiggle(model, 0.1)).float()
    target, source = (
        torch.randint(4, types, (SENTENCES, length))
        for types, length in ((TYPES, WORDS), (SOURCE_TYPES, KEYS))
    )
    batch, elbo = Batch(target, source), Head_ELBO(analytic=True, objective=objective)
    with Largest(TYPES) as step, torch.autocast("cpu", torch.bfloat16, enabled=half):
        elbo.differentiable_loss(model.train(), guide.train(), batch).backward()
    with Largest(TYPES) as evaluation:
        evaluate(model, guide, [batch], samples=2)
    assert model.output.weight.numel() <= step.size
    assert max(step.size, evaluation.size) < SENTENCES * min(WORDS, KEYS) * TYPES / 2
