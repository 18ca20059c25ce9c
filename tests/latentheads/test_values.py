"""Plain values, as JSON has them."""

from __future__ import annotations

import json
import math

from latentheads.values import finite


def test_numbers_that_json_does_not_know_become_null_however_deep_they_stand() -> None:
    said = {"a": [1, math.nan, (math.inf, 2.5)], "b": {"c": -math.inf, "d": "nan", "e": None}}
    found = {"a": [1, None, [None, 2.5]], "b": {"c": None, "d": "nan", "e": None}}
    assert finite(said) == found
    assert json.loads(json.dumps(finite(said), allow_nan=False)) == found
