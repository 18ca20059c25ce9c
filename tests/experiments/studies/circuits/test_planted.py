"""Prompts of the planted circuits."""

from __future__ import annotations

from latentheads.experiments.studies.circuits.planted import make_prompts


def test_right_and_wrong_answers_of_every_prompt_differ() -> None:
    for _ in range(5):  # of 64 prompts, some of which have the same answer in both sets
        make_prompts()
