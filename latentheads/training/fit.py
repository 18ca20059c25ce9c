"""Training on your own batches, in memory: no corpus, no folder, no settings."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import torch
from pyro.infer import ELBO
from torch import Tensor, nn

from latentheads.batch import Batch, check_batch
from latentheads.checks import check_least, check_not_empty, check_seed
from latentheads.corpora.batches import TOKENS
from latentheads.corpora.batches import batches as in_batches
from latentheads.corpora.loader import BatchLoader
from latentheads.corpora.part import Part
from latentheads.guide import ModelGuide, check_pair
from latentheads.handlers import isolated_param_store
from latentheads.inference.bound import Terms
from latentheads.inference.display import scores_to_html, scores_to_text
from latentheads.inference.evaluation import Report, evaluate
from latentheads.metrics.scores import Scores
from latentheads.model import HeadModel
from latentheads.options import in_group
from latentheads.passes import one_at_a_time
from latentheads.training.callbacks import Callback, list_callbacks
from latentheads.training.checkpoints import weights
from latentheads.training.engine import Engine
from latentheads.training.loop import Loop
from latentheads.training.losses import HeadELBOLoss, LossLike, instance_of
from latentheads.training.options import FitKwargs, Training, make_training
from latentheads.training.sanity_check import check_bound_exists

OF_FOLDERS = ("checkpoint_every", "keep", "average")
"""Options of training that act on a run folder alone."""


@dataclass(frozen=True)
class Fitted:
    """The outcome of a training.

    Attributes:
        report: The bound, its terms and its metrics, of the weights that stay.
        step: Optimiser steps of these weights.
        history: A record of each evaluation on validation: progress, scores, the KL of every site.
        is_of_training: Whether the report is of the batches that were trained on, because no others
            were given; then the best weights were selected by them, too.
    """

    report: Report
    step: int
    history: list[dict[str, Any]] = field(repr=False)
    is_of_training: bool = False

    def __str__(self) -> str:
        return scores_to_text(*self._name_parts(), self.report.faults)

    def _repr_html_(self) -> str:
        return scores_to_html(*self._name_parts(), self.report.faults)

    def _name_parts(self) -> tuple[dict[str, Scores], str]:
        """The scores, and what they are of."""
        on = ", on the batches that they were trained on" if self.is_of_training else ""
        return {"": self.report.scores()}, f"the weights after {self.step:,} steps{on}"


def fit(
    model: HeadModel,
    guide: ModelGuide,
    batches: Part | Sequence[Batch] | Callable[[int], Iterable[Batch]],
    valid: Part | Sequence[Batch] | None = None,
    *,
    seed: int = 0,
    num_samples: int = 1,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    loss: LossLike = "Head_ELBO",
    **training: Unpack[FitKwargs],
) -> Fitted:
    """Trains a model and its guide on your own batches, and reports the true bound.

    The loop is that of :class:`latentheads.Trainer`: schedule, clipping, weights of the KL, a
    guard against what is not finite, evaluations, the best weights. There is no run folder, but
    if training is interrupted, the best weights so far remain, in evaluation mode. Parameters that
    need no gradient stay as they are: with ``model.network.requires_grad_(False)`` only the guide
    of a pre-trained network is trained. Under ``torchrun`` each process trains alone, and does not
    share the work as with :class:`latentheads.Trainer`.

    Args:
        model: Any model of heads, such as :func:`latentheads.latent` makes.
        guide: Its guide.
        batches: All batches of an epoch, which come in another order in each; or a function that
            makes those of an epoch, by its number; or a part of a corpus. Those of a function need
            ``corpus_size`` where gates or selections are sampled, whose KL counts once in a corpus.
        valid: What the best weights are selected by, and what is reported on. When not given,
            these are the batches themselves: the report is then of training, as the printed result
            states, and that of other batches (``lh.evaluate``) can be far worse.
        seed: Of order and noise.
        num_samples: Samples of each sentence in the report, K of IWAE; a run has 32 by default.
        callbacks: Called after each step and each evaluation, such as a
            :class:`latentheads.latents.gates.hard_gates.GateController` or one of your own.
        quiet: Show no progress.
        loss: What is minimised: any ``pyro.infer.ELBO``, such as ``Trace_ELBO(num_particles=2)``,
            or the name of one, alone or with options as ``{"class": "iwae", "num_samples": 10}``;
            see :class:`latentheads.training.options.Training`.
        **training: The other options of training, such as ``steps``.

    Returns:
        What was reported. Model and guide have the best weights, in evaluation mode.

    Raises:
        ValueError: Nothing is to be trained, or an option is unknown, out of range, or without
            an effect.
        FloatingPointError: The objective, or on a CPU its gradient, is no longer finite; the
            message names the site or the parameter.

    Example:
        >>> options = {"steps": 2, "warmup_steps": 1, "quiet": True}
        >>> fitted = lh.fit(model, guide, [batch], **options)
        >>> fitted.step, fitted.report.how["decoder.0.cross.logits"]
        (2, 'analytic')
    """
    check_least({"num_samples": num_samples}, num_samples=1)
    check_seed(seed)
    options = read_options(training | {"loss": loss}, isinstance(batches, Part))
    return fit_pair(
        model,
        guide,
        batches,
        valid,
        options,
        instance_of(loss),
        seed=seed,
        num_samples=num_samples,
        callbacks=list_callbacks(callbacks),
        quiet=quiet,
    )


@one_at_a_time()  # also while the best weights are restored and reported on
def fit_pair(
    model: HeadModel,
    guide: ModelGuide,
    batches: Any,
    valid: Any,
    options: Training,
    instance: ELBO | None,
    *,
    seed: int,
    num_samples: int = 1,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    refuses_unused: bool = True,
) -> Fitted:
    """Trains one pair, as :func:`fit` does; of several pairs an option need not act on each."""
    check_pair(model, guide)
    guide.to(model.device)  # the model may have been moved since the guide was made
    source = batches if isinstance(batches, Part) else _make_loader(batches, options, seed)
    engine = Engine(model, guide, source, options, seed, loss=instance)
    valid_batches = _select_valid(batches, valid)
    if isinstance(valid_batches, Part):
        first = next(in_batches(valid_batches, TOKENS, shuffle=False))
    else:
        first = valid_batches[0]
    computed = check_bound_exists(engine, first)
    # nobody chose the defaults of an instance
    if refuses_unused and instance is None and isinstance(options.loss, HeadELBOLoss):
        relaxes = getattr(engine.elbo, "relaxes", False)
        _check_kl_options(options.loss, computed, relaxes)
    best = _BestWeights(engine, adds_moving=bool(callbacks))
    loop = Loop(engine, valid_batches, seed, [*callbacks, best], quiet=quiet)
    try:
        loop.run()
    finally:
        best.restore()
    report = loop.report
    if num_samples != 1 or report is None:
        with isolated_param_store():
            report = evaluate(model, guide, valid_batches, num_samples=num_samples, seed=seed)
    return Fitted(report, loop.step, loop.history, valid is None or valid is batches)


def read_options(options: Mapping[str, Any], cuts: bool) -> Training:
    """How to train, without what only a folder can do; ``tokens`` acts where batches are cut here.

    Raises:
        ValueError: One is of a folder, or unknown, or out of range.
    """
    unused = dict.fromkeys(OF_FOLDERS, "is of a run folder: train with lh.Trainer")
    if not cuts:
        unused["tokens"] = "cuts a part of a corpus into batches: these are cut already"
    for name, why in unused.items():
        if name in options:
            raise ValueError(f"{name} {why}")
    return make_training(options)


def _make_loader(batches: Any, options: Training, seed: int) -> BatchLoader:
    if not (callable(batches) or isinstance(batches, Sequence)):
        raise ValueError(
            "batches must be a list of batches, a part of a corpus, or a function that makes the "
            f"batches of an epoch, got {type(batches).__name__}"
        )
    if isinstance(batches, Sequence):
        check_not_empty("batches", batches)
        for batch in batches:
            check_batch(batch, "batches")
    return BatchLoader(batches, seed, options.accumulate)


def _select_valid(batches: Any, valid: Any) -> Part | Sequence[Batch]:
    """The batches that are evaluated, as something that can be iterated many times."""
    valid_batches = batches if valid is None else valid
    if isinstance(valid_batches, Part):
        return valid_batches
    if not isinstance(valid_batches, Sequence) or not valid_batches:
        missing = valid is None and callable(batches)
        is_other = isinstance(valid_batches, str) or valid_batches
        none = type(valid_batches).__name__ if is_other else "none"
        got = "none beside a function of epochs" if missing else none
        raise ValueError(f"valid must be a list of batches or a part of a corpus, got {got}")
    for batch in valid_batches:
        check_batch(batch, "valid")
    if not any(batch.scored_mask.any() for batch in valid_batches):
        raise ValueError(f"{'batches' if valid is None else 'valid'} has nothing to predict")
    return valid_batches


def _check_kl_options(loss: HeadELBOLoss, computed: Terms, relaxes: bool) -> None:
    """Validates that an option of a KL acts on a term; a selection's is sampled if relaxed."""
    how = {computed.how[site] for site in computed.kl}
    of_logits = bool(how & {"analytic", "sampled"})
    summed = "enumerated" in how and loss.has_kl_of_alignments
    shared = bool(computed.shared_kl)
    with in_group("loss"):
        sampled = of_logits or (shared and relaxes)
        loss.check_kl(of_sentences=of_logits or summed, sampled=sampled, shared=shared)


class _BestWeights(Callback):
    """Keeps the best weights in memory.

    Args:
        engine: What trains.
        adds_moving: Whether a callback may free parameters that were frozen before.
    """

    def __init__(self, engine: Engine, adds_moving: bool) -> None:
        self.engine, self.adds_moving = engine, adds_moving
        self.kept: dict[str, Tensor] | None = None

    def on_step_end(self, step: int) -> None:
        """Keeps the parameters that another callback may just have freed."""
        if self.adds_moving and self.kept is not None:
            self.kept |= self._copy_moving(self.kept)

    def on_evaluate(self, record: Mapping[str, Any], is_best: bool) -> None:
        if is_best:
            self.kept = self._copy_moving()
        else:
            self.on_step_end(record["step"])

    def _copy_moving(self, excluded: Container[str] = ()) -> dict[str, Tensor]:
        """Copies of all tensors that training still changes, but for those known already."""
        return {
            name: tensor.detach().clone()
            for name, tensor in self._weights().items()
            if name not in excluded
            and (tensor.requires_grad or not isinstance(tensor, nn.Parameter))
        }

    def _weights(self) -> dict[str, Tensor]:
        return weights(model=self.engine.model, guide=self.engine.guide)

    @torch.no_grad()
    def restore(self) -> None:
        """Gives model and guide the best weights, if there was an evaluation; evaluation mode."""
        every = self._weights()
        for name, tensor in (self.kept or {}).items():
            every[name].copy_(tensor)
        self.engine.model.eval()
        self.engine.guide.eval()
