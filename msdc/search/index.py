"""The search index: documents, their words (FTS5) and the vectors of their passages (int8), in one SQLite file.

One process writes, any number read; a write is complete or absent, also after kill -9 (SQLite's write-ahead log). A
vector is int8 with one scale per passage; its row has a checksum, as does its document.

Shapes: N passages, D width, M documents that have a vector.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from msdc.encoders.encoder import SentenceEncoder, open_model
from msdc.encoders.folder import DEFAULT_MODEL
from msdc.errors import InputError, MsdcError
from msdc.extras import named_extras
from msdc.files import file_state, locked, user_cache
from msdc.progress import track, warn
from msdc.scores import unit_rows
from msdc.search.documents import Document, Found, Hit, as_document, conditions, numbered_rows
from msdc.search.passages import WEIGHT, match_expression, passage_texts, token_counter, words_of
from msdc.text.tokenizer import Reader

SUFFIXES = (".sqlite", ".db")
MAGIC = b"SQLite format 3\0"
FORMAT = "1"
READ = 4096  # passages per read
BLOCK = 256  # documents that are encoded and written per transaction
# Up to this size vectors are also kept in memory as float32; larger ones are converted block by block per query.
MOST_FLOAT_BYTES = 2**30
ROWS = 256  # of such a block, which fits the processor's cache
CANDIDATES = 1000  # documents by words and by vectors that are ranked together
LOCK_SECONDS = 60.0
FULL = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_SHMSIZE")
Mode = Literal["words", "vectors", "both"]
SCHEMA = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE documents (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, title TEXT NOT NULL, "
    "text TEXT NOT NULL, metadata TEXT NOT NULL, crc INTEGER NOT NULL)",
    "CREATE TABLE passages (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL REFERENCES documents "
    "ON DELETE CASCADE, start INTEGER NOT NULL, end INTEGER NOT NULL, scale REAL, vector BLOB, crc INTEGER)",
    "CREATE INDEX passages_of_document ON passages (document)",
    "CREATE VIRTUAL TABLE words USING fts5(title, text, content='documents', content_rowid='id', tokenize='{words}')",
    "CREATE TRIGGER added AFTER INSERT ON documents BEGIN "
    "INSERT INTO words (rowid, title, text) VALUES (new.id, new.title, new.text); END",
    "CREATE TRIGGER removed AFTER DELETE ON documents BEGIN "
    "INSERT INTO words (words, rowid, title, text) VALUES ('delete', old.id, old.title, old.text); END",
)


class Damaged(InputError):
    """An index that cannot be used: a damaged file, a wrong checksum, or another model's index."""


class Index:
    """Documents that are found by words and by meaning, with one model; created by `open_index`.

    `path` is the SQLite file, None for an index in memory. `encoded` is the number of documents that had to be encoded,
    `open_s` the seconds until the index was ready. An index that follows a text file reads it again when it has
    changed. `query_model` encodes queries, if they need another prompt.
    """

    def __init__(
        self,
        model: SentenceEncoder,
        path: Path | None,
        *,
        file: Path | None = None,
        column: str | None = None,
        query_model: SentenceEncoder | None = None,
    ) -> None:
        began = time.perf_counter()
        self.model, self.path, self.file, self.column = model, path, file, column
        self.query_model = query_model or model
        self.encoded = 0
        self._state: tuple[int, ...] | None = None
        self._lock = threading.RLock()
        self._reader = Reader(model.tokenizer, model.max_length)
        self._count, self._most = token_counter(model)
        try:
            self._open()
        except Damaged as error:
            if file is None:
                raise
            self._discard(error)
        self.follow()
        self.open_s = time.perf_counter() - began

    def __repr__(self) -> str:
        what = repr(str(self.file or self.path)) if self.file or self.path else "texts in memory"
        return f"Index({what}, {len(self)} texts, model={self.model.name!r}, width={self.model.width})"

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

    # --- the file -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            ours = user_cache() in self.path.absolute().parents
            if not ours and self.path.is_file() and self.path.stat().st_size and not is_index(self.path, by_name=False):
                raise InputError(f"{self.path}: exists and is not a search index; choose another file")
        with self._errors():
            self._db = sqlite3.connect(self.path or ":memory:", LOCK_SECONDS, isolation_level=None,
                                       check_same_thread=False)  # fmt: skip
            self._check_facts()
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA foreign_keys=ON")
        self._reset()

    def _reset(self) -> None:
        """Drop the contents of the file from memory."""
        self._version, self._stale, self._last = -1, True, 0
        self._rows_N = self._owner_N = np.zeros(0, np.int64)
        self._documents_M = self._starts_M = self._rows_N
        self._codes_ND = np.zeros((0, self.model.width), np.int8)
        self._scale_N = np.zeros(0, np.float32)
        self._floats_ND: NDArray[np.float32] | None = None

    def _check_facts(self) -> None:
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
        found = dict(self._db.execute("SELECT name, value FROM facts"))
        if found.get("format") != FORMAT:
            raise Damaged(f"{self.path}: an index of another msdc version")
        # A phone identifies its bundle by the model that was exported.
        if found.get("model") not in (self._identity(), self.model.source if self.path else ""):
            raise Damaged(f"{self.path}: made with another {found.get('name')}, not with this {self.model.name}")

    def _identity(self) -> str:
        return self.model.fingerprint() if self.path is not None else ""

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors as one line."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise InputError(f"{self.path or 'index'}: a document of this id already exists; use update") from error
        except sqlite3.OperationalError as error:
            message = str(error)
            if "locked" in message:
                raise InputError(f"{self.path}: another process has held the lock for {LOCK_SECONDS:.0f} s") from error
            if error.sqlite_errorname in FULL:
                raise MsdcError(f"disk full while writing {self.path}: free some space and run again") from error
            if "malformed" in message:
                raise Damaged(f"{self.path}: damaged ({message})") from error
            raise MsdcError(f"{self.path or 'index'}: {message}") from error
        except sqlite3.DatabaseError as error:
            raise Damaged(f"{self.path}: damaged ({error})") from error

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
            try:
                return self._db.execute(sql).fetchone()[0]
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):  # an empty index
                    return 0
                raise

    # --- writing ------------------------------------------------------------------------------------------------------

    def add(self, rows: Iterable[str | Mapping[str, object]]) -> int:
        """Add documents: texts, or mappings with `text` and optionally `id`, `title` and values to filter by.

        A document without an id gets one; an existing id is an error. Equal texts are all kept. Documents are written
        in blocks: those before an error or a kill stay. Returns their number.
        """
        return self._put(rows, replace=False)

    def update(self, rows: Iterable[str | Mapping[str, object]]) -> int:
        """`add`, but documents of the same id are replaced."""
        return self._put(rows, replace=True)

    def remove(self, ids: Iterable[str | int]) -> int:
        """Remove documents by id; unknown ids are ignored. Returns the number of removed documents."""
        before = len(self)
        if before:
            with self._transaction() as db:
                db.executemany("DELETE FROM documents WHERE key = ?", [(str(key),) for key in ids])
                self._stale = True
        return before - len(self)

    def _put(self, rows: Iterable[str | Mapping[str, object]], replace: bool) -> int:
        last = "SELECT max(coalesce(max(id), 0), coalesce(max(CAST(key AS INTEGER)), 0)) FROM documents"
        following = 1 + int(self._one(last))
        documents = [as_document(row, number) for number, row in enumerate(rows, following)]
        for start in track(range(0, len(documents), BLOCK), "encoding"):
            block = documents[start : start + BLOCK]
            passages = self._passages(block)
            with self._transaction() as db:
                self._create(db, block)
                if replace:
                    db.executemany("DELETE FROM documents WHERE key = ?", [(one.id,) for one in block])
                self._insert(db, block, passages)
        return len(documents)

    def _create(self, db: sqlite3.Connection, block: Sequence[Document]) -> None:
        """Create the tables with the first documents, whose script decides how words are split."""
        if db.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
            tokenize = words_of([one.text for one in block])
            for statement in SCHEMA:
                db.execute(statement.replace("{words}", tokenize))
            facts = {"format": FORMAT, "model": self._identity(), "name": self.model.name, "tokenize": tokenize}
            facts["source"] = self.model.source if facts["model"] else ""  # the model in the bundle of a phone
            db.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())

    def _insert(self, db: sqlite3.Connection, block: Sequence[Document], passages: list[list[tuple[Any, ...]]]) -> None:
        insert = "INSERT INTO documents (key, title, text, metadata, crc) VALUES (?, ?, ?, ?, ?)"
        for one, parts in zip(block, passages, strict=True):
            row = db.execute(insert, (one.id, one.title, one.text, one.metadata, one.crc)).lastrowid
            db.executemany(
                "INSERT INTO passages (document, start, end, scale, vector, crc) VALUES (?, ?, ?, ?, ?, ?)",
                [(row, *part, None if part[3] is None else zlib.crc32(part[3], row or 0)) for part in parts],
            )
        self._stale = True

    def _passages(self, block: Sequence[Document]) -> list[list[tuple[int, int, float | None, bytes | None]]]:
        """(start, end, scale, int8 vector) of the passages of documents; no vector for an unreadable passage."""
        found = passage_texts([(one.title, one.text) for one in block], self._count, self._most)
        texts = [text for parts in found for _, _, text in parts]
        distinct = list(dict.fromkeys(texts))
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
        self.encoded += len(block)

        def row(start: int, end: int, text: str) -> tuple[int, int, float | None, bytes | None]:
            at = place[text]
            read = known_N[at] and vectors_ND[at].any()
            return (start, end, float(scale_N[at]), codes_ND[at].tobytes()) if read else (start, end, None, None)

        return [[row(*part) for part in parts] for parts in found]

    # --- a file that is followed --------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Update the index from its text file, if it has one and that changed: only new texts are encoded."""
        if self.file is None:
            return
        state = file_state(self.file)
        if self._state is None or state != self._state:
            self._state, self.encoded = state, 0
            rows = list(numbered_rows(self.file, self.column))
            if not rows:
                raise InputError(f"{self.file}: no line contains text")
            with nullcontext() if self.path is None else locked(self.path.with_suffix(".lock")):
                try:
                    self._synchronize(rows)
                except Damaged as error:
                    self._discard(error)
                    self._synchronize(rows)

    def _discard(self, error: Damaged) -> None:
        """Rebuild a cache that cannot be used."""
        assert self.path is not None
        warn(f"{error}; the index is rebuilt")
        self._db.close()
        for end in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)
        self._open()

    def _synchronize(self, rows: list[Document]) -> None:
        known: dict[tuple[str, ...], deque[tuple[int, str]]] = defaultdict(deque)
        if self._one("SELECT count(*) FROM facts"):
            with self._errors():
                select = "SELECT id, crc, key, text, title, metadata FROM documents ORDER BY id"
                for row, crc, *fields in self._db.execute(select):
                    one = Document(*fields)
                    if one.crc != crc:  # the word index cannot remove a text that differs from its own
                        raise Damaged(f"{self.path}: damaged (document {one.id})")
                    known[one[1:]].append((row, one.id))
        new, moved = [], []
        for one in rows:
            if same := known.get(one[1:]):
                row, key = same.popleft()
                moved += [(one.id, one.crc, row)] if key != one.id else []
            else:
                new.append(one)
        gone = [(row,) for left in known.values() for row, _ in left]
        if not (new or moved or gone):
            return
        passages = []
        for start in track(range(0, len(new), BLOCK), "encoding"):
            passages += self._passages(new[start : start + BLOCK])
        with self._transaction() as db:
            self._create(db, rows[:BLOCK])
            db.executemany("DELETE FROM documents WHERE id = ?", gone)
            # Keys are unique: rename those that move first.
            db.executemany("UPDATE documents SET key = '~' || key WHERE id = ?", [(row,) for _, _, row in moved])
            db.executemany("UPDATE documents SET key = ?, crc = ? WHERE id = ?", moved)
            self._insert(db, new, passages)

    # --- search -------------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Load new vectors into memory, and drop removed ones."""
        version = self._one("PRAGMA data_version")
        if (version == self._version and not self._stale) or not self._one("SELECT count(*) FROM facts"):
            return
        db = self._db
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
            where: required values of the entries' metadata: one, a list of alternatives, or (least, most).

        Raises:
            InputError: an empty query, or an argument out of range.
        """
        if not query.strip():
            raise InputError("a query is empty")
        if top < 1:
            raise InputError(f"`top` {top}: must be at least 1")
        if mode not in ("words", "vectors", "both"):
            raise InputError(f"`mode` {mode!r} is unknown; known: words, vectors, both")
        with self._lock:
            try:
                self.follow()
                with self._transaction("DEFERRED"):  # one state of the file for the whole search
                    return self._search(query, top, threshold, mode, where)
            except Damaged as error:
                if self.file is None:
                    raise
                self._discard(error)
                self._state = None
                self.follow()
                with self._transaction("DEFERRED"):
                    return self._search(query, top, threshold, mode, where)

    def _search(
        self, query: str, top: int, threshold: float | None, mode: Mode, where: Mapping[str, object] | None
    ) -> Found:
        """The hits, inside a transaction, which also reports SQLite's errors."""
        began = time.perf_counter()
        self._refresh()
        tokenize = self._one("SELECT value FROM facts WHERE name = 'tokenize'")
        if not tokenize:  # an empty index
            return Found(query, [], 0.0, 0.0)
        query_D = None
        if mode != "words":
            if self._reader.unread([query]).any():
                warn(f"the query {query!r} is mostly characters that {self.query_model.name} does not know")
            else:
                query_D = unit_rows(self.query_model.encode([query]))[0]
                if (tokens := self._count([query])[0]) > self._most:
                    warn(f"the query has {tokens} tokens; {self.query_model.name} reads the first {self._most}")
        encoded = time.perf_counter()
        kept, values = conditions(where or {})
        filtered = f"SELECT id FROM documents WHERE {kept}"
        most = max(CANDIDATES, 4 * top)
        cosine: dict[int, float] = {}
        passage_N = self._cosines(query_D) if query_D is not None and len(self._rows_N) else None
        if passage_N is not None:
            best_M = np.maximum.reduceat(passage_N, self._starts_M)
            if where:
                allowed = [row for (row,) in self._db.execute(filtered, values)]
                best_M = np.where(np.isin(self._documents_M, allowed), best_M, -np.inf)
            near = np.argpartition(-best_M, most - 1)[:most] if most < len(best_M) else np.arange(len(best_M))
            cosine = {int(self._documents_M[at]): float(best_M[at]) for at in near if np.isfinite(best_M[at])}
        words: dict[int, float] = {}
        if mode != "vectors" and (expression := match_expression(query, tokenize)):
            select = (
                f"SELECT rowid, -rank FROM words WHERE words MATCH ? {f'AND rowid IN ({filtered})' if where else ''}"
            )
            given = [expression, *(values if where else [])]
            words = dict(self._db.execute(f"{select} ORDER BY rank LIMIT ?", [*given, most]))
            if len(words) == most:
                # Also bm25 of documents that are near in meaning and not among the best by words.
                others = json.dumps([row for row in cosine if row not in words])
                again = "SELECT rowid, -rank FROM words WHERE words MATCH ? AND rowid IN "
                words |= dict(self._db.execute(f"{again}(SELECT value FROM json_each(?))", [expression, others]))
            if passage_N is not None:
                rest = np.array([row for row in words if row not in cosine], np.int64)
                at = np.searchsorted(self._documents_M, rest)
                at = np.minimum(at, len(self._documents_M) - 1)
                cosine |= {int(r): float(best_M[a]) for r, a in zip(rest, at, strict=True) if self._documents_M[a] == r}
        weight = WEIGHT if mode == "both" else 1.0
        score = {row: words.get(row, 0.0) + weight * cosine.get(row, 0.0) for row in {*cosine, *words}}
        free = threshold is None or mode == "words"
        rows = [row for row in score if free or cosine.get(row, -1.0) >= (threshold or 0.0)]
        rows = sorted(rows, key=lambda row: (-round(score[row], 4), row))[:top]
        hits = [self._hit(row, score[row], cosine.get(row, 0.0), words.get(row, 0.0), passage_N) for row in rows]
        done = time.perf_counter()
        return Found(query, hits, 1e3 * (encoded - began), 1e3 * (done - encoded))

    def _hit(self, row: int, score: float, cosine: float, words: float, passage_N: NDArray[np.float32] | None) -> Hit:
        found = self._db.execute("SELECT key, text, title, metadata, crc FROM documents WHERE id = ?", (row,))
        *fields, crc = found.fetchone()
        one = Document(*fields)
        if one.crc != crc:
            raise Damaged(f"{self.path}: damaged (document {one.id})")
        start, end = 0, len(one.text)
        first, last = np.searchsorted(self._owner_N, [row, row + 1])
        if passage_N is not None and first < last:
            best = int(self._rows_N[first + passage_N[first:last].argmax()])
            start, end = self._db.execute("SELECT start, end FROM passages WHERE id = ?", (best,)).fetchone()
        numbers = round(score, 4), round(cosine, 4), round(words, 4)
        return Hit(one.id, *numbers, one.text, start, end, one.title, json.loads(one.metadata))


def is_index(path: Path, by_name: bool = True) -> bool:
    """Whether a path is an index: by its suffix, or by the file's first bytes."""
    if by_name and path.suffix in SUFFIXES:
        return True
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def cached(file: Path, column: str | None, model: SentenceEncoder) -> Path:
    """Path of the index of a text file in the user's cache."""
    name = hashlib.sha256(f"{file.resolve()}\0{column or ''}\0{model.fingerprint()}".encode()).hexdigest()[:32]
    return user_cache() / "search" / f"{name}.sqlite"


@named_extras("msdc.open_index")
def open_index(
    source: str | Path | Sequence[str],
    model: str | SentenceEncoder = DEFAULT_MODEL,
    *,
    column: str | None = None,
    index: str | Path | None = None,
) -> Index:
    """Search by words and by meaning: in an index file, a text file, or texts.

        index = msdc.open_index("notes.sqlite")  # created if it does not exist
        index.add([{"id": "n1", "text": "The car is on level 2.", "folder": "travel"}])
        index.search("Wo ist das Auto?", where={"folder": "travel"}).hits[0].id

        msdc.open_index("notes.txt").search("Wo ist das Auto?").hits[0].line

    Args:
        source: an index (.sqlite, .db), which `add`, `update` and `remove` change; or a text file, one entry per line
            (plain or gzip) or a table with `column`, which the index follows; or a list of texts.
        model: a name for `load_encoder`, a bundle's folder, or a loaded model.
        column: column of a csv, tsv, jsonl or parquet file, by name or by number from 1. Other columns are for filters.
        index: file of the index of a text file; None: in the user's cache. An index of texts is not stored.

    Raises:
        InputError: no text, a file that cannot be read, no such model, an index of another model.
    """
    opened = open_model(model) if isinstance(model, str) else model
    if isinstance(source, (str, Path)):
        path = Path(source)
        if is_index(path):
            return Index(opened, path)
        place = Path(index) if index is not None else cached(path, column, opened)
        return Index(opened, place, file=path, column=column)
    if column is not None or index is not None:
        raise InputError("`column` and `index` are for files, not for texts in memory")
    rows = [{"id": number, "text": text.strip()} for number, text in enumerate(source, 1) if text.strip()]
    if not rows:
        raise InputError("no text to search in")
    found = Index(opened, None)
    found.add(rows)
    return found
