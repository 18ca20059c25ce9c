"""Whisper in CTranslate2's format becomes a network of transformers, parameter by parameter."""

from __future__ import annotations

import json
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import WhisperConfig, WhisperForConditionalGeneration, WhisperProcessor

from latentheads.experiments.studies.preparing import whisper as module
from latentheads.experiments.studies.preparing.whisper import (
    convert_whisper,
    read_variables,
    to_state_dict,
)

SIZES = {"vocab_size": 11, "d_model": 6, "num_mel_bins": 5, "encoder_ffn_dim": 7}
LAYERS = {"encoder_layers": 2, "decoder_layers": 3, "decoder_ffn_dim": 7}
HEADS = {"encoder_attention_heads": 3, "decoder_attention_heads": 2}
POSITIONS = {"max_target_positions": 13}
TOKENS = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "decoder_start")}


@pytest.fixture
def whisper() -> Any:
    options = WhisperConfig(**SIZES, **LAYERS, **HEADS, **TOKENS, **POSITIONS)
    torch.manual_seed(0)
    network = WhisperForConditionalGeneration(options).float()
    for parameter in network.parameters():  # layer norms start as ones and zeros
        torch.nn.init.normal_(parameter)
    return network


def _variables(network: Any) -> dict[str, Tensor]:
    """The variables that CTranslate2 would write."""
    variables = {}
    for side in ("encoder", "decoder"):
        module = getattr(network.model, side)
        variables[f"{side}/num_heads"] = torch.tensor(3 if side == "encoder" else 2).short()
        variables[f"{side}/position_encodings/encodings"] = module.embed_positions.weight
        variables |= _norm(f"{side}/layer_norm", module.layer_norm)
        for index, layer in enumerate(module.layers):
            name = f"{side}/layer_{index}"
            variables |= _norm(f"{name}/self_attention/layer_norm", layer.self_attn_layer_norm)
            variables |= _norm(f"{name}/ffn/layer_norm", layer.final_layer_norm)
            own = layer.self_attn
            joined = (own.q_proj, own.k_proj, own.v_proj)
            variables |= _linear(f"{name}/self_attention/linear_0", *joined)
            variables |= _linear(f"{name}/self_attention/linear_1", own.out_proj)
            variables |= _linear(f"{name}/ffn/linear_0", layer.fc1)
            variables |= _linear(f"{name}/ffn/linear_1", layer.fc2)
            if side == "decoder":
                cross = layer.encoder_attn
                variables |= _norm(f"{name}/attention/layer_norm", layer.encoder_attn_layer_norm)
                variables |= _linear(f"{name}/attention/linear_0", cross.q_proj)
                variables |= _linear(f"{name}/attention/linear_1", cross.k_proj, cross.v_proj)
                variables |= _linear(f"{name}/attention/linear_2", cross.out_proj)
    for name in ("conv1", "conv2"):
        variables |= _linear(f"encoder/{name}", getattr(network.model.encoder, name))
    variables["decoder/embeddings/weight"] = network.model.decoder.embed_tokens.weight
    return {name: value.detach() for name, value in variables.items()}


def _norm(name: str, module: Any) -> dict[str, Tensor]:
    return {f"{name}/gamma": module.weight, f"{name}/beta": module.bias}


def _linear(name: str, *modules: Any) -> dict[str, Tensor]:
    biases = [m.weight.new_zeros(len(m.weight)) if m.bias is None else m.bias for m in modules]
    weights = [module.weight for module in modules]
    return {f"{name}/weight": torch.cat(weights), f"{name}/bias": torch.cat(biases)}


def _write(variables: dict[str, Tensor]) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    parts = [struct.pack("<I", 6), text("WhisperSpec"), struct.pack("<II", 3, len(variables))]
    for name, value in variables.items():
        data = value.numpy().tobytes()
        shape = struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
        kind = {torch.float32: 0, torch.int16: 2}[value.dtype]
        parts += [text(name), shape, struct.pack("<BI", kind, len(data)), data]
    alias = text("decoder/projection/weight") + text("decoder/embeddings/weight")
    return b"".join([*parts, struct.pack("<I", 1), alias])


def test_every_parameter_has_its_place(whisper: Any) -> None:
    parameters = to_state_dict(dict(read_variables(_write(_variables(whisper)))))
    expected = whisper.state_dict()
    assert parameters.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(parameters[name], value, rtol=0, atol=0)


def _tokenizer() -> bytes:
    names = ["endoftext", "startoftranscript", "en", "transcribe", "translate", "notimestamps"]
    tokenizer = Tokenizer(models.WordLevel({f"<|{n}|>": i for i, n in enumerate(names)}, None))
    tokenizer.add_special_tokens([f"<|{name}|>" for name in names])
    return tokenizer.to_str().encode()


@pytest.mark.parametrize("languages", [[], [2]])
def test_a_converted_network_is_opened_with_the_prompt_of_its_languages(
    languages: list[int], whisper: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.WhisperConfig", partial(WhisperConfig, **POSITIONS))
    monkeypatch.setattr(module, "ENGLISH_SIZE", SIZES["vocab_size"] - bool(languages))
    content = _write(_variables(whisper))
    config = {"alignment_heads": [[1, 0]], "suppress_ids": [], "suppress_ids_begin": [3]}
    files = {
        "config.json": json.dumps(config | {"lang_ids": languages}).encode(),
        "tokenizer.json": _tokenizer(),
        "model.bin.part2": content[100:],
        "model.bin.part1": content[:100],
    }
    convert_whisper(files, tmp_path)
    opened = WhisperForConditionalGeneration.from_pretrained(tmp_path)
    for name, value in whisper.state_dict().items():
        assert torch.equal(opened.state_dict()[name].float(), value)
    options = opened.generation_config
    assert options.alignment_heads == [[1, 0]]
    assert (options.decoder_start_token_id, options.no_timestamps_token_id) == (1, 5)
    assert options.is_multilingual == bool(languages)
    if languages:
        assert options.lang_to_id == {"<|en|>": 2}
        prompt = {"language": "en", "task": "transcribe"}
        processor = WhisperProcessor.from_pretrained(tmp_path, **prompt)
        assert processor.tokenizer("").input_ids == [1, 2, 3, 5, 0]
