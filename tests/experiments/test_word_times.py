"""Sound files in, words with times out: a tiny Whisper of a folder."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import transformers
from scipy.io import wavfile
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from latentheads.contrib.heads.boundaries.chain import BoundaryTimes
from latentheads.contrib.heads.word_attention import record_word_attention
from latentheads.contrib.speech.forced import make_forced_example, transcribe_words
from latentheads.contrib.speech.timing import time_words
from latentheads.contrib.speech.word_times import to_csv, to_json, to_textgrid, to_word_times
from tests.experiments.programs import assert_one_line, inside
from tests.typechecking import unchecked

SECONDS = 2


def _save_processor(folder: Path) -> Any:
    vocabulary = {"<|end|>": 0, "<|start|>": 1, "Ġa": 2, "Ġb": 3, "<|none|>": 4, "Ġc": 5}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "<|none|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ends = [("<|start|>", 1), ("<|end|>", 0)]
    tokenizer.post_processor = processors.TemplateProcessing("<|start|> $A <|end|>", None, ends)
    tokens = {"eos_token": "<|end|>", "pad_token": "<|end|>", "unk_token": "<|none|>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
    fast.save_pretrained(folder)
    options = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(options | {"tokenizer_class": "PreTrainedTokenizerFast"})
    )
    extractor = transformers.WhisperFeatureExtractor(feature_size=5, chunk_length=SECONDS)
    extractor.save_pretrained(folder)
    return transformers.WhisperProcessor.from_pretrained(folder)


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whisper")
    sizes = {"d_model": 6, "encoder_layers": 1, "decoder_layers": 2, "num_mel_bins": 5}
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 2}
    positions = {"max_source_positions": 50 * SECONDS, "max_target_positions": 16}
    ends = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos")}
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=6, encoder_ffn_dim=5, decoder_ffn_dim=5, **sizes, **heads, **positions, **ends
    )
    config.decoder_start_token_id = 1
    transformers.WhisperForConditionalGeneration(config).save_pretrained(folder)
    _save_processor(folder)
    return folder


def load(folder: Path) -> tuple[Any, Any]:
    network = transformers.WhisperForConditionalGeneration.from_pretrained(folder)
    return network, transformers.WhisperProcessor.from_pretrained(folder)


@pytest.fixture
def sounds(tmp_path: Path) -> list[str]:
    random = np.random.default_rng(0)
    for name in ("one", "two"):
        samples = random.standard_normal(12000) * np.linspace(0, 3000, 12000)
        wavfile.write(tmp_path / f"{name}.wav", 8000, samples.astype(np.int16))
        (tmp_path / f"{name}.txt").write_text("a b\nc")
    return [str(tmp_path / "one.wav"), str(tmp_path / "two.wav")]


def test_words_have_times_in_order(whisper: Path, sounds: list[str]) -> None:
    done = inside("word_times.py", str(whisper), *sounds)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("word_times.py: note: no head has P above 0.5 ") == 1
    for sound in sounds:
        words = json.loads(Path(sound).with_suffix(".json").read_text())
        assert [word["word"] for word in words] == ["a", "b", "c"]
        times = [time for word in words for time in (word["start"], word["end"])]
        assert times == sorted(times)
        assert times[0] >= 0
        assert times[-1] <= 1.5
        assert all(word["low"] <= word["start"] <= word["high"] for word in words)


def test_subtitles_and_tiers_hold_the_words(whisper: Path, sounds: list[str]) -> None:
    for ending in ("srt", "TextGrid"):
        assert inside("word_times.py", str(whisper), sounds[0], "--format", ending).returncode == 0
    subtitles = Path(sounds[0]).with_suffix(".srt").read_text()
    assert re.match(r"1\n00:00:0\d,\d{3} --> 00:00:0\d,\d{3}\na\n\n2\n", subtitles)
    grid = Path(sounds[0]).with_suffix(".TextGrid").read_text()
    assert re.findall(r'text = "(\w)"', grid) == ["a", "b", "c"]
    bounds = [float(value) for value in re.findall(r"^ {12}xm(?:in|ax) = (\S+)", grid, re.M)]
    assert bounds[0] == 0  # intervals leave no gap
    assert bounds[-1] == 1.5
    assert bounds[1:-1:2] == bounds[2:-1:2]


def test_heads_that_were_kept_time_later_files(whisper: Path, sounds: list[str]) -> None:
    kept = Path(sounds[0]).with_name("whisper.heads")
    assert inside("word_times.py", str(whisper), *sounds, "--keep", str(kept)).returncode == 0
    out = Path(sounds[0]).with_suffix(".json")
    together = out.read_text()
    assert inside("word_times.py", str(whisper), sounds[0]).returncode == 0
    assert out.read_text() != together
    done = inside("word_times.py", str(whisper), sounds[0], "--heads", str(kept))
    assert done.stderr.count("word_times.py: note: no head has P above 0.5 ") == 1
    assert out.read_text() == together


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gone", "one.wav"), "there is no folder gone"),
        (("gone", "one.wav", "--keep", "one.wav"), "--keep: cannot write one.wav: it is read too"),
        (("gone", "one.wav", "--keep", "one.txt"), "--keep: cannot write one.txt: it is read too"),
        (("{whisper}", "one.wav", "--keep", "{whisper}/config.json"), "it is read too"),
        (("gone", "one.wav", "--keep", ""), "--keep: cannot write '': name a file"),
        (("gone", "one.wav", "--keep", "."), "--keep: cannot write .: it is a folder"),
        (("gone", "one.wav", "--heads", ""), "cannot read .: "),
        (("gone", "one.wav", "--heads", "gone"), "there is no checkpoint gone"),
        (("gone", "one.wav", "--heads", "a", "--keep", "b"), "--keep has no effect with --heads"),
        ((".", "one.wav"), "error: . is no folder of Whisper: "),
        (("{whisper}", "."), "error: .: it is not a file"),
        (("{whisper}", "one.wav", "--level", "2"), "--level: must be below 1, got 2"),
        (("{whisper}", "one.wav", "one.wav"), "one.json"),
    ],
)
def test_what_cannot_be_timed_is_one_line(
    whisper: Path,
    sounds: list[str],
    words: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(Path(sounds[0]).parent)
    done = inside("word_times.py", *(word.format(whisper=whisper) for word in words))
    assert_one_line(done, "word_times.py")
    assert message in done.stderr
    assert not list(Path().glob("*.json"))


def test_times_that_cannot_be_written_are_named_before_the_work(sounds: list[str]) -> None:
    out = Path(sounds[1]).with_suffix(".json")
    out.mkdir()
    done = inside("word_times.py", "gone", *sounds)
    assert_one_line(done, "word_times.py")
    assert f"the times of {sounds[1]}: cannot write {out}: it is a folder" in done.stderr


def test_a_wrong_sound_is_named(whisper: Path, sounds: list[str], tmp_path: Path) -> None:
    noise = np.arange(12000, dtype=np.int16)
    wavfile.write(tmp_path / "silent.wav", 8000, np.zeros(12000, np.int16))
    wavfile.write(tmp_path / "empty.wav", 8000, noise[:0])
    wavfile.write(tmp_path / "wordy.wav", 8000, noise)
    wavfile.write(tmp_path / "wordless.wav", 8000, noise)
    wavfile.write(tmp_path / "short.wav", 8000, noise[:800])
    (tmp_path / "short.txt").write_text("a b c a b c")
    (tmp_path / "wordy.txt").write_text("a " * 30)
    (tmp_path / "wordless.txt").write_text("\n")
    reasons = {
        "gone": "there is no such file",
        "silent": "it is silent",
        "empty": "it has no samples",
        "short": "there are more words than positions of sound: 6 words, 5 positions of 0.02 seco",
        "wordy": "tokens must be at most 17 for this network, got 32",
        "wordless": f"{tmp_path / 'wordless.txt'} has no words",
    }
    for name, reason in reasons.items():
        path = tmp_path / f"{name}.wav"
        done = inside("word_times.py", str(whisper), sounds[0], str(path))
        assert done.returncode == 2
        assert f"word_times.py: error: {path}: {reason}" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.glob("*.json"))


def test_a_sound_without_a_text_is_transcribed(whisper: Path, sounds: list[str]) -> None:
    Path(sounds[0]).with_suffix(".txt").unlink()
    generation = {"max_length": 8, "min_length": 4, "suppress_tokens": [0, 1]}
    ends = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos")}
    config = transformers.GenerationConfig(**generation, **ends, decoder_start_token_id=1)
    config.save_pretrained(whisper)
    assert inside("word_times.py", str(whisper), sounds[0]).returncode == 0
    assert json.loads(Path(sounds[0]).with_suffix(".json").read_text())


@pytest.mark.parametrize("learned", [600, 2])
def test_a_long_sound_is_cut_and_its_text_divided(
    learned: int, whisper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    samples = random.standard_normal(40000) * np.repeat([0, 900, 0, 900, 0, 900, 0, 900], 5000)
    wavfile.write(tmp_path / "long.wav", 8000, samples.astype(np.int16))
    texts = iter([["a", "b"], [], ["c", "a"], []] * 2)
    lengths: list[int] = []

    def transcribe(network: Any, processor: Any, samples: np.ndarray) -> tuple[list[str], str]:
        lengths.append(len(samples))
        return next(texts), ""

    program = "latentheads.contrib.speech.timing"
    monkeypatch.setattr(f"{program}.transcribe_checked", transcribe)
    monkeypatch.setattr(f"{program}.LEARNED", 4 * learned)
    monkeypatch.setattr(f"{program}.FEW", 1)
    run = partial(inside, "word_times.py", str(whisper), str(tmp_path / "long.wav"))
    assert run().returncode == 0
    assert sum(lengths) == 80000
    assert max(lengths) <= 32000
    out = tmp_path / "long.json"
    transcribed = json.loads(out.read_text())
    assert [word["word"] for word in transcribed] == ["a", "b", "c", "a"]
    starts = [word["start"] for word in transcribed]
    first, second, _, _ = (length / 16000 for length in lengths)
    assert starts == sorted(starts)
    assert starts[1] <= first < first + second <= starts[2]
    assert starts[3] <= 5
    (tmp_path / "long.txt").write_text("a b b. C a")
    assert run().returncode == 0
    assert [word["word"] for word in json.loads(out.read_text())] == ["a", "b", "b.", "C", "a"]
    (tmp_path / "long.txt").unlink()
    monkeypatch.setattr(f"{program}.transcribe_checked", lambda *_: ([], ""))
    done = run()
    assert done.returncode == 2
    assert done.stderr.endswith("long.wav: no words were transcribed: give its text\n")


@pytest.mark.usefixtures("as_the_programs_do")
@pytest.mark.filterwarnings("ignore:no head has P above")
def test_words_at_the_ends_of_windows_go_where_they_are_likelier(
    whisper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, processor = load(whisper)
    loud = np.random.default_rng(0).standard_normal(24000).astype(np.float32) / 9
    samples = np.concatenate([loud, np.zeros(40000, np.float32), loud])
    timing = "latentheads.contrib.speech.timing"
    monkeypatch.setattr(f"{timing}.transcribe_checked", lambda *_: (["a", "c"], ""))
    offsets: list[float] = []
    with monkeypatch.context() as patched:
        patched.setattr(f"{timing}.transcribe_checked", lambda *_: ([], ""))
        patched.setattr(f"{timing}.MOVED", 0)
        even = time_words(network, processor, {"x": samples}, {"x": list("abbccc")})["x"]
    assert even[2].start <= 2 < 3.5 <= even[3].start

    def make_scorer(self: Any, window: Any) -> Any:
        offsets.append(window.offset)
        letter = "c" if window.offset else "b"
        return lambda words: sum(1 if word == letter else -1 for word in words)

    words = time_words(network, processor, {"x": samples}, {"x": list("abbccc")})["x"]
    with monkeypatch.context() as patched:
        patched.setattr(f"{timing}._Whisper._make_scorer", make_scorer)
        moved = time_words(network, processor, {"x": samples}, {"x": list("abbccc")})["x"]
    assert offsets == [0, pytest.approx(3.7, abs=0.2)]
    assert len(words) == len(moved) == 6
    starts = [word.start for word in moved]
    assert starts == sorted(starts)
    assert starts[2] <= 2  # a, b, b
    assert starts[3] >= 3.5  # c, c, c
    assert moved[2].end == pytest.approx(1.8, abs=0.2)  # the pause is in no word
    network.config.dropout = 0.9
    for part in network.modules():
        part.dropout = 0.9  # of layers
    network.train()
    again = time_words(network, processor, {"x": samples}, {"x": list("abbccc")})["x"]
    assert again == words
    assert network.model.decoder.training
    wordy = time_words(network, processor, {"x": samples}, {"x": ["a"] * 20})["x"]
    assert len(wordy) == 20  # all of them are more than the network takes


@pytest.mark.usefixtures("as_the_programs_do")
@pytest.mark.filterwarnings("ignore:no head has P above")
def test_a_window_whose_transcript_repeats_itself_is_cut_once_more(
    whisper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, processor = load(whisper)
    samples = np.random.default_rng(0).standard_normal(30000).astype(np.float32) / 9
    timing = "latentheads.contrib.speech.timing"
    lengths: list[float] = []

    def transcribe(network: Any, processor: Any, samples: np.ndarray) -> tuple[list[str], str]:
        lengths.append(len(samples) / 16000)
        return ["a", "b"], "it repeats itself" if len(lengths) in {1, 3} else ""

    monkeypatch.setattr(f"{timing}.transcribe_checked", transcribe)
    monkeypatch.setattr(f"{timing}.SHORT", 1.5)
    with pytest.warns(UserWarning, match=r"^x, from \d\.\d s: it repeats itself: give its text$"):
        words = time_words(network, processor, {"x": samples})["x"]
    whole, first, second = lengths
    assert whole == first + second == 30000 / 16000
    assert [word.word for word in words] == ["a", "b", "a", "b"]
    assert words[1].start <= words[1].end == pytest.approx(first, abs=5e-4)
    assert first <= words[2].start
    quiet = np.concatenate([samples[:16000], np.zeros(40000, np.float32), samples[:16000]])
    lengths.clear()
    with pytest.warns(UserWarning, match=r"^x: it repeats itself: its words are divided evenly$"):
        words = time_words(network, processor, {"x": quiet}, {"x": ["a", "b", "b", "c"]})["x"]
    assert [word.word for word in words] == ["a", "b", "b", "c"]


@pytest.mark.usefixtures("as_the_programs_do")
def test_sounds_and_texts_are_checked_by_name(whisper: Path) -> None:
    network, processor = load(whisper)
    samples = np.ones(16000, np.float32)
    for texts, message in (
        ({"b": ["a"]}, r"^the name of a text must be one of a; got 'b'$"),
        ({"a": "a b"}, r"^texts\['a'\] must be a list, got 'a b'$"),
    ):
        with pytest.raises(ValueError, match=message):
            time_words(network, processor, {"a": samples}, texts)
    with pytest.raises(ValueError, match=r"^a: samples must be of one channel, got shape \[1, "):
        unchecked(time_words)(network, processor, {"a": samples[None]})
    with pytest.raises(ValueError, match=r"^a: samples must be at least one, got none$"):
        time_words(network, processor, {"a": samples[:0]})
    with pytest.warns(UserWarning, match=r"^no head has P above 0\.5 "):
        (word,) = time_words(network, processor, {"a": samples}, {"a": ["b"]})["a"]
    assert 0 <= word.low <= word.start <= word.high <= word.end == 1


class _Network(torch.nn.Module):
    """It generates these tokens."""

    device, dtype = torch.device("cpu"), torch.float32
    config = SimpleNamespace(max_target_positions=448)

    def __init__(self, tokens: list[int], **limit: int) -> None:
        super().__init__()
        self.tokens = torch.tensor([tokens])
        self.generation_config = transformers.GenerationConfig(**limit)
        self.prompt: dict[str, str] = {}

    def generate(self, features: torch.Tensor, *, max_length: int, **prompt: str) -> torch.Tensor:
        self.prompt = prompt
        return self.tokens[:, : max_length - 4]


@pytest.mark.usefixtures("as_the_programs_do")
def test_a_transcript_that_is_none_is_warned_of(whisper: Path) -> None:
    processor = transformers.WhisperProcessor.from_pretrained(whisper)
    samples = np.zeros(16000, np.float32)
    assert transcribe_words(_Network([2, 3, 5]), processor, samples) == ["Ġa", "Ġb", "Ġc"]
    for network, message in (
        (_Network([2, 3] * 40, max_length=448), r"repeats itself \(compression ratio \d.*give its"),
        (_Network([2, 3, 5] + [0] * 500), r"was cut off after 444 tokens: give its text$"),
        (_Network([2, 3, 5], max_length=7), r"was cut off after 3 tokens: give its text$"),
        (_Network([2, 3, 5], max_new_tokens=3), r"was cut off after 3 tokens: give its text$"),
    ):
        with pytest.warns(UserWarning, match=f"^the transcript {message}"):
            transcribe_words(network, processor, samples)


@pytest.mark.usefixtures("as_the_programs_do")
def test_what_is_transcribed_is_in_the_language_of_the_processor(whisper: Path) -> None:
    processor, network = transformers.WhisperProcessor.from_pretrained(whisper), _Network([2])
    for prompt in ({}, {"language": "de", "task": "transcribe"}):
        vars(processor.tokenizer).update(prompt)
        transcribe_words(network, processor, np.zeros(16000, np.float32))
        assert network.prompt == prompt


@pytest.mark.parametrize("languages", [{}, {"<|de|>": 4}])
def test_a_language_is_named_to_a_network_of_many(
    languages: dict[str, int], whisper: Path, sounds: list[str], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(whisper, tmp_path / "whisper"))
    options = {"is_multilingual": bool(languages), "lang_to_id": languages}
    (folder / "generation_config.json").write_text(json.dumps(options))
    words = () if languages else ("--language", "de")
    done = inside("word_times.py", str(folder), sounds[0], *words)
    reason = "many languages: name one, as" if languages else "English alone: leave out"
    message = f"word_times.py: error: {folder} is of {reason} --language de"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, message)


def test_a_large_vocabulary_is_of_many_languages(
    whisper: Path, sounds: list[str], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(whisper, tmp_path / "whisper"))
    config = transformers.WhisperConfig.from_pretrained(folder)
    config.vocab_size = 51865
    transformers.WhisperForConditionalGeneration(config).save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    done = inside("word_times.py", str(folder), sounds[0])
    assert f"{folder} is of many languages: name one, as --language de" in done.stderr


def test_a_language_that_a_network_has_not_is_named(
    whisper: Path, sounds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(whisper, tmp_path / "whisper"))
    options = {"is_multilingual": True, "lang_to_id": {"<|de|>": 4}}
    (folder / "generation_config.json").write_text(json.dumps(options))
    processor = SimpleNamespace(tokenizer=SimpleNamespace(prefix_tokens=[1, 5, 6]))
    load = mock.Mock(return_value=processor)
    monkeypatch.setattr(transformers.WhisperProcessor, "from_pretrained", load)
    done = inside("word_times.py", str(folder), sounds[0], "--language", "yue")
    message = f"word_times.py: error: {folder} has no language yue: <|de|>"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, message)
    load.assert_called_once_with(str(folder), language="yue", task="transcribe")


@pytest.mark.usefixtures("as_the_programs_do")
def test_tokens_without_a_language_or_a_task_are_warned_of(whisper: Path) -> None:
    network = transformers.WhisperForConditionalGeneration.from_pretrained(whisper)
    many = {"is_multilingual": True, "lang_to_id": {"<|de|>": 4}, "task_to_id": {"transcribe": 5}}
    network.generation_config = transformers.GenerationConfig(**many)
    processor = transformers.WhisperProcessor.from_pretrained(whisper)
    example = make_forced_example(processor, np.ones(16000, np.float32), ["a"])
    start, *rest = example.tokens
    for prompt in ([], [4], [5]):
        tokens, place = [start, *prompt, *rest], len(prompt) + 1
        named = replace(example, tokens=tokens, words=[(place, place + 1)])
        with pytest.warns(UserWarning, match=r"^tokens must name a language and a task, .*='de', "):
            record_word_attention(network, named)
    named = replace(example, tokens=[start, 4, 5, *rest], words=[(3, 4)])
    record_word_attention(network, named)
    network.generation_config.is_multilingual = False  # a list of languages alone is no sign
    record_word_attention(network, example)


def test_times_lie_within_a_short_sound() -> None:
    times = [torch.tensor([value]) for value in (-0.3, -0.9, -0.1)]
    (word,) = to_word_times(["a"], {"starts": BoundaryTimes(*times)}, 0.01)
    assert (word.low, word.start, word.high, word.end) == (0, 0, 0, 0.01)
    starts, ends = torch.tensor([0.2, 0.5]), torch.tensor([0.7, 0.1])
    both = {"starts": BoundaryTimes(*[starts] * 3), "ends": BoundaryTimes(*[ends] * 3)}
    assert [word.end for word in to_word_times(["a", "b"], both, 1.0)] == [0.5, 0.5]
    words = to_word_times(["a"], {"starts": BoundaryTimes(*times)}, 0.01056)
    assert to_textgrid(words, 0.01056).count("xmax = 0.011\n") == 4  # file, tiers, interval
    words = to_word_times(["a"], {"starts": BoundaryTimes(*times)}, 0.9235, 39)  # rounded down
    assert words[0].start == 39
    assert to_textgrid(words, 39.9235).count(f"xmax = {words[0].end}\n") == 4


def test_learned_ends_have_intervals_too() -> None:
    starts, ends = torch.tensor([0.2, 0.5]), torch.tensor([0.4, 0.9])
    both = {
        "ends": BoundaryTimes(ends, ends - 0.125, ends + 0.25),
        "starts": BoundaryTimes(*[starts] * 3),
    }
    words = to_word_times(["a", "b"], both, 1.0, 2)
    assert [(word.end, word.end_low, word.end_high) for word in words] == [
        (2.4, 2.275, 2.65),
        (2.9, 2.775, 3),
    ]
    assert [row["end_high"] for row in json.loads(to_json(words, 3.0))] == [2.65, 3]
    head, first, *_ = to_csv(words, 3.0).splitlines()
    assert head == "word,start,low,high,end,end_low,end_high"
    assert first == "a,2.2,2.2,2.2,2.4,2.275,2.65"
    grid = to_textgrid(words, 3.0)
    assert "size = 3\nitem" in grid
    assert grid.endswith('number = 2.9\n            mark = "2.775 to 3.0"\n')
    del both["ends"]
    words = to_word_times(["a", "b"], both, 1.0)
    assert [*json.loads(to_json(words, 1.0))[0]] == ["word", "start", "low", "high", "end"]
    assert to_csv(words, 1.0).startswith("word,start,low,high,end\na,0.2,")
    assert to_csv([], 1.0) == "word,start,low,high,end\n"


def test_words_of_no_length_are_left_out_of_both_tiers() -> None:
    """Of two points at one time Praat keeps the first alone."""
    starts = torch.tensor([0.2, 0.5, 0.5, 1.0])
    words = to_word_times([*"abcd"], {"starts": BoundaryTimes(*[starts] * 3)}, 1.0)
    grid = to_textgrid(words, 1.0)
    assert re.findall(r'text = "(\w*)"', grid) == ["", "a", "c"]
    assert re.findall(r"number = (\S+)", grid) == ["0.2", "0.5"]
    assert to_textgrid(words[1:2], 1.0).count("size = ") == 3


@pytest.mark.usefixtures("as_the_programs_do")
def test_an_example_has_the_prompt_the_words_and_the_end(whisper: Path) -> None:
    processor = transformers.WhisperProcessor.from_pretrained(whisper)
    samples = np.linspace(-1, 1, 16000, dtype=np.float32)
    example = make_forced_example(processor, samples, ["a", "b"], [0.1, 0.5])
    assert example.tokens == [1, 2, 3, 0]
    assert example.words == [(1, 2), (2, 3)]
    assert (example.length, example.step) == (50, 0.02)
    assert make_forced_example(processor, samples[: 7 * 320], ["a"]).length == 7
    assert example.starts == [0.1, 0.5]
    assert example.energy is not None
    assert len(example.energy) == 50
    with pytest.raises(
        ValueError, match=r"^samples must have the processor's rate, 16000 a second"
    ):
        make_forced_example(processor, samples, ["a"], sampling_rate=8000)
    with pytest.raises(
        ValueError, match=r"^samples must be of one channel, got shape \[2, 8000\]$"
    ):
        unchecked(make_forced_example)(processor, samples.reshape(2, -1), ["a"])
    with pytest.raises(ValueError, match=r"^samples must be floats from -1 to 1, got int16$"):
        unchecked(make_forced_example)(processor, np.int16(32767 * samples), ["a"])
    with pytest.raises(ValueError, match=r"^words must be a list, got 'a b'$"):
        make_forced_example(processor, samples, "a b")
    with pytest.raises(ValueError, match=r"^processor must be a WhisperProcessor, got Whisper"):
        make_forced_example(processor.feature_extractor, samples, ["a"])
    with pytest.raises(ValueError, match=r"at most 2 seconds, got 3\.0"):
        make_forced_example(processor, np.tile(samples, 3), ["a"])
