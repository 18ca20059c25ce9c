"""Tiny networks of transformers, from configurations alone, and what they are run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from tests.tiny import jiggle

TYPES = 13
IDS = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 2, 2, 2], [10, 11, 3, 2, 2]])
REAL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
TARGETS = torch.tensor([[3, 5, 1], [4, 1, -100], [6, 7, 1]])

ENDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
SIZES = {"hidden_size": 6, "intermediate_size": 7, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 3, "max_position_embeddings": 16}


def gpt2(kind: str = "GPT2LMHeadModel", **options: Any) -> Any:
    sizes = {"n_embd": 6, "n_layer": 2, "n_head": 3, "n_positions": 16, "n_inner": 7}
    config = transformers.GPT2Config(vocab_size=TYPES, **{**sizes, **ENDS, **options})
    return getattr(transformers, kind)(config)


def grouped(name: str = "Llama", **options: Any) -> Any:
    """A decoder whose four heads share the keys of two."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}
    settings = {**SIZES, "hidden_size": 8, **heads, **ENDS, **options}
    config = getattr(transformers, f"{name}Config")(vocab_size=TYPES, **settings)
    return getattr(transformers, f"{name}ForCausalLM")(config)


def bert(kind: str = "BertForMaskedLM", **options: Any) -> Any:
    config = transformers.BertConfig(vocab_size=TYPES, **{**SIZES, **HEADS, **options})
    return getattr(transformers, kind)(config)


def roberta() -> Any:
    """A decoder that finds positions from its tokens, and counts from the padding's id on."""
    config = transformers.RobertaConfig(vocab_size=TYPES, is_decoder=True, **SIZES, **HEADS, **ENDS)
    return transformers.RobertaForCausalLM(config)


def modernbert(name: str = "ModernBert", kind: str = "ForMaskedLM") -> Any:
    """An encoder with one projection of queries, keys and values, and a window in some layers."""
    sizes = {**SIZES, "hidden_size": 12, "cls_token_id": 0, "sep_token_id": 1}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=TYPES, local_attention=2, **sizes, **HEADS, **ENDS
    )
    return getattr(transformers, name + kind)(config)


def bart(name: str = "Bart", kind: str = "BartForConditionalGeneration") -> Any:
    sizes = {"d_model": 6, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 16}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 2}
    wide = {"encoder_ffn_dim": 7, "decoder_ffn_dim": 5}
    ends = {**ENDS, "decoder_start_token_id": 1, "forced_eos_token_id": None}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=TYPES, **sizes, **heads, **wide, **ends
    )
    return getattr(transformers, kind)(config)


def image(name: str = "ViT", **options: Any) -> Any:
    """A classifier of images of one colour, two patches wide and high."""
    pixels = {"image_size": 4, "patch_size": 2, "num_channels": 1, "num_labels": 5}
    settings = {"num_attention_heads": 3, **SIZES, **pixels, **options}
    config = getattr(transformers, f"{name}Config")(**settings)
    return getattr(transformers, f"{name}ForImageClassification")(config)


def swin() -> Any:
    """A classifier of images of two windows, which the second layer shifts."""
    windows = {"image_size": (4, 8), "window_size": 2, "depths": [2], "embed_dim": 6}
    return image("Swin", num_attention_heads=[3], **windows)


def gemma3() -> Any:
    """A decoder of text and images, of which 12 is a token; it makes its masks itself."""
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4}
    config = transformers.Gemma3Config(
        text_config={"vocab_size": TYPES, **SIZES, **heads, **ENDS},
        vision_config={**SIZES, "num_attention_heads": 2, "image_size": 4, "patch_size": 2},
        image_token_index=12,
        mm_tokens_per_image=1,
    )
    return transformers.Gemma3ForConditionalGeneration(config)


def qwen2vl() -> Any:
    """A decoder of text and images, whose patches stand one after the other in a single row."""
    text = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 13}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 0]}
    tokens = {"image_token_id": 12, "vision_start_token_id": 11, "vision_end_token_id": 10}
    text |= {"bos_token_id": 0, "eos_token_id": 1, "num_key_value_heads": 2}
    images = {"depth": 1, "embed_dim": 12, "num_heads": 3, "hidden_size": 8, "mlp_ratio": 1}
    patches = {"patch_size": 2, "spatial_merge_size": 2, "temporal_patch_size": 1}
    config = transformers.Qwen2VLConfig(
        text_config={"intermediate_size": 5, "rope_parameters": rope, **text},
        vision_config={**images, **patches},
        **tokens,
    )
    return transformers.Qwen2VLForConditionalGeneration(config)


def t5() -> Any:
    sizes = {"d_model": 6, "d_kv": 2, "d_ff": 7, "num_layers": 2, "num_heads": 3}
    ends = {"pad_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 2}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=TYPES, **sizes, **ends)
    )


def whisper() -> Any:
    """Speech to text: frames are halved by a convolution, and tokens point at them."""
    sizes = {"d_model": 6, "encoder_layers": 2, "decoder_layers": 2, "num_mel_bins": 5}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 2}
    wide = {"encoder_ffn_dim": 7, "decoder_ffn_dim": 5}
    places = {"max_source_positions": 6, "max_target_positions": 16}
    ends = {**ENDS, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(
        vocab_size=TYPES, begin_suppress_tokens=[], **sizes, **heads, **wide, **places, **ends
    )
    return transformers.WhisperForConditionalGeneration(config)


FRAMES = torch.linspace(-1, 1, 3 * 5 * 12).reshape(3, 5, 12).sin()
"""Three sounds of twelve frames."""


PATCHES = {
    "input_ids": torch.tensor([[11, 12, 10, 3], [11, 12, 10, 5]]),
    "pixel_values": torch.linspace(-2, 2, 8 * 12).sin().view(8, 12),
    "image_grid_thw": torch.tensor([[1, 2, 2], [1, 2, 2]]),
    "mm_token_type_ids": torch.tensor([[0, 1, 0, 0], [0, 1, 0, 0]]).int(),
}
"""Two sentences with an image of four patches each."""


NETWORKS: dict[str, Callable[[], Any]] = {
    "gpt2": gpt2,
    "llama": grouped,
    "mistral": lambda: grouped("Mistral", sliding_window=2),
    "roberta": roberta,
    "bert": bert,
    "classifier": lambda: bert("BertForSequenceClassification", num_labels=3),
    "modernbert": modernbert,
    "bart": bart,
    "marian": lambda: bart("Marian", "MarianMTModel"),
    "t5": t5,
    "whisper": whisper,
    "swin": swin,
}
"""One of each kind: one head a key, grouped heads, windows, encoders, both, biases of position."""

WRITERS = ("gpt2", "llama", "mistral", "bart", "marian", "t5", "whisper")


def network(name: str) -> Any:
    """A network away from its start, where all heads are alike, without dropout."""
    return jiggle(NETWORKS[name](), 0.3).eval()


def source_of(made: Any) -> dict[str, Tensor]:
    """Three sentences, padded, three sounds or three images."""
    if made.main_input_name == "pixel_values":
        return {"pixel_values": torch.linspace(-2, 2, 3 * 32).sin().view(3, 1, 4, 8)}
    if made.main_input_name == "input_features":
        return {"input_features": FRAMES.to(made.dtype)}
    return {"input_ids": IDS, "attention_mask": REAL}


def inputs_of(made: Any) -> dict[str, Tensor]:
    """Three sentences; what the decoder of two sides reads is known."""
    source = source_of(made)
    if made.config.is_encoder_decoder:
        shift = getattr(made, "prepare_decoder_input_ids_from_labels", None)
        shifted = torch.tensor([[1, 3, 5], [1, 4, 2], [1, 6, 7]])
        source["decoder_input_ids"] = shifted if shift is None else shift(labels=TARGETS)
    return source


def labels_of(name: str) -> Tensor | None:
    """What the network is to predict, where it is not its own input."""
    if name in ("bert", "modernbert"):
        return IDS.masked_fill(torch.arange(5) % 2 == 1, -100).masked_fill(REAL == 0, -100)
    if name in ("classifier", "swin"):
        return torch.tensor([2, 0, 1])
    return TARGETS if name in ("bart", "marian", "t5", "whisper") else None


def refuse(call: Any, *messages: str) -> None:
    """A call is refused in one line that has some words."""
    with pytest.raises(ValueError) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert all(words in str(refused.value) for words in messages)
