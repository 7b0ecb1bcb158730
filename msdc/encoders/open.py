"""A float model or an exported bundle, whichever the user named."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from msdc.encoders.encoder import load_encoder


def open_model(name: str, runtime: str | None = None) -> Any:
    """Encoder of a model, or of a bundle when `name` is a folder with a bundle.json.

    The bundle's class lives on the export floor and is loaded by name. `runtime` is executorch or onnx; None takes
    the first the bundle holds.
    """
    if (Path(name) / "bundle.json").is_file():
        return importlib.import_module("export.bundle").load_bundle(name, runtime=runtime)
    return load_encoder(name)
