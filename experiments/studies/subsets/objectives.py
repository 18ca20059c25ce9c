"""The losses of a guide of the gates of each sentence: the gap that each reaches, and its cost."""

from __future__ import annotations

import time
from typing import Any

import pyro
import torch

import latentheads as lh
from latentheads.experiments.studies.subsets import guides
from latentheads.experiments.studies.subsets.rankings import with_latents
from latentheads.runs.run import Run

LOSSES = {
    "Head_ELBO": ("bound", 1.0),
    "sampled": ("sampled", 1.0),
    "relaxed, temperature 1": ("relaxed", 1.0),
    "relaxed, temperature 0.2": ("relaxed", 0.2),
}
"""Objective and temperature of every loss."""
GUIDE_SEEDS = 3


def objectives(run: Run, options: Any) -> dict[str, Any]:
    """Trains an autoregressive guide of the frozen network by every loss, with a few seeds."""
    model = with_latents(run, lh.latents.BernoulliHeadsOptions(options.blocks, rate=options.rate))
    blocks = ",".join(model.latents["bernoulli-heads"].fixed_blocks)
    train = run.corpus.train.first(options.train_sentences)
    test = guides.Sentences.of(run.model, run.corpus.test.first(options.sentences), blocks)
    rows = []
    for seed in range(GUIDE_SEEDS):
        for name, (objective, temperature) in LOSSES.items():
            torch.manual_seed(seed)
            model.latents["bernoulli-heads"].temperature = temperature
            loss = lh.Head_ELBO(analytic=True, objective=objective)
            batches = zip(range(options.steps), guides.endless_batches(train, seed))
            history = _train(loss, model, (batch for _, batch in batches), test)
            rows.append({"loss": name, "seed": seed, "history": history})
            print(name, seed, history[-1:], flush=True)
    return {"blocks": blocks, "rows": rows}


def _train(loss: Any, model: Any, batches: Any, test: guides.Sentences) -> list[dict[str, float]]:
    """Trains a new guide; its bound and gap on test, and the CPU seconds of its training so far."""
    guide = lh.guides.Autoregressive(model).eval()
    posterior, *_ = guide.latent_posteriors.values()
    optimizer = torch.optim.Adam(posterior.parameters(), 1e-3)
    history, seconds = [], 0.0
    for step, batch in enumerate(batches, 1):
        start = time.process_time()
        optimizer.zero_grad()
        with pyro.validation_enabled(False):
            nats = loss.differentiable_loss(model, guide, batch)
        (nats / batch.scored_mask.sum()).backward()
        optimizer.step()
        seconds += time.process_time() - start
        if step % guides.EVALUATE_EVERY == 0:
            figures = guides.figures_of(model.latents["bernoulli-heads"], posterior, test)
            history.append({"step": step, "seconds": seconds, **figures})
    return history
