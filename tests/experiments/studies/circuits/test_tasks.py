"""Prompts that are written by rule have their answers, and pairs of the same length."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from latentheads.contrib.circuits import logit_difference, only_at
from latentheads.contrib.heads.switch import NetworkHeads
from latentheads.experiments.studies.circuits.attribution import head_attributions
from latentheads.experiments.studies.circuits.tasks import TASKS, make_prompts
from tests.latentheads.contrib.circuits.tiny import PROMPTS, network


class Words:
    """A tokenizer with a token for each word and each digit."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, text: str) -> SimpleNamespace:
        spaced = "".join(f" {c} " if c.isdigit() else c for c in text)
        ids = [self.ids.setdefault(word, len(self.ids)) for word in spaced.split()]
        return SimpleNamespace(input_ids=ids)


@pytest.mark.parametrize("task", TASKS)
def test_prompts_have_right_and_wrong_answers(task: str) -> None:
    words = Words()
    prompts, paired, texts = make_prompts(words, task, 12)
    assert len(prompts) == len(set(texts)) == 12
    assert make_prompts(words, task, 12)[2] == texts != make_prompts(words, task, 12, 1)[2]
    names = {number: word for word, number in words.ids.items()}
    assert prompts.right is not None
    assert prompts.wrong is not None
    for row, text in enumerate(texts):
        right = {names[i] for i in prompts.right[row].tolist() if i >= 0}
        wrong = {names[i] for i in prompts.wrong[row].tolist() if i >= 0}
        assert right
        assert wrong
        assert not right & wrong
        if task == "indirect-object":
            assert text.split().count(*right) == 1
            assert text.split().count(*wrong) == 2
        if task == "greater-than":
            decade = text.split()[4][2]
            assert max(wrong) < decade < min(right)
        if task == "agreement":
            plural = text.split()[1].endswith(("s", "xes"))
            assert ("are" in right) == plural
    assert prompts.inputs["attention_mask"].equal(paired.inputs["attention_mask"])
    assert not prompts.inputs["input_ids"].equal(paired.inputs["input_ids"])


def test_a_task_has_no_more_prompts_than_its_rule_writes() -> None:
    words = Words()
    assert len(make_prompts(words, "agreement", 1056)[0]) == 12 * 11 * 2 * 4 == 1056
    with pytest.raises(ValueError, match=r"^prompts of agreement must be at most 1,056, got 1,057"):
        make_prompts(words, "agreement", 1057)


def test_attributions_are_derivatives_of_the_logit_difference() -> None:
    """Own output times gradient is the derivative with respect to a factor of the head."""
    plain = network()
    plain.requires_grad_(False)
    scores = head_attributions(plain, PROMPTS, PROMPTS[torch.tensor([2, 1, 0])], steps=2)
    rows = []
    for factor in (1 + 1e-6, 1 - 1e-6):
        with NetworkHeads(plain).scale({(1, 2): factor}), only_at(plain, PROMPTS.scored):
            rows.append(logit_difference(plain(**PROMPTS.inputs).logits, PROMPTS))
    torch.testing.assert_close(
        scores["gradient"][:, 1, 2], (rows[0] - rows[1]) / 2e-6, rtol=1e-5, atol=1e-8
    )
    assert scores["attribution"].shape == scores["integrated"].shape == (3, 2, 3)
    same = head_attributions(plain, PROMPTS, PROMPTS, steps=2)
    assert same["attribution"].abs().max() == 0
