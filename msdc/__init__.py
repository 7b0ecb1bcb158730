"""msdc: train, shrink, export and measure small multilingual sentence encoders.

* `load_encoder(name)`: an `Encoder`, a float model: a shipped name, a folder, a hub id.
* `load_bundle(folder)`: a `Bundle`, an exported model with its tokenizer.
* `open_index(file_or_texts)`: an `Index` for search by meaning.

All have `encode(texts)`, float32 [N, D], or use one. They are imported on first use, so that `import msdc` is fast and
does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msdc.commands.search_index import Index as Index
    from msdc.commands.search_index import open_index as open_index
    from msdc.encoders.encoder import Encoder as Encoder
    from msdc.encoders.encoder import SentenceEncoder as SentenceEncoder
    from msdc.encoders.encoder import load_encoder as load_encoder
    from msdc.errors import GateError as GateError
    from msdc.errors import InputError as InputError
    from msdc.errors import MsdcError as MsdcError
    from msdc.export.bundle import Bundle as Bundle
    from msdc.export.bundle import load_bundle as load_bundle

__version__ = "0.2.0"
_FACADE = {
    "Bundle": "msdc.export.bundle",
    "Encoder": "msdc.encoders.encoder",
    "GateError": "msdc.errors",
    "Index": "msdc.commands.search_index",
    "InputError": "msdc.errors",
    "MsdcError": "msdc.errors",
    "SentenceEncoder": "msdc.encoders.encoder",
    "load_bundle": "msdc.export.bundle",
    "load_encoder": "msdc.encoders.encoder",
    "open_index": "msdc.commands.search_index",
}
__all__ = [
    "Bundle",
    "Encoder",
    "GateError",
    "Index",
    "InputError",
    "MsdcError",
    "SentenceEncoder",
    "__version__",
    "load_bundle",
    "load_encoder",
    "open_index",
]


def __getattr__(name: str) -> object:
    if name not in _FACADE:
        raise AttributeError(f"module 'msdc' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(_FACADE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
