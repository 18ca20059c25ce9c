"""The scores of a run are those of its metrics, each by its name."""

from __future__ import annotations

from unittest import mock

import pytest

from latentheads.batch import Batch
from latentheads.contrib.speech.data import Speech
from latentheads.corpora import Corpus, Processor, Words
from latentheads.guides import Tied
from latentheads.models import Translation
from latentheads.runs.scoring import score_ctc
from latentheads.runs.settings import Settings
from tests.latentheads.contrib.page.runs import some_part
from tests.latentheads.metrics.systems import recognise
from tests.tiny import sizes

SAID = ["ONE two", "three four", "five"]
HEARD = [[4, 5], [6, 5], [8]]
"""What CTC hears: a word of five is another, and two are in small letters."""


@pytest.mark.parametrize("lowercase", [False, True])
def test_what_ctc_hears_is_scored_by_words_and_by_letters(lowercase: bool) -> None:
    words = Words(["one", "two", "three", "four", "five"])
    targets, sources = [[4, 5, 2], [6, 7, 2], [8, 2]], [[4, 2], [4, 4, 4, 2], [4, 4, 2]]
    part = some_part(targets, sources, references=SAID)
    corpus = Corpus("by hand", part, part, part, Processor(words))
    network = sizes(speech={"channels": 4})
    model = Translation(5, len(words), network, latents=(), bins=5, ctc=0.3)
    settings = Settings(data=Speech("folder", lowercase=lowercase))

    def hear(batch: Batch) -> list[list[int]]:
        return [HEARD[sentence] for sentence in batch.sentences.tolist()]

    with mock.patch.object(model, "decode_ctc", hear):
        ctc_scores = score_ctc(settings, model, Tied(model), corpus)
    expected = recognise(["one two", "three two", "five"], SAID, lowercase)
    assert ctc_scores == {"ctc_wer": expected.wer, "ctc_cer": expected.cer}
    assert expected.wer != expected.cer
