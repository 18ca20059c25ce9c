"""Packages that an extra of the library installs."""

from __future__ import annotations

import sys

import pytest

from latentheads.packages import need_speech_package, need_transformers


def test_a_package_of_speech_that_is_not_there_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kaldi_native_fbank", None)
    with pytest.raises(ValueError, match=r"needs kaldi-native-fbank: pip .*latentheads\[speech\]"):
        need_speech_package("kaldi_native_fbank")


def test_transformers_that_is_not_there_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"is missing: pip .*latentheads\[transformers\]"):
        need_transformers()
