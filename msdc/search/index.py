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
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast

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
from msdc.search.matches import find_terms, merged, passage_to_show
from msdc.search.passages import PassageEncoder
from msdc.search.ranking import Mode, Plan, Ranked, WordMatch, match_words, rank, read_plan, sql
from msdc.search.vectors import Passage, PassageVectors, passage_crc
from msdc.search.words import Syntax, index_words, parse_query
from msdc.text.passages import passages as split_passages

SUFFIXES = (".sqlite", ".db")
MAGIC = b"SQLite format 3\0"
BLOCK = 256  # documents that are encoded and written per transaction
CANDIDATES = 1000  # documents by words and by vectors that are ranked together; a power of 4 more for hits beyond them
LOCK_SECONDS = 60.0
UNWRITABLE = ("CANTOPEN", "READONLY", "READONLY_DIRECTORY", "READONLY_CANTINIT", "READONLY_ROLLBACK")
FULL = ("FULL", "IOERR_WRITE", "IOERR_FSYNC", "IOERR_TRUNCATE", "IOERR_SHMSIZE")
SNIPPET_WORDS = 32  # of the passage that is shown of a text that was not encoded
Model = SentenceEncoder | Callable[[], SentenceEncoder]


def _name_of(error: Exception) -> str:
    # Errors of the module itself have none.
    return getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")


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
                self._db.close()
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
        """Close the file, which then holds everything that was written, unless another process reads it."""
        with self._lock:
            self._checkpoint()
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
            _require_its_log(path)
        with self._errors():
            if path is not None and _has_content(_log_of(path)):
                self._check_log(path)
            self._db = self._connect(path or ":memory:")
            try:
                self._check()
            except sqlite3.OperationalError as error:
                if path is None or _name_of(error) not in UNWRITABLE or not path.is_file():
                    raise
                self._copy(path)
            self._db.execute("PRAGMA foreign_keys=ON")

    def _check_log(self, path: Path) -> None:
        """Check a file with its log before anything can move the log to the file: it may be that of another state."""
        with closing(self._connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as self._db:
            try:
                self._check()
            except sqlite3.OperationalError as error:
                if _name_of(error) not in UNWRITABLE:
                    raise

    def _connect(self, place: Path | str, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(place, LOCK_SECONDS, isolation_level=None, check_same_thread=False, uri=uri)

    def _copy(self, path: Path) -> None:
        """Open a file that this user cannot write, or in a folder of this kind: as it is now, in memory."""
        # A write-ahead log is not read with `immutable`, and without it the log's index may have to be written.
        mode = "mode=ro" if _has_content(_log_of(path)) else "immutable=1"
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
            # Tables are written before the write-ahead log begins: a file without them is new, or a cut one.
            size = self.path.stat().st_size if self.path is not None else 0
            if size and db.execute("PRAGMA page_count").fetchone()[0]:
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
                self._begin_log()  # not by a search: it would change a file of a phone
            self._db.execute(f"BEGIN {kind}")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def _begin_log(self) -> None:
        """Write to a log from now on, so that writers block no reader; later if the file is new or another has it
        open."""
        if not self._empty():
            with suppress(sqlite3.OperationalError):
                self._db.execute("PRAGMA journal_mode=WAL")

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
        if not len(self):  # a transaction would write to a file without tables
            return 0
        with self._transaction() as db:
            self._stale = True
            removed = db.execute(sql("remove"), (json.dumps(keys),)).rowcount
        self._checkpoint()
        return removed

    def _put(self, documents: Iterable[Document], given: object, replace: bool, encode: bool = True) -> int:
        """Write documents in blocks; `given` is what they come from, for the progress."""
        source, written = iter(documents), 0
        total = len(given) if isinstance(given, Sequence) else None
        blocks = iter(lambda: list(islice(source, BLOCK)), [])
        for block in track(blocks, "encoding", total=total, size=len):
            self._write(block, self._passages(block) if encode else [()] * len(block), replace)
            written += len(block)
        self._checkpoint()
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
                stored = index_words(one.title), index_words(one.text)
                try:
                    row = db.execute(sql("add_document"), (*one, one.crc, form_of(*stored))).lastrowid or 0
                except sqlite3.IntegrityError as error:
                    place = self.path or "index"
                    raise InputError(f"{place}: a document {one.id!r} exists already; use update") from error
                db.execute(sql("add_words"), (row, *stored))
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
        offset: int = 0,
        distinct: bool = True,
        syntax: Syntax = "operators",
    ) -> Found:
        """The entries nearest to a query, best first.

        The last word of a query without a blank behind it also matches words that begin with it. If no entry has a word
        of the query, the most similar words of the index are looked for.

        Args:
            query: the text, in any of the model's languages.
            top: maximum number of hits.
            threshold: minimum cosine of a hit; entries in which every word of the query matches are hits all the same.
            mode: rank by the words (BM25), by the vectors (cosine of the best passage), or by both.
            where: required metadata by name: a value, a list of alternatives, (least, most) with None for no bound,
                None for no value, {"not": any of these}.
            offset: the number of hits to skip, for pages.
            distinct: entries with the same words (whatever their case, blanks and punctuation) are one hit, the best.
            syntax: with "operators", entries with "words in quotes" come first, and entries with -excluded words or
                -"phrases" are no hits; "plain" takes quotes and minus as text.

        Raises:
            InputError: an empty query, an argument out of range, a name in `where` that no entry has.
        """
        if not require_characters(query, "the query").strip():
            raise InputError("a query is empty")
        if top < 1:
            raise InputError(f"`top` {top}: must be at least 1")
        if offset < 0:
            raise InputError(f"`offset` {offset}: must be at least 0")
        for name, value, known in (
            ("mode", mode, ("words", "vectors", "both")),
            ("syntax", syntax, ("operators", "plain")),
        ):
            if value not in known:
                raise InputError(f"`{name}` {value!r} is unknown; known: {', '.join(known)}")
        began = time.perf_counter()
        filtered = conditions(where) if where else None
        with self._lock, self._errors():
            plan = read_plan(self._db, parse_query(query, syntax))
        query_D = self._query_vector(plan.text) if mode != "words" else None
        encoded = time.perf_counter()
        with self._transaction("DEFERRED") as db:  # one state of the file for the whole search
            hits: list[Hit] = []
            if not self._empty():
                allowed = self._allowed(filtered, plan)
                cosines, words, plan = self._candidates(plan, query_D, mode, offset + top, allowed)
                ranked = rank(db, cosines, words, mode, threshold)
                page = islice(self._distinct(ranked) if distinct else ranked, offset, offset + top)
                inside = None if allowed is None else json.dumps(allowed)
                for scores in page:
                    count = self._value("equal", scores[0], inside) if distinct else 1
                    hits.append(self._hit(*scores, plan.terms, mode, count))
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

    def _allowed(self, filtered: str | None, plan: Plan) -> list[int] | None:
        """The documents that a filter and the excluded words leave; None without either."""
        if not filtered and not plan.excludes:
            return None
        allowed = [row for (row,) in self._db.execute(sql("filter"), (filtered or "[]", plan.plan))]
        if not allowed and filtered and (unknown := self._db.execute(sql("unknown"), (filtered,)).fetchone()):
            raise InputError("no column {!r} to filter by (columns: {})".format(*unknown))
        return allowed

    def _candidates(
        self, plan: Plan, query_D: NDArray[np.float32] | None, mode: Mode, hits: int, allowed: list[int] | None
    ) -> tuple[dict[int, float], dict[int, WordMatch], Plan]:
        """The documents nearest by vectors and by words, for `rank`, and the plan that found the latter.

        As many for every page of the first 1,000 hits, so that pages agree.
        """
        most = CANDIDATES
        while most < hits:
            most *= 4
        cosines = dict[int, float]()
        if query_D is not None:
            self._vectors.refresh(self._db, sql("vectors"), self._stale)
            self._stale = False
            self._vectors.compare(query_D)
            cosines = self._vectors.nearest(most, allowed)
        if mode == "vectors":
            return cosines, {}, plan
        words, plan = match_words(self._db, plan, allowed, most, cosines)
        if query_D is not None:
            cosines |= self._vectors.of(words)
        return cosines, words, plan

    def _distinct(self, ranked: Iterable[Ranked]) -> Iterator[Ranked]:
        """Of documents with the same words the first."""
        forms = set[int]()
        for scores in ranked:
            form = self._value("form", scores[0])
            if form not in forms:
                forms.add(form)
                yield scores

    def _hit(
        self,
        row: int,
        score: float,
        cosine: float | None,
        words: float | None,
        terms: str,
        mode: Mode,
        count: int,
    ) -> Hit:
        *fields, crc = self._db.execute(sql("hit"), (row,)).fetchone() or (None, 0)
        if None in fields or (one := Document(*fields)).crc != crc:
            raise InputError(f"{self.path}: damaged (document {row})")
        places = find_terms(one.text, terms)
        cosines = self._vectors.cosines_of(row) if cosine is not None else {}
        spans = self._db.execute(sql("passages_of"), (row,)).fetchall()
        if not spans:  # not encoded
            (parts,) = split_passages([one.text], lambda texts: [len(text.split()) for text in texts], SNIPPET_WORDS)
            spans = [(0, *part) for part in parts]
        if mode == "vectors":
            best = max(range(len(spans)), key=lambda number: cosines.get(spans[number][0], -2.0))
        else:
            near = [cosines.get(passage, 0.0) for passage, _, _ in spans]
            best = passage_to_show([(start, end) for _, start, end in spans], near, terms, places)
        _, start, end = spans[best]
        shown = merged([span for spans in places for span in spans])
        return Hit(
            one.id, score, cosine, words, one.text, start, end, one.title, json.loads(one.metadata), shown, count
        )

    # --- the file's life ----------------------------------------------------------------------------------------------

    def backup(self, path: str | Path) -> None:
        """Write a copy of the index to a new file, while it is used: of one state, without unused space.

        A copy of the file alone may lack what is still in its write-ahead log.

        Raises:
            InputError: `path` exists.
        """
        target = Path(path)
        refuse_existing(target, force=False)
        with atomic_path(target) as stage, self._lock, self._errors():
            stage.touch()
            if not self._empty():
                self._db.execute("VACUUM INTO ?", (str(stage),))

    def compact(self) -> None:
        """Give the space of removed documents back to the disk. Needs about the size of the index as free space."""
        with self._lock, self._errors():
            if self._read_only:
                raise MsdcError(f"cannot write {self.path}: read-only")
            if not self._empty():
                self._db.execute("INSERT INTO words (words) VALUES ('optimize')")
                self._db.execute("VACUUM")
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Move what is in the write-ahead log to the file, so that a copy of the file alone has it.

        Nothing is lost if another connection prevents it: the log is read together with the file.
        """
        if self.path is None or self._read_only:
            return
        with self._lock, suppress(sqlite3.Error):
            self._db.execute("PRAGMA busy_timeout = 0")
            try:
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {1000 * LOCK_SECONDS:.0f}")


def form_of(title: str, text: str) -> int:
    """A number that entries with the same stored words have in common."""
    stored = f"{title}\0{text}".encode()
    return zlib.crc32(stored) * 2**20 + len(stored) % 2**20


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


def _log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _require_its_log(path: Path) -> None:
    """SQLite would delete the log next to a file that is missing or empty, and what is in it."""
    log = _log_of(path)
    if not _has_content(path) and _has_content(log):
        raise InputError(f"{path}: empty next to its write-ahead log {log.name}; put back the file that belongs to it")


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
