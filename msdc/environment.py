"""Where a number was made: versions and machine, for `environment.json` and result files."""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import asdict
from typing import Any

from msdc.machine import read_machine

PACKAGES = (
    *("msdc", "torch", "torchao", "executorch", "transformers", "tokenizers", "sentencepiece"),
    *("onnx", "onnxruntime", "numpy"),
)


def versions() -> dict[str, str]:
    """Installed versions of what decides a result."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def environment() -> dict[str, Any]:
    """Versions and machine."""
    return {"versions": versions(), "machine": asdict(read_machine())}
