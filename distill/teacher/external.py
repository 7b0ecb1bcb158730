"""Teachers without a model folder: a function in a file, `FILE.py:FUNCTION`, and a table of texts and their vectors.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.distill.data.text import StageText
from msdc.distill.objectives.own import located, read_function, source_of
from msdc.distill.recipe import FUNCTION, external_file, is_table
from msdc.distill.teacher.cached import CachedTeacher
from msdc.distill.teacher.store import VectorStore
from msdc.errors import InputError, MsdcError, first_line
from msdc.extras import require
from msdc.files import regular_size
from msdc.text.tokenizer import clean, text_key

VECTOR, TEXT, HASH = "vector", "text", "hash"  # columns


def open_external(name: str, cache: Path | None) -> CachedTeacher:
    """The teacher of a name for which `is_external` holds.

    Raises:
        InputError: the file or the function is missing, or gives no vectors.
    """
    return TableTeacher(Path(name).expanduser()) if is_table(name) else FunctionTeacher(name, cache)


class _ExternalTeacher(CachedTeacher):
    """A teacher with sentence vectors alone."""

    def __init__(self, name: str, width: int, store: VectorStore | None) -> None:
        self.name, self.layers, self.hidden = name, (), 0
        self.width = self.row_width = width
        self.store = store

    def _require_frozen(self) -> None:
        """Nothing here is trained."""


class FunctionTeacher(_ExternalTeacher):
    """A function that gets a list of N texts and returns their vectors [N, D]: of an API, or of another framework.

    Vectors are stored under the content of its file: a function that depends on more is to say so in the file.
    """

    def __init__(self, name: str, cache: Path | None) -> None:
        self._path, function_name = external_file(name), name.rpartition(FUNCTION)[2]
        self._function: Callable[[list[str]], Any] = read_function(self._path, function_name)
        _, content = source_of(name, self._function)
        super().__init__(f"{self._path.name}:{function_name}", 0, None)
        self.width = self.row_width = self._compute(["A sentence."], False).shape[1]
        if cache is not None:
            self.store = VectorStore(cache / f"{content[:32]}-{function_name}", self.width)

    def _compute(self, texts: Sequence[str], progress: bool) -> np.ndarray:
        if not texts:
            return np.zeros((0, self.row_width), np.float32)
        try:
            vectors_ND = np.asarray(self._function(list(texts)), dtype=np.float32)
        except Exception as error:
            raise located(error, self._path) from error
        width = self.width or (vectors_ND.shape[-1] if vectors_ND.ndim else 0)  # 0 before the first call
        if vectors_ND.shape != (len(texts), width) or not width:
            raise InputError(f"{self.name}: {len(texts)} texts gave an array {vectors_ND.shape}, expected [N, D]")
        return vectors_ND


class TableTeacher(_ExternalTeacher):
    """Vectors in a Parquet file: columns `vector` (lists of D numbers, float16 to float64), and `text` or `hash`.

    `hash` is the 64-bit number of `hashlib.blake2b(text, digest_size=8)`, little-endian, of the UTF-8 of a cleaned text
    (NFC, with one space between words).
    """

    def __init__(self, path: Path) -> None:
        require("pyarrow", "a teacher's table of vectors")
        regular_size(path)
        keys, self._vectors_ND = _read_table(path)
        self._keys, positions, inverse = np.unique(keys, return_index=True, return_inverse=True)
        differing = np.flatnonzero((self._vectors_ND[positions][inverse] != self._vectors_ND).any(1))
        if len(differing):
            raise InputError(f"{path}: row {differing[0] + 1} has another vector for the text of an earlier row")
        self._vectors_ND = self._vectors_ND[positions]
        super().__init__(path.name, self._vectors_ND.shape[1], None)

    def stored(self, keys: np.ndarray) -> np.ndarray:
        """Rows float32 [N, D] of keys uint64 [N]; NaN where the table has none."""
        position = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        rows_ND = self._vectors_ND[position].astype(np.float32)
        rows_ND[self._keys[position] != keys] = np.nan
        return rows_ND

    def has(self, keys: np.ndarray) -> np.ndarray:
        """Whether the table has a vector for each key, bool [N]."""
        return np.isin(keys, self._keys)

    def _compute(self, texts: Sequence[str], progress: bool) -> np.ndarray:
        if texts:
            raise MsdcError(f"{self.name} has no vector for {len(texts)} texts, such as {texts[0][:60]!r}")
        return np.zeros((0, self.row_width), np.float32)


def require_vectors(teacher: TableTeacher, text: StageText, targets: bool) -> None:
    """Demand a vector for each text that a stage trains on or holds out, of its sources alone or of all sides.

    Raises:
        InputError: how many are missing, with an example.
    """
    required, missing, example = 0, 0, ""
    for table, rows in zip(text.tables, text.training_rows, strict=True):
        every_row = np.unique(np.concatenate([rows, table.heldout(text.heldout.share, table.rows)])).astype(np.int64)
        keys_RS = table.keys[every_row][:, : None if targets else 1]
        absent_RS = ~teacher.has(keys_RS)
        required, missing = required + keys_RS.size, missing + int(absent_RS.sum())
        if absent_RS.any() and not example:
            row, side = np.argwhere(absent_RS)[0]
            example = f"{table.source.name}: {table.texts(every_row[[row]], int(side))[0][:60]!r}"
    if missing:
        raise InputError(f"{teacher.name} has no vector for {missing:,} of {required:,} texts, such as {example}")


def _read_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Keys uint64 [N] and vectors [N, D] of a table, row group by row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: no Parquet file: {first_line(error)}") from error
    names = file.schema_arrow.names
    label = TEXT if TEXT in names else HASH
    if VECTOR not in names or label not in names:
        raise InputError(f"{path}: expected the columns `vector` and `text` or `hash`; it has {', '.join(names)}")
    keys, vectors, width = [np.zeros(0, np.uint64)], list[np.ndarray](), 0
    for group in file.iter_batches(columns=[label, VECTOR]):
        labels, lists = group.column(0), group.column(1)
        try:
            values = lists.flatten()
            lengths = np.diff(np.arange(len(lists) + 1) * lists.type.list_size) if pa.types.is_fixed_size_list(
                lists.type) else lists.value_lengths().to_numpy()  # fmt: skip
            numbers = values.to_numpy(zero_copy_only=False)
        except (AttributeError, pa.ArrowInvalid) as error:
            raise InputError(f"{path}: the column `vector` has {lists.type}, expected lists of numbers") from error
        width = width or int(lengths[0])
        if lists.null_count or labels.null_count or numbers.dtype.kind != "f" or (lengths != width).any() or not width:
            raise InputError(f"{path}: each row needs a text and a vector of {width} floats")
        if not np.isfinite(numbers).all():
            raise InputError(f"{path}: a vector is not finite")
        vectors.append(numbers.reshape(-1, width))
        if label == TEXT:
            if not (pa.types.is_string(labels.type) or pa.types.is_large_string(labels.type)):
                raise InputError(f"{path}: the column `text` has {labels.type}, expected text")
            texts = labels.to_pylist()
            keys.append(np.fromiter((text_key(clean(text)) for text in texts), np.uint64, len(texts)))
        else:
            if labels.type != pa.uint64():
                raise InputError(f"{path}: the column `hash` has {labels.type}, expected uint64")
            keys.append(labels.to_numpy())
    if not vectors:
        raise InputError(f"{path}: no rows")
    return np.concatenate(keys), np.concatenate(vectors)
