"""Names of recipes, guides and priors: they mean the same wherever they are said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from latentheads.runs.settings import Settings


def told(settings: Settings) -> tuple[str, str, str, int]:
    """What names decide."""
    blocks = settings.alignment.alignments
    return settings.prior_name, settings.guide_name, settings.selecting.select, blocks


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"guide": "tied"}, ("delta", "tied", "none", 2)),
        ({"guide": "tied+group"}, ("delta", "tied", "group", 2)),
        ({"guide": "cascaded+group"}, ("delta", "cascaded", "group", 2)),
        ({"guide": "group"}, ("delta", "tied", "group", 0)),
        ({"guide": "group", "select": "subset"}, ("delta", "tied", "subset", 0)),
        ({"guide": "group", "prior": "independent"}, ("independent", "tied", "group", 0)),
        ({"guide": "mean-field", "prior": "tied"}, ("independent", "tied", "none", 0)),
        ({"recipe": "coda+group"}, ("cascaded", "tied", "group", 0)),
        ({"recipe": "coda+group", "select": "none"}, ("cascaded", "tied", "none", 0)),
        ({"recipe": "tied+alignments", "alignments": 1}, ("delta", "tied", "none", 1)),
    ],
)
def test_names_mean_the_same_as_options_in_a_file_and_on_a_command_line(
    said: dict[str, Any], found: tuple[str, str, str, int], tmp_path: Path
) -> None:
    from latentheads.experiments.cli.options import read_settings

    (tmp_path / "c.yaml").write_text(yaml.safe_dump(said))
    words = [f"--{name}={value}" for name, value in said.items()]
    everywhere = [
        Settings.from_options(said),
        read_settings(words, "", "")[0],
        read_settings(["--config", str(tmp_path / "c.yaml")], "", "")[0],
    ]
    assert [told(settings) for settings in everywhere] == [found] * 3


@pytest.mark.parametrize(("said", "kind"), [({"guide": ""}, "guide"), ({"recipe": ""}, "recipe")])
def test_no_name_at_all_is_refused(said: dict[str, Any], kind: str) -> None:
    with pytest.raises(ValueError, match=f"^unknown {kind} ''"):
        Settings.from_options(said)


def test_options_of_a_prior_beside_a_law_alone_are_those_of_the_prior_of_logits() -> None:
    from latentheads.experiments.cli.options import read_settings

    settings, _ = read_settings(["--guide", "group", "--prior.scale", "0.2"], "", "")
    assert told(settings) == ("independent", "tied", "group", 0)
    assert settings.prior.options["scale"] == 0.2
    said = {"guide": "group", "prior": {"init_args": {"scale": 0.2}}}
    assert told(Settings.from_options(said)) == told(settings)
