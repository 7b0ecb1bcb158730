"""The native core as a library without a runtime, and bundles around SentencePiece models."""

import ctypes
import hashlib
import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
from programs import run
from tiny_models import once

from msdc.files import PACKAGE

CORE = PACKAGE / "export" / "native"
STRICT = ["-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wno-sign-conversion", "-Werror"]


def core_sources() -> list[str]:
    """Sources of the core, with the engine that has no runtime."""
    left_out = ("engine_executorch.cpp", "engine_onnx.cpp")
    return [str(p) for p in sorted((CORE / "src").glob("*.cpp")) if p.name not in left_out]


def build_core() -> Path:
    """The core without a runtime as a shared library; skips the test where there is no compiler."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: apt-get install g++")
    # As strict as possible: these sources go into other people's builds.
    arguments = (*STRICT, "-O1", "-shared", "-fPIC", f"-I{CORE / 'include'}", *core_sources())
    return once("libmsdc_core.so", lambda target: run("g++", *arguments, "-o", target))


def seal(manifest: dict) -> str:
    text = json.dumps(manifest | {"seal": "0" * 64}, ensure_ascii=False, indent=2)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return text.replace(f'"seal": "{"0" * 64}"', f'"seal": "{digest}"', 1)


def _write_bundle(folder: Path, file: str, raw: bytes, settings: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(raw)
    manifest = {
        "format": 1, "seal": "", "name": "tokenizer", "width": 4, "max_length": 1 << 20,
        "programs": {"executorch": None, "onnx": None},
        "files": {file: {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}},
    }  # fmt: skip
    (folder / "bundle.json").write_text(seal(manifest | settings), encoding="utf-8")
    return folder


def write_piece_bundle(folder: Path, model: bytes, /, *, size: int | None = None, **changes) -> Path:
    """A bundle that holds only a SentencePiece model of `size` pieces."""
    if size is None:
        size = sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size()
    tokenizer = {"kind": "sentencepiece", "file": "tokenizer.model", "bos_id": 2, "eos_id": 3, "pad_id": 0, "unk_id": 1}
    return _write_bundle(folder, "tokenizer.model", model, {"vocabulary": size, "tokenizer": tokenizer} | changes)


def write_compiled_bundle(folder: Path, compiled: bytes, **changes) -> Path:
    """A bundle that holds only a compiled tokenizer.json."""
    tokenizer = {"kind": "tokenizer-json", "file": "tokenizer.json", "compiled": "tokenizer.bin",
                 "bos_id": None, "eos_id": None, "pad_id": 0, "unk_id": None}  # fmt: skip
    return _write_bundle(folder, "tokenizer.bin", compiled, {"vocabulary": 1 << 20, "tokenizer": tokenizer} | changes)


class CoreTokenizer:
    """The core's tokenizer through the C interface."""

    def __init__(self, library: Path, folder: Path, check_files: bool = True) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.msdc_tokenizer_close.argtypes = [ctypes.c_void_p]
        self.handle = ctypes.c_void_p()
        self.error = ctypes.create_string_buffer(1024)
        self.ids = (ctypes.c_int32 * (1 << 20))()
        status = self.library.msdc_tokenizer_open(
            str(folder).encode(), int(check_files), ctypes.byref(self.handle), self.error, len(self.error)
        )
        if status != 0:
            raise CoreError(status, self.error.value.decode())

    def encode(self, text: str | bytes) -> list[int]:
        raw = text.encode() if isinstance(text, str) else text
        count = ctypes.c_size_t()
        status = self.library.msdc_tokenize(
            self.handle, raw, ctypes.c_size_t(len(raw)), self.ids, ctypes.c_size_t(len(self.ids)),
            ctypes.byref(count), self.error, len(self.error),
        )  # fmt: skip
        if status != 0:
            raise CoreError(status, self.error.value.decode())
        return list(self.ids[: count.value])

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.msdc_tokenizer_close(self.handle)


class CoreError(Exception):
    """A status of the core with its message."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(f"{status}: {line}")
        self.status = status
        self.line = line
