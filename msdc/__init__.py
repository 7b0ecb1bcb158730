"""msdc: train, shrink, export and measure small multilingual sentence encoders.

* `load_encoder(name)`: an `Encoder` with its weights: a shipped name, a folder, a hub id.
* `load_bundle(folder)`: a `Bundle`, an exported model with its tokenizer.
* `open_index(file_or_texts)`: an `Index` for search by words and by meaning.
* `near_pairs(vectors, cosine)`: the pairs of texts that are nearly the same.
* `markup_document(source, kind)`: the text, title and fields of Markdown, HTML or Org, for an index.

All have `encode(texts)`, float32 [N, D], or use one. They are imported on first use, so that `import msdc` is fast and
does not import torch. Each package has its verbs: `from msdc.distill import distill`, `from msdc.export import export`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msdc.lazy import exports
from msdc.telemetry import disable_telemetry

if TYPE_CHECKING:
    from msdc.encoders.encoder import Encoder as Encoder
    from msdc.encoders.encoder import SentenceEncoder as SentenceEncoder
    from msdc.errors import GateError as GateError
    from msdc.errors import InputError as InputError
    from msdc.errors import MsdcError as MsdcError
    from msdc.export.bundle import Bundle as Bundle
    from msdc.export.bundle import load_bundle as load_bundle
    from msdc.loading import load_encoder as load_encoder
    from msdc.loading import open_index as open_index
    from msdc.scores import near_pairs as near_pairs
    from msdc.search.index import Index as Index
    from msdc.text.markup import markup_document as markup_document

__version__ = "0.3.0.dev0"
_MODULES = {
    "Bundle": "msdc.export.bundle",
    "Encoder": "msdc.encoders.encoder",
    "GateError": "msdc.errors",
    "Index": "msdc.search.index",
    "InputError": "msdc.errors",
    "MsdcError": "msdc.errors",
    "SentenceEncoder": "msdc.encoders.encoder",
    "load_bundle": "msdc.export.bundle",
    "load_encoder": "msdc.loading",
    "markup_document": "msdc.text.markup",
    "near_pairs": "msdc.scores",
    "open_index": "msdc.loading",
}
# Before anything can import onnxruntime.
disable_telemetry()
__all__ = sorted([*_MODULES, "__version__"])
__getattr__ = exports(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
