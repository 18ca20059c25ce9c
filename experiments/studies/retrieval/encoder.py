"""A sentence encoder that finds the paraphrase of a sentence among many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.contrib.hf import EncodedBatch
from latentheads.packages import import_optional

SHARPNESS = 20.0
"""The factor of cosines before the softmax, as the sentence encoders were trained."""

SENTENCES = 64
"""Sentences that are encoded at a time."""

UNBOUNDED = 1 << 20
"""Tokens of a sentence where neither the network nor its tokenizer knows a limit."""


class Encoder:
    """A network with its tokenizer, of a folder that ``save_pretrained`` wrote.

    Attributes:
        network: An encoder of ``transformers``, frozen.
        tokenizer: Its tokenizer.
        longest: Tokens of a sentence that the network reads; later ones are cut off.
    """

    def __init__(self, folder: str | Path) -> None:
        transformers = import_optional("transformers")
        if not Path(folder, "config.json").is_file():
            raise ValueError(f"network: no folder of a network: {folder} has no config.json")
        transformers.utils.logging.disable_progress_bar()
        self.network: Any = transformers.AutoModel.from_pretrained(folder).eval()
        self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
        self.network.requires_grad_(False)
        self.longest = min(self.tokenizer.model_max_length, places_of(self.network), UNBOUNDED)

    def encode(self, sentences: Sequence[str]) -> dict[str, Tensor]:
        """The token ids of sentences, cut to what the network reads, padded to the longest."""
        words = self.tokenizer(
            list(sentences),
            padding=True,
            truncation=True,
            max_length=self.longest,
            return_tensors="pt",
        )
        return {name: words[name] for name in ("input_ids", "attention_mask")}

    @torch.no_grad()
    def embed_all(self, sentences: Sequence[str]) -> Float[Tensor, "sentence dim"]:
        """The unit vectors of many sentences, those of a length together."""
        order = sorted(range(len(sentences)), key=lambda place: len(sentences[place]))
        found: list[Tensor] = []
        for start in range(0, len(order), SENTENCES):
            words = self.encode([sentences[place] for place in order[start : start + SENTENCES]])
            found.append(embed(self.network(**words), words["attention_mask"]))
        every = torch.cat(found)
        return torch.empty_like(every).index_copy_(0, torch.tensor(order), every)


def embed(outputs: Any, real: Tensor) -> Float[Tensor, "sentence dim"]:
    """The mean of the last states of a sentence's real positions, of length one."""
    weight = real.unsqueeze(-1).to(outputs.last_hidden_state.dtype)
    mean = (outputs.last_hidden_state * weight).sum(1) / weight.sum(1)
    return F.normalize(mean, dim=-1)


class AnswerScores:
    """Scores which of many sentences is the paraphrase: what a network's likelihood is made of."""

    def __init__(self, answers: Float[Tensor, "answer dim"]) -> None:
        self.answers = answers

    def __call__(self, outputs: Any, batch: EncodedBatch) -> Float[Tensor, "batch answer"]:
        """The score of each answer: its cosine with the question, sharpened."""
        return SHARPNESS * embed(outputs, batch.inputs["attention_mask"]) @ self.answers.T


def places_of(network: Any) -> int:
    """How many tokens a network has positions for; some begin to count behind that of padding."""
    places: int = getattr(network.config, "max_position_embeddings", UNBOUNDED)
    tables = (m for name, m in network.named_modules() if name.endswith("position_embeddings"))
    padding = getattr(next(tables, None), "padding_idx", None)
    return places if padding is None else places - padding - 1


def hit_rate(
    questions: Float[Tensor, "pair dim"], answers: Float[Tensor, "pair dim"]
) -> tuple[float, float]:
    """The share of questions whose own answer is the nearest, and the mean log-probability."""
    scores = SHARPNESS * questions @ answers.T
    own = torch.arange(len(scores))
    hits = (scores.argmax(-1) == own).double().mean()
    return float(hits), -float(F.cross_entropy(scores, own))
