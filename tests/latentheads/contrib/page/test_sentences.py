"""The sentences of a page: what their figures are said to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from latentheads.contrib.page.sentences import choose_sentences, gather_texts
from latentheads.corpora.batches import batches
from latentheads.corpora.tasks import Mixture, Task
from latentheads.inference.sentences import sentence_bounds
from tests.latentheads.contrib.page.runs import make_run, small_corpus, some_part


def test_sentences_are_chosen_by_their_longer_side() -> None:
    targets, sources = [[4] * 11 + [2], [4] * 4 + [2]], [[4] * 39 + [2], [4] * 11 + [2]]
    (chosen,) = choose_sentences(some_part(targets, sources), 1).targets
    assert len(chosen) == 5


def test_bounds_of_a_sentence_are_in_nats_a_token_beside_what_all_pay_together(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path / "run", small_corpus(text=True))
    part = run.corpus.test.first(1)
    alone = sentence_bounds(run.model, run.guide, next(iter(batches(part, 64, shuffle=False))), 2)
    shared = replace(alone, shared_kl=torch.tensor(2.5, dtype=torch.float64))
    ((one,), (other,)) = (gather_texts(run, part, item, [None]) for item in (alone, shared))
    assert (one["bounds"]["tokens"], one["bounds"]["shared_kl"]) == (4, 0)
    for name in ("elbo", "kl", "iwae", "plug_in"):
        assert one["bounds"][name] == float(getattr(alone, name)[0]) / 4
    assert other["bounds"] == one["bounds"] | {"shared_kl": 2.5}
    of_task = replace(part, task=np.zeros(1, np.int32), mixture=Mixture((Task("en", "de"),)))
    assert (one["task"], gather_texts(run, of_task, alone, [None])[0]["task"]) == (None, "en-de")
