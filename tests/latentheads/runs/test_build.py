"""What a run needs before it is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from latentheads.guides import MeanField
from latentheads.latents.logits.options import LogitsOptions, PriorSpec
from latentheads.latents.logits.priors import Independent
from latentheads.runs.build import make_accelerator
from latentheads.runs.pairs import GuideSpec
from latentheads.runs.settings import Settings


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
    settings = Settings(latents=(LogitsOptions(PriorSpec(prior)),), guide=GuideSpec(guide))
    (found,) = make_accelerator(tmp_path, settings, torch.device("cpu"), tensorboard=False)
    assert found.find_unused_parameters == expected


def test_the_precision_of_a_launcher_is_not_that_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("accelerate.Accelerator", lambda **options: options)
    found = make_accelerator(tmp_path, Settings(), torch.device("cpu"), tensorboard=False)
    assert found["mixed_precision"] == "no"
