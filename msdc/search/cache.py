"""What `msdc search TABLE` keeps between calls: passages and their vectors by model and text, in the user's cache.

The content decides: nothing refers to a file, and any number of processes may share the cache. It holds no text, only
its owner can read it, and it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from msdc.encoders.encoder import SentenceEncoder
from msdc.errors import InputError, MsdcError
from msdc.files import locked, user_cache
from msdc.progress import warn

HEAD = struct.Struct("<IIf")  # first character, one past the last, scale (0: no vector); the int8 vector follows
MOST_BYTES = 2**31  # above it the older half is dropped
AT_ONCE = 500  # keys per statement
Result = TypeVar("Result")


class Passage(NamedTuple):
    """A part of a text, `[start:end]`, with its vector: int8 and a scale; None where the model cannot read it."""

    start: int
    end: int
    scale: float | None
    vector: bytes | None


def packed(passages: Sequence[Passage]) -> bytes:
    """Passages as bytes."""
    return b"".join(HEAD.pack(one.start, one.end, one.scale or 0.0) + (one.vector or b"") for one in passages)


def unpacked(data: bytes, width: int) -> list[Passage]:
    """The passages in bytes of `packed`, with vectors of `width` dimensions."""
    found, at = [], 0
    while at < len(data):
        start, end, scale = HEAD.unpack_from(data, at)
        at += HEAD.size + (width if scale else 0)
        found.append(Passage(start, end, scale or None, data[at - width : at] if scale else None))
    return found


class VectorCache:
    """Passages of texts by one model, which reads at most `most` tokens of a passage."""

    def __init__(self, model: SentenceEncoder, most: int) -> None:
        self._width, self._salt = model.width, f"{most}\0".encode()
        self.path = user_cache() / "search" / f"vectors-{model.fingerprint()[:32]}.sqlite"
        self._usable = True
        # Indexes of files by earlier versions held texts that others could read.
        for old in self.path.parent.glob("[0-9a-f]" * 32 + ".sqlite*"):
            with suppress(OSError):
                old.unlink()

    def _key(self, title: str, text: str) -> bytes:
        return hashlib.sha256(self._salt + f"{title}\0{text}".encode()).digest()[:16]

    def _use(self, work: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        """What `work` returns on the file, held by no other process; a damaged file is replaced."""
        if not self._usable:
            return otherwise
        try:
            with locked(self.path.with_suffix(".lock")):
                for _ in range(2):
                    try:
                        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
                        with closing(sqlite3.connect(self.path)) as db, db:
                            db.execute("PRAGMA synchronous = NORMAL")
                            db.execute(
                                "CREATE TABLE IF NOT EXISTS vectors (key BLOB UNIQUE, passages BLOB, crc INTEGER)"
                            )
                            return work(db)
                    except sqlite3.OperationalError as error:
                        if "full" in str(error):
                            raise MsdcError(
                                f"disk full while writing {self.path}: free some space and run again"
                            ) from error
                        if "malformed" not in str(error):
                            raise MsdcError(f"{self.path}: {error}") from error
                        self._discard(error)
                    except InputError:
                        raise
                    except (sqlite3.DatabaseError, ValueError, TypeError, KeyError, struct.error) as error:
                        self._discard(error)
        except (OSError, MsdcError) as error:
            if "disk full" in str(error):
                raise
            warn(f"{error}; the vectors are not kept")
        self._usable = False
        return otherwise

    def _discard(self, error: Exception) -> None:
        warn(f"{self.path}: damaged ({error}); the vectors are computed again")
        for end in ("", "-journal"):
            Path(f"{self.path}{end}").unlink(missing_ok=True)

    def get(self, documents: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Passage]]:
        """The passages of those of `documents` (title, text) that are in the cache."""
        places = {self._key(*one): one for one in documents}
        keys = list(places)

        def read(db: sqlite3.Connection) -> dict[tuple[str, str], list[Passage]]:
            found = {}
            for at in range(0, len(keys), AT_ONCE):
                part = keys[at : at + AT_ONCE]
                marks = ",".join("?" * len(part))
                for key, data, crc in db.execute(f"SELECT * FROM vectors WHERE key IN ({marks})", part):
                    if zlib.crc32(key + data) != crc:
                        raise ValueError("a wrong checksum")
                    found[places[key]] = unpacked(data, self._width)
            return found

        return self._use(read, {})

    def put(self, passages: Mapping[tuple[str, str], Sequence[Passage]]) -> None:
        """Keep the passages of documents (title, text)."""
        rows = [(self._key(*one), packed(found)) for one, found in passages.items()]

        def write(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                           [(key, data, zlib.crc32(key + data)) for key, data in rows])  # fmt: skip
            pages, free, size = (db.execute(f"PRAGMA {name}").fetchone()[0]
                                 for name in ("page_count", "freelist_count", "page_size"))  # fmt: skip
            if (pages - free) * size > MOST_BYTES:
                db.execute("DELETE FROM vectors WHERE rowid <= (SELECT avg(rowid) FROM vectors)")

        if rows:
            self._use(write, None)
