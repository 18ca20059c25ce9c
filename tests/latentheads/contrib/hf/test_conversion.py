"""The library's language model as GPT-2, and back: the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from latentheads.contrib.hf import from_gpt2, to_gpt2
from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.logits.latent import Logits
from latentheads.models import LanguageModel, Network
from latentheads.models.network import PreNorm
from latentheads.pruning import remove_heads
from tests.latentheads.contrib.hf.networks import gpt2
from tests.tiny import build, jiggle, small_batch
from tests.typechecking import unchecked


def plain_model(**changes: Any) -> Any:
    return build("language-model", "delta", **{"norm": "pre", **changes}).eval()


@pytest.mark.parametrize("share", ["decoder", "none"])
@torch.no_grad()
def test_both_forms_say_the_same_there_and_back(share: str, tmp_path: Path) -> None:
    model, fed = plain_model(share=share), small_batch().decoder_input
    want = model.predict(model.states(small_batch()))
    made = to_gpt2(model, length=9)
    torch.testing.assert_close(made(fed).logits, want)
    made.save_pretrained(tmp_path)
    opened = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(opened(fed).logits, want)
    back = from_gpt2(opened)
    torch.testing.assert_close(back.predict(back.states(small_batch())), want)
    assert back.network == model.network
    assert not back.training


def test_what_is_no_plain_transformer_is_refused_in_a_line() -> None:
    def refuse(model: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            to_gpt2(model)

    with pytest.raises(ValueError, match=r"^model must be a LanguageModel, got Linear"):
        unchecked(unchecked(to_gpt2))(torch.nn.Linear(2, 3))
    refuse(build("language-model", "delta"), "norm post")
    refuse(build("language-model", "independent", norm=PreNorm()), "noise")
    refuse(build("language-model", "residual", norm=PreNorm()), "residual")
    refuse(plain_model(mixers="local"), "mixers local")
    refuse(plain_model(norm=PreNorm(final_norm=False)), "final_norm")
    refuse(plain_model(adaptive=(5,), width=8, heads=2), "adaptive")
    network = Network(width=6, heads=3, layers=1, norm=PreNorm())
    options = AlignmentOptions(1)
    refuse(LanguageModel(13, network, latents=[Logits(attention_types=()), options]), "alignments")
    smaller = plain_model()
    remove_heads(smaller, {"decoder.0.self": [0]})
    refuse(smaller, "fewer heads")


def test_a_network_that_the_library_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="was not made by to_gpt2"):
        from_gpt2(gpt2())
    made = to_gpt2(plain_model(), length=5)
    jiggle(made.lm_head, 0.1)
    with pytest.raises(ValueError, match="trained apart"):
        from_gpt2(made)
    jiggle(made.transformer.wpe, 0.1)
    with pytest.raises(ValueError, match="positions"):
        from_gpt2(made)
