"""What a run needs before it is trained."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from latentheads.corpora import Mixture, Task
from latentheads.corpora.from_grammar import sample_tasks
from latentheads.guides import MeanField
from latentheads.latents.logits.options import LogitsOptions, PriorSpec
from latentheads.latents.logits.priors import Independent
from latentheads.runs.build import digest_corpus, digest_parts, make_accelerator, select_device
from latentheads.runs.pairs import GuideSpec
from latentheads.runs.settings import Settings
from tests.typechecking import unchecked


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
    parallel, _ = make_accelerator(tmp_path, settings, torch.device("cpu"), trackers=())
    assert parallel.find_unused_parameters == expected


def test_processes_wait_for_a_long_evaluation_of_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("accelerate.Accelerator", lambda kwargs_handlers, **_: kwargs_handlers)
    _, group = make_accelerator(tmp_path, Settings(), torch.device("cpu"), trackers=())
    assert group.timeout > timedelta(hours=2), "PyTorch's 10 or 30 minutes would end the run"


def test_the_precision_of_a_launcher_is_not_that_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("accelerate.Accelerator", lambda **options: options)
    accelerator = make_accelerator(tmp_path, Settings(), torch.device("cpu"), trackers=())
    assert accelerator["mixed_precision"] == "no"
    assert accelerator["log_with"] is None, "an empty list is warned of"


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("cpu", "cpu"),
        ("cuda", "cuda"),
        ("cuda:1", "cuda:1"),
        (torch.device("cuda", 1), "cuda:1"),
        (torch.device("cpu"), "cpu"),
        ("auto", "cuda"),
    ],
)
def test_a_device_is_a_name_or_that_of_torch(
    name: Any, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert select_device(name) == torch.device(device)


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("cuda", 0, "device cuda was requested, but torch finds none: use cpu"),
        (torch.device("cuda", 2), 2, "device cuda:2 was requested, but torch finds 2 of them"),
        ("cuda:-1", 2, "unknown device 'cuda:-1': choose from cpu, cuda, auto, cuda:NUMBER"),
        (1, 2, "unknown device 1: "),
        (torch.device("meta"), 2, "unknown device meta: "),
        (None, 2, "unknown device None: "),
    ],
)
def test_no_such_device(
    name: Any, number: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
    with pytest.raises(ValueError, match=f"^{message}"):
        unchecked(select_device)(name)


def test_the_digest_of_a_corpus_depends_on_the_task_of_each_sentence() -> None:
    mixture = Mixture((Task("en", "velu"), Task("en", "tamir")))
    corpus = sample_tasks(mixture, [9, 9], 3)
    assert corpus.train.task is not None
    swapped = replace(corpus.train, task=1 - corpus.train.task)
    digests = [digest_corpus(replace(corpus, train=train)) for train in (corpus.train, swapped)]
    assert digests[0] != digests[1]


def test_other_references_of_a_part_change_its_digest() -> None:
    corpus = sample_tasks(Mixture((Task("en", "velu"),)), [9], 3)
    more = replace(corpus.test, alternatives=[[line, "a"] for line in corpus.test.references])
    one, other = digest_parts(corpus), digest_parts(replace(corpus, test=more))
    assert [name for name in one if one[name] != other[name]] == ["test"]
