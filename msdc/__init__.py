"""msdc: train, shrink, export and measure small multilingual sentence encoders.

`load_encoder` and `load_bundle` are imported on first use, so that `import msdc` is fast and does not import torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"
_FACADE = {
    "load_encoder": ("msdc.encoders.encoder", "load_encoder"),
    "load_bundle": ("msdc.export.bundle", "load_bundle"),
    "open_index": ("msdc.commands.search", "open_index"),
}
__all__ = ["__version__", "load_bundle", "load_encoder", "open_index"]


def __getattr__(name: str) -> Any:
    if name not in _FACADE:
        raise AttributeError(f"module 'msdc' has no attribute {name!r}")
    module, attribute = _FACADE[name]
    return getattr(importlib.import_module(module), attribute)
