"""Text in, vectors out: the face that every command and every floor uses for a float model.

Shapes: N texts, B batch, T tokens, D sentence width.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from msdc.encoders.layout import read_layout
from msdc.encoders.locate import locate_model
from msdc.errors import InputError
from msdc.files import sha256_files
from msdc.progress import track
from msdc.text.packing import pack_by_length, pad
from msdc.text.tokenizer import Tokenizer, load_tokenizer

BATCH_TOKENS = 4096
# model_type of our own folders -> loader; by name, because the class lives on a floor above this one
OWN_LOADERS = {"msdc-student": ("msdc.compress.student.io", "load_student")}


class Encoder:
    """A sentence encoder with its tokenizer.

    `module` is a torch module with `forward(ids_BT, mask_BT) -> sentence_BD` and `embed(ids_BT)`.
    """

    def __init__(
        self, module: Any, tokenizer: Tokenizer, max_length: int, name: str, folder: Path | None = None
    ) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.name = name
        self.folder = folder
        self._fingerprint: str | None = None

    @property
    def width(self) -> int:
        """D."""
        return int(self.module.width)

    def fingerprint(self) -> str:
        """sha256 over weights, settings and tokenizer: the key under which this encoder's outputs are cached."""
        if self._fingerprint is None:
            if self.folder is None:
                raise InputError("an encoder that lives only in memory has no fingerprint; save it first")
            files = [p for p in self.folder.rglob("*") if p.suffix in (".safetensors", ".json", ".model", ".txt")]
            self._fingerprint = sha256_files(files)
        return self._fingerprint

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with special ids, truncated to `max_length`."""
        return self.tokenizer.encode(texts, self.max_length)

    @torch.inference_mode()
    def encode(
        self,
        texts: Sequence[str],
        *,
        batch_tokens: int = BATCH_TOKENS,
        progress: bool = False,
        precision: str = "float32",
    ) -> np.ndarray:
        """Vectors of `texts`, float32 [N, D], L2-normalised when the model says so.

        Rows are packed by length under `batch_tokens`; the order of the result is the order of `texts`.

        Raises:
            InputError: `texts` is one string, or holds something that is not text.
        """
        if isinstance(texts, str):
            raise InputError("encode takes a list of texts, not one string")
        if not all(isinstance(text, str) for text in texts):
            raise InputError("encode takes texts; a value in the list is not a string")
        vectors_ND = np.zeros((len(texts), self.width), dtype=np.float32)
        if not len(texts):
            return vectors_ND
        rows = self.tokenize(texts)
        was_training = self.module.training
        self.module.eval()
        device = next(self.module.parameters()).device
        batches = pack_by_length([len(row) for row in rows], batch_tokens)
        for batch in track(batches, f"encode with {self.name}", enabled=progress):
            ids_BT, mask_BT = pad([rows[i] for i in batch], self.tokenizer.pad_id)
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                sentence_BD = self.module(ids_BT.to(device), mask_BT.to(device))
            vectors_ND[batch] = sentence_BD.float().cpu().numpy()
        self.module.train(was_training)
        return vectors_ND


def load_encoder(path_or_name: str | Path, trust_remote_code: bool = False) -> Encoder:
    """Load a student of ours, any sentence-transformers folder, the offline teacher, or a hub id.

    Raises:
        InputError: no such model, or one that is damaged or of an unknown kind.
    """
    folder = locate_model(path_or_name)
    if (folder / "bundle.json").is_file():
        raise InputError(f"{folder}: this is an exported bundle; load it with msdc.load_bundle")
    layout = read_layout(folder)
    name = Path(str(path_or_name)).name
    if layout.model_type in OWN_LOADERS:
        module_name, function = OWN_LOADERS[layout.model_type]
        module = getattr(importlib.import_module(module_name), function)(folder)
        max_length = module.config.positions
    else:
        from msdc.encoders.sentence_model import load_sentence_model

        module = load_sentence_model(layout, trust_remote_code)
        max_length = layout.max_length
    pad_id = int(layout.config.get("pad_token_id") or layout.config.get("pad_id") or 0)
    return Encoder(module, load_tokenizer(layout.body, pad_id), max_length, name, folder)


def open_model(name: str, runtime: str | None = None) -> Any:
    """Encoder of a model, or of a bundle when `name` is a folder with a bundle.json.

    The bundle's class lives on the export floor and is loaded by name. `runtime` is executorch or onnx; None takes
    the first the bundle holds.
    """
    if (Path(name) / "bundle.json").is_file():
        return importlib.import_module("msdc.export.bundle").load_bundle(name, runtime=runtime)
    return load_encoder(name)
