"""What a run needs before it is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from latentheads.guides import MeanField
from latentheads.models.priors import Independent
from latentheads.runs.build import make_accelerator
from latentheads.runs.pairs import ClassSpec
from latentheads.runs.settings import Settings
from tests.latentheads.alignment.models import SHAPES, aligned
from tests.tiny import build


class Guide(MeanField):
    """A guide that is not the library's."""


class Prior(Independent):
    """A prior that is not the library's."""


@pytest.mark.parametrize(
    ("prior", "guide", "expected"),
    [
        ("independent", "mean-field", False),
        ("tied", "mean-field", False),
        ("independent", f"{__name__}:Guide", True),
        (f"{__name__}:Prior", "mean-field", True),
    ],
)
def test_processes_do_not_wait_for_what_a_class_of_ones_own_leaves_unused(
    prior: str, guide: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("accelerate.Accelerator", lambda kwargs_handlers, **_: kwargs_handlers)
    settings = Settings(prior=ClassSpec(prior), guide=ClassSpec(guide))
    (found,) = make_accelerator(tmp_path, settings, torch.device("cpu"), tensorboard=False)
    assert found.find_unused_parameters == expected


def test_the_precision_of_a_launcher_is_not_that_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("accelerate.Accelerator", lambda **options: options)
    found = make_accelerator(tmp_path, Settings(), torch.device("cpu"), tensorboard=False)
    assert found["mixed_precision"] == "no"


@pytest.mark.parametrize(("draws", "left"), [("logits", "hidden"), ("alignments", "condition_on")])
def test_a_folder_whose_guide_has_options_that_act_on_nothing_is_opened(
    draws: str, left: str
) -> None:
    said = {"hidden": 7, "condition_on": "prefix"}
    pair = Settings(prior=ClassSpec("independent"), guide=ClassSpec("cascaded", said)).pair
    encoder = build(latent=("encoder-self",))
    model = encoder if draws == "logits" else aligned(SHAPES["one head"])
    assert pair.make_guide(model).options == {left: said[left]}
