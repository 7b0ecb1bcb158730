"""msdc: train, shrink, export and measure small multilingual sentence encoders.

* `load_encoder(name)`: an `Encoder`, a float model: a shipped name, a folder, a hub id.
* `load_bundle(folder)`: a `Bundle`, an exported model with its tokenizer.
* `open_index(file_or_texts)`: an `Index` for search by words and by meaning.

All have `encode(texts)`, float32 [N, D], or use one. They are imported on first use, so that `import msdc` is fast and
does not import torch. Each package has its verbs: `from msdc.distill import distill`, `from msdc.export import export`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msdc.compress.student.io import load_student as load_student
    from msdc.distill.run import best_model as best_model
    from msdc.encoders.encoder import Encoder as Encoder
    from msdc.encoders.encoder import SentenceEncoder as SentenceEncoder
    from msdc.encoders.encoder import load_encoder as load_encoder
    from msdc.errors import GateError as GateError
    from msdc.errors import InputError as InputError
    from msdc.errors import MsdcError as MsdcError
    from msdc.export.bundle import Bundle as Bundle
    from msdc.export.bundle import load_bundle as load_bundle
    from msdc.export.mobile.web.transformers_js import add_transformers_js as add_transformers_js
    from msdc.export.onnx.float_program import load_program_encoder as load_program_encoder
    from msdc.export.runtimes import RUNTIMES as RUNTIMES
    from msdc.search.index import Index as Index
    from msdc.search.index import open_index as open_index

__version__ = "0.3.0.dev0"
DEFAULT_MODEL = "msdc-mini"
_FACADE = {
    "Bundle": "msdc.export.bundle",
    "Encoder": "msdc.encoders.encoder",
    "GateError": "msdc.errors",
    "Index": "msdc.search.index",
    "InputError": "msdc.errors",
    "MsdcError": "msdc.errors",
    "SentenceEncoder": "msdc.encoders.encoder",
    "load_bundle": "msdc.export.bundle",
    "load_encoder": "msdc.encoders.encoder",
    "open_index": "msdc.search.index",
}
# What a lower package uses of a higher one: the only way up, and no part of the interface.
_UPWARD = {
    "RUNTIMES": "msdc.export.runtimes",
    "add_transformers_js": "msdc.export.mobile.web.transformers_js",
    "load_program_encoder": "msdc.export.onnx.float_program",
    "load_student": "msdc.compress.student.io",
    "best_model": "msdc.distill.run",
}
__all__ = sorted([*_FACADE, "__version__"])


def __getattr__(name: str) -> object:
    module = _FACADE.get(name) or _UPWARD.get(name)
    if module is None:
        raise AttributeError(f"module 'msdc' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(module), name)
    return found


def __dir__() -> list[str]:
    return __all__
