"""The forward algorithm of decoding against all paths."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.forward import ForwardAlgorithm

LENGTH, KEYS, TYPES = 3, 2, 5


def test_the_prior_of_a_position_is_a_sum_over_all_paths_before_it() -> None:
    generator = torch.Generator().manual_seed(3)
    table = torch.randn(LENGTH, KEYS, TYPES, generator=generator).double().log_softmax(-1)
    scores = torch.randn(1, LENGTH, 1, KEYS, generator=generator).double()
    jumps = torch.randn(1, KEYS, KEYS, generator=generator).double()
    tokens = torch.tensor([[0, 4, 1]])  # the first follows nothing

    def emissions(kept: list[Tensor], words: Tensor) -> Tensor:
        index = words[..., None, None].expand(*words.shape, KEYS, 1)
        return kept[0].view(*words.shape, KEYS, TYPES).gather(-1, index)[..., 0]

    forward = ForwardAlgorithm(emissions)
    kept = table.flatten(1)[None]
    actual = [
        forward(
            ChainParameters(scores[:, part], transition_scores=jumps),
            tokens[:, part],
            kept[:, part],
        )
        for part in (slice(0, 2), slice(2, 3))  # two tokens at once, then one
    ]
    first = scores[0, 0, 0].log_softmax(-1)
    for t in range(LENGTH):
        joint = torch.full((KEYS,), -torch.inf).double()
        for path in product(range(KEYS), repeat=t + 1):
            total = first[path[0]]
            for step in range(t):
                total = total + table[step, path[step], tokens[0, step + 1]]
                row = (scores[0, step + 1, 0] + jumps[0, path[step]]).log_softmax(-1)
                total = total + row[path[step + 1]]
            joint[path[-1]] = torch.logaddexp(joint[path[-1]], total)
        torch.testing.assert_close(torch.cat(actual, 1)[0, t], joint.log_softmax(-1))
