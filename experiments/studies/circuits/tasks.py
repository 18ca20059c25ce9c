"""Three tasks that are written by rule: indirect objects, greater-than, subject-verb agreement.

Each prompt has a paired one, with the same tokens at most positions, in which the answer is another
or none: other names for all three (Wang et al. 2023, https://arxiv.org/abs/2211.00593), a year that
ends in 01 (Hanna et al. 2023, https://arxiv.org/abs/2305.00586), the noun in its other number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from latentheads.contrib.circuits import Prompts

NAMES = (
    *("Mary", "John", "Tom", "James", "Robert", "Michael", "William", "David", "Richard", "Thomas"),
    *("Mark", "Paul", "George", "Daniel", "Anna", "Sarah", "Laura", "Alice", "Kate", "Emily"),
    *("Peter", "Henry", "Simon", "Martin", "Charles", "Frank", "Jack", "Adam"),
)
PLACES = ("store", "park", "school", "office", "garden", "station", "hospital", "library", "museum")
THINGS = ("book", "ball", "ring", "letter", "drink", "bag", "key", "flower", "hat", "picture")
TEMPLATES = (
    "When {a} and {b} went to the {place}, {c} gave a {thing} to",
    "While {a} and {b} were at the {place}, {c} handed a {thing} to",
    "After {a} and {b} left the {place}, {c} sent a {thing} to",
)
EVENTS = ("war", "siege", "strike", "trial", "voyage", "campaign", "project", "reign", "conflict")
NOUNS = (
    "key keys,book books,picture pictures,letter letters,student students,doctor doctors,"
    "author authors,farmer farmers,teacher teachers,lawyer lawyers,box boxes,car cars"
)
PLURALS = dict(pair.split() for pair in NOUNS.split(","))
LINKS = ["near", "behind", "with", "beside"]
VERBS = (("is", "was", "has", "does"), ("are", "were", "have", "do"))
REPEATS = 20_000
"""Repeated prompts in succession after which a task has no others."""


@dataclass(frozen=True)
class Example:
    """A prompt, its pair, and the words that are right and wrong after it."""

    prompt: str
    paired: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]


def indirect_object(rng: random.Random) -> Example:
    """Two names, one of which comes again: the other is next."""
    first, second, *others = rng.sample(NAMES, 5)
    giver = rng.choice([first, second])
    rest = {"place": rng.choice(PLACES), "thing": rng.choice(THINGS)}
    template = rng.choice(TEMPLATES)
    prompt = template.format(a=first, b=second, c=giver, **rest)
    paired = template.format(a=others[0], b=others[1], c=others[2], **rest)
    receiver = second if giver == first else first
    return Example(prompt, paired, (f" {receiver}",), (f" {giver}",))


def greater_than(rng: random.Random) -> Example:
    """A span of years: the decade of its end is later than that of its start."""
    decade, year = rng.randint(2, 7), rng.randint(2, 8)
    century, event = rng.randint(12, 18), rng.choice(EVENTS)
    text = f"The {event} lasted from {century}{{}} to {century}"
    later, earlier = range(decade + 1, 10), range(decade)
    return Example(
        text.format(f"{decade}{year}"),
        text.format("01"),
        tuple(map(str, later)),
        tuple(map(str, earlier)),
    )


def agreement(rng: random.Random) -> Example:
    """A subject with a noun of the other number between it and its verb."""
    subject, other = rng.sample(sorted(PLURALS), 2)
    plural = rng.random() < 0.5
    forms = (subject, PLURALS[subject])
    between = other if plural else PLURALS[other]
    text = f"The {{}} {rng.choice(LINKS)} the {between}"
    right, wrong = (tuple(f" {verb}" for verb in VERBS[number]) for number in (plural, not plural))
    return Example(text.format(forms[plural]), text.format(forms[not plural]), right, wrong)


TASKS: Mapping[str, Callable[[random.Random], Example]] = {
    "indirect-object": indirect_object,
    "greater-than": greater_than,
    "agreement": agreement,
}


def make_prompts(
    tokenizer: Any, task: str, number: int, seed: int = 0
) -> tuple[Prompts, Prompts, list[str]]:
    """Prompts of a task, their pairs, and their texts; no prompt comes twice.

    Examples whose pair has another number of tokens are left out, as are those with an answer of
    several tokens.

    Args:
        tokenizer: The network's tokenizer.
        task: The task.
        number: Number of prompts.
        seed: The seed.
    """
    rng = random.Random(f"{task} {seed}")
    rows: dict[str, tuple[list[int], list[int], list[int], list[int]]] = {}
    tried: set[str] = set()
    repeats = 0
    while len(rows) < number:
        example = TASKS[task](rng)
        repeats = repeats + 1 if example.prompt in tried else 0
        if repeats > REPEATS:
            raise ValueError(f"prompts of {task} must be at most {len(rows):,}, got {number:,}")
        tried.add(example.prompt)
        if example.prompt in rows:
            continue
        ids, paired = tokenizer(example.prompt).input_ids, tokenizer(example.paired).input_ids
        answers = [
            [tokenizer(word).input_ids for word in side] for side in (example.right, example.wrong)
        ]
        if len(ids) != len(paired) or any(len(a) > 1 for side in answers for a in side):
            continue
        right, wrong = ([tokens[0] for tokens in side] for side in answers)
        rows[example.prompt] = (ids, paired, right, wrong)
    columns = [list(column) for column in zip(*rows.values(), strict=True)]
    prompts = Prompts.of(columns[0], columns[2], columns[3])
    return prompts, Prompts.of(columns[1], columns[2], columns[3]), list(rows)
