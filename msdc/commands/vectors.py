"""Files of vectors: texts in, .npy, .jsonl or .parquet out, block by block in bounded memory, continued after a kill.

A folder of vectors has one complete parquet file per file of texts and a manifest of what all its vectors have in
common. The names of the manifest and of unfinished files begin with `_` and `.`, which readers of data sets (pyarrow,
Spark) leave out.

Shapes: N texts of a block, D sentence width, W stored values of a vector.
"""

from __future__ import annotations

import glob
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from msdc.encoders.folder import BUNDLE_FILE, DEFAULTS_FILE, SHIPPED, is_reserved
from msdc.errors import InputError
from msdc.extras import require
from msdc.files import (
    LOCK_FILE,
    atomic_path,
    locked,
    matching_files,
    read_json,
    unfinished,
    without_system_files,
    write_json,
)
from msdc.progress import track, warn
from msdc.scores import int8_rows
from msdc.text.tabular import CORPUS_SUFFIXES, iterate_rows, parquet_blocks, stdin_texts, suffix_of
from msdc.text.text_files import bare_name

if TYPE_CHECKING:
    from msdc.encoders.encoder import SentenceEncoder

CHUNK = 1024  # texts in memory at a time, and from one line of progress to the next
GROUP = 16  # blocks of a row group of parquet
MANIFEST = "_manifest.json"
VectorType = Literal["float32", "float16", "int8", "binary"]
SCALE = "scale"  # column of the step of an int8 vector
# numpy's type of a stored value
STORED = {"float32": "<f4", "float16": "<f2", "int8": "|i1", "binary": "|i1"}


@dataclass
class Block:
    """Texts in order, and the columns that are written with their vectors: lists, or arrays of Arrow."""

    texts: list[str]
    columns: dict[str, Any]


@dataclass
class Texts:
    """Blocks of a file's texts; `schema` is that of their columns, where the file states it."""

    blocks: Iterator[Block]
    schema: Any = None


def open_texts(file: Path | None, column: str | None, header: bool | None, keep: Sequence[str] = ()) -> Texts:
    """The texts of a file, or of standard input (None); with `keep` these of its columns instead of the text itself.

    Raises:
        InputError: no such file or column, or a row that cannot be read.
    """
    if keep and (file is None or column is None):
        raise InputError("`keep` takes columns of a table: pass a file, and `column` for its texts")
    if file is not None and column is not None and suffix_of(file) == ".parquet" and keep:
        blocks, schema = parquet_blocks(file, column, keep, CHUNK)
        return Texts((Block(texts, columns) for texts, columns in blocks), schema)
    rows: Iterator[tuple[int, str, dict[str, object]]]
    if file is None:
        rows = ((number, text, {}) for number, text in stdin_texts(column, header))
    else:
        rows = iterate_rows(file, column, header, others=bool(keep))
    return Texts(_listed(rows, keep, column))


def of_texts(texts: Iterator[str]) -> Iterator[Block]:
    """Blocks of texts without other columns."""
    return _listed(((number, text, {}) for number, text in enumerate(texts)), ())


def _listed(
    rows: Iterator[tuple[int, str, dict[str, object]]], keep: Sequence[str], column: str | None = None
) -> Iterator[Block]:
    while block := list(islice(rows, CHUNK)):
        texts = [text for _, text, _ in block]
        names = keep or ("text",)
        if missing := [name for name in keep if name != column and name not in block[0][2]]:
            raise InputError(f"`keep`: no column {missing[0]!r} (there are {', '.join(block[0][2])[:300]})")
        yield Block(
            texts, {name: [cells.get(name, text) for _, text, cells in block] if keep else texts for name in names}
        )


# --- encode -----------------------------------------------------------------------------------------------------------


class Finished:
    """The vectors of finished blocks in a file, in order: a later run takes those whose texts are still the same."""

    HEAD = 24  # bytes: a hash of the texts (16), how many of them are truncated (4), checksum of the vectors (4)

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def encoded(self, model: SentenceEncoder, texts: list[str]) -> tuple[np.ndarray, int]:
        """Vectors float32 [N, D], from the file or computed and added to it, and the number of truncated texts."""
        digest = hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).digest()
        position, size = self.file.tell(), 4 * len(texts) * model.width
        head, content = self.file.read(self.HEAD), b""
        if head[:16] == digest:
            content = self.file.read(size)
        if len(content) == size and int.from_bytes(head[20:], "little") == zlib.crc32(content):
            stored_ND = np.frombuffer(content, "<f4").reshape(len(texts), model.width)
            return stored_ND, int.from_bytes(head[16:20], "little")
        vectors_ND, truncated = model.encode(texts), model.count_truncated(texts)
        content = np.ascontiguousarray(vectors_ND, "<f4").tobytes()
        self.file.seek(position)
        self.file.truncate()
        self.file.write(digest + truncated.to_bytes(4, "little") + zlib.crc32(content).to_bytes(4, "little") + content)
        self.file.flush()
        return vectors_ND, truncated


def encode_stream(
    model: SentenceEncoder, blocks: Iterator[Block], finished: Finished | None = None
) -> Iterator[tuple[Block, np.ndarray]]:
    """Blocks with their vectors, float32 [N, D]; at the end a line for the texts that were truncated."""
    count = truncated = 0
    for block in blocks:
        if finished is None:
            vectors_ND, cut = model.encode(block.texts), model.count_truncated(block.texts)
        else:
            vectors_ND, cut = finished.encoded(model, block.texts)
        yield block, vectors_ND
        count, truncated = count + len(block.texts), truncated + cut
    warn_of_truncated(model, truncated, count)


def warn_of_truncated(model: SentenceEncoder, truncated: int, count: int) -> None:
    """One line on standard error where texts are longer than the model reads."""
    if truncated:
        warn(
            f"{truncated:,} of {count:,} texts have more than the {model.max_length} tokens that {model.name} reads: "
            "the rest of them is not in their vectors"
        )


def stored_vectors(vectors_ND: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Vectors as they are written [N, W], and the scale of each [N] if they are int8.

    `binary` is one bit per dimension, 1 above 0, eight in a byte less 128, as sentence-transformers'
    `sentence_transformers.quantize_embeddings(precision="binary")`.
    """
    if dtype == "int8":
        return int8_rows(vectors_ND)
    if dtype == "binary":
        return (np.packbits(vectors_ND > 0, axis=-1) - 128).astype("|i1"), None
    return np.ascontiguousarray(vectors_ND, STORED[dtype]), None


# --- write ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Description:
    """What all vectors of a file or folder have in common: the manifest."""

    model: str
    fingerprint: str  # changes with weights, program, prompt and dimensions
    prompt: str
    precision: str
    dtype: str
    dimensions: int
    column: str | None = None
    keep: tuple[str, ...] = ()
    format: int = 1

    def as_dict(self) -> dict[str, Any]:
        """The JSON of a manifest."""
        return {**asdict(self), "keep": list(self.keep)}


def describe(model: SentenceEncoder, dtype: str, column: str | None = None, keep: Sequence[str] = ()) -> Description:
    """The description of the vectors of `model`."""
    precision = str(getattr(model, "precision", None) or getattr(getattr(model, "manifest", None), "precision", ""))
    return Description(
        model.name, model.fingerprint(), model.defaults.prompt(), precision, dtype, model.width, column, tuple(keep)
    )


Encoded = Iterator[tuple[Block, np.ndarray]]


def _write_npy(file: BinaryIO, encoded: Encoded, dtype: str, width: int, note: dict[str, Any], schema: Any) -> int:
    """[N, W]. N is written last, into the space that numpy's header reserves for a growing first axis."""

    def header(rows: int) -> None:
        shape = {"descr": STORED[dtype], "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(file, shape)

    rows = 0
    header(rows)
    for block, vectors_ND in encoded:
        file.write(stored_vectors(vectors_ND, dtype)[0].tobytes())
        rows += len(block.texts)
    file.seek(0)
    header(rows)
    return rows


def json_lines(block: Block, vectors_ND: np.ndarray, dtype: str = "float32") -> Iterator[str]:
    """One object per text: its columns and `vector`, and the scale of an int8 vector."""
    stored_NW, scales_N = stored_vectors(vectors_ND, dtype)
    columns = {name: getattr(cells, "to_pylist", lambda cells=cells: cells)() for name, cells in block.columns.items()}
    for number, row in enumerate(stored_NW.tolist()):
        cells = {name: column[number] for name, column in columns.items()}
        vector = [round(value, 7) for value in row] if isinstance(row[0], float) else row
        scale = {} if scales_N is None else {SCALE: float(scales_N[number])}
        yield json.dumps({**cells, "vector": vector, **scale}, ensure_ascii=False, default=str)


def _write_jsonl(file: BinaryIO, encoded: Encoded, dtype: str, width: int, note: dict[str, Any], schema: Any) -> int:
    rows = 0
    for block, vectors_ND in encoded:
        file.writelines(line.encode() + b"\n" for line in json_lines(block, vectors_ND, dtype))
        rows += len(block.texts)
    return rows


def _write_parquet(file: BinaryIO, encoded: Encoded, dtype: str, width: int, note: dict[str, Any], schema: Any) -> int:
    """The columns of the blocks and `vector`, a list of W values, with `scale` if they are int8."""
    require("pyarrow", "a parquet file")
    import pyarrow as pa
    import pyarrow.parquet as pq

    value = {"float32": pa.float32(), "float16": pa.float16()}.get(dtype, pa.int8())
    fields = [pa.field("vector", pa.list_(value, width)), *([pa.field(SCALE, pa.float32())] if dtype == "int8" else [])]
    writer: Any = None
    rows, tables = 0, list[Any]()

    def table_of(block: Block, vectors_ND: np.ndarray) -> Any:
        nonlocal schema
        stored_NW, scales_N = stored_vectors(vectors_ND, dtype)
        try:
            if schema is None:  # of text: the type of each column is that of its first values
                kinds = [(name, pa.array(cells).type) for name, cells in block.columns.items()]
                schema = pa.schema([(name, pa.string() if pa.types.is_null(kind) else kind) for name, kind in kinds])
            cells = [
                pa.array(block.columns[name], schema.field(name).type) if isinstance(block.columns[name], list)
                else block.columns[name] for name in schema.names
            ]  # fmt: skip
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(f"`keep`: a column has values of several types ({error})") from error
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(stored_NW.ravel(), value), width)
        names = [*schema.names, *(field.name for field in fields)]
        return pa.table([*cells, vectors, *([] if scales_N is None else [pa.array(scales_N)])], names=names)

    def flush() -> None:
        nonlocal writer
        if writer is None:
            columns = schema if schema is not None else pa.schema([("text", pa.string())])
            written_schema = pa.schema([*columns, *fields], metadata={"msdc": json.dumps(note)})
            # A dictionary of vectors would only cost time.
            writer = pq.ParquetWriter(file, written_schema, use_dictionary=columns.names)
        if tables:
            writer.write_table(pa.concat_tables(tables).cast(writer.schema))
            tables.clear()

    try:
        for block, vectors_ND in encoded:
            tables.append(table_of(block, vectors_ND))
            rows += len(block.texts)
            if len(tables) == GROUP:
                flush()
        flush()
    finally:
        if writer is not None:
            writer.close()
    return rows


WRITERS: dict[str, Callable[[BinaryIO, Encoded, str, int, dict[str, Any], Any], int]] = {
    ".npy": _write_npy, ".jsonl": _write_jsonl, ".parquet": _write_parquet,
}  # fmt: skip


def encode_to_file(
    model: SentenceEncoder,
    texts: Texts,
    target: Path,
    description: Description,
    source: Mapping[str, Any] | None = None,
    skip_existing: bool = False,
) -> int:
    """Write the vectors of texts to a complete .npy, .jsonl or .parquet file; returns the number of texts.

    `source` is noted in a parquet file. The same call continues one that was killed.

    Raises:
        InUse: another process writes this file.
        FileExistsError: with `skip_existing`, another process has meanwhile written it.
    """
    note = {**description.as_dict(), "source": dict(source or {})}
    dimensions = description.dimensions
    width = (dimensions + 7) // 8 if description.dtype == "binary" else dimensions
    with unfinished(target, description.fingerprint) as finished:
        if skip_existing and target.exists():
            raise FileExistsError(target)
        with atomic_path(target) as temporary, open(temporary, "wb") as file:
            encoded = encode_stream(model, texts.blocks, Finished(finished))
            tracked = track(encoded, "texts encoded", size=lambda block: len(block[0].texts))
            return WRITERS[target.suffix](file, tracked, description.dtype, width, note, texts.schema)


# --- many files -------------------------------------------------------------------------------------------------------


def is_text_pattern(word: str) -> bool:
    """Whether a word that could be a model's name is files of texts: it has a wildcard, or exists and is no model."""
    path = Path(word).expanduser()
    if is_reserved(word) and SHIPPED.is_dir():
        return False
    names = ("config.json", "modules.json", BUNDLE_FILE, DEFAULTS_FILE)
    return (
        glob.has_magic(word) or path.is_file() or (path.is_dir() and not any((path / name).is_file() for name in names))
    )


def targets(patterns: Sequence[str], folder: Path) -> dict[Path, Path]:
    """File of texts -> file of its vectors in `folder`, of files, globs and folders (with all folders inside).

    Files keep their folders below the pattern's fixed part. Names that begin with `.` or `_`, and what is below
    `folder`, are left out, other files that are no texts by their name too, with a warning.

    Raises:
        InputError: nothing matches; two files of texts would have one file of vectors, or a file would replace itself.
    """
    paths: dict[Path, Path] = {}
    others: list[Path] = []
    for pattern in patterns:
        path = Path(pattern).expanduser()
        parts = path.parts
        fixed = next((n for n, part in enumerate(parts) if glob.has_magic(part)), None)
        if path.is_file():
            root, files = path.parent, [path]
        elif path.is_dir():
            every = without_system_files(file for file in path.rglob("*") if file.is_file())
            root, files = path, [file for file in every if suffix_of(file) in CORPUS_SUFFIXES]
            others += [file for file in every if suffix_of(file) not in CORPUS_SUFFIXES]
        else:
            root, files = Path(*parts[:fixed]), matching_files(str(path))
        files = [
            file for file in files
            if not any(part.startswith((".", "_")) for part in file.relative_to(root).parts)
            and (path.is_file() or folder.resolve() not in file.resolve().parents)
        ]  # fmt: skip
        if not files:
            raise InputError(f"{pattern}: no file of texts")
        for file in files:
            inner = file.relative_to(root)
            paths[file] = folder / inner.with_name(Path(bare_name(inner.name)).stem)
    paths = {file: path.with_name(f"{path.name}.parquet") for file, path in paths.items()}
    # Also where the file system takes no notice of case.
    sources: dict[str, Path] = {}
    for file, path in paths.items():
        other = sources.setdefault(str(path).casefold(), file)
        if file.resolve() == path.resolve():
            raise InputError(f"{file}: its vectors would replace it; write them to another folder")
        if other.resolve() != file.resolve():
            raise InputError(f"{other} and {file} would both be written to {path}; rename one, or use two folders")
    others = [file for file in others if not file.name.startswith((".", "_"))]
    if others:
        warn(f"{len(others)} files are no texts by their names and are not read, the first: {others[0]}")
    return paths


def write_manifest(folder: Path, description: Description) -> None:
    """Write the manifest of a folder, or compare it.

    Raises:
        InputError: the folder has vectors of another model, prompt or type.
    """
    path = folder / MANIFEST
    with locked(folder / LOCK_FILE):
        if not path.exists():
            write_json(path, description.as_dict())
    before = read_json(path)
    if before != description.as_dict():
        other = [
            name
            for name, value in description.as_dict().items()
            if not isinstance(before, dict) or before.get(name) != value
        ]
        raise InputError(
            f"{folder}: has vectors of another kind ({', '.join(other)}, see {MANIFEST}); choose another folder"
        )


def source_of(file: Path) -> dict[str, Any]:
    """What a file of vectors notes of its texts."""
    return {"file": file.name, "bytes": file.stat().st_size}


def require_same(target: Path, description: Description, file: Path) -> None:
    """Refuse an existing file of vectors that is not of these texts, or not of this kind."""
    require("pyarrow", "a parquet file")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        note = json.loads((pq.read_schema(target).metadata or {})[b"msdc"])
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise InputError(f"{target}: not a file of vectors by msdc; remove it, or pass `force`") from error
    if note != {**description.as_dict(), "source": source_of(file)}:
        raise InputError(f"{target}: of other texts, or of another model, than {file}; remove it, or pass `force`")
