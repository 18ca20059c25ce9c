"""Options of training that act on nothing in a model are refused, and no others."""

from __future__ import annotations

from typing import Any

import pytest

import latentheads as lh
from latentheads import Batch
from latentheads.guide import ModelGuide
from latentheads.models import Translation, make_prior
from latentheads.selection.hard_gates import Gating
from latentheads.selection.subset import SubsetSelector
from latentheads.training.needs import OF_TRAINING, check_idle
from latentheads.training.options import Training
from tests.latentheads.alignment.models import SHAPES, aligned
from tests.latentheads.runs.trained import train
from tests.tiny import FORMS, SOURCE_TYPES, TARGET_TYPES, attach, build, sizes, small_batch


def pair(kind: str) -> tuple[Any, Any]:
    """A model that draws one thing or another, and its guide."""
    if kind in ("aligned", "aligned, tied"):
        model = aligned(SHAPES["one head"])
        return model, attach("tied" if "tied" in kind else "cascaded", model)
    if kind in ("gates", "subset"):
        selector = Gating(3) if kind == "gates" else SubsetSelector(3, candidates=6)
        network = sizes(layers=1)
        model = Translation(
            SOURCE_TYPES, TARGET_TYPES, make_prior("delta"), network, selector=selector
        )
        return model, FORMS["tied"](model)
    model = build(prior="delta" if kind == "still" else "independent")
    return model, attach("cascaded" if kind == "paid" else "tied", model)


ACTING: list[tuple[dict[str, Any], str, str]] = [
    ({"momentum": 0.5, "optimiser": "nag"}, "still", ""),
    ({"momentum": 0.5}, "paid", "momentum acts on nothing here: it needs optimiser nag"),
    ({"period": 5, "least_rate": 1e-4, "decay": "cosine"}, "still", ""),
    (
        {"period": 5, "least_rate": 1e-4},
        "paid",
        "period, least_rate act on nothing here: they need decay cosine",
    ),
    ({"shrink": 0.5, "period_growth": 2.0, "decay": "cosine", "period": 5}, "still", ""),
    ({"shrink": 0.5, "period_growth": 2.0, "decay": "cosine"}, "paid", "period_growth, shrink act"),
    ({"kl": "sampled"}, "paid", ""),
    ({"kl": "sampled"}, "gates", ""),
    ({"kl": "sampled"}, "subset", ""),
    ({"kl": "sampled"}, "noisy", "kl acts on nothing here"),
    ({"kl": "sampled"}, "aligned", "kl acts on nothing here"),
    ({"kl_warmup_steps": 5, "min_kl_weight": 0.5, "max_kl_weight": 0.9}, "paid", ""),
    ({"kl_warmup_steps": 5}, "subset", ""),
    ({"kl_warmup_steps": 5}, "aligned", ""),
    ({"kl_warmup_steps": 5}, "aligned, tied", "kl_warmup_steps acts on nothing here"),
    ({"kl_warmup_steps": 5}, "gates", "kl_warmup_steps acts on nothing here"),
    ({"min_kl_weight": 0.5}, "paid", "min_kl_weight acts on nothing here"),
    ({"max_kl_weight": 0.5, "loss": "iwae"}, "aligned", "max_kl_weight acts on nothing here"),
    ({"free_bits": 0.1}, "paid", ""),
    ({"free_bits": 0.1}, "aligned", ""),
    ({"free_bits": 0.1}, "still", "free_bits acts on nothing here"),
    ({"free_bits": 0.1, "loss": "marginal"}, "aligned", "free_bits acts on nothing here"),
    ({"noise_warmup_steps": 2}, "noisy", ""),
    ({"noise_warmup_steps": 2}, "still", "noise_warmup_steps acts on nothing here"),
    ({"noise_warmup_steps": 2}, "aligned", "noise_warmup_steps acts on nothing here"),
    ({"select_gradient": "score"}, "subset", ""),
    ({"select_gradient": "score"}, "still", "select_gradient acts on nothing here"),
    ({"temperature": 2.0, "least_temperature": 0.5}, "subset", ""),
    ({"temperature": 2.0, "least_temperature": 0.5}, "paid", "temperature, least_temperature act"),
    (
        {"temperature": 2.0, "select_gradient": "score"},
        "subset",
        "temperature acts on nothing here",
    ),
    ({"patience": 3}, "paid", ""),
    ({"patience": 3}, "gates", "patience acts on nothing here: it needs a training without gates"),
    ({"loss": "marginal"}, "aligned", ""),
    ({"loss": "marginal"}, "paid", "loss acts on nothing here"),
    ({"loss": "iwae", "loss_samples": 7}, "aligned", ""),
    ({"loss_samples": 7}, "aligned", "loss_samples acts on nothing here"),
]


@pytest.mark.parametrize(("said", "kind", "message"), ACTING)
def test_what_acts_on_nothing_is_refused_and_nothing_else(
    said: dict[str, Any], kind: str, message: str
) -> None:
    model, guide = pair(kind)
    if not message:
        check_idle(Training(**said), model, guide)
        return
    with pytest.raises(ValueError) as caught:
        check_idle(Training(**said), model, guide)
    assert str(caught.value).startswith(message)
    assert "--" not in str(caught.value)


def test_every_need_of_training_has_both_cases() -> None:
    for message in (True, False):
        named = {name for said, _, text in ACTING if bool(text) == message for name in said}
        needy = {name for need in OF_TRAINING for name in need.options}
        assert needy <= named


class Mine(ModelGuide):
    """A guide that may know of a latent that the library does not."""

    def get_posterior(self, name: str, prior: Any) -> Any:
        return prior


def test_of_a_guide_of_ones_own_nothing_is_known() -> None:
    model, _ = pair("still")
    check_idle(Training(kl="sampled", free_bits=0.1, kl_warmup_steps=3), model, Mine(model))


def test_they_are_refused_before_anything_is_trained(batch: Batch, tmp_path: Any) -> None:
    model, guide = pair("still")
    with pytest.raises(ValueError, match=r"^momentum acts on nothing here"):
        lh.fit(model, guide, [small_batch()], momentum=0.5, quiet=True)
    run = train(tmp_path / "run", "--data=grammar", "--sentences=40", "--held_out=5")
    with pytest.raises(ValueError, match=r"^period acts on nothing here"):
        lh.Trainer(run.model, run.guide, run.corpus, out=tmp_path / "other", period=3)
    assert not (tmp_path / "other").exists()
