"""One function a corpus, each through the same code as the options of a command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import Any

import pytest
from latentheads.corpora.data import Data
from latentheads.corpora.from_options import make_corpus

import latentheads as lh
from latentheads.corpora import Corpus, calls
from tests.latentheads.corpora.folders import write_corpus, write_text

CALLS = {name: getattr(calls, name) for name in calls.__all__}
NO_OPTIONS = ("folder", "name", "tell", "task")
GIVEN = {"folder": "some/where", "source": "cs", "target": "fr", "tasks": "velu"}
OTHERS = {
    **{"language": "tamir", "unit": "subword", "tell_apart": "domain", "task_sizes": (7,)},
    **{"tasks": "news:velu", "tell_apart": "domain", "hub_path": "mine/copy", "context": 3},
}


def another(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, str):
        return f"other-{value}"
    return not value if isinstance(value, bool) else value + 1


def options_of(call: Callable[..., Corpus]) -> dict[str, Parameter]:
    found = signature(call, eval_str=True).parameters
    return {name: each for name, each in found.items() if name not in NO_OPTIONS}


def given_to(call: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Data:
    """The options that a function makes of its arguments."""

    class MadeError(Exception):
        """Instead of a corpus."""

    def stop(data: Data, *_: object) -> None:
        raise MadeError(data)

    monkeypatch.setattr(calls, "make_corpus", stop)
    known = {**GIVEN, "name": "wikitext-2" if call is calls.hub_text else "multi30k"}
    needed = {
        name: known[name]
        for name, each in signature(call).parameters.items()
        if each.default is each.empty
    }
    with pytest.raises(MadeError) as made:
        call(**{**needed, **changed})
    return made.value.args[0]


@pytest.mark.parametrize("name", CALLS)
def test_every_argument_reaches_the_options(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = CALLS[name]
    plain = given_to(call, monkeypatch)
    for option, parameter in options_of(call).items():
        default = getattr(Data, option)
        assert parameter.default in (default, Parameter.empty), option
        new = OTHERS.get(option) or another(default)
        more = {"block": 8} if option == "context" else {}
        if option == "tell_apart" and name.endswith("tasks"):
            if name == "hub_tasks":
                continue  # a corpus of the hub has no domains to tell apart
            more = {"tasks": "news:velu"}
        if option == "tasks" and name == "hub_tasks":
            new = "fr-cs"
        changed = given_to(call, monkeypatch, **{option: new}, **more)
        assert getattr(changed, option) == new != getattr(plain, option), option


def test_options_are_spelled_out_and_others_refused() -> None:
    # from Python 3.13 on a docstring has lost what all of its lines are indented by
    pairs, text = (cleandoc(each.__doc__) for each in (calls.folder_pairs, calls.hub_text))
    assert "\n    types: Subwords of a vocabulary, at most, learned" in pairs
    assert "\n    types: Subwords, at most, learned" in text
    assert not any("**" in (call.__doc__ or "") for call in CALLS.values())
    refused = r"^folder_pairs\(\): got an unexpected keyword argument 'hub_path'$"
    with pytest.raises(TypeError, match=refused):
        lh.folder_pairs("nowhere", "en", "de", hub_path="mine/copy")


def test_every_option_is_some_function_s_own() -> None:
    known = {option for call in CALLS.values() for option in options_of(call)}
    assert known == {field.name for field in fields(Data)} - {"data", "task"}


def test_a_corpus_is_that_of_its_options_and_remembers_them() -> None:
    corpus = lh.grammar("tamir", sentences=31, held_out=5)
    assert corpus.data == Data(language="tamir", sentences=31, held_out=5)
    again = make_corpus(corpus.data)
    assert again.test.references == corpus.test.references
    assert again.target.to_json() == corpus.target.to_json()


def test_a_folder_is_read_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "grammar")
    write_text(tmp_path / "pydoc")
    told: list[str] = []
    pairs = lh.folder_pairs("grammar", "en", "de", types=300, tell=told.append)
    assert (pairs.name, len(pairs.test), bool(told)) == ("grammar en-de", 7, True)
    assert make_corpus(pairs.data).target.to_json() == pairs.target.to_json()
    assert lh.folder_text(Path("pydoc"), block=8).train.block == 8
    both = lh.folder_tasks("grammar", ["en-de", "de-en"], types=300)
    assert [task.name for task in both.tasks] == ["en-de", "de-en"]


@pytest.mark.parametrize("tasks", [[], ""])
def test_tasks_of_no_direction_are_refused(tasks: Any) -> None:
    of_folders = (partial(call, "own") for call in (lh.folder_tasks, lh.speech_tasks))
    for call in (lh.grammar_tasks, *of_folders, partial(lh.hub_tasks, "wmt14")):
        with pytest.raises(ValueError, match=r"^tasks must name at least one direction, as de or"):
            call(tasks)


@pytest.mark.parametrize(("name", "value"), [("references", "refs"), ("max_source", 5)])
def test_what_is_of_one_direction_is_refused_beside_tasks(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} is of one direction of translation: drop it,"):
        Data(data="own", source="en", tasks="de", **{name: value})


def test_windows_without_blocks_are_refused_before_anything_is_trained() -> None:
    with pytest.raises(ValueError, match=r"^context must be 0 without a block, got 5$"):
        lh.python_docs(context=5)


def test_tasks_of_a_corpus_with_several_references_are_refused() -> None:
    said = "scitldr has several references of a text: drop tasks"
    with pytest.raises(ValueError, match=f"^{said}$"):
        lh.hub_tasks("scitldr", "target", source="source")


@pytest.mark.parametrize("name", ["grammar", "wikitext-2", "nowhere"])
def test_a_name_that_the_hub_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"name must be one of multi30k, .*with a hub_path"):
        lh.hub_pairs(name, "en", "de")
    if name == "wikitext-2":
        with pytest.raises(ValueError, match="name must be one of multi30k"):
            lh.hub_pairs(name, "en", "de", hub_path="mine/copy")
