"""The subsampler minds where an utterance ends."""

from __future__ import annotations

import torch

from latentheads.contrib.speech.subsampler import Subsampler, subsampled_length

LENGTHS = [1, 2, 3, 4, 5, 8, 11, 13]


def test_lengths_are_those_of_two_strides() -> None:
    subsampler = Subsampler(3, 4, 5)(torch.randn(1, 13, 3), torch.tensor([13]))
    assert subsampler.shape == (1, subsampled_length(13), 5)
    twice = [((n - 1) // 2 // 2) + 1 for n in LENGTHS]
    assert subsampled_length(torch.tensor(LENGTHS)).tolist() == twice


def test_padding_changes_nothing() -> None:
    """What stands in it bit for bit; how much there is up to the order in which sums are made."""
    layer = Subsampler(3, 4, 5)
    frames = torch.randn(len(LENGTHS), 13, 3)
    lengths = torch.tensor(LENGTHS)
    together, other = layer(frames, lengths), frames.clone()
    for index, length in enumerate(LENGTHS):
        other[index, length:] = torch.nan_to_num(torch.tensor(torch.inf))
    again = layer(other, lengths)
    for index, length in enumerate(LENGTHS):
        alone = layer(frames[index : index + 1, :length], lengths[index : index + 1])
        real = slice(subsampled_length(length))
        assert torch.equal(together[index, real], again[index, real])
        torch.testing.assert_close(together[index, real], alone[0], rtol=0, atol=1e-15)


def test_the_last_position_reads_no_bias_of_the_padding() -> None:
    """The fault of the subsampler that this one follows."""
    layer = Subsampler(3, 4, 5)
    torch.nn.init.constant_(layer.first.bias, 3.0)
    frames = torch.randn(2, 9, 3)
    computed_layer = layer(frames, torch.tensor([5, 9]))
    alone = layer(frames[:1, :5], torch.tensor([5]))[0]
    torch.testing.assert_close(computed_layer[0, :2], alone, rtol=0, atol=1e-15)
