"""The search index: documents, their words (FTS5) and the vectors of their passages (int8), in one SQLite file.

An index belongs to its user: only `add`, `update` and `remove` write to it, and no error deletes it. One process
writes, any number read; a write is complete or absent, also after kill -9 (SQLite's write-ahead log). A vector is int8
with one scale per passage.

Shapes: N passages, D width, M documents that have a vector.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from msdc.encoders.encoder import SentenceEncoder, open_model
from msdc.encoders.folder import DEFAULT_MODEL
from msdc.errors import InputError, MsdcError
from msdc.extras import named_extras
from msdc.files import atomic_path, refuse_existing
from msdc.progress import track, warn
from msdc.scores import unit_rows
from msdc.search.cache import Passage, VectorCache
from msdc.search.documents import (
    Document,
    Found,
    Hit,
    Missing,
    as_document,
    conditions,
    numbered_rows,
    require_characters,
)  # fmt: skip
from msdc.search.passages import WEIGHT, passage_texts, token_counter
from msdc.search.words import index_words, match_expression
from msdc.text.tokenizer import Reader

SUFFIXES = (".sqlite", ".db")
MAGIC = b"SQLite format 3\0"
FORMAT = "2"
READ = 4096  # passages per read
BLOCK = 256  # documents that are encoded and written per transaction
# Up to this size vectors are also kept in memory as float32; larger ones are converted block by block per query.
MOST_FLOAT_BYTES = 2**30
ROWS = 256  # of such a block, which fits the processor's cache
CANDIDATES = 1000  # documents by words and by vectors that are ranked together
LOCK_SECONDS = 60.0
FULL = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_SHMSIZE")
Mode = Literal["words", "vectors", "both"]
Model = SentenceEncoder | Callable[[], SentenceEncoder]


class Damaged(InputError):
    """An index that cannot be used: a damaged file, a wrong checksum."""


@cache
def statements() -> dict[str, str]:
    """The statements of search.sql by name."""
    text = Path(__file__).with_name("search.sql").read_text(encoding="utf-8")
    return dict(re.findall(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", text, re.DOTALL | re.MULTILINE))


class Index:
    """Documents that are found by words and by meaning, with one model; created by `open_index`.

    `path` is the SQLite file, None for an index in memory. `model` is loaded when it is first needed: not to search by
    words; `query_model` encodes queries. `encoded` is the number of documents that had to be encoded, `open_s` the
    seconds until the index was ready. With `keep_vectors` the vectors of documents are kept in the user's cache.
    """

    def __init__(
        self, model: Model, path: Path | None = None, *, query_model: Model | None = None, keep_vectors: bool = False
    ) -> None:
        began = time.perf_counter()
        self.path, self.encoded = path, 0
        self._given, self._given_query, self._keep = model, query_model, keep_vectors
        self._lock = threading.RLock()
        self._open()
        if not callable(model):
            self._require_model(model)
        self.open_s = time.perf_counter() - began

    def __repr__(self) -> str:
        return f"Index({str(self.path) if self.path else 'in memory'!r}, {len(self)} texts)"

    def __len__(self) -> int:
        return int(self._one("SELECT count(*) FROM documents"))

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @property
    def unread(self) -> int:
        """Number of documents whose characters the model does not know: they are found by their words only."""
        return int(self._one("SELECT count(*) FROM documents WHERE id NOT IN "
                             "(SELECT document FROM passages WHERE vector IS NOT NULL)"))  # fmt: skip

    # --- the model ----------------------------------------------------------------------------------------------------

    @cached_property
    def model(self) -> SentenceEncoder:
        """The model that encodes documents."""
        return self._require_model(self._given() if callable(self._given) else self._given)

    @cached_property
    def query_model(self) -> SentenceEncoder:
        """The model that encodes queries."""
        given = self._given_query
        return self.model if given is None else given() if callable(given) else given

    @cached_property
    def _counter(self) -> tuple[Callable[[Sequence[str]], list[int]], int]:
        return token_counter(self.model)

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.model.tokenizer, self.model.max_length)

    @cached_property
    def _cache(self) -> VectorCache | None:
        return VectorCache(self.model, self._counter[1]) if self._keep else None

    def _require_model(self, model: SentenceEncoder) -> SentenceEncoder:
        found = self._facts()
        # A phone identifies its bundle by the model that was exported.
        if self.path is not None and found and found.get("model") not in (model.fingerprint(), model.source):
            raise InputError(
                f"{self.path}: made with another {found.get('name')}, not with this {model.name}; open it with that "
                "model, or write its documents to a new index with `index`"
            )
        return model

    def _facts(self) -> dict[str, str]:
        with self._lock, self._errors():
            return {} if self._empty() else dict(self._db.execute("SELECT name, value FROM facts"))

    # --- the file -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.is_file() and self.path.stat().st_size and not is_index(self.path, by_name=False):
                raise InputError(f"{self.path}: exists and is not a search index; choose another file")
        with self._errors():
            self._db = sqlite3.connect(self.path or ":memory:", LOCK_SECONDS, isolation_level=None,
                                       check_same_thread=False)  # fmt: skip
            self._check()
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA foreign_keys=ON")
        self._version, self._stale, self._last = -1, True, 0
        self._rows_N = self._owner_N = np.zeros(0, np.int64)
        self._documents_M = self._starts_M = self._rows_N
        self._codes_ND: NDArray[np.int8] | None = None
        self._scale_N = np.zeros(0, np.float32)
        self._floats_ND: NDArray[np.float32] | None = None

    def _empty(self) -> bool:
        return self._db.execute("SELECT 1 FROM sqlite_master").fetchone() is None

    def _check(self) -> None:
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            size = self.path.stat().st_size if self.path is not None else 0
            if size not in (0, self._db.execute("PRAGMA page_size").fetchone()[0]):
                raise Damaged(f"{self.path}: damaged ({size} bytes without a table)")
            return
        if not {"facts", "documents", "passages", "words"} <= tables:
            raise InputError(f"{self.path}: exists and is not a search index; choose another file")
        if (message := self._db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise Damaged(f"{self.path}: damaged ({' '.join(message.split())[:100]})")
        if dict(self._db.execute("SELECT name, value FROM facts")).get("format") != FORMAT:
            raise InputError(f"{self.path}: an index of another msdc version; write its documents to a new index with "
                             "`index`")  # fmt: skip

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors as one line."""
        place = self.path or "index"
        try:
            yield
        except sqlite3.OperationalError as error:
            message = str(error)
            if "locked" in message:
                raise InputError(f"{place}: another process has held the lock for {LOCK_SECONDS:.0f} s") from error
            if getattr(error, "sqlite_errorname", "") in FULL:
                raise MsdcError(f"disk full while writing {place}: free some space and run again") from error
            if "malformed" in message or "decode" in message:
                raise Damaged(f"{place}: damaged ({message})") from error
            raise MsdcError(f"{place}: {message}") from error
        except sqlite3.DatabaseError as error:
            raise Damaged(f"{place}: damaged ({error})") from error

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            self._db.execute(f"BEGIN {kind}")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def _one(self, sql: str) -> Any:
        with self._lock, self._errors():
            return 0 if self._empty() else self._db.execute(sql).fetchone()[0]

    # --- writing ------------------------------------------------------------------------------------------------------

    def add(self, rows: Iterable[str | Mapping[str, object]], *, missing: Missing = "refuse") -> int:
        """Add documents: texts, or mappings with `text` and optionally `id`, `title` and values to filter by.

        A document without an id gets one. Documents are written in blocks as they are encoded: those before an error or
        a kill stay. A missing number (NaN) is an error, or stored as null. Returns the number of documents.

        Raises:
            InputError: a document without text, a value that JSON cannot hold, an id that exists.
        """
        return self._put((as_document(row, f"row {n}", missing) for n, row in enumerate(rows, 1)), rows, False)

    def update(self, rows: Iterable[str | Mapping[str, object]], *, missing: Missing = "refuse") -> int:
        """`add`, but documents of the same id are replaced; if their text is the same, it is not encoded again."""
        return self._put((as_document(row, f"row {n}", missing) for n, row in enumerate(rows, 1)), rows, True)

    def remove(self, ids: Iterable[str | int]) -> int:
        """Remove documents by id; unknown ids are ignored. Returns the number of removed documents."""
        keys = [(require_characters(str(key), "an id"),) for key in ids]
        if self._empty():
            return 0
        with self._transaction() as db:
            before = db.total_changes
            removed = sum(db.execute("DELETE FROM documents WHERE key = ?", key).rowcount for key in keys)
            self._stale |= db.total_changes > before
        return removed

    def _put(self, documents: Iterable[Document], given: object, replace: bool, encode: bool = True) -> int:
        """Write documents in blocks; `given` is what they come from, for the progress."""
        source, written = iter(documents), 0
        total = len(given) if isinstance(given, Sequence) else None
        blocks = iter(lambda: list(islice(source, BLOCK)), [])
        for block in track(blocks, "encoding", total=total, size=len):
            passages: Sequence[Sequence[Passage]] = self._passages(block) if encode else [()] * len(block)
            with self._transaction() as db:
                self._create(db)
                self._insert(db, block, passages, replace)
                self._stale = True
            written += len(block)
        return written

    def _create(self, db: sqlite3.Connection) -> None:
        """Create the tables with the first documents."""
        if self._empty():
            for statement in statements()["schema"].split(";\n"):
                db.execute(statement)
            model = self.model.fingerprint() if self.path is not None else ""
            facts = {"format": FORMAT, "model": model, "name": self.model.name}
            facts["source"] = self.model.source if model else ""  # the model in the bundle of a phone
            db.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())

    def _insert(
        self, db: sqlite3.Connection, block: Sequence[Document], passages: Sequence[Sequence[Passage]], replace: bool
    ) -> None:
        """Write a block inside a transaction, in which ids are given and compared."""
        place = self.path or "index"
        keyed = {
            one.id or number: (one, parts) for number, (one, parts) in enumerate(zip(block, passages, strict=True))
        }
        if not replace:
            given, seen = [one.id for one in block if one.id], set[str]()
            exists = "SELECT key FROM documents WHERE key IN (SELECT value FROM json_each(?))"
            for (key,) in db.execute(exists, (json.dumps(given),)):
                raise InputError(f"{place}: a document {key!r} exists already; use update")
            for key in given:
                if key in seen:
                    raise InputError(f"{place}: two documents have the id {key!r}")
                seen.add(key)
        last = db.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'documents'").fetchone()[0] or 0
        insert = "INSERT INTO documents (key, title, text, metadata, crc) VALUES (?, ?, ?, ?, ?)"
        for one, parts in keyed.values():
            if one.id:
                db.execute("DELETE FROM documents WHERE key = ?", (one.id,))
            else:
                last += 1
                while db.execute("SELECT 1 FROM documents WHERE key = ?", (str(last),)).fetchone():
                    last += 1
                one = one._replace(id=str(last))
            row = db.execute(insert, (one.id, one.title, one.text, one.metadata, one.crc)).lastrowid
            db.execute(statements()["insert_words"], (row, index_words(one.title), index_words(one.text)))
            db.executemany(
                "INSERT INTO passages (document, start, end, scale, vector, crc) VALUES (?, ?, ?, ?, ?, ?)",
                [(row, *part, None if part.vector is None else zlib.crc32(part.vector, row or 0)) for part in parts],
            )

    def _passages(self, block: Sequence[Document]) -> list[list[Passage]]:
        """The passages of documents: of the same id and text in the index, of the cache, else new ones."""
        found = self._stored(block)
        if self._cache is not None:
            found |= self._cache.get([(one.title, one.text) for one in block])
        wanted = dict.fromkeys((one.title, one.text) for one in block)
        new = self._encoded([one for one in wanted if one not in found])
        if self._cache is not None:
            self._cache.put(new)
        self.encoded += sum((one.title, one.text) in new for one in block)
        return [(found | new)[one.title, one.text] for one in block]

    def _stored(self, block: Sequence[Document]) -> dict[tuple[str, str], list[Passage]]:
        found: dict[tuple[str, str], list[Passage]] = {}
        keys = {one.id: (one.title, one.text) for one in block if one.id}
        if not keys or not len(self):
            return found
        stored = statements()["stored"]
        with self._transaction("DEFERRED") as db:
            for key, title, text, row, *part, crc in db.execute(stored, (json.dumps(list(keys)),)):
                one = Passage(*part)
                if keys[key] == (title, text):
                    if one.vector is not None and zlib.crc32(one.vector, row) != crc:
                        raise Damaged(f"{self.path}: damaged (document {key})")
                    found.setdefault((title, text), []).append(one)
        return found

    def _encoded(self, documents: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Passage]]:
        """The passages of documents (title, text); no vector for one that the model cannot read."""
        if not documents:
            return {}
        found = passage_texts(documents, *self._counter)
        distinct = list(dict.fromkeys(text for parts in found for _, _, text in parts))
        place = {text: row for row, text in enumerate(distinct)}
        known_N = ~self._reader.unread(distinct)
        vectors_ND = np.zeros((len(distinct), self.model.width), np.float32)
        if known_N.any():
            readable = [text for text, known in zip(distinct, known_N, strict=True) if known]
            vectors_ND[known_N] = unit_rows(self.model.encode(readable))
        scale_N = np.maximum(np.abs(vectors_ND).max(1, initial=0.0) / 127, np.float32(1e-12))
        codes_ND = np.rint(vectors_ND / scale_N[:, None]).astype(np.int8)
        # With this scale the rounded vector has length 1, so that no cosine exceeds 1.
        scale_N = 1 / np.linalg.norm(codes_ND.astype(np.float32), axis=1).clip(1e-12)

        def passage(start: int, end: int, text: str) -> Passage:
            at = place[text]
            read = known_N[at] and vectors_ND[at].any()
            return (
                Passage(start, end, float(scale_N[at]), codes_ND[at].tobytes())
                if read
                else Passage(start, end, None, None)
            )

        return {one: [passage(*part) for part in parts] for one, parts in zip(documents, found, strict=True)}

    # --- search -------------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Load new vectors into memory, and drop removed ones."""
        db = self._db
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version and not self._stale:
            return
        if self._codes_ND is None:
            self._codes_ND = np.zeros((0, self.model.width), np.int8)
        new = "FROM passages WHERE id > ? AND vector IS NOT NULL"
        many = db.execute(f"SELECT count(*) {new}", (self._last,)).fetchone()[0]
        columns_N3 = np.zeros((many, 3))
        codes_ND = np.zeros((many, self.model.width), np.int8)
        found = db.execute(f"SELECT id, document, scale, vector, crc {new} ORDER BY id", (self._last,))
        for start in range(0, many, READ):
            block = found.fetchmany(READ)
            if wrong := [one[0] for one in block if zlib.crc32(one[3], one[1]) != one[4]]:
                raise Damaged(f"{self.path}: damaged (the vector of passage {wrong[0]})")
            columns_N3[start : start + READ] = [one[:3] for one in block]
            vectors = np.frombuffer(b"".join(one[3] for one in block), np.int8)
            codes_ND[start : start + READ] = vectors.reshape(len(block), -1)
        self._rows_N = np.append(self._rows_N, columns_N3[:, 0].astype(np.int64))
        self._owner_N = np.append(self._owner_N, columns_N3[:, 1].astype(np.int64))
        self._scale_N = np.append(self._scale_N, columns_N3[:, 2].astype(np.float32))
        self._codes_ND = np.concatenate([self._codes_ND, codes_ND]) if len(self._codes_ND) else codes_ND
        self._last = int(self._rows_N.max(initial=self._last))
        if db.execute("SELECT count(vector) FROM passages").fetchone()[0] != len(self._rows_N):
            left = [row for (row,) in db.execute("SELECT id FROM passages WHERE vector IS NOT NULL")]
            kept_N = np.isin(self._rows_N, np.array(left, np.int64))
            self._rows_N, self._owner_N = self._rows_N[kept_N], self._owner_N[kept_N]
            self._scale_N, self._codes_ND = self._scale_N[kept_N], self._codes_ND[kept_N]
        small = 4 * self._codes_ND.size <= MOST_FLOAT_BYTES
        self._floats_ND = self._codes_ND * self._scale_N[:, None] if small else None
        self._documents_M, self._starts_M = np.unique(self._owner_N, return_index=True)
        self._version, self._stale = version, False

    def _cosines(self, query_D: NDArray[np.float32]) -> NDArray[np.float32]:
        """Cosine of every passage with a unit vector, [N]."""
        if self._floats_ND is not None:
            return np.asarray(self._floats_ND @ query_D)
        assert self._codes_ND is not None
        cosine_N = np.empty(len(self._codes_ND), np.float32)
        for start in range(0, len(cosine_N), ROWS):
            cosine_N[start : start + ROWS] = self._codes_ND[start : start + ROWS].astype(np.float32) @ query_D
        return cosine_N * self._scale_N

    def search(
        self,
        query: str,
        top: int = 5,
        threshold: float | None = None,
        *,
        mode: Mode = "both",
        where: Mapping[str, object] | None = None,
    ) -> Found:
        """The entries nearest to a query, best first.

        Args:
            query: the text, in any of the model's languages.
            top: maximum number of hits.
            threshold: minimum cosine of a hit.
            mode: rank by the words (BM25), by the vectors (cosine of the best passage), or by both.
            where: required metadata by name: a value, a list of alternatives, or (least, most), None for no bound.

        Raises:
            InputError: an empty query, an argument out of range, a name in `where` that no entry has.
        """
        if not require_characters(query, "the query").strip():
            raise InputError("a query is empty")
        if top < 1:
            raise InputError(f"`top` {top}: must be at least 1")
        if mode not in ("words", "vectors", "both"):
            raise InputError(f"`mode` {mode!r} is unknown; known: words, vectors, both")
        began = time.perf_counter()
        wanted = conditions(where) if where else None
        query_D = self._query_vector(query) if mode != "words" else None
        encoded = time.perf_counter()
        with self._transaction("DEFERRED"):  # one state of the file for the whole search
            hits = [] if self._empty() else self._search(query, query_D, top, threshold, mode, wanted)
        return Found(query, hits, 1e3 * (encoded - began), 1e3 * (time.perf_counter() - encoded))

    def _query_vector(self, query: str) -> NDArray[np.float32] | None:
        """The unit vector of a query; None if the model cannot read it."""
        if self._reader.unread([query]).any():
            warn(f"the query {query!r} is mostly characters that {self.query_model.name} does not know")
            return None
        count, most = self._counter
        if (tokens := count([query])[0]) > most:
            warn(f"the query has {tokens} tokens; {self.query_model.name} reads the first {most}")
        return np.asarray(unit_rows(self.query_model.encode([query]))[0])

    def _allowed(self, wanted: str | None) -> str | None:
        """The ids of the documents that a filter keeps, as JSON; None without a filter."""
        if not wanted:
            return None
        ids = [row for (row,) in self._db.execute(statements()["filter"], (wanted,))]
        if not ids and len(self):
            columns = [name for (name,) in self._db.execute(statements()["columns"])]
            for part in json.loads(wanted):
                if (name := part["path"][3:-1]) not in columns:
                    raise InputError(f"no column {name!r} to filter by (columns: {', '.join(columns) or 'none'})")
        return json.dumps(ids)

    def _search(
        self,
        query: str,
        query_D: NDArray[np.float32] | None,
        top: int,
        threshold: float | None,
        mode: Mode,
        wanted: str | None,
    ) -> list[Hit]:
        """The hits, inside a transaction, which also reports SQLite's errors."""
        allowed, most, weight = self._allowed(wanted), max(CANDIDATES, 4 * top), WEIGHT if mode == "both" else 1.0
        passage_N, cosine, near = None, dict[int, float](), list[int]()
        if query_D is not None:
            self._refresh()
            if len(self._rows_N):
                passage_N = self._cosines(query_D)
                best_M = np.maximum.reduceat(passage_N, self._starts_M)
                if allowed is not None:
                    best_M = np.where(np.isin(self._documents_M, json.loads(allowed)), best_M, -np.inf)
                near_K = np.argpartition(-best_M, most - 1)[:most] if most < len(best_M) else np.arange(len(best_M))
                near_K = near_K[np.isfinite(best_M[near_K])]
                near = self._documents_M[near_K].tolist()
                cosine = dict(zip(near, best_M[near_K].tolist(), strict=True))
        words: dict[int, float] = {}
        if mode != "vectors" and (expression := match_expression(query)):
            words = dict(self._db.execute(statements()["words"], (expression, allowed, most)))
            if passage_N is not None:
                rest = np.array([row for row in words if row not in cosine], np.int64)
                at = np.minimum(np.searchsorted(self._documents_M, rest), len(self._documents_M) - 1)
                cosine |= {int(r): float(best_M[a]) for r, a in zip(rest, at, strict=True) if self._documents_M[a] == r}
            if len(words) == most:
                words |= self._words_of(near, expression, words, cosine, weight, top)
        score = {row: words.get(row, 0.0) + weight * cosine.get(row, 0.0) for row in {*cosine, *words}}
        free = threshold is None or mode == "words"
        rows = [row for row in score if free or cosine.get(row, -1.0) >= (threshold or 0.0)]
        rows = sorted(rows, key=lambda row: (-round(score[row], 4), row))[:top]
        by_words = {row: None if mode == "vectors" else words.get(row, 0.0) for row in rows}
        return [self._hit(row, score[row], cosine.get(row), by_words[row], passage_N) for row in rows]

    def _words_of(
        self,
        near: Sequence[int],
        expression: str,
        words: dict[int, float],
        cosine: dict[int, float],
        weight: float,
        top: int,
    ) -> dict[int, float]:
        """BM25 of documents near in meaning, not among the best by words, that may still be among the first `top`.

        It is at most the lowest of the best by words.
        """
        most = min(words.values())
        sure = sorted((words.get(row, 0.0) + weight * near for row, near in cosine.items()), reverse=True)
        least = sure[top - 1] if len(sure) >= top else -np.inf
        others = [row for row in near if row not in words and most + weight * cosine[row] >= least - 1e-3]
        return dict(self._db.execute(statements()["words_of"], (expression, json.dumps(others))))

    def _hit(
        self, row: int, score: float, cosine: float | None, words: float | None, passage_N: NDArray[np.float32] | None
    ) -> Hit:
        found = self._db.execute(
            "SELECT key, text, title, metadata, crc FROM documents WHERE id = ?", (row,)
        ).fetchone()
        one = Document(*found[:-1]) if found else None
        if one is None or one.crc != found[-1]:
            raise Damaged(f"{self.path}: damaged (document {one.id if one else row})")
        start, end = 0, len(one.text)
        first, last = np.searchsorted(self._owner_N, [row, row + 1])
        if passage_N is not None and first < last:
            best = int(self._rows_N[first + passage_N[first:last].argmax()])
            start, end = self._db.execute("SELECT start, end FROM passages WHERE id = ?", (best,)).fetchone()
        cosine = None if cosine is None else round(cosine, 4)
        words = None if words is None else float(f"{words:.5g}")
        return Hit(
            one.id, float(f"{score:.6g}"), cosine, words, one.text, start, end, one.title, json.loads(one.metadata)
        )


def is_index(path: Path, by_name: bool = True) -> bool:
    """Whether a path is an index: by its suffix, or by the file's first bytes."""
    if by_name and path.suffix in SUFFIXES:
        return True
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def stored_documents(path: Path) -> Iterator[Document]:
    """The documents of an index of any version and model, which is only read."""
    uri = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as db:
            for row in db.execute("SELECT key, text, title, metadata FROM documents ORDER BY id"):
                yield Document(*row)
    except sqlite3.Error as error:
        raise InputError(f"{path}: no search index, or a damaged one ({error})") from error


def refuse_index(index: Path, force: bool) -> None:
    """Refuse to write an index over a file: without `force`, and over one that is not an index."""
    if index.is_file() and index.stat().st_size and not is_index(index, by_name=False):
        raise InputError(f"{index}: exists and is not a search index; choose another file")
    refuse_existing(index, force)


def open_entries(
    model: Model,
    source: Path | Iterable[Document],
    *,
    column: str | None = None,
    id_column: str | None = None,
    title_column: str | None = None,
    missing: Missing = "refuse",
    index: Path | None = None,
    force: bool = False,
    query_model: Model | None = None,
    encode: bool = True,
) -> Index:
    """The index `source`, or one of the rows of a file or of documents: in memory, or in a new file `index`.

    Vectors of a file's rows are kept in the user's cache: an interrupted call goes on where it stopped. Without
    `encode` the rows are found by their words only. For the rest see `open_index`.
    """
    if index is not None:
        refuse_index(index, force)
    named = source if isinstance(source, Path) else None
    if isinstance(source, Path):
        if is_index(source) and index is None:
            return Index(model, source, query_model=query_model)
        source = stored_documents(source) if is_index(source) else numbered_rows(
            source, column, id_column=id_column, title_column=title_column, missing=missing
        )  # fmt: skip
    rows = list(source)
    if not rows:
        raise InputError(f"{named}: no text to search in" if named else "no text to search in")
    if index is None:
        found = Index(model, query_model=query_model, keep_vectors=named is not None)
        found._put(rows, rows, False, encode)
        return found
    with atomic_path(index) as stage, Index(model, stage, keep_vectors=True) as found:
        found._put(rows, rows, False)
    opened = Index(model, index, query_model=query_model)
    opened.encoded = found.encoded
    return opened


@named_extras("msdc.open_index")
def open_index(
    source: str | Path | Sequence[str],
    model: str | SentenceEncoder = DEFAULT_MODEL,
    *,
    column: str | None = None,
    id_column: str | None = None,
    title_column: str | None = None,
    index: str | Path | None = None,
    force: bool = False,
    missing: Missing = "refuse",
) -> Index:
    """Search by words and by meaning: in an index file, a text file, or texts.

        index = msdc.open_index("notes.sqlite")  # created if it does not exist
        index.add([{"id": "n1", "text": "The car is on level 2.", "folder": "travel"}])
        index.search("Wo ist das Auto?", where={"folder": "travel"}).hits[0].id

        msdc.open_index("notes.txt").search("Wo ist das Auto?").hits[0].line

    Args:
        source: an index (.sqlite, .db), which `add`, `update` and `remove` change; or a text file, one entry per line
            (plain or gzip), or a table with `column`; or a list of texts.
        model: a name for `load_encoder`, a bundle's folder, or a loaded model.
        column: column of a csv, tsv, jsonl or parquet file, by name or by number from 1. Other columns are for filters.
        id_column: column with the ids; None: the number of the line or row.
        title_column: column with the titles.
        index: write the entries to a new index in this file, also those of an index of another model or version.
        force: replace an index at `index`.
        missing: a missing number (NaN) is an error, or stored as null.

    Raises:
        InputError: no text, a file that cannot be read, no such model, an index of another model.
    """
    load: Model = (lambda: open_model(model)) if isinstance(model, str) else model
    documents: Path | Iterable[Document]
    if isinstance(source, (str, Path)):
        documents = Path(source)
    elif column is not None or id_column is not None or title_column is not None:
        raise InputError("`column`, `id_column` and `title_column` are for files, not for texts in memory")
    else:
        texts = ((number, text.strip()) for number, text in enumerate(source, 1))
        documents = (as_document({"id": number, "text": text}, "") for number, text in texts if text)
    return open_entries(
        load, documents, column=column, id_column=id_column, title_column=title_column, missing=missing,
        index=None if index is None else Path(index), force=force,
    )  # fmt: skip
