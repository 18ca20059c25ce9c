"""Callbacks of one's own, and trackers by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import latentheads as lh
from latentheads.corpora import Corpus
from latentheads.data import Grammar
from latentheads.packages import MissingPackageError
from latentheads.runs.folder import TENSORBOARD
from latentheads.training.callbacks import Callback
from latentheads.training.trackers import check_trackers
from tests.experiments.programs import assert_refused
from tests.typechecking import unchecked

PLAN: dict[str, Any] = {"steps": 4, "report_every": 1, "warmup_steps": 1, "quiet": True}


class Log(Callback):
    """Notes what it is told, and stops training after some steps."""

    def __init__(self, stop: int = 0) -> None:
        self.stop = stop
        self.calls: list[tuple[str, int]] = []
        self.records: list[Mapping[str, Any]] = []

    def on_train_begin(self, step: int, steps: int) -> None:
        self.calls += [("begin", step), ("of", steps)]

    def on_step_end(self, step: int) -> None:
        self.calls.append(("step", step))

    def on_evaluate(self, record: Mapping[str, Any], is_best: bool) -> bool:
        self.calls.append(("evaluate", record["step"]))
        self.records.append(record)
        return bool(record["step"] == self.stop)

    def on_save(self) -> None:
        self.calls.append(("save", len(self.records)))

    def on_train_end(self) -> None:
        self.calls.append(("end", len(self.records)))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Grammar(sentences=19, held_out=5).load()


def pair(corpus: Corpus, latents: Sequence[Any] = ()) -> tuple[Any, Any]:
    torch.manual_seed(0)
    latents = latents or [lh.latents.AlignmentOptions()]
    sizes = {"width": 4, "heads": 2, "layers": 1, "feed_forward": 4}
    model = lh.models.Translation.of(corpus, latents=latents, **sizes)
    return model, lh.guides.Cascaded(model)


@pytest.mark.parametrize("callbacks", ["tqdm", Log(), [Log], [print]])
def test_what_is_no_list_of_callbacks_is_refused(corpus: Corpus, callbacks: Any) -> None:
    with pytest.raises(ValueError, match=r"^callbacks must be (a list|objects of classes der)"):
        unchecked(lh.fit)(*pair(corpus), corpus.train, callbacks=callbacks, **PLAN)
    trainer = object.__new__(lh.Trainer)
    with pytest.raises(ValueError, match=r"^callbacks must be (a list|objects of classes der)"):
        unchecked(lh.Trainer.__init__)(trainer, *pair(corpus), corpus, callbacks=callbacks, **PLAN)


def test_a_callback_is_told_of_steps_and_evaluations_and_may_stop(
    corpus: Corpus, tmp_path: Path
) -> None:
    expected = [("begin", 0), ("of", 4)]
    expected += [(name, step) for step in (1, 2) for name in ("step", "evaluate", "save")]
    log, other = Log(stop=2), Log(stop=2)
    fitted = lh.fit(*pair(corpus), corpus.train, corpus.valid, callbacks=[log], **PLAN)
    trainer = lh.Trainer(
        *pair(corpus), corpus, out=tmp_path / "run", callbacks=[other], num_samples=2, **PLAN
    )
    trainer.fit()
    assert log.calls == other.calls == [*expected, ("end", 2)]
    assert log.records == fitted.history
    assert trainer.engine.step == 2


def test_a_record_has_the_rate_and_the_norm_of_the_gradient(corpus: Corpus) -> None:
    log = Log()
    plan = {**PLAN, "schedule": "linear", "learning_rate": 0.25, "warmup_steps": 2, "clip": 0.0}
    lh.fit(*pair(corpus), corpus.train, corpus.valid, callbacks=[log], **plan)
    assert [record["learning_rate"] for record in log.records] == [0.125, 0.25, 0.25, 0.125]
    assert all(record["gradient_norm"] > 0 for record in log.records)


class RandomNumbers(Callback):
    """Samples random numbers after each step and evaluation, and notes those of steps."""

    def __init__(self) -> None:
        self.sampled: list[float] = []

    def on_step_end(self, step: int) -> None:
        self.sampled.append(float(torch.rand(())))

    def on_evaluate(self, record: Mapping[str, Any], is_best: bool) -> None:
        torch.rand(7)


def test_what_a_callback_samples_changes_nothing_of_training(corpus: Corpus) -> None:
    callback = RandomNumbers()
    fitted = []
    for callbacks in ([], [callback]):
        model, _ = pair(corpus, [lh.latents.LogitsOptions()])  # with noise in each step
        torch.manual_seed(3)
        guide = lh.guides.MeanField(model)
        fitted.append(lh.fit(model, guide, corpus.train, callbacks=callbacks, **PLAN))
    without, with_callback = ([record["objective"] for record in fit.history] for fit in fitted)
    assert without == with_callback
    # the numbers go on where they stood outside of training
    torch.manual_seed(3)
    lh.guides.MeanField(model)
    expected = []
    for _ in range(4):
        expected.append(float(torch.rand(())))
        torch.rand(7)
    assert callback.sampled == expected


def test_what_a_function_of_batches_samples_is_of_the_seed(corpus: Corpus) -> None:
    batches = [*lh.data.batches(corpus.train, tokens=40, shuffle=False)]
    histories = []
    for outer in (3, 4):
        model, guide = pair(corpus)
        torch.manual_seed(outer)
        fitted = lh.fit(
            model,
            guide,
            lambda _: (batches[int(torch.randint(len(batches), ()))] for _ in range(4)),
            batches,
            **PLAN,
        )
        histories.append([record["objective"] for record in fitted.history])
    assert len(batches) > 1
    assert histories[0] == histories[1]


def test_a_tracker_by_name_gets_loss_scores_kl_rate_and_norm(
    corpus: Corpus, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    trainer = lh.Trainer(
        *pair(corpus), corpus, out=out, trackers=["tensorboard"], num_samples=2, **PLAN
    )
    trainer.fit(steps=2)
    trainer.fit(steps=4)
    events = EventAccumulator(str(out / TENSORBOARD))
    events.Reload()
    files = [EventAccumulator(str(path)).Reload() for path in (out / TENSORBOARD).iterdir()]
    steps = [event.step for file in files for event in file.Scalars("valid/elbo")]
    assert sorted(steps) == [record["step"] for record in trainer.folder.metrics()], "each once"
    names = set(events.Tags()["scalars"])
    assert {"train/objective", "train/learning_rate", "train/gradient_norm"} <= names
    assert {"valid/elbo", "valid/log_likelihood", "valid/kl"} <= names
    assert {f"kl/{name}" for name in trainer.results.kl_by_site} <= names  # type: ignore[union-attr]
    last = events.Scalars("valid/elbo")[-1]
    record = trainer.folder.metrics()[-1]
    assert last.step == 4
    assert last.value == pytest.approx(record["valid"]["elbo"])


def test_what_is_no_tracker_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^tracker must be one of .*wandb.*; got 'neptun'$"):
        check_trackers(["neptun"])
    with pytest.raises(MissingPackageError, match=r"^tracker aim needs its package: pip install"):
        check_trackers(["aim"])


def test_the_command_line_names_trackers(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert_refused("run.py", "--trackers=neptun", f"--out={out}", says="tracker must be one of ")
    assert not out.exists()
