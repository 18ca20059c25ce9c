"""What a run reports, typed: the content of ``results.json``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from pydantic import ConfigDict

from latentheads.errors import naming, one_line_message, shown
from latentheads.files import finite
from latentheads.inference.display import scores_to_html, scores_to_text
from latentheads.metrics.scores import Scores
from latentheads.options import from_dict

Figure = float | None
"""A number, or null where it is not a number or not known."""


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of a part of a text, cut in one way.

    Attributes:
        mode: How the text is cut.
        part: valid or test.
        tokens: Target tokens.
        iwae_k: K of IWAE.
        token: From the bound, from IWAE, of the plug-in network, and exact where it is known, by
            token.
        word: The same by word; empty where words were not counted.
    """

    mode: str
    part: str
    tokens: int
    iwae_k: int
    token: Mapping[str, Figure]
    word: Mapping[str, Figure]


@dataclass(frozen=True)
class Results:
    """What a run reports.

    Attributes:
        recipe: Name of the pair of prior and guide.
        guide: Name of the guide.
        select: How heads are selected.
        prior: Name of the prior.
        corpus: Name of the corpus.
        seed: Of data order and noise, and of weights that settings made.
        steps: Optimiser steps done.
        reported_step: Optimiser steps of the reported weights.
        averaged: How many checkpoints the reported weights are the average of; 0: none.
        parameters: Number of parameters of model and guide.
        tokens_per_second: Target tokens that were trained on per second.
        head_divergence: Mean Jensen-Shannon divergence between the heads of a block.
        head_divergence_by_attention_type: The same for each attention type.
        valid: Scores of validation.
        test: Scores of test.
        tasks: Those of each task.
        average: Their means over tasks.
        perplexity: Of a text, for each way to cut it and each part.
        decoding: How the test part was translated.
        kl_by_site: KL of every site on test.
        gap_by_site: KL(guide ‖ exact posterior) of every site that is summed out.
        kl_how: How the KL of every site was computed.
        selection: The active heads of every task.
        latents: Further facts of each latent, such as how many gates are open.
        versions: Of Python and packages, the device, its threads, and the precision of training.
        not_translated: Why the test part is not translated, if the model cannot.
        missing: Sections that are missing in the report, and why.
        pruned: Of a pruned network: the original run, the importance, and the remaining heads.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    recipe: str = ""
    guide: str = ""
    select: str = "none"
    prior: str = ""
    corpus: str = ""
    seed: int = 0
    steps: int = 0
    reported_step: int = 0
    averaged: int = 0
    parameters: int = 0
    tokens_per_second: Figure = None
    head_divergence: Figure = None
    head_divergence_by_attention_type: Mapping[str, Figure] = field(default_factory=dict)
    valid: Scores = field(default_factory=Scores)
    test: Scores = field(default_factory=Scores)
    tasks: Mapping[str, Scores] = field(default_factory=dict)
    average: Scores = field(default_factory=Scores)
    perplexity: tuple[Perplexity, ...] = ()
    decoding: Mapping[str, Any] = field(default_factory=dict)
    kl_by_site: Mapping[str, Figure] = field(default_factory=dict)
    gap_by_site: Mapping[str, Figure] = field(default_factory=dict)
    kl_how: Mapping[str, str] = field(default_factory=dict)
    selection: Mapping[str, Any] = field(default_factory=dict)
    latents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    not_translated: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    pruned: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, data: Any) -> Results:
        """Reads what :meth:`to_json` gives.

        Raises:
            ValueError: A value that every report has is missing, or a value is of another kind.
        """
        if isinstance(data, dict):
            data = {RENAMED.get(name, name): value for name, value in data.items()}
        if not isinstance(data, dict) or not data.keys() >= set(REQUIRED):
            raise ValueError(f"results must hold {', '.join(REQUIRED)}")
        return from_dict(cls, {**data, **_read_scores(data)}, path="results")

    def to_json(self) -> dict[str, Any]:
        """The content of ``results.json``: null for what is not a number or not known."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        content |= {name: getattr(self, name).to_json() for name in OF_SCORES}
        content["tasks"] = {name: scores.to_json() for name, scores in self.tasks.items()}
        content["perplexity"] = [asdict(perplexity) for perplexity in self.perplexity]
        for name in ("not_translated", "missing", "pruned"):
            if not content[name]:
                del content[name]
        return content

    def __str__(self) -> str:
        return scores_to_text(self.parts, self._title, self._faults)

    def _repr_html_(self) -> str:
        return scores_to_html(self.parts, self._title, self._faults)

    @property
    def _faults(self) -> dict[str, str]:
        """What is not in the report, and why."""
        untranslated = {"translations": self.not_translated} if self.not_translated else {}
        return {**untranslated, **self.missing}

    @property
    def parts(self) -> dict[str, Scores]:
        """The scores of both parts."""
        return {"valid": self.valid, "test": self.test}

    @property
    def heads_by_task(self) -> dict[str, dict[str, list[int]]]:
        """The heads that each task uses, by its name and the name of a block.

        The blocks of a side that distinguishes no tasks are those of every task; where no side
        does, the task has the empty name.
        """
        heads: dict[str, dict[str, list[int]]] = defaultdict(dict)
        for selection in self.selection.values():
            for block, chosen in selection["chosen"].items():
                for task, row in zip(selection["tasks"], chosen, strict=True):
                    heads[task][block] = [head for head, is_used in enumerate(row) if is_used]
        shared = heads.pop("", {})
        if not heads and shared:
            return {"": shared}
        return {task: {**shared, **of_task} for task, of_task in heads.items()}

    @property
    def _title(self) -> str:
        """What the scores are of."""
        return f"{self.recipe} on {self.corpus}, seed {self.seed}, {self.steps:,} steps"


OF_SCORES = ("valid", "test", "average")
"""Those that are rows of scores."""

REQUIRED = (
    *("valid", "test", "kl_by_site", "kl_how", "parameters", "tokens_per_second"),
    *("head_divergence", "head_divergence_by_attention_type"),
)
"""Keys that every report has."""

RENAMED = {"head_divergence_by_chain": "head_divergence_by_attention_type"}
"""Keys of earlier reports, with today's."""

NAMES = {*(field.name for field in fields(Results)), *RENAMED}
"""Keys whose meaning is that of this library."""


def _read_scores(data: dict[str, Any]) -> dict[str, Any]:
    """The rows of each part and task."""
    tasks = data.get("tasks", {})
    if not isinstance(tasks, dict):
        raise ValueError("results: tasks must be a mapping")
    with naming("results"):
        parts = {name: Scores.read(data.get(name, [])) for name in OF_SCORES}
        return {**parts, "tasks": {name: Scores.read(rows) for name, rows in tasks.items()}}


Section = Callable[[], Mapping[str, Any]]
"""Makes what a report holds, by its name: rows and mappings are added to those before."""

MISSING = "missing"
WAITING = "not done yet"


def complete(
    results: dict[str, Any],
    sections: Mapping[str, Section],
    keep: Callable[[dict[str, Any]], object],
) -> None:
    """Adds the sections of a report, one after the other.

    What is kept lists under ``missing`` the sections that it does not have, and why, from the first
    call on. So if the system ends the program, for want of memory, the earlier sections are there.

    Args:
        results: What is known without them; changed in place.
        sections: Each gives values by their names; where a name is there already, more rows of it.
        keep: Writes the results; called after every section.
    """
    results[MISSING] = dict.fromkeys(sections, WAITING)
    for name, section in sections.items():
        keep(results)
        try:
            _add(results, to_values(section()))
            del results[MISSING][name]
        except Exception as reason:
            results[MISSING][name] = one_line_message(reason)
    if not results[MISSING]:
        del results[MISSING]
    keep(results)


def to_values(section: Any) -> dict[str, Any]:
    """The values of a section as ``results.json`` holds them.

    Raises:
        TypeError: They are not values by name, or JSON has no such value.
    """
    if not isinstance(section, Mapping) or not all(isinstance(name, str) for name in section):
        raise TypeError(f"a section must return a mapping of values by name, got {shown(section)}")
    values: dict[str, Any] = finite(section)
    for name, value in values.items():
        try:
            json.dumps(value)
        except TypeError as reason:
            raise TypeError(f"{name}: {reason}") from reason
    return values


def _add(results: dict[str, Any], section: Mapping[str, Any]) -> None:
    for name, value in section.items():
        previous = results.get(name)
        if isinstance(previous, dict) and isinstance(value, dict):
            value = {**previous, **value}
        elif isinstance(previous, list) and isinstance(value, list):
            value = [*previous, *value]
        results[name] = value


def lacking(results: Mapping[str, Any]) -> str:
    """The sections that are missing in a report, and why; empty for a whole one."""
    missing = results.get(MISSING)
    named = missing.items() if isinstance(missing, dict) else ()
    return ", ".join(f"{name} ({why})" for name, why in named)
