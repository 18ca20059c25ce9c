"""The task by which an encoder's heads are measured: to find the paraphrase among many."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.contrib.hf import EncodedBatch, Pretrained, latent, plain
from latentheads.experiments.studies.retrieval.encoder import AnswerScores, Encoder
from latentheads.experiments.studies.retrieval.paraphrases import Pairs
from latentheads.families import Family
from latentheads.latents.gates.hard_gates import Gating
from latentheads.names import Block


@dataclass(frozen=True)
class Task:
    """Questions, each with an answer to find.

    Attributes:
        encoder: The network, frozen.
        pairs: Questions and answers.
        answers: The vectors of the answers, by the network without noise.
        size: Questions at a time.
        seed: Of their order, and of what is sampled.
    """

    encoder: Encoder
    pairs: Pairs
    answers: Float[Tensor, "answer dim"]
    size: int
    seed: int = 0

    @contextmanager
    def latent_under(
        self, prior: str | Callable[[Block], Family], gates: Gating | None = None
    ) -> Iterator[Pretrained]:
        """The model of the network's heads in evaluation mode; the network is plain after."""
        scores = AnswerScores(self.answers)
        model = latent(
            self.encoder.network, prior, likelihood=scores, latents=[gates] if gates else []
        )
        try:
            yield model.eval()
        finally:
            plain(model)

    def batches(self, model: Pretrained) -> list[EncodedBatch]:
        """All questions."""
        every = range(len(self.pairs))
        starts = range(0, len(every), self.size)
        return [self._batch(model, every[start : start + self.size]) for start in starts]

    def updates(self, model: Pretrained, steps: int) -> Iterator[EncodedBatch]:
        """A batch for every step, in a random order, again from the start when through."""
        chance, places = random.Random(self.seed), list[int]()
        for _ in range(steps):
            if len(places) < self.size:
                places = random.Random(chance.random()).sample(
                    range(len(self.pairs)), len(self.pairs)
                )
            chosen, places = places[: self.size], places[self.size :]
            yield self._batch(model, chosen)

    def _batch(self, model: Pretrained, places: Sequence[int]) -> EncodedBatch:
        """Questions at some places of the pairs; each has its own answer to find."""
        inputs = self.encoder.encode([self.pairs.questions[place] for place in places])
        own = torch.tensor(places)
        return model.batch(inputs, own, index=own, corpus_size=len(self.pairs))
