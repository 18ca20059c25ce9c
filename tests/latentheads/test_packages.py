"""Packages of an extra."""

from __future__ import annotations

import sys

import pytest

from latentheads.packages import need_package


def test_a_package_that_is_not_there_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kaldi_native_fbank", None)
    with pytest.raises(ValueError, match=r"needs kaldi-native-fbank: pip .*latentheads\[speech\]"):
        need_package("kaldi_native_fbank")
