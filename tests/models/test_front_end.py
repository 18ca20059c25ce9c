"""What reads frames is one of a table, by its name or by its options alone."""

from __future__ import annotations

import pytest

from latentheads.contrib.speech.front_end import SpeechOptions
from latentheads.models import Network
from latentheads.models.front_end import FRONT_ENDS, FrontEnd
from latentheads.options import OptionError, from_dict, to_dict


def test_options_without_a_name_are_those_of_the_default() -> None:
    expected = SpeechOptions(channels=4)
    for value in ({"channels": 4}, {"class": "subsampler", "channels": 4}, expected):
        assert from_dict(Network, {"speech": value}).speech == expected
    assert FrontEnd.default() == from_dict(Network, {"speech": {}}).speech == SpeechOptions()
    assert from_dict(Network, {}).speech is None
    network = Network(speech=expected)
    assert from_dict(Network, to_dict(network)) == network


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"channels": 3}, "network.speech.channels must be even, got 3"),
        ({"class": "wav2vec"}, "network.speech must be one of subsampler; got 'wav2vec'"),
        ({"channel": 4}, "network.speech.channel is not an option: did you mean .*channels"),
    ],
)
def test_what_is_none_is_named(value: object, message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}"):
        from_dict(Network, {"speech": value}, path="network")


def test_the_table_names_front_ends() -> None:
    assert FrontEnd.choices().keys() == FRONT_ENDS.keys()
    assert all(issubclass(kind, FrontEnd) for kind in FrontEnd.choices().values())
