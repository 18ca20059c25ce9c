"""Training from end to end: a model and its guide on a corpus, in a run folder.

With the same seed all weights and metrics are the same, whether or not training was stopped, killed
and resumed in between, and whatever is sampled outside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median_high
from typing import Any, Unpack, cast

import numpy as np
import torch
from pyro.infer import ELBO

from latentheads.checks import check_instance, check_unicode
from latentheads.console import bars_shown, print_message
from latentheads.corpora.batches import collate, padding_fraction
from latentheads.corpora.corpus import Corpus, check_corpus
from latentheads.data.in_memory import data_of
from latentheads.decoding.options import Decoding
from latentheads.files import is_same_file, read_text
from latentheads.guide import ModelGuide
from latentheads.handlers import isolated_param_store
from latentheads.model import Decoder
from latentheads.noise import fixed_noise
from latentheads.options import UnusedOptionError, import_path, in_group
from latentheads.packages import package_versions
from latentheads.passes import one_at_a_time
from latentheads.runs.build import (
    apply_pruning,
    changed_parts,
    check_is_remade,
    digest_corpus,
    digest_parts,
    freeze_parameters,
    is_first_process,
    make_accelerator,
    make_model,
    read_heads,
    select_device,
    vocabularies_to_json,
)
from latentheads.runs.checkpoint_manager import CheckpointManager
from latentheads.runs.folder import (
    HEADS,
    OVERWRITE,
    PROCESSOR,
    START_ANEW,
    TEXTS,
    VOCABULARY,
    Folder,
)
from latentheads.runs.results import Results, complete
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings, Trusted, trusted_paths
from latentheads.runs.warm_start import describe_initialisation, initialise_from, load_initial_run
from latentheads.training.callbacks import Callback, list_callbacks
from latentheads.training.engine import Engine
from latentheads.training.loop import Loop
from latentheads.training.losses import HeadELBOLoss, LossLike, describe_elbo, instance_of
from latentheads.training.options import TrainerKwargs, make_training
from latentheads.training.sanity_check import check_bound_exists
from latentheads.training.trackers import Tracking, check_trackers

DEFAULT_LOSS = "Head_ELBO"

_FINISHED: set[Path] = set()
"""Folders that trainers of this process have filled without being given a folder or settings."""


class Trainer:
    """Trains a model and its guide, writes checkpoints, and reports the ELBO.

    A folder with the same run is resumed; a folder with another run raises an error.

    Args:
        model: A translation or language model.
        guide: Its guide.
        corpus: The corpus for training, validation and test.
        out: The run folder; ``runs/RECIPE-seedSEED`` when not given. Then runs of several seeds
            need different values of ``seed``.
        seed: Of data order and noise. The weights are the model's own: to seed those too, call
            ``torch.manual_seed(seed)`` before the model is made.
        num_samples: Samples per sentence in the report, K of IWAE.
        decoding: How the test part is translated.
        device: cpu, cuda, a GPU as ``cuda:1`` or ``torch.device("cuda", 1)``, or auto: cuda where
            there is one.
        overwrite: Start anew in a used folder.
        trusted: User-defined classes that the folder may name: a class, or ``module:Class``, or
            several.
        trackers: Names of trackers of accelerate, such as tensorboard, trackio and wandb.
        callbacks: Called after each step and each evaluation; a run that is resumed has those of
            its own call.
        quiet: Show no progress.
        loss: What is minimised: any ``pyro.infer.ELBO``, such as ``Trace_ELBO(num_particles=2)``,
            or the name of one, alone or with options as ``{"class": "iwae", "num_samples": 10}``;
            see :class:`latentheads.training.options.Training`. A loss of a user-defined class has
            to be given again when the run is resumed: the folder has its name alone.
        **training: The other options of training, such as ``steps``.

    Attributes:
        settings: Everything that defines the run.
        model: The model; after training with the weights that are reported.
        guide: Its guide.
        corpus: The corpus.
        folder: The run folder.
        results: What was reported; None before.

    Raises:
        ValueError: The folder holds something else, or an option is unknown or out of range.
    """

    def __init__(
        self,
        model: Decoder,
        guide: ModelGuide,
        corpus: Corpus,
        *,
        out: str | Path | None = None,
        seed: int = 0,
        num_samples: int = 32,
        decoding: Decoding | None = None,
        device: str | torch.device = "auto",
        overwrite: bool = False,
        trusted: Trusted = None,
        trackers: Sequence[str] = (),
        callbacks: Sequence[Callback] = (),
        quiet: bool = False,
        loss: LossLike = DEFAULT_LOSS,
        **training: Unpack[TrainerKwargs],
    ) -> None:
        check_trackers(trackers)
        settings = _settings_of(
            model,
            guide,
            corpus,
            loss,
            seed=seed,
            num_samples=num_samples,
            decoding=decoding,
            **training,
        )
        folder = open_folder(settings, out, overwrite, trusted)
        check_is_remade(settings, corpus, model, guide)
        self._names_folder = out is None
        how = device, trackers, list_callbacks(callbacks), quiet, instance_of(loss)
        self._set_up(settings, folder, model, guide, corpus, *how)

    @classmethod
    def of(
        cls,
        settings: Settings,
        corpus: Corpus | None = None,
        *,
        out: str | Path | None = None,
        device: str | torch.device = "auto",
        overwrite: bool = False,
        trusted: Trusted = None,
        trackers: Sequence[str] = (),
        callbacks: Sequence[Callback] = (),
        quiet: bool = False,
        loss: ELBO | None = None,
    ) -> Trainer:
        """Makes model, guide and corpus of settings; the seed decides the weights too.

        Args:
            settings: Everything that defines the run.
            corpus: The corpus, where it is at hand, and the settings' data are then its own; made
                from the settings when not given.
            out: As for the class.
            device: The same.
            overwrite: The same.
            trusted: The same.
            trackers: The same.
            callbacks: The same.
            quiet: The same.
            loss: The loss that the settings name, if its class is user-defined.
        """
        check_instance("settings", settings, Settings, "Settings, as Settings.read gives")
        if corpus is not None:
            check_corpus(corpus)
            settings = replace(settings, data=data_of(corpus))
        elif settings.in_memory:
            raise ValueError("data in-memory is a corpus that no options make: give corpus")
        if isinstance(loss, str | Mapping):
            raise ValueError("loss stands in settings: give one of both")
        if loss is not None and (given := describe_elbo(loss)) != settings.train.loss:
            raise ValueError(f"loss must be {settings.train.loss}, got {given}")
        check_trackers(trackers)
        # a mistake costs no time: it is found before the corpus is read
        folder = open_folder(settings, out, overwrite, trusted)
        start = None if folder.resumable else load_initial_run(settings, folder.trusted)
        is_printed = is_first_process() and not quiet
        with in_group("data"), bars_shown(is_printed):
            log = partial(print_message, file=sys.stdout) if is_printed else None
            corpus = corpus or settings.data.load(log)
        with fixed_noise(settings.seed, select_device(device)):
            model = make_model(settings, corpus.target, corpus.source)
            guide = settings.pair.make_guide(model)
        trainer = cls.__new__(cls)  # the constructor would ask the objects what settings say
        trainer._names_folder = False
        how = device, trackers, list_callbacks(callbacks), quiet, loss
        trainer._set_up(settings, folder, model, guide, corpus, *how, start=start)
        return trainer

    def _set_up(
        self,
        settings: Settings,
        folder: Folder,
        model: Decoder,
        guide: ModelGuide,
        corpus: Corpus,
        device: str | torch.device,
        trackers: Sequence[str],
        callbacks: list[Callback],
        quiet: bool,
        loss: ELBO | None,
        start: Run | None = None,
    ) -> None:
        """Starts with the weights of a run, or resumes if the folder holds the same run."""
        self.settings, self.folder, self.corpus, self.loss = settings, folder, corpus, loss
        self.trackers, self.callbacks, self.quiet = trackers, callbacks, quiet
        self.device, path = select_device(device), folder.path
        self.accelerator = make_accelerator(path, settings, self.device, trackers)
        self.processes = 1 if self.accelerator is None else self.accelerator.num_processes
        if self.processes > 1:
            self.device = self.accelerator.device  # one GPU a process
        self._check_processes()
        self.model, self.guide = model.to(self.device), guide.to(self.device)
        self._started = False
        self.digest = digest_corpus(corpus)
        is_resumed = folder.resumable
        self.heads = start.heads if start else read_heads(path) if is_resumed else None
        apply_pruning(Path(settings.start) if settings.start else path, self.heads, model, guide)
        freeze_parameters(settings, model, guide)
        self.checkpoint_manager = self._make_checkpoint_manager(settings, folder)
        self._start = describe_initialisation(start, settings) if start else ""
        if start:
            initialise_from(start, settings, corpus, model, guide)
        self.latent_callbacks = self._make_latent_callbacks(settings)
        self.results = folder.results
        if is_resumed or self.results is not None:
            self._check_texts(folder)
        if is_resumed:
            self.checkpoint_manager.resume()
        part = corpus.valid  # guide and loss are checked on two sentences of it
        batch = collate(part, np.argsort(part.lengths)[len(part) // 2 :][:2])
        check_bound_exists(self.engine, batch)

    def _make_checkpoint_manager(self, settings: Settings, folder: Folder) -> CheckpointManager:
        """Makes the engine and the checkpoint manager."""
        train = self.corpus.train
        training, seed = settings.train, settings.seed
        fixed = settings.train_only == "guide"
        engine_options = seed, self.accelerator
        engine = Engine(
            self.model, self.guide, train, training, *engine_options, fixed, loss=self.loss
        )
        source, target = self.corpus.source, self.corpus.target
        texts = json.dumps(digest_parts(self.corpus), indent=2) + "\n"
        names = {VOCABULARY: vocabularies_to_json(target, source), TEXTS: texts}
        names[PROCESSOR] = json.dumps(self.corpus.processor.to_json(), indent=2) + "\n"
        if self.heads is not None:
            names[HEADS] = json.dumps(self.heads, indent=2) + "\n"
        return CheckpointManager(folder, engine, self.digest, names)

    def _check_texts(self, folder: Folder) -> None:
        """Raises an error if the text of the run in the folder has changed.

        That for training is in the checkpoint from which it is resumed. Another vocabulary changes
        the tokens of every part, so it is named alone. Of a damaged record a note is printed.
        """
        try:
            changed = changed_parts(folder.path / TEXTS, self.corpus)
        except ValueError as error:
            note = f"note: whether the text of {folder.path} has changed is not known: {error}"
            if self.main:
                print_message(note, sys.stderr)
            return
        if not changed or (changed == ["train"] and folder.resumable):
            return
        reason = f"watched on another text: that of {', '.join(changed)} has changed since"
        if self._has_other_vocabulary(folder):
            reason = "trained with another vocabulary: that of the training text has changed since"
        raise ValueError(f"{folder.path} was {reason}; {START_ANEW}")

    def _has_other_vocabulary(self, folder: Folder) -> bool:
        """Whether the vocabularies in a folder, if it has any, are not those of the corpus."""
        path = folder.path / VOCABULARY
        vocabularies = vocabularies_to_json(self.corpus.target, self.corpus.source)
        return path.exists() and read_text(path) != vocabularies

    def _make_latent_callbacks(self, settings: Settings) -> list[Callback]:
        """The callbacks of latents, such as that which adapts the L0 penalty."""
        steps, tokens = settings.train.steps, self.corpus.train.tokens
        arguments = (self.model, self.guide, steps, tokens)
        callbacks = (latent.make_callback(*arguments) for latent in settings.latents)
        return [callback for callback in callbacks if callback is not None]

    @property
    def engine(self) -> Engine:
        """What computes the steps of training."""
        return self.checkpoint_manager.engine

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.engine.rank == 0

    def __repr__(self) -> str:
        steps = f"step {self.engine.step:,} of {self.settings.train.steps:,}"
        return f"Trainer({str(self.folder.path)!r}: {self.settings.title}, {steps})"

    def headline(self) -> str:
        """One line that describes the run."""
        settings, counts = self.settings, self.parameters()
        start = f"; starts with {self._start}" if self._start else ""
        start += "; nothing to train: reported on as it is" if self.engine.is_fixed else ""
        start = f"; resumed at step {self.engine.step:,}" if self.engine.step else start
        workers = f", {self.engine.processes} processes" if self.engine.processes > 1 else ""
        train, training = self.corpus.train, settings.train
        # from which language into which: two files alone do not say it
        direction = f"{settings.data.direction}, " if settings.data.direction else ""
        padded = padding_fraction(train, training.tokens, settings.seed)
        return (
            f"{settings.description}; "
            f"model {counts['model']:,} + guide {counts['guide']:,} parameters; "
            f"corpus {self.corpus.name}, {direction}{len(train):,} {train.unit}, "
            f"{padded:.1%} of the tokens in a batch are padding; {self.device.type}{workers}{start}"
        )

    def parameters(self) -> dict[str, int]:
        """Counts parameters of model and guide."""
        return {
            "model": sum(p.numel() for p in self.model.parameters()),
            "guide": sum(p.numel() for p in self.guide.parameters()),
        }

    @one_at_a_time()  # also while the best weights are restored and reported on
    def fit(self, steps: int | None = None) -> Results | Any:
        """Trains up to the last step and reports.

        A run that has its report already is not trained again, unless it is given more steps.

        Args:
            steps: Steps of the whole training, in place of those of the settings, from now on: a
                later ``fit()`` has them too. After a step they can only be more: training goes on
                from the last checkpoint, with the schedule of the learning rate over the new
                number.

        Returns:
            What was reported. Of several processes only the first has it; the others have None.
            The type is ``Any`` beside ``Results``, so that a type checker demands no test for None.

        Raises:
            ValueError: There are fewer steps than before.
            FloatingPointError: The objective, or on a CPU its gradient, is no longer finite.
        """
        self._check_processes()
        if steps is not None and steps != self.settings.train.steps:
            train = replace(self.settings.train, steps=steps)
            self._go_back(replace(self.settings, train=train))
        elif self.results is None and self._started:  # it was broken off, perhaps within a step
            self._go_back(self.settings)
        self._check_not_of_another()
        if self.results is not None:
            if self.main and not self._started:  # these are figures of an earlier call
                path = self.folder.path
                print_message(f"{path} is finished; {OVERWRITE} trains it anew", sys.stdout)
            self.checkpoint_manager.restore_reported()
            self._end_training()
            return self.results if self.main else None
        try:
            self.train(self.quiet)
            self.release()
            with bars_shown(not self.quiet):
                return self.finish() if self.main else None
        except KeyboardInterrupt as reason:
            reason.args = (self._say_stopped(),)
            raise
        finally:
            self.folder.release()

    def _check_processes(self) -> None:
        """Raises an error in all of several processes, whose group ends with their first run."""
        if self.processes > 1 and not torch.distributed.is_initialized():
            raise ValueError("a program of several processes trains one run, and then no other")

    def _check_not_of_another(self) -> None:
        """Raises an error for the run of another trainer, whose weights began elsewhere.

        In a loop over seeds its figures would be taken for those of every seed.
        """
        path = self.folder.path.resolve()
        is_kept = not (self._started or self.folder.is_new)
        if self._names_folder and is_kept and path in _FINISHED:
            raise ValueError(
                f"{self.folder.path} is the finished run of another Trainer of this process: give "
                f"each its seed or out; {OVERWRITE} trains it anew"
            )

    def _say_stopped(self) -> str:
        """Where training stands when it is stopped, and the checkpoint from which it goes on."""
        done, saved = f"stopped after step {self.engine.step:,}", self.checkpoint_manager.saved
        if saved is None:
            return f"{done}: {self.folder.path} has no checkpoint yet"
        return f"{done}: {self.folder.last} is of step {saved:,}"

    def _go_back(self, settings: Settings) -> None:
        """Back to the last checkpoint, to go on from there with these settings.

        Raises:
            ValueError: There is nothing to go on from; then all is as it was before.
        """
        old_folder = self.folder
        overwrite = old_folder.overwrite and not self._started
        folder = Folder(old_folder.path, settings.to_yaml(), overwrite, old_folder.trusted)
        if self.engine.step and not folder.resumable:
            raise ValueError(
                f"{folder.path} has lost the checkpoint to go on from, and these weights are of "
                f"step {self.engine.step:,}: begin with a new model and Trainer"
            )
        old_folder.release()
        checkpoint_manager = self._make_checkpoint_manager(settings, folder)
        if folder.resumable:
            self._check_texts(folder)
            checkpoint_manager.check()
        latent_callbacks = self._make_latent_callbacks(settings)
        if folder.resumable:
            checkpoint_manager.resume()
        self.settings, self.folder = settings, folder
        self.checkpoint_manager = checkpoint_manager
        self.latent_callbacks = latent_callbacks
        self.results = folder.results

    def train(self, quiet: bool = False) -> None:
        """Trains; then model and guide have the weights for the report, and evaluation mode."""
        if self.main:
            self.checkpoint_manager.begin()
        self._started = True
        manager, is_quiet = self.checkpoint_manager, quiet or not self.main
        for callback in self.latent_callbacks:
            callback.quiet = is_quiet
        tracking = [Tracking(self.accelerator)] if self.trackers else []
        callbacks = [*self.latent_callbacks, *self.callbacks, *tracking, manager]
        valid, seed = self.corpus.valid, self.settings.seed
        Loop(self.engine, valid, seed, callbacks, manager.best, is_quiet).run()
        if self.main:
            self.checkpoint_manager.select_reported()
        self._end_training()

    def _end_training(self) -> None:
        """Sets evaluation mode, in which bounds are computed; a further step trains again."""
        self.model.eval()
        self.guide.eval()

    def release(self) -> None:
        """Ends distributed training; the first process continues alone."""
        if self.accelerator is not None:
            self.accelerator.end_training()

    def finish(self) -> Results:
        """Reports on validation and test, writes and returns the results, and draws the plots.

        A section that fails stands with its reason under ``missing``; all the others are written.
        """
        from latentheads.runs.reporter import Reporter  # it loads what draws and scores

        self.checkpoint_manager.write_missing_files()
        results = self._facts().to_json()
        reporter = Reporter(self.settings, self.model, self.guide, self.corpus, self.folder)
        with isolated_param_store():
            complete(results, reporter.sections(results), self.folder.write_results)
        self.folder.release()
        self.results = Results.read(results)
        if self._names_folder:
            _FINISHED.add(self.folder.path.resolve())
        return self.results

    def _latent_facts(self) -> dict[str, dict[str, Any]]:
        """Facts of each latent for the report, by name."""
        named = zip(self.settings.latent_names, self.settings.latents, strict=True)
        tokens = self.corpus.train.tokens
        facts = {name: latent.facts(self.model, self.guide, tokens) for name, latent in named}
        return {name: of_latent for name, of_latent in facts.items() if of_latent is not None}

    def _facts(self) -> Results:
        """The results of the run without a report."""
        settings = self.settings
        speeds = [record["tokens_per_second"] for record in self.folder.metrics()]
        speeds = [speed for speed in speeds if speed is not None]
        return Results(
            recipe=settings.recipe,
            guide=settings.pair.guide_name,
            select=settings.strategy,
            prior=settings.pair.prior_name,
            corpus=self.corpus.name,
            seed=settings.seed,
            steps=self.engine.step,
            reported_step=self.checkpoint_manager.reported,
            averaged=self.checkpoint_manager.averaged,
            parameters=sum(self.parameters().values()),
            tokens_per_second=median_high(speeds) if speeds else None,
            decoding=asdict(settings.decode),
            latents=self._latent_facts(),
            versions={
                **package_versions(),
                "torch": torch.__version__,
                "threads": str(torch.get_num_threads()),
                "device": self.device.type,
                "precision": self.engine.precision.name,
            },
        )


def _settings_of(
    model: Decoder,
    guide: ModelGuide,
    corpus: Corpus,
    loss: LossLike,
    *,
    seed: int,
    num_samples: int,
    decoding: Decoding | None,
    **training: Unpack[TrainerKwargs],
) -> Settings:
    """The settings of a run of objects, and of the options beside them."""
    options = make_training(training | {"loss": loss})
    run = {"decode": decoding or Decoding(), "seed": seed, "num_samples": num_samples}
    try:
        return Settings.of(model, guide, corpus, train=options, **run)
    except UnusedOptionError as reason:
        # an instance samples KLs by default, which acts on nothing where there are none to sample
        if instance_of(loss) is None or reason.path != "train.loss.kl":
            raise
        analytic = replace(cast(HeadELBOLoss, options.loss), kl="analytic")
        return Settings.of(model, guide, corpus, train=replace(options, loss=analytic), **run)


def open_folder(
    settings: Settings, out: str | Path | None, overwrite: Any, trusted: Trusted
) -> Folder:
    """Opens the folder of a run; it is written only when training begins.

    Raises:
        ValueError: It holds something else, or cannot be written.
    """
    # the text "no" would be true, and lose a finished run
    check_instance("overwrite", overwrite, bool, "true or false")
    if out == "":  # as from a variable that is not set: it would be the current folder
        raise ValueError("out must name a folder, got ''")
    path = settings.out if out is None else Path(out)
    check_unicode("out", str(path))  # safetensors would not open what it wrote there
    if settings.start and is_same_file(settings.start, path):
        raise ValueError(f"start and out are both {path}: choose another out")
    return Folder(path, settings.to_yaml(), overwrite, name_trusted(settings, trusted))


def name_trusted(settings: Settings, trusted: Trusted) -> str:
    """The trusted user-defined classes, including those of the run."""
    pair = settings.pair
    used = map(import_path, (pair.prior_class, pair.guide_class, type(settings.data)))
    return ",".join([*trusted_paths(trusted), *used, *settings.own_classes])
