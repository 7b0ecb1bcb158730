"""A bundle folder, loaded: the exported artifact with its own tokenizer.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.errors import InputError
from msdc.export.manifest import Manifest, check_files, read_manifest
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer, Tokenizer

__all__ = ["Bundle", "load_bundle", "write_bundle"]


def write_bundle(*arguments: Any, **options: Any) -> Manifest:
    """See `msdc.export.writer.write_bundle`; imported late, because loading a bundle must not import what writes
    one."""
    from msdc.export import writer

    return writer.write_bundle(*arguments, **options)


class Bundle:
    """An exported encoder. Texts longer than `max_length` tokens are truncated, as the float encoder does."""

    def __init__(self, folder: Path, manifest: Manifest, tokenizer: Tokenizer, runner: Any) -> None:
        self.folder = folder
        self.manifest = manifest
        self.tokenizer = tokenizer
        self.runner = runner
        self.runtime: str = runner.name
        self.name = manifest.name
        self.width = manifest.width
        self.max_length = manifest.max_length

    def __repr__(self) -> str:
        return f"Bundle({self.name!r}, runtime={self.runtime!r}, width={self.width}, max_length={self.max_length})"

    def fingerprint(self) -> str:
        """sha256 over the runtime and the manifest, which holds the hashes of all files."""
        return hashlib.sha256(f"{self.runtime} {self.manifest.model_dump_json()}".encode()).hexdigest()

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with special ids, truncated to `max_length`."""
        return self.tokenizer.encode(texts, self.max_length)

    def encode(self, texts: Sequence[str], **_ignored: Any) -> np.ndarray:
        """Vectors of `texts`, float32 [N, D], normalised inside the graph when the model says so.

        Options of a float encoder (batch size, precision) mean nothing here and are accepted.

        Raises:
            InputError: `texts` is one string, or holds something that is not text.
        """
        if isinstance(texts, str):
            raise InputError("encode takes a list of texts, not one string")
        if not all(isinstance(text, str) for text in texts):
            raise InputError("encode takes texts; a value in the list is not a string")
        if not len(texts):
            return np.zeros((0, self.width), dtype=np.float32)
        return self.encode_ids(self.tokenize(texts))

    def encode_ids(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Vectors of rows of token ids, float32 [N, D].

        Raises:
            InputError: a row is empty, longer than `max_length`, or holds an id outside the vocabulary.
        """
        for row in rows:
            if not 1 <= len(row) <= self.max_length:
                raise InputError(f"a row of {len(row)} ids; this bundle takes 1 to {self.max_length}")
            if min(row) < 0 or max(row) >= self.manifest.vocabulary:
                raise InputError(f"an id outside the vocabulary of {self.manifest.vocabulary}")
        if not len(rows):
            return np.zeros((0, self.width), dtype=np.float32)
        return self.runner.run(rows)


def open_tokenizer(folder: Path, manifest: Manifest) -> Tokenizer:
    """The tokenizer of a bundle, held to the manifest's ids.

    Raises:
        InputError: damaged, or its size or special ids are not the manifest's.
    """
    part = manifest.tokenizer
    if part.kind == "tokenizer-json":
        fast = FastTokenizer(folder / part.file, part.pad_id)
        if fast.size > manifest.vocabulary:
            raise InputError(f"{folder}: {part.file} has {fast.size} ids, the model {manifest.vocabulary}")
        return fast
    pieces = PieceTokenizer(folder / part.file)
    found = (pieces.bos_id, pieces.eos_id, pieces.pad_id, pieces.unk_id)
    if found != (part.bos_id, part.eos_id, part.pad_id, part.unk_id):
        raise InputError(f"{folder}: special ids of {part.file} are {found}, not those of the manifest")
    if pieces.size > manifest.vocabulary:
        raise InputError(f"{folder}: {part.file} has {pieces.size} pieces, the model {manifest.vocabulary}")
    return pieces


def open_runner(folder: Path, manifest: Manifest, runtime: str, threads: int | None = None) -> Any:
    """The runner of one runtime of a bundle whose files were checked.

    Raises:
        InputError: the program is refused by its runtime.
    """
    from msdc.export.executorch.pte import check_pte
    from msdc.export.runtimes import ExecutorchRunner, OnnxRunner

    programs = manifest.programs
    if runtime == "executorch" and programs.executorch is not None:
        part = programs.executorch
        constants = {
            "repeats": part.repeats,
            "width": manifest.width,
            "max_length": manifest.max_length,
            "vocabulary": manifest.vocabulary,
        }
        check_pte(folder / part.file, style=part.style, constants=constants)
        return ExecutorchRunner(folder / part.file, style=part.style, repeats=part.repeats, threads=threads)
    if runtime == "onnx" and programs.onnx is not None:
        from msdc.export.onnx.check import check_onnx_file

        check_onnx_file(folder / programs.onnx.file)
        return OnnxRunner(folder / programs.onnx.file, pad_id=manifest.tokenizer.pad_id, threads=threads)
    known = ", ".join(manifest.runtimes) or "none"
    raise InputError(f"{folder}: holds no program for runtime {runtime!r}; it holds: {known}")


def load_bundle(folder: str | Path, runtime: str | None = None, threads: int | None = None) -> Bundle:
    """Load a bundle: manifest, hashes of all files, tokenizer, program; in that order, so a damaged file never runs.

    `runtime` is executorch or onnx; None takes the first the bundle holds.

    Raises:
        InputError: no bundle, a damaged one, or one without that runtime.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    chosen = runtime or next(iter(manifest.runtimes), None)
    if chosen is None:
        raise InputError(f"{folder}: the bundle holds no program")
    return Bundle(folder, manifest, open_tokenizer(folder, manifest), open_runner(folder, manifest, chosen, threads))
