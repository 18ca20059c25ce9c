"""Posteriors over subsets of heads in a file, out of it, and joined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from latentheads.contrib.circuits import (
    CircuitPosterior,
    LogitDifference,
    Prompts,
    SubsetScorer,
    circuit_posterior,
    join_posteriors,
    load_posterior,
    save_posterior,
)
from latentheads.contrib.circuits.likelihoods import SubsetLikelihood
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.names import Block
from latentheads.training import checkpoints
from tests.latentheads.contrib.circuits.tiny import PROMPTS, network
from tests.typechecking import unchecked

HEADS = ["decoder.0.self", (1, 2)]


def of_network(
    prompts: Prompts = PROMPTS, likelihood: SubsetLikelihood | None = None
) -> CircuitPosterior:
    scorer = SubsetScorer(network(), prompts, HEADS, likelihood=likelihood)
    return circuit_posterior(scorer, penalty=0.01, tau=0.1, rate=0.4)


def of_corpus() -> HeadPosterior:
    rows = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).double()
    blocks = [Block("decoder-self", 2, 1, 1), Block("decoder-self", 3, 1, 1)]
    return HeadPosterior(blocks, rows, torch.tensor([3.0, 1.0, 2.0]).double(), 2.0, 0.3)


def test_a_circuit_is_read_as_it_was_computed(tmp_path: Path) -> None:
    posterior = of_network()
    save_posterior(posterior, tmp_path / "a.posterior")
    again = load_posterior(str(tmp_path / "a.posterior"))
    assert isinstance(again, CircuitPosterior)
    assert (repr(again), again.heads) == (repr(posterior), posterior.heads)
    assert again.to_frame().equals(posterior.to_frame())
    assert torch.equal(again.bootstrap(9).low, posterior.bootstrap(9).low)
    assert again.most_probable(3) == posterior.most_probable(3)
    assert torch.equal(again.with_penalty(0.2).log_odds, posterior.with_penalty(0.2).log_odds)
    assert again.heads == SubsetScorer(network(), PROMPTS, again.heads).heads


def test_the_posterior_of_a_corpus_is_read_as_it_was_computed(tmp_path: Path) -> None:
    posterior = of_corpus()
    save_posterior(posterior, tmp_path / "a.posterior")
    again = load_posterior(tmp_path / "a.posterior")
    assert type(again) is HeadPosterior
    assert (repr(again), again.blocks) == (repr(posterior), posterior.blocks)
    assert torch.equal(again.tokens, posterior.tokens)


def test_posteriors_of_some_prompts_are_joined_to_that_of_all() -> None:
    for likelihood in (None, LogitDifference(spread=2.0)):
        whole = of_network(likelihood=likelihood)
        parts = (of_network(PROMPTS[rows], likelihood) for rows in (slice(1), slice(1, 3)))
        joined = join_posteriors(parts)
        torch.testing.assert_close(joined.log_likelihoods, whole.log_likelihoods)
        assert torch.equal(joined.tokens, whole.tokens)
        torch.testing.assert_close(joined.inclusion, whole.inclusion)


def test_posteriors_that_differ_in_more_than_prompts_are_not_joined() -> None:
    posterior = of_corpus()
    with pytest.raises(ValueError, match=r"^posteriors must have the same tau, got 2\.0 and 3\.0$"):
        join_posteriors([posterior, posterior.with_temperature(3.0)])
    with pytest.raises(ValueError, match=r"^posteriors must be what circuit_posterior or lh"):
        unchecked(join_posteriors)([posterior, "a"])
    circuit = CircuitPosterior(**vars(posterior), chosen=posterior.heads, labels=["a", "b"])
    for kinds in ([posterior, circuit], [circuit, posterior]):
        with pytest.raises(ValueError, match=r"^posteriors must be of one kind, got "):
            join_posteriors(kinds)
    with pytest.raises(ValueError, match=r"^posteriors must be at least one, got none$"):
        join_posteriors([])
    whole = of_network(likelihood=LogitDifference())
    part = of_network(PROMPTS[torch.tensor([0, 1])], LogitDifference())
    with pytest.raises(ValueError, match=r"^posteriors have logit differences of several spreads"):
        join_posteriors([whole, part])
    assert len(join_posteriors([whole, whole]).tokens) == 6


def test_what_is_no_file_of_a_posterior_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.posterior"
    with pytest.raises(ValueError, match=r"^posterior must be what circuit_posterior or lh\."):
        unchecked(save_posterior)("a", path)
    posterior = of_corpus()
    never = replace(posterior, log_likelihoods=posterior.log_likelihoods - torch.inf)
    with pytest.raises(FloatingPointError, match=r"log_likelihoods is not finite$"):
        save_posterior(never, path)
    with pytest.raises(ValueError, match=r"^there is no checkpoint .*a\.posterior$"):
        load_posterior(path)
    checkpoints.save(path, {}, {"kind": "word aligner 3"})
    with pytest.raises(ValueError, match=r"a\.posterior is not of a posterior over heads of this"):
        load_posterior(path)
    checkpoints.save(path, {}, {"kind": "posterior of heads 1", "class": "HeadPosterior"})
    with pytest.raises(ValueError, match=r"a\.posterior is not complete: 'blocks'$"):
        load_posterior(path)
