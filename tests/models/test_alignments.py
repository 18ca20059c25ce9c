"""Models with alignments: their start is the plain network, they decode, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from latentheads.batch import Batch
from latentheads.decoding.beam_search import beam_search
from latentheads.handlers import PlugIn
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import plug_in_log_likelihood
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.alignments.passes import AlignedTokens
from latentheads.models import PRIORS
from tests.crossing import in_turn, pairwise
from tests.guides.attached import attach
from tests.latentheads.latents.alignments.models import (
    ALIGNED_KINDS,
    MIXTURE,
    SHAPES,
    SOFT,
    aligned,
)
from tests.tiny import TARGET_TYPES, padded, rows

ALL = {**SHAPES, **SOFT, "mixture": MIXTURE["mixture"]}
every_shape = pytest.mark.parametrize("shape", ALL)


@in_turn(shape=ALL, kind=ALIGNED_KINDS)
def test_at_its_start_it_is_the_plain_network(kind: str, shape: str, batch: Batch) -> None:
    model = aligned(ALL[shape], size=0.0, kind=kind)
    plain = aligned(None, size=0.0, kind=kind)
    own = {n: v for n, v in model.state_dict().items() if not n.startswith("alignments.")}
    plain.load_state_dict(own)
    log_likelihoods, wanted = (plug_in_log_likelihood(item, batch) for item in (model, plain))
    assert torch.allclose(log_likelihoods, wanted, rtol=1e-13, atol=0)


def test_soft_heads_add_the_mean_word_vector_under_their_scores(batch: Batch) -> None:
    model = aligned(SOFT["soft"])
    hidden, (block,) = model.hidden(batch), model.alignments.blocks
    memory = block.norm(hidden.memory)
    scores = block.query(hidden.states) @ block.key(memory).mT / math.sqrt(block.size)
    weights = scores.masked_fill(~hidden.attn_mask, -math.inf).softmax(-1)
    log_probabilities = model.output(hidden.states + weights @ block.lexicon(memory)).log_softmax(
        -1
    )
    wanted = log_probabilities.gather(-1, batch.target[..., None])[..., 0] * batch.target_valid
    assert torch.allclose(model.token_distribution(batch).log_prob(batch.scored), wanted.sum(-1))


@pairwise(kind=ALIGNED_KINDS, shape=ALL, hypotheses=[0, 2])
def test_word_by_word_it_has_the_law_of_whole_sentences(
    kind: str, shape: str, hypotheses: int, batch: Batch
) -> None:
    model = aligned(ALL[shape], kind=kind)
    log_probs = word_by_word(model, batch, hypotheses)
    assert torch.allclose(log_probs, plug_in_log_likelihood(model, batch), rtol=1e-12, atol=0)


NETWORKS = {
    "n-gram": {"mixers": "ngram", "windows": "2"},
    "local, the last word alone": {"mixers": "decoder=local", "windows": "1"},
    "local, three words": {"mixers": "decoder=local", "windows": "3", "norm": "pre"},
    "no table shared": {"share": "none"},
    "one table for all": {"share": "all"},
    **{f"prior {name}": {"prior": name} for name in PRIORS},
}


@in_turn(network=NETWORKS, shape=["two heads", "two blocks", "chain"])
def test_whatever_lies_below_it_has_the_law_of_whole_sentences(
    shape: str, network: str, batch: Batch
) -> None:
    choice = {"source_types": TARGET_TYPES, **NETWORKS[network]}
    model = aligned(SHAPES[shape], blocks="all", **choice)
    with PlugIn():
        log_probs = word_by_word(model, batch)
    assert torch.allclose(log_probs, plug_in_log_likelihood(model, batch), rtol=1e-12, atol=0)
    bound_terms = terms(model, attach("cascaded", model), batch)
    assert bound_terms.enumeration is not None
    of_logits = sum(kl for site, kl in bound_terms.kl.items() if not site.endswith("choice"))
    gap = sum(bound_terms.enumeration.gap().values())
    assert torch.allclose(
        bound_terms.elbo, bound_terms.enumeration.log_evidence - gap - of_logits, atol=1e-10
    )


def word_by_word(model: Any, batch: Batch, hypotheses: int = 0) -> Tensor:
    """Log p of every sentence, each word by the state of decoding."""
    state = model.begin(batch)
    zeros = torch.zeros(len(batch))
    for index in range(batch.target.shape[1]):
        fed = batch.decoder_input[:, index, None]
        fed = fed[:, None].expand(-1, hypotheses, -1) if hypotheses else fed
        scores = model.step(fed, state).log_softmax(-1)[..., 0, :]
        scores = scores[:, -1] if hypotheses else scores
        message = scores.gather(-1, batch.target[:, index, None])[:, 0]
        zeros += message * batch.target_valid[:, index]
    return zeros


@in_turn(shape=ALL, kind=ALIGNED_KINDS)
def test_a_prefix_may_be_fed_at_once(kind: str, shape: str, batch: Batch) -> None:
    model = aligned(ALL[shape], kind=kind)
    once, twice = model.begin(batch), model.begin(batch)
    whole = model.step(batch.decoder_input, once).log_softmax(-1)
    parts = [model.step(part, twice) for part in batch.decoder_input.split([1, 3], 1)]
    assert torch.allclose(whole, torch.cat(parts, 1).log_softmax(-1), rtol=0, atol=1e-12)


@in_turn(shape=ALL, kind=ALIGNED_KINDS)
def test_padding_and_neighbours_change_nothing(kind: str, shape: str, batch: Batch) -> None:
    model = aligned(ALL[shape], kind=kind)
    alone = [plug_in_log_likelihood(model, rows(batch, [index])) for index in range(len(batch))]
    wide = plug_in_log_likelihood(model, padded(batch, 2, 3))
    assert torch.allclose(torch.cat(alone), wide, rtol=1e-12, atol=0)


@every_shape
def test_no_word_reads_a_later_one(shape: str, batch: Batch) -> None:
    model = aligned(ALL[shape])

    def words(given: Batch) -> Tensor:
        tokens = model.token_distribution(given)
        if isinstance(tokens, AlignedTokens):
            return tokens.exact_inference(given.scored).word_log_evidence
        return tokens.token_log_prob(given.scored)

    changed = batch.target.clone()
    changed[:, 1:][batch.target_valid[:, 1:]] = 4
    other = Batch(changed, batch.source)
    assert torch.allclose(words(batch)[:, 0], words(other)[:, 0], rtol=1e-13, atol=0)
    assert not torch.allclose(words(batch)[:, 1], words(other)[:, 1])


@every_shape
def test_keys_of_a_source_are_computed_once(shape: str, batch: Batch) -> None:
    model = aligned(ALL[shape])
    calls: list[Tensor] = []
    for block in model.alignments.blocks:
        block.key.register_forward_hook(lambda module, inputs, keys: calls.append(keys))
    beam_search(model, batch, num_beams=2, max_new_tokens=5)
    assert len(calls) == len(model.alignments.blocks)


def test_what_cannot_be_summed_or_smoothed_is_refused() -> None:
    with pytest.raises(ValueError, match="must be at most 2, since more heads are not summed out"):
        AlignmentOptions(blocks=2, heads=2)
    with pytest.raises(ValueError, match="prior chain is for one block of one head"):
        AlignmentOptions(blocks=2, prior="chain")
    with pytest.raises(ValueError, match="blocks must be at least 1, got -1"):
        AlignmentOptions(blocks=-1)
    with pytest.raises(ValueError, match="which those of prior mixture do not: drop it"):
        AlignmentOptions(blocks=1, prior="mixture", window=2)
    with pytest.raises(ValueError, match="window is for a language model"):
        aligned(AlignmentOptions(blocks=1, window=3))
    with pytest.raises(ValueError, match=r"soft, mixture, .*; got 'mixtur'"):
        AlignmentOptions(prior="mixtur")  # type: ignore[arg-type]
