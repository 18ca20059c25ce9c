"""The program that asks what the heads of a sentence encoder bear."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from latentheads.experiments.studies import head_subsets
from latentheads.experiments.studies.retrieval.encoder import places_of
from latentheads.experiments.studies.retrieval.paraphrases import find_pairs
from tests.experiments.programs import assert_refused, succeed

NAMES = ("ann", "bob", "cid", "dan", "eve", "fay", "gus")


@pytest.fixture
def task(tmp_path: Path) -> list[str]:
    """A tiny encoder that nobody trained, and a text in which each name is greeted in two ways."""
    english = [f"we all know {n} well\n{n} is a good friend of ours" for n in NAMES]
    (tmp_path / "en").write_text("\n".join(english))
    (tmp_path / "de").write_text("\n".join(f"{name}\n{name}" for name in NAMES))
    words = ["[PAD]", "[UNK]", *dict.fromkeys(" ".join(english).split())]
    own = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "[UNK]"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=own, pad_token="[PAD]")
    sizes = {"hidden_size": 6, "intermediate_size": 7, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 3, "max_position_embeddings": 16}
    config = transformers.BertConfig(vocab_size=len(words), **sizes, **heads)
    for part in (transformers.BertModel(config), tokenizer):
        part.save_pretrained(tmp_path / "network")
    places = {"network": "network", "english": "en", "german": "de", "out": "out"}
    return [f"--{name}={tmp_path / index}" for name, index in places.items()]


def test_every_table_and_the_picture_are_written(task: list[str], tmp_path: Path) -> None:
    words = ["--test=4", "--steps=1", "--questions=3", "--alone=1", "--gate_heads=2"]
    words += ["--gate_steps=1"]
    done = succeed("paraphrase.py", *task, *words, "--keep_heads=2", "--rounds=1", "--prices=.1")
    assert "3 pairs to learn from, 4 of the test" in done.stdout
    tables = {file.stem: pd.read_csv(file) for file in (tmp_path / "out").glob("*.csv")}
    assert set(tables) == {"heads", "noise", "removal", "speed"}
    assert len(tables["heads"]) == 6
    assert {"noise 0.1", "alone", "gradient", "gates"} < set(tables["heads"])
    noise = tables["noise"]
    assert len(noise) == 2
    assert ((noise.log_likelihood - noise.kl - noise.bound).abs() < 2e-3).all()
    assert tables["removal"].groupby("by").heads.apply(list).map(lambda n: n == [6, 2]).all()
    assert (tables["removal"].parameters > 0).all()
    assert list(tables["speed"].network) == ["whole", "2 heads"]
    assert (tmp_path / "out" / "heads.png").is_file()


def test_prices_are_numbers(task: list[str]) -> None:
    says = "argument --prices: must be a number, got 'a'"
    assert_refused("paraphrase.py", *task, "--prices=1,a", says=says)


def test_blocks_of_an_encoder_have_posteriors_over_subsets(task: list[str], tmp_path: Path) -> None:
    words = [*task[1:3], "--answers=7", "--sentences=5", "--batch=2", f"--out={tmp_path / 'out'}"]
    first, last = ["encoder.0.self"], ["encoder.1.self"]
    for blocks, names in (("", [first, last]), (*last, [last])):
        command = ["encoder", str(tmp_path / "network"), *words, f"--blocks={blocks}"]
        assert head_subsets.main(command) == 0
        (result,) = json.loads((tmp_path / "out").read_text("utf-8"))["networks"]
        assert result["questions"] == 4
        assert [row["blocks"] for row in result["rows"] if row["tau"] == 1] == names


def test_positions_may_begin_behind_that_of_padding() -> None:
    sizes = {"vocab_size": 20, "hidden_size": 6, "num_hidden_layers": 1, "num_attention_heads": 3}
    config = transformers.RobertaConfig(**sizes, max_position_embeddings=14, pad_token_id=1)
    network = transformers.RobertaModel(config)
    assert places_of(network) == 12
    network(torch.full((1, 12), 5))
    config = transformers.BertConfig(**sizes, max_position_embeddings=14)
    assert places_of(transformers.BertModel(config)) == 14


def test_a_pair_is_of_sentences_that_share_a_translation_in_other_words() -> None:
    english = ["we all know ann well", "ann is a friend of us", "ann is a friend of us", "bob !"]
    english += ["he is here with us now", "he is here with us", "so ann we all know well"]
    german = ["ann", "ann", "anna", "bob", "er", "er", "anna"]
    pairs = find_pairs(english, german)
    # the sentences about ann are one cluster, by ann and anna; those about him differ in a word
    (pair,) = zip(pairs.questions, pairs.answers, strict=True)
    assert all("ann" in sentence for sentence in pair)
