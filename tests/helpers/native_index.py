"""The native index through its C interface, with the methods of the Python package's: for the same tests.

Texts are encoded by a model of the Python package. `library("system")` links the SQLite that Python has, so that both
can have one file open in one process; `library("pinned")` has its own, as phones do.
"""

import ctypes
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest
from native_core import CORE, STRICT, core_sources, write_piece_bundle
from programs import run

from msdc.cache import cached_folder
from msdc.encoders.encoder import SentenceEncoder
from msdc.errors import InputError, MsdcError, OtherModel
from msdc.export.mobile.web.wasm import sqlite_source
from msdc.search.documents import Document, Hit, SearchResult, as_document, conditions

INDEX = CORE / "src" / "index"
HERE = Path(__file__).resolve().parent
(OK, BAD_ARGUMENT, DAMAGED, UNSUPPORTED, RUNTIME, MEMORY, GOLDEN, CANCELLED, OTHER_MODEL, REPLACED, LOCKED, FULL,
 READ_ONLY) = range(13)  # fmt: skip
BLOCK = 256
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def sqlite_flags() -> list[str]:
    return [f"-D{line}" for line in (INDEX / "sqlite_flags.txt").read_text().split()]


def _sources() -> list[str]:
    return [*core_sources(), *map(str, sorted(INDEX.glob("*.cpp"))), str(HERE / "native_index.cpp")]


def _build(folder: Path, sqlite: str, extra: list[str]) -> None:
    (folder / "search_sql.h").write_text(f'R"sql({(INDEX / "search.sql").read_text(encoding="utf-8")})sql"\n')
    includes = [f"-I{folder}", f"-I{CORE / 'include'}", f"-I{CORE / 'src'}", f"-I{INDEX}"]
    arguments = ["-lsqlite3"]
    if sqlite == "pinned":
        includes.append(f"-isystem{sqlite_source()}")
        arguments = [str(_sqlite_object(extra) / "sqlite3.o"), "-lm", "-lpthread"]
    flags = [*STRICT, "-O1", "-fPIC", "-fvisibility=hidden", *extra, *includes]
    objects = [str(folder / f"{number}.o") for number in range(len(_sources()))]
    jobs = "".join(f"{source} {target}\n" for source, target in zip(_sources(), objects, strict=True))
    (folder / "jobs").write_text(jobs)
    # Two compilers at once.
    command = f'xargs -P 2 -n 2 sh -c \'g++ {" ".join(flags)} -c "$0" -o "$1"\' < {folder / "jobs"}'
    run("sh", "-c", command)
    run("g++", "-shared", "-Wl,-z,defs", *extra, *objects, *arguments, "-o", folder / "libmsdc_index.so")
    for path in (*map(Path, objects), folder / "jobs"):
        path.unlink()


def _sqlite_object(extra: list[str]) -> Path:
    def make(folder: Path) -> None:
        run("gcc", "-O1", "-w", "-fPIC", "-fvisibility=hidden", *sqlite_flags(), *extra, "-c",
            sqlite_source() / "sqlite3.c", "-o", folder / "sqlite3.o")  # fmt: skip

    return cached_folder("sqlite-object", {"flags": sqlite_flags(), "extra": extra, "format": 1}, make)


def library(sqlite: str, *extra: str) -> Path:
    """The index as a shared library, kept until a source changes; skips the test where a program is missing."""
    for program in ("g++", *(("npm",) if sqlite == "pinned" else ())):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install {program}")
    if sqlite == "system" and not Path("/usr/include/sqlite3.h").is_file():
        pytest.skip("sqlite3.h not found: apt-get install libsqlite3-dev")
    if os.environ.get("MSDC_SANITIZED"):
        extra = (*SANITIZE, *extra)
    digest = hashlib.sha256()
    for path in sorted([*CORE.rglob("*.cpp"), *CORE.rglob("*.h"), INDEX / "search.sql", HERE / "native_index.cpp"]):
        digest.update(path.read_bytes())
    recipe = {"sqlite": sqlite, "sources": digest.hexdigest(), "flags": sqlite_flags(), "extra": extra, "format": 1}
    folder = cached_folder("native-index", recipe, lambda folder: _build(folder, sqlite, [*extra]))
    return folder / "libmsdc_index.so"


class Options(ctypes.Structure):
    """`msdc_index_options`."""

    _fields_ = (("size", ctypes.c_uint32), ("read_only", ctypes.c_int32), ("check", ctypes.c_int32),
                ("lock_ms", ctypes.c_int32), ("bytes", ctypes.c_void_p), ("bytes_size", ctypes.c_size_t))  # fmt: skip


class ModelHandles(ctypes.Structure):
    """`msdc_index_model`."""

    _fields_ = (("encoder", ctypes.c_void_p), ("tokenizer", ctypes.c_void_p))


class Progress(ctypes.Structure):
    """`msdc_index_progress`."""

    _fields_ = (("written", ctypes.c_int64), ("done", ctypes.c_int64), ("total", ctypes.c_int64))


ON_TEXT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)


class IndexFailure(MsdcError):
    """A status that is no wrong input, with its line."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status = status


def failure(status: int, line: str) -> MsdcError:
    """The error of a status, of the class that the Python package raises."""
    error = OtherModel(line) if status == OTHER_MODEL else InputError(line)
    if status in (FULL, READ_ONLY, LOCKED, REPLACED, MEMORY, CANCELLED, RUNTIME):
        return IndexFailure(status, line)
    error.status = status  # type: ignore[attr-defined]
    return error


class NativeCore:
    """The functions of a library, each with its status as an error."""

    def __init__(self, path: Path) -> None:
        self.functions = ctypes.CDLL(str(path))
        for name in ("msdc_index_close", "msdc_index_batch_close", "msdc_index_interrupt", "msdc_tokenizer_close"):
            getattr(self.functions, name).argtypes = [ctypes.c_void_p]
            getattr(self.functions, name).restype = None
        self.faults()  # before a file is opened

    def faults(self, kind: int = 0, count: int = 0) -> None:
        """After `count` writes the disk is full (1), or the process ends (2)."""
        self.functions.test_faults(kind, ctypes.c_long(count))

    def set_block(self, documents: int) -> None:
        """Another number of documents in a block."""
        self.functions.test_set_block(ctypes.c_size_t(documents))

    def call(self, name: str, *arguments: object) -> None:
        """Call `msdc_NAME`."""
        line = ctypes.create_string_buffer(1024)
        status = getattr(self.functions, f"msdc_{name}")(*arguments, line, ctypes.c_size_t(len(line)))
        if status != OK:
            raise failure(status, line.value.decode())

    def texts(self, name: str, *arguments: object) -> list[bytes]:
        """Call `msdc_NAME` and return what its receiver of texts got."""
        received: list[bytes] = []
        receiver = ON_TEXT(lambda _, text, size: received.append(text[:size]))
        self.call(name, *arguments, receiver, None)
        return received

    def tokenizer(self, model: SentenceEncoder, folder: Path) -> ctypes.c_void_p:
        """The tokenizer of a model with SentencePiece's file, in a bundle that is written to `folder`."""
        cosines = model.cosines()
        if not folder.exists():
            write_piece_bundle(
                folder, model.tokenizer.path.read_bytes(), width=model.width, max_length=model.max_length,
                name=model.name, model={"source_sha256": model.source},
                cosines=None if cosines is None else dict(zip(("mean", "deviation"), cosines, strict=True)),
            )  # fmt: skip
        handle = ctypes.c_void_p()
        self.call("tokenizer_open", str(folder).encode(), 1, ctypes.byref(handle))
        return handle


def _bytes(value: object) -> tuple[bytes, ctypes.c_size_t]:
    raw = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
    return raw, ctypes.c_size_t(len(raw))


def request_of(query: str, options: Mapping[str, object]) -> dict[str, object]:
    """A request from arguments of `Index.search`."""
    request: dict[str, object] = {"query": query, **options}
    where = request.pop("where", None)
    request["where"] = conditions(where) if where else None
    request["order"] = [order] if isinstance(order := request.get("order") or [], str) else order
    request["boost"] = [(conditions(part), bonus) for part, bonus in request.get("boost") or []]
    return {name: value for name, value in request.items() if value is not None}


class NativeIndex:
    """`msdc.search.index.Index` over the C interface; `bundles` is where tokenizers of models are written."""

    def __init__(
        self, core: NativeCore, model: SentenceEncoder | None, path: Path | None, bundles: Path, *, check: bool = True,
        read_only: bool = False, lock_ms: int = 0, content: bytes | None = None,
    ) -> None:  # fmt: skip
        self.core, self.path, self._bundles, self.encoded = core, path, bundles, 0
        self._tokenizers: dict[str, ctypes.c_void_p] = {}
        self.model = model
        held = None if content is None else ctypes.create_string_buffer(content, len(content))
        address, size = (None, 0) if held is None else (ctypes.addressof(held), len(held))
        options = Options(ctypes.sizeof(Options), read_only, check, lock_ms, address, size)
        self.handle = ctypes.c_void_p()
        core.call("index_open", None if path is None else str(path).encode(), ctypes.byref(options),
                  self._reader(model), ctypes.byref(self.handle))  # fmt: skip

    def __enter__(self) -> "NativeIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.handle:
            self.core.functions.msdc_index_close(self.handle)
            self.handle = ctypes.c_void_p()
        for handle in self._tokenizers.values():
            self.core.functions.msdc_tokenizer_close(handle)
        self._tokenizers = {}

    def _reader(self, model: SentenceEncoder | None):
        if model is None:
            return None
        if model.source not in self._tokenizers:
            self._tokenizers[model.source] = self.core.tokenizer(model, self._bundles / model.source[:12])
        return ctypes.byref(ModelHandles(None, self._tokenizers[model.source]))

    def _state(self) -> dict:
        return json.loads(self.core.texts("index_state", self.handle)[0])

    def __len__(self) -> int:
        return self._state()["documents"]

    @property
    def unread(self) -> int:
        return self._state()["unread"]

    @property
    def relevant_cosine(self) -> float | None:
        return self._state()["relevant"]

    def ids(self) -> list[str]:
        return json.loads(self.core.texts("index_ids", self.handle)[0])

    def get(self, key: str) -> Document | None:
        raw = str(key).encode()
        documents = self.core.texts("index_get", self.handle, raw, ctypes.c_size_t(len(raw)))
        return Document(**json.loads(documents[0])) if documents else None

    def add(self, rows: Iterable[str | Mapping[str, object]]) -> int:
        return self._put(rows, replaces=False)

    def update(self, rows: Iterable[str | Mapping[str, object]]) -> int:
        return self._put(rows, replaces=True)

    def _put(self, rows: Iterable[str | Mapping[str, object]], replaces: bool) -> int:
        documents = [as_document(row, f"row {number}")._asdict() for number, row in enumerate(rows, 1)]
        for document in documents:
            document["id"] = document["id"] or None
        for start in range(0, len(documents), BLOCK):
            batch = self.batch(documents[start : start + BLOCK], replaces)
            self.write(batch, self.encode_texts(batch))
        return len(documents)

    def batch(self, documents: object, replaces: bool = False) -> ctypes.c_void_p:
        batch = ctypes.c_void_p()
        self.core.call("index_documents", self.handle, self._reader(self.model), *_bytes(documents), int(replaces),
                       ctypes.byref(batch))  # fmt: skip
        return batch

    def encode_texts(self, batch: ctypes.c_void_p, model: SentenceEncoder | None = None) -> np.ndarray:
        model = model or self.model
        texts = [text.decode() for text in self.core.texts("index_texts", batch)]
        self.encoded += len(texts)
        width = 1 if model is None else model.width
        return model.encode(texts) if texts and model else np.zeros((0, width), np.float32)

    def write(self, batch: ctypes.c_void_p, vectors_ND: np.ndarray) -> Progress:
        """Write a batch and close it."""
        rows_ND = np.ascontiguousarray(vectors_ND, np.float32)
        progress = Progress()
        try:
            shape = [ctypes.c_size_t(size) for size in rows_ND.shape]
            vectors = rows_ND.ctypes.data_as(ctypes.c_void_p)
            self.core.call("index_write", self.handle, batch, vectors, *shape, ctypes.byref(progress))
        finally:
            self.core.functions.msdc_index_batch_close(batch)
        return progress

    def remove(self, ids: Iterable[str]) -> int:
        count = ctypes.c_int64()
        self.core.call("index_remove", self.handle, *_bytes(list(ids)), ctypes.byref(count))
        return count.value

    def rebuild(self, model: SentenceEncoder, progress: Callable[[int, int], None] | None = None) -> int:
        count = 0
        while True:
            batch = ctypes.c_void_p()
            self.core.call("index_rebuild", self.handle, self._reader(model), ctypes.byref(batch))
            if not batch:
                self.model = model
                return count
            written = self.write(batch, self.encode_texts(batch, model))
            count += written.written
            if progress is not None and written.total and written.written:
                progress(written.done, written.total)

    def search(self, query: str, top: int = 5, threshold: float | None = None, **options: object) -> SearchResult:
        request = _bytes(request_of(query, {"top": top, "threshold": threshold, **options}))
        return SearchResult(query, [as_hit(row) for row in self.search_json(*request)], 0, 0)

    def similar(self, key: str, top: int = 5, threshold: float | None = None, **options: object) -> SearchResult:
        request = request_of("", {"like": key, "top": top, "threshold": threshold, **options})
        del request["query"]
        return SearchResult("", [as_hit(row) for row in self.search_json(*_bytes(request))], 0, 0)

    def search_json(self, raw: bytes, size: ctypes.c_size_t) -> list[dict]:
        texts = self.core.texts("index_query", self.handle, self._reader(self.model), raw, size)
        vector_D, width = None, 0
        if texts and self.model is not None:
            row_D = np.ascontiguousarray(self.model.encode([texts[0].decode()])[0], np.float32)
            vector_D, width = row_D.ctypes.data_as(ctypes.c_void_p), len(row_D)
        answers = self.core.texts("index_search", self.handle, raw, size, vector_D, ctypes.c_size_t(width))
        return json.loads(answers[0])

    def check(self) -> None:
        self.core.call("index_check", self.handle)

    def backup(self, path: Path) -> None:
        self.core.call("index_backup", self.handle, str(path).encode())

    def compact(self) -> None:
        self.core.call("index_compact", self.handle)

    def content(self) -> bytes:
        """The file of an index in memory."""
        return self.core.texts("index_bytes", self.handle)[0]


def as_hit(row: dict) -> Hit:
    """A hit of the JSON that a search gives."""
    matches = tuple(tuple(span) for span in row.pop("matches"))
    return Hit(**{**row, "metadata": json.loads(row["metadata"]), "matches": matches})


def same_hits(expected: Iterable[Hit], hits: Iterable[Hit]) -> bool:
    """Whether hits are equal but for the last digits of their scores."""

    def fields(hit: Hit) -> tuple:
        return (hit.id, hit.text, hit.title, hit.metadata, hit.start, hit.end, hit.matches, hit.count,
                hit.cosine is None, hit.words is None)  # fmt: skip

    expected, hits = list(expected), list(hits)
    if [fields(hit) for hit in expected] != [fields(hit) for hit in hits]:
        return False
    numbers = [[hit.score, hit.cosine or 0, hit.words or 0] for hit in (*expected, *hits)]
    return bool(np.allclose(numbers[: len(hits)], numbers[len(hits) :], rtol=1e-4, atol=2e-4))
