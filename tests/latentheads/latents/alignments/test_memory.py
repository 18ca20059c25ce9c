"""A training step and an evaluation: no scores of the whole batch are in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from latentheads.batch import Batch
from latentheads.inference.evaluation import evaluate
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.alignments import slices
from latentheads.latents.logits.latent import Logits
from latentheads.models import Translation
from tests.crossing import pairwise
from tests.guides.attached import attach
from tests.latentheads.latents.alignments.memory import Largest, Peak, cut
from tests.latentheads.latents.alignments.models import MIXTURE, SHAPES, SOFT
from tests.tiny import SOURCE_TYPES, jiggle, sizes

TYPES, SENTENCES, WORDS, KEYS = 1009, 11, 5, 7
ALL = {**SHAPES, **SOFT, "mixture": MIXTURE["mixture"]}
CASES = [
    *((shape, "cascaded", "marginal") for shape in SHAPES),
    *(("two heads", "mean-field", objective) for objective in ("sampled", "iwae", "rws")),
    ("two heads", "autoregressive", "bound"),
    ("chain", "exact", "marginal"),
    ("soft", "tied", "bound"),
    ("mixture", "tied", "marginal"),
]


HALF = [
    ("two heads", "mean-field", "sampled"),
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
        evaluate(model, guide, [batch], num_samples=2)
    assert model.output.weight.numel() <= step.size
    assert max(step.size, evaluation.size) < SENTENCES * min(WORDS, KEYS) * TYPES / 2


LONG = 37
"""Words of either side of a sentence whose tables are larger than all else."""


@pytest.mark.parametrize(
    ("shape", "objective", "most"),
    [
        ("two heads", "bound", 5.1),
        ("two heads", "marginal", 5.1),
        # a posterior of pairs adds its own table, that table's gradient, and states of its pairs
        ("two blocks", "bound", 7.1 + 64 / LONG),
        ("two blocks", "marginal", 7.1 + 64 / LONG),
    ],
)
def test_few_tables_of_pairs_of_positions_are_in_memory_at_once(
    shape: str, objective: Any, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(slices.SLICE, "cpu", 2**12)
    cut(monkeypatch, 100)
    model = jiggle(Translation(13, 13, sizes(), latents=[ALL[shape]]), 0.1).double()
    guide = attach("mean-field" if shape == "two heads" else "cascaded", model)
    batch = Batch(*torch.randint(4, 13, (2, 3, LONG)))
    table = 8 * 3 * LONG**3
    with Peak(table) as peak:
        loss = Head_ELBO(analytic=True, objective=objective).differentiable_loss
        loss(model.train(), guide.train(), batch).backward()
    assert peak.size <= most * table


@pairwise(
    name=["cascaded", "mean-field", "tied"],
    shape=["two heads", "two blocks"],
    objective=["bound", "marginal"],
)
def test_terms_computed_for_a_few_words_at_a_time_are_those_of_all_words(
    shape: str, name: str, objective: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = jiggle(Translation(13, 13, sizes(), latents=[ALL[shape]]), 0.3).double()
    guide = jiggle(attach(name, model), 0.3)
    target, source = torch.randint(4, 13, (2, 3, 5))
    target[1, 3:] = source[2, 2:] = 0
    batch = Batch(target, source)
    outcomes = []
    for numbers in (2**18, 2 * 5**2, 1):  # all words; two; one
        monkeypatch.setitem(slices.SLICE, "cpu", numbers)
        module = Head_ELBO(analytic=True, objective=objective)(model, guide)
        loss = module(batch)
        parameters = [p for p in module.parameters() if p.requires_grad]
        grads = torch.autograd.grad(loss, parameters, allow_unused=True)
        outcomes.append((loss, *(grad for grad in grads if grad is not None)))
    for other in outcomes[1:]:
        torch.testing.assert_close(other, outcomes[0], rtol=1e-12, atol=1e-12)
