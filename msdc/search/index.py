"""The search index: documents, their words (FTS5) and the vectors of their passages (int8), in one SQLite file.

An index belongs to its user: only `add`, `update` and `remove` write to it, and no error deletes it. One process
writes, any number read; a write is complete or absent, also after kill -9 (SQLite's write-ahead log). A vector is int8
with one scale per passage.

Shapes: N passages, D width.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from msdc.arguments import checked, require_characters
from msdc.encoders.encoder import SentenceEncoder, open_model
from msdc.encoders.folder import DEFAULT_MODEL
from msdc.errors import InputError, MsdcError, first_line
from msdc.extras import named_extras
from msdc.files import atomic_path, refuse_existing
from msdc.progress import track, warn
from msdc.scores import unit_rows
from msdc.search.documents import (
    Document,
    Found,
    Hit,
    Missing,
    as_document,
    conditions,
    numbered_rows,
    require_key,
)  # fmt: skip
from msdc.search.passages import PassageEncoder
from msdc.search.vectors import Passage, PassageVectors, passage_crc
from msdc.search.words import index_words, match_expression

SUFFIXES = (".sqlite", ".db")
SEARCH_SQL = Path(__file__).with_name("search.sql")
MAGIC = b"SQLite format 3\0"
BLOCK = 256  # documents that are encoded and written per transaction
CANDIDATES = 1000  # documents by words and by vectors that are ranked together
LOCK_SECONDS = 60.0
UNWRITABLE = ("CANTOPEN", "READONLY", "READONLY_DIRECTORY", "READONLY_CANTINIT", "READONLY_ROLLBACK")
FULL = ("FULL", "IOERR_WRITE", "IOERR_FSYNC", "IOERR_TRUNCATE", "IOERR_SHMSIZE")
Mode = Literal["words", "vectors", "both"]
Model = SentenceEncoder | Callable[[], SentenceEncoder]


def _name_of(error: Exception) -> str:
    # Errors of the module itself have none.
    return getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")


@cache
def sql(name: str) -> str:
    """A statement of search.sql."""
    return dict(part.split("\n", 1) for part in SEARCH_SQL.read_text(encoding="utf-8").split("-- name: ")[1:])[name]


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
        self.path, self.encoded, self._read_only = path, 0, False
        self._given, self._given_query, self._keep, self._stale = model, query_model, keep_vectors, False
        self._lock = threading.RLock()
        try:
            self._open()
            if not callable(model):
                self._require_model(model)
        except BaseException:
            with suppress(AttributeError):  # before the file was opened
                self.close()
            raise
        self.open_s = time.perf_counter() - began

    def __repr__(self) -> str:
        return f"Index({str(self.path) if self.path else 'in memory'!r}, {len(self)} texts)"

    def __len__(self) -> int:
        return self._count("documents")

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
        return self._count("documents WHERE id NOT IN (SELECT document FROM passages WHERE vector IS NOT NULL)")

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
    def _vectors(self) -> PassageVectors:
        return PassageVectors(self.model.width)

    @cached_property
    def _encoder(self) -> PassageEncoder:
        return PassageEncoder(self.model, self._keep)

    def _require_model(self, model: SentenceEncoder) -> SentenceEncoder:
        with self._lock, self._errors():
            found = {} if self._empty() else dict(self._db.execute("SELECT name, value FROM facts"))
        # A phone identifies its bundle by the model that was exported.
        if self.path is not None and found and found.get("model") not in (model.fingerprint(), model.source):
            raise InputError(
                f"{self.path}: made with another {found.get('name')}, not with this {model.name}; open it with that "
                "model, or write its documents to a new index with `index`"
            )
        return model

    # --- the file -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        path = self.path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            _require_index(path)
        with self._errors():
            self._db = self._connect(path or ":memory:")
            try:
                self._check()
            except sqlite3.OperationalError as error:
                if path is None or _name_of(error) not in UNWRITABLE or not path.is_file():
                    raise
                self._copy(path)
            self._db.execute("PRAGMA foreign_keys=ON")

    def _connect(self, place: Path | str, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(place, LOCK_SECONDS, isolation_level=None, check_same_thread=False, uri=uri)

    def _copy(self, path: Path) -> None:
        """Open a file that this user cannot write, or in a folder of this kind: as it is now, in memory."""
        # A write-ahead log is not read with `immutable`, and without it the log's index may have to be written.
        log = Path(f"{path}-wal")
        mode = "mode=ro" if log.is_file() and log.stat().st_size else "immutable=1"
        self._db.close()
        with closing(self._connect(f"{path.resolve().as_uri()}?{mode}", uri=True)) as disk:
            self._db = self._connect(":memory:")
            disk.backup(self._db)
        self._read_only = True
        self._check()

    def _empty(self) -> bool:
        return self._db.execute("SELECT 1 FROM sqlite_master").fetchone() is None

    def _value(self, name: str, *given: object) -> Any:
        """The first value of a statement's first row; None without one."""
        return (self._db.execute(sql(name), given).fetchone() or (None,))[0]

    def _check(self) -> None:
        """Compare the file with its checksums."""
        db = self._db
        if self._empty():
            size = self.path.stat().st_size if self.path is not None else 0
            if size not in (0, db.execute("PRAGMA page_size").fetchone()[0]):
                raise InputError(f"{self.path}: damaged ({size} bytes without a table)")
            return
        if problem := self._value("check", None) or self._value("strays"):
            new = f"; write its documents to a new one: msdc search {self.path} QUERY --index NEW.sqlite"
            raise InputError(f"{self.path}: {problem}{new if 'version' in problem else ''}")
        for *fields, crc in db.execute(sql("check_documents")):
            if Document(*fields).crc != crc:
                raise InputError(f"{self.path}: damaged (document {fields[0]})")
        try:
            db.execute("PRAGMA busy_timeout = 0")
            db.execute(sql("check_words"))
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):  # another process writes, which has checked the file
                raise
        finally:
            db.execute(f"PRAGMA busy_timeout = {1000 * LOCK_SECONDS:.0f}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors as one line."""
        place = self.path or "index"
        try:
            yield
        except InputError:  # which is a ValueError too
            raise
        except (sqlite3.Error, ValueError, TypeError, OverflowError, struct.error) as error:
            message, name = first_line(error), _name_of(error)
            if "locked" in message:
                raise InputError(f"{place}: another process has held the lock for {LOCK_SECONDS:.0f} s") from error
            if name in FULL:
                raise MsdcError(f"disk full while writing {place}: free some space and run again") from error
            if name in UNWRITABLE and not self._read_only:  # a copy in memory is read-only if its header is damaged
                raise MsdcError(f"cannot write {place}: {message}") from error
            if "no such table" in message:
                raise InputError(f"{place}: exists and is not a search index; choose another file") from error
            if isinstance(error, sqlite3.IntegrityError):
                raise InputError(f"{place}: {message}") from error
            if isinstance(error, sqlite3.ProgrammingError):
                raise InputError(f"{place}: the index is closed") from error
            raise InputError(f"{place}: damaged ({message})") from error

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            if kind == "IMMEDIATE":
                if self._read_only:
                    raise MsdcError(f"cannot write {self.path}: read-only")
                self._db.execute("PRAGMA journal_mode=WAL")  # not by a search: it would change a file of a phone
            self._db.execute(f"BEGIN {kind}")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def _count(self, documents: str) -> int:
        with self._lock, self._errors():
            return 0 if self._empty() else int(self._db.execute(f"SELECT count(*) FROM {documents}").fetchone()[0])

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
        keys = [require_key(key, "remove") for key in ids]
        with self._transaction() as db:
            self._stale = True
            return 0 if self._empty() else db.execute(sql("remove"), (json.dumps(keys),)).rowcount

    def _put(self, documents: Iterable[Document], given: object, replace: bool, encode: bool = True) -> int:
        """Write documents in blocks; `given` is what they come from, for the progress."""
        source, written = iter(documents), 0
        total = len(given) if isinstance(given, Sequence) else None
        blocks = iter(lambda: list(islice(source, BLOCK)), [])
        for block in track(blocks, "encoding", total=total, size=len):
            self._write(block, self._passages(block) if encode else [()] * len(block), replace)
            written += len(block)
        return written

    def _write(self, block: Sequence[Document], passages: Sequence[Sequence[Passage]], replace: bool) -> None:
        """Write a block in one transaction, in which ids are given and compared."""
        rows = {one.id or number: (one, parts) for number, (one, parts) in enumerate(zip(block, passages, strict=True))}
        keys = json.dumps([one.id for one in block if one.id])
        with self._transaction() as db:
            self._stale = True
            self._create(db)
            if replace:
                db.execute(sql("remove"), (keys,))
            # Of one id the last stays.
            for one, parts in rows.values() if replace else zip(block, passages, strict=True):
                one = one if one.id else one._replace(id=self._value("key", keys))
                try:
                    row = db.execute(sql("add_document"), (*one, one.crc)).lastrowid or 0
                except sqlite3.IntegrityError as error:
                    place = self.path or "index"
                    raise InputError(f"{place}: a document {one.id!r} exists already; use update") from error
                db.execute(sql("add_words"), (row, index_words(one.title), index_words(one.text)))
                db.executemany(sql("add_passage"), [(row, *part, passage_crc(row, *part)) for part in parts])

    def _create(self, db: sqlite3.Connection) -> None:
        """Create the tables with the first documents."""
        if self._empty():
            model = None if self.path is None else self.model  # before there is a table that it is compared with
            for statement in sql("schema").split(";\n"):
                db.execute(statement)
            if model is not None:
                db.execute(sql("add_facts"), (model.fingerprint(), model.name, model.source))

    def _passages(self, block: Sequence[Document]) -> list[list[Passage]]:
        """The passages of documents: of the same id and text in the index, else of the cache or the model."""
        texts = [(one.title, one.text) for one in block]
        found = self._stored(block)
        new, encoded = self._encoder.passages([one for one in dict.fromkeys(texts) if one not in found])
        self.encoded += sum(one in encoded for one in texts)
        return [(found | new)[one] for one in texts]

    def _stored(self, block: Sequence[Document]) -> dict[tuple[str, str], list[Passage]]:
        found: dict[tuple[str, str], list[Passage]] = {}
        keys = {one.id: (one.title, one.text) for one in block if one.id}
        if not keys or not len(self):
            return found
        with self._transaction("DEFERRED") as db:
            for key, title, text, row, *part, crc in db.execute(sql("stored"), (json.dumps(list(keys)),)):
                if passage_crc(row, *part) != crc:
                    raise InputError(f"{self.path}: damaged (document {key})")
                if keys[key] == (title, text):
                    found.setdefault((title, text), []).append(Passage(*part))
        return found

    # --- search -------------------------------------------------------------------------------------------------------

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
        filtered = conditions(where) if where else None
        query_D = self._query_vector(query) if mode != "words" else None
        encoded = time.perf_counter()
        with self._transaction("DEFERRED") as db:  # one state of the file for the whole search
            hits: list[Hit] = []
            if not self._empty():
                most, allowed = max(CANDIDATES, 4 * top), self._allowed(filtered)
                rows = json.dumps(self._candidates(query, query_D, mode, most, allowed))
                hits = [self._hit(*one) for one in db.execute(sql("ranked"), (rows, mode, threshold, top)).fetchall()]
        return Found(query, hits, 1e3 * (encoded - began), 1e3 * (time.perf_counter() - encoded))

    def _query_vector(self, query: str) -> NDArray[np.float32] | None:
        """The unit vector of a query; None if the model cannot read it."""
        encoder = self._encoder
        if encoder.reader.unread([query]).any():
            warn(f"the query {query[:80]!r} is mostly characters that {self.query_model.name} does not know")
            return None
        if (tokens := encoder.count([query])[0]) > encoder.most:
            warn(f"the query has {tokens} tokens; {self.query_model.name} reads the first {encoder.most}")
        return np.asarray(unit_rows(self.query_model.encode([query]))[0])

    def _allowed(self, wanted: str | None) -> list[int] | None:
        """The documents that a filter keeps; None without a filter."""
        if not wanted:
            return None
        found = [row for (row,) in self._db.execute(sql("filter"), (wanted,))]
        if not found and (unknown := self._db.execute(sql("unknown"), (wanted,)).fetchone()):
            raise InputError("no column {!r} to filter by (columns: {})".format(*unknown))
        return found

    def _candidates(
        self, query: str, query_D: NDArray[np.float32] | None, mode: Mode, most: int, allowed: list[int] | None
    ) -> list[tuple[int, float | None, float | None]]:
        """The documents nearest by vectors and by words, at most `most` of each, with both scores."""
        cosine, words = dict[int, float](), dict[int, float]()
        if query_D is not None:
            self._vectors.refresh(self._db, sql("vectors"), self._stale)
            self._stale = False
            self._vectors.compare(query_D)
            cosine = self._vectors.nearest(most, allowed)
        if mode != "vectors" and (expression := match_expression(query)):
            ids = None if allowed is None else json.dumps(allowed)
            words = dict(self._db.execute(sql("words"), (expression, ids, most, json.dumps([*cosine]))))
            if query_D is not None:
                cosine |= self._vectors.of(words)
        bm25 = dict[int, float | None].fromkeys(cosine, None if mode == "vectors" else 0.0) | words
        return [(row, cosine.get(row), value) for row, value in bm25.items()]

    def _hit(self, row: int, score: float, cosine: float | None, words: float | None) -> Hit:
        best = None if cosine is None else self._vectors.best_passage(row)
        *fields, crc, start, end = self._db.execute(sql("hit"), (row, best)).fetchone() or (None, 0, 0, 0)
        if None in fields or (one := Document(*fields)).crc != crc:
            raise InputError(f"{self.path}: damaged (document {row})")
        start, end = (start, end) if end else (0, len(one.text))
        return Hit(one.id, score, cosine, words, one.text, start, end, one.title, json.loads(one.metadata))


def is_index(path: Path, by_name: bool = True) -> bool:
    """Whether a path is an index: by its suffix, or by the file's first bytes."""
    if by_name and path.suffix in SUFFIXES:
        return True
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _require_index(path: Path) -> None:
    if path.is_file() and path.stat().st_size and not is_index(path, by_name=False):
        raise InputError(f"{path}: exists and is not a search index; choose another file")


def stored_documents(path: Path) -> Iterator[Document]:
    """The documents of an index of any version and model, which is only read."""
    uri = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as db:
            for *fields, crc in db.execute("SELECT key, text, title, metadata, crc FROM documents ORDER BY id"):
                if (one := Document(*fields)).crc != crc:
                    raise ValueError(f"document {one.id}")
                yield one
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise InputError(f"{path}: no search index, or a damaged one ({error})") from error


@named_extras("msdc.open_index")
@checked
def open_index(
    source: str | Path | Sequence[str],
    model: str | Model = DEFAULT_MODEL,
    *,
    column: str | None = None,
    id_column: str | None = None,
    title_column: str | None = None,
    index: str | Path | None = None,
    force: bool = False,
    missing: Missing = "refuse",
    query_model: Model | None = None,
    encode: bool = True,
) -> Index:
    """Search by words and by meaning: in an index file, a text file, or texts.

        index = msdc.open_index("notes.sqlite")  # created if it does not exist
        index.add([{"id": "n1", "text": "The car is on level 2.", "folder": "travel"}])
        index.search("Wo ist das Auto?", where={"folder": "travel"}).hits[0].id

        msdc.open_index("notes.txt").search("Wo ist das Auto?").hits[0].line

    Vectors of a file's rows are kept in the user's cache: an interrupted call goes on where it stopped.

    Args:
        source: an index (.sqlite, .db), which `add`, `update` and `remove` change; or a text file, one entry per line
            (plain or gzip), or a table with `column`; or a list of texts.
        model: a name for `load_encoder`, a bundle's folder, a loaded model, or a function that loads one when needed.
        column: column of a csv, tsv, jsonl or parquet file, by name or by number from 1. Other columns are for filters.
        id_column: column with the ids; None: the number of the line or row.
        title_column: column with the titles.
        index: write the entries to a new index in this file, also those of an index of another model or version.
        force: replace an index at `index`.
        missing: a missing number (NaN) is an error, or stored as null.
        query_model: encodes queries, for example with another prompt; None: `model`.
        encode: without, entries that are not in an index file are found by their words only.

    Raises:
        InputError: no text, a file that cannot be read, no such model, an index of another model.
    """
    load: Model = (lambda: open_model(model, program=True)) if isinstance(model, str) else model
    place, began = None if index is None else Path(index), time.perf_counter()
    if place is not None:
        _require_index(place)
        refuse_existing(place, force)
    file = Path(source) if isinstance(source, str | Path) else None
    stored = file is not None and is_index(file)
    if (file is None or stored) and (column, id_column, title_column) != (None, None, None):
        kind = "an index" if stored else "texts in memory"
        raise InputError(f"`column`, `id_column` and `title_column` are for text files and tables, not for {kind}")
    if file is not None and stored:
        if place is None:
            return Index(load, file, query_model=query_model)
        rows = list(stored_documents(file))
    elif file is not None:
        rows = list(numbered_rows(file, column, id_column=id_column, title_column=title_column, missing=missing))
    else:
        texts = ((number, text.strip()) for number, text in enumerate(cast(Sequence[str], source), 1))
        rows = [as_document({"id": number, "text": text}, "") for number, text in texts if text]
    if not rows:
        raise InputError(f"{file}: no text to search in" if file else "no text to search in")
    if place is None:
        opened = Index(load, query_model=query_model, keep_vectors=file is not None)
        opened._put(rows, rows, False, encode)
    else:
        with atomic_path(place) as stage, Index(load, stage, keep_vectors=True) as written:
            written._put(rows, rows, False)
        opened = Index(load, place, query_model=query_model)
        opened.encoded = written.encoded
    opened.open_s = time.perf_counter() - began
    return opened
