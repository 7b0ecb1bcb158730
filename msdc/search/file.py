"""The SQLite file of an index: checks, transactions, errors as one line, copies."""

from __future__ import annotations

import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from msdc.errors import InputError, MsdcError, ReplacedIndex, first_line
from msdc.files import atomic_path, refuse_existing, refuse_pointer
from msdc.search.blocks import check_passages
from msdc.search.documents import Document
from msdc.search.ranking import Connection, sql, value_of
from msdc.search.verified import State, forget, index_state, is_verified, record_verified, record_written

SUFFIXES = (".sqlite", ".db")
MAGIC = b"SQLite format 3\0"
LOCK_SECONDS = 60.0
UNWRITABLE = ("CANTOPEN", "READONLY", "READONLY_DIRECTORY", "READONLY_CANTINIT", "READONLY_ROLLBACK")
FULL = ("FULL", "IOERR_WRITE", "IOERR_FSYNC", "IOERR_TRUNCATE", "IOERR_SHMSIZE", "IOERR_SHMOPEN", "IOERR_SHMMAP")


def _name_of(error: Exception) -> str:
    # Errors of the module itself have none.
    return getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")


class IndexFile:
    """An index's file, or a database in memory where `path` is None; tables are created with the first documents.

    Opening compares all of it with its checksums, unless it has not changed since or `check` is False.
    """

    def __init__(self, path: Path | None, check: bool = True) -> None:
        self.path, self._read_only, self._written, self._checked = path, False, False, check
        self._file: tuple[int, int] | None = None  # device and number of the opened file; None until it is there
        self._own_state: State | None = None  # of the file after the last write by this index
        self._lock = threading.RLock()
        try:
            self._open()
        except BaseException:
            with suppress(AttributeError):  # before the file was opened
                self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, which then holds everything that was written, unless another process reads it."""
        with self._lock:
            is_own = self.path is not None and index_state(self.path) == self._own_state
            self._checkpoint()
            self._db.close()
            if self._written and self.path is not None:
                self._written = False
                # Another program's change would be taken for checked.
                (record_written if is_own else forget)(self.path)

    # --- the file -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        path = self.path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            require_index(path)
            _require_its_log(path)
        state = None if path is None else index_state(path)
        full = path is not None and not is_verified(path, state)
        full, self._checked = full and self._checked, self._checked or not full
        with self._errors():
            if path is not None and _has_content(_log_of(path)):
                self._check_log(path, full)
            self._db = self._connect(path or ":memory:")
            try:
                self._check(full)
            except sqlite3.OperationalError as error:
                if path is None or _name_of(error) not in UNWRITABLE or not path.is_file():
                    raise
                self._copy(path, full)
            self._db.execute("PRAGMA foreign_keys=ON")
        self._file = self._file_at_path()
        if path is not None and full:
            record_verified(path, state)

    def _file_at_path(self) -> tuple[int, int] | None:
        """Device and number of the file at the path now."""
        with suppress(OSError):
            status = None if self.path is None else self.path.stat()
            return None if status is None else (status.st_dev, status.st_ino)
        return None

    def _require_same_file(self) -> None:
        """Nothing is written to, or read from, a file that was removed or has given its place to another.

        Raises:
            ReplacedIndex: it was.
        """
        if self._file is not None and self._file != self._file_at_path():
            raise ReplacedIndex(f"{self.path}: replaced or removed since it was opened; open it again")

    def _check_log(self, path: Path, full: bool) -> None:
        """Check a file with its log before anything can move the log to the file: it may be that of another state."""
        with closing(self._connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as self._db:
            try:
                self._check(full)
            except sqlite3.OperationalError as error:
                if _name_of(error) not in UNWRITABLE:
                    raise

    def _connect(self, database: Path | str, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(
            database, LOCK_SECONDS, isolation_level=None, check_same_thread=False, factory=Connection, uri=uri
        )

    def _copy(self, path: Path, full: bool) -> None:
        """Open a file that this user cannot write, or in a folder of this kind: as it is now, in memory."""
        # A write-ahead log is not read with `immutable`, and without it the log's index may have to be written.
        mode = "mode=ro" if _has_content(_log_of(path)) else "immutable=1"
        self._db.close()
        with closing(self._connect(f"{path.resolve().as_uri()}?{mode}", uri=True)) as disk:
            self._db = self._connect(":memory:")
            disk.backup(self._db)
        self._read_only = True
        self._check(full)

    def _empty(self) -> bool:
        return self._db.execute("SELECT 1 FROM sqlite_master").fetchone() is None

    def _value(self, name: str, *arguments: object) -> Any:
        """The first value of a statement's first row; None without one."""
        return value_of(self._db, name, *arguments)

    def check(self) -> None:
        """Compare the whole file with its checksums.

        Opening does so unless the file has not changed since. What a search reads is compared in any case.

        Raises:
            InputError: the index is damaged.
        """
        state = None if self.path is None else index_state(self.path)
        with self._lock, self._errors():
            self._check(full=True)
        if self.path is not None:
            record_verified(self.path, state)

    def _check(self, full: bool) -> None:
        """Compare the version, and with `full` all content with its checksums; raise SQLite's error if the file cannot
        be written."""
        db = self._db
        if self._empty():
            # Tables are written before the write-ahead log begins: a file without them is new, or a cut one.
            size = self.path.stat().st_size if self.path is not None else 0
            if size and db.execute("PRAGMA page_count").fetchone()[0]:
                raise InputError(f"{self.path}: damaged ({size} bytes without a table)")
            return
        if problem := self._value("check", None):
            raise InputError(
                f"{self.path}: {problem}; write its documents to a new one: msdc search {self.path} QUERY --index "
                "NEW.sqlite"
            )
        if full:
            if damage := self._value("damage"):
                raise ValueError(damage)
            for fields in db.execute(sql("check_documents")):
                read_document(fields)
            check_passages(db)
        try:
            db.execute("PRAGMA busy_timeout = 0")
            db.execute(sql("check_words") if full else "DELETE FROM facts WHERE 0")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):  # another process writes, which has checked the file
                raise
        finally:
            db.execute(f"PRAGMA busy_timeout = {1000 * LOCK_SECONDS:.0f}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors as one line."""
        label = self.path or "index"
        try:
            yield
        except InputError:  # which is a ValueError too
            raise
        except (sqlite3.Error, ValueError, TypeError, OverflowError, struct.error) as error:
            self._require_same_file()
            message, name = first_line(error), _name_of(error)
            if "locked" in message:
                raise InputError(f"{label}: another process has held the lock for {LOCK_SECONDS:.0f} s") from error
            if name in FULL:
                raise MsdcError(f"disk full while writing {label}: free some space and run again") from error
            if name in UNWRITABLE and not self._read_only:  # a copy in memory is read-only if its header is damaged
                raise MsdcError(f"cannot write {label}: {message}") from error
            if "no such table" in message:
                raise InputError(f"{label}: exists and is not a search index; choose another file") from error
            if isinstance(error, sqlite3.IntegrityError):
                raise InputError(f"{label}: {message}") from error
            if isinstance(error, sqlite3.ProgrammingError):
                raise InputError(f"{label}: the index is closed") from error
            if self.path is not None:
                self._written = False
                forget(self.path)
            raise InputError(f"{label}: damaged ({message})") from error

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            self._require_same_file()
            if kind == "IMMEDIATE":
                if self._read_only:
                    raise MsdcError(f"cannot write {self.path}: read-only")
                self._begin_log()  # not by a search: it would change a file of a phone
                self._written = True
            self._db.execute(f"BEGIN {kind}")
            try:
                yield self._db
                self._db.execute("COMMIT")
                if kind == "IMMEDIATE":
                    self._file = self._file or self._file_at_path()
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

    def _count(self, statement: str) -> int:
        with self._lock, self._errors():
            return 0 if self._empty() else int(self._db.execute(statement).fetchone()[0])

    # --- the file's life ----------------------------------------------------------------------------------------------

    def backup(self, path: str | Path) -> None:
        """Write a copy of the index to a new file, while it is used: of one state, without unused space.

        A copy of the file alone may lack what is still in its write-ahead log.

        Raises:
            InputError: `path` exists.
        """
        target = Path(path)
        refuse_existing(target, force=None)
        with atomic_path(target) as stage, self._lock, self._errors():
            stage.touch()
            if not self._empty():
                self._db.execute("VACUUM INTO ?", (str(stage),))

    def compact(self) -> None:
        """Give the space of removed documents back to the disk. Needs about the size of the index as free space."""
        with self._lock, self._errors():
            if self._read_only:
                raise MsdcError(f"cannot write {self.path}: read-only")
            self._require_same_file()
            if not self._empty():
                self._written = True
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
            if self._written:
                self._own_state = index_state(self.path)


def read_document(fields: Sequence[Any]) -> Document:
    """The document of a row, whose last value is its checksum.

    Raises:
        ValueError: another checksum.
    """
    document = Document(*fields[:-1])
    if document.crc != fields[-1]:
        raise ValueError(f"document {document.id}")
    return document


def is_index(path: Path, by_name: bool = True) -> bool:
    """Whether a path is an index: by its suffix, or by the file's first bytes."""
    if by_name and path.suffix in SUFFIXES:
        return True
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def require_index(path: Path) -> None:
    """Refuse a file of another kind, which would be overwritten."""
    if path.is_file() and path.stat().st_size and not is_index(path, by_name=False):
        refuse_pointer(path)
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
    if path.is_file():
        refuse_pointer(path)
    uri = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as db:
            for fields in db.execute("SELECT key, text, title, metadata, crc FROM documents ORDER BY id"):
                yield read_document(fields)
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise InputError(f"{path}: no search index, or a damaged one ({error})") from error
