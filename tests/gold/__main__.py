"""Sets chains of NUTS beside draws of the prior that are weighed by the likelihood.

    python -m tests.gold --num_samples 300

One decoder layer of two heads, three target and three source tokens: 28 logits, of self- and of
cross-attention. Compared is what is identified alone: the weights of attention and their squares,
no logits, which may be shifted. It takes minutes: the suite runs a few steps of it only. Two chains
of 230 draws had a split R-hat of at most 1.01; no mean was farther than 2.3 standard errors from
the other way's, and the prior's were up to 12.2 away.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from pyro.ops.stats import effective_sample_size, split_gelman_rubin

from tests.gold.posterior import TinyModel, run_chain

LEAST = 0.05
"""A weight of attention that varies less is that of a few rare draws."""

LARGEST = 4.5
"""Standard errors that the farthest of some dozens of means may lie apart."""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gold", description=__doc__)
    parser.add_argument("--chains", type=int, default=2, help="chains, one after the other")
    parser.add_argument("--num_samples", type=int, default=300, help="draws of each")
    parser.add_argument("--warmup", type=int, default=50, help="steps before them")
    parser.add_argument("--weighed", type=int, default=200_000, help="draws of the prior")
    return parser


def main(words: list[str] | None = None) -> int:
    """Prints what was found; 1 where the two ways disagree."""
    asked, start = make_parser().parse_args(words), time.perf_counter()
    torch.set_default_dtype(torch.float64)
    model = TinyModel()
    weights = model.weigh_prior(asked.weighed)
    chains = torch.stack(
        [run_chain(model, asked.num_samples, asked.warmup, seed) for seed in range(asked.chains)]
    )
    moves = weights.spread > LEAST
    chains = chains[..., moves]
    spread = split_gelman_rubin(chains).max().item()
    draws = effective_sample_size(chains)
    error = (chains.flatten(0, 1).var(0) / draws + weights.error[moves].square()).sqrt()
    apart = ((chains.flatten(0, 1).mean(0) - weights.posterior[moves]) / error).abs().max().item()
    moved = ((weights.posterior - weights.prior)[moves] / error).abs().max().item()
    print(f"quantities {chains.shape[-1]}, seconds {time.perf_counter() - start:.0f}")
    print(f"largest split R-hat {spread:.3f}, smallest effective draws {draws.min():.0f}")
    print(f"effective draws of the prior {weights.effective:.0f} of {asked.weighed}")
    print(f"farthest from the prior {moved:.1f} standard errors, chains from weights {apart:.1f}")
    return int(apart > LARGEST)


if __name__ == "__main__":
    sys.exit(main())
