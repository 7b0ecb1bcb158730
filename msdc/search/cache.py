"""What `msdc search TABLE` keeps between calls: passages and their vectors by model and text, in the user's cache.

The content decides: nothing refers to a file, and any number of processes may share the cache. It holds no text, only
its owner can read it, and it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from msdc.encoders.encoder import SentenceEncoder
from msdc.errors import MsdcError
from msdc.files import locked, user_cache
from msdc.progress import warn
from msdc.search.blocks import Passage, passage_crc

MOST_BYTES = 2**31  # above it the older half is dropped
# Passage `part` of the `parts` of a text; a text without all of them is encoded again.
TABLE = """CREATE TABLE IF NOT EXISTS vectors (
  key TEXT, part INTEGER, parts INTEGER, start INTEGER, end INTEGER, scale REAL, vector BLOB, crc INTEGER,
  UNIQUE (key, part))"""
Result = TypeVar("Result")


class VectorCache:
    """Passages of texts by one model, which reads at most `most` tokens of a passage."""

    def __init__(self, model: SentenceEncoder, most: int) -> None:
        self._salt = f"{most}\0".encode()
        self.path = user_cache() / "search" / f"passages-{model.fingerprint()[:32]}.sqlite"
        self._usable = True

    def _key(self, title: str, text: str) -> str:
        return hashlib.sha256(self._salt + f"{title}\0{text}".encode()).hexdigest()[:32]

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
                            db.execute(TABLE)
                            return work(db)
                    except (sqlite3.DatabaseError, ValueError, TypeError, KeyError, struct.error) as error:
                        if "full" in str(error):
                            raise MsdcError(
                                f"disk full while writing {self.path}: free some space and run again"
                            ) from error
                        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
                            raise
                        self._discard(error)
        except (OSError, sqlite3.Error, MsdcError) as error:
            if "disk full" in str(error):
                raise
            warn(f"{self.path}: {error}; the vectors are not kept")
        self._usable = False
        return otherwise

    def _discard(self, error: Exception) -> None:
        warn(f"{self.path}: damaged ({error}); the vectors are computed again")
        for end in ("", "-journal"):
            Path(f"{self.path}{end}").unlink(missing_ok=True)

    def get(self, documents: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Passage]]:
        """The passages of those of `documents` (title, text) that are in the cache."""
        places = {self._key(*document): document for document in documents}

        def read(db: sqlite3.Connection) -> dict[tuple[str, str], list[Passage]]:
            passages, complete = dict[tuple[str, str], list[Passage]](), set[tuple[str, str]]()
            statement = "SELECT * FROM vectors WHERE key IN (SELECT value FROM json_each(?)) ORDER BY key, part"
            for key, part, parts, *passage, crc in db.execute(statement, (json.dumps(list(places)),)):
                if passage_crc(part, *passage) != crc:
                    raise ValueError("a wrong checksum")
                passages.setdefault(places[key], []).append(Passage(*passage))
                complete |= {places[key]} if part + 1 == parts == len(passages[places[key]]) else set()
            return {document: passages[document] for document in complete}

        return self._use(read, {})

    def put(self, passages: Mapping[tuple[str, str], Sequence[Passage]]) -> None:
        """Keep the passages of documents (title, text)."""
        rows = [
            (self._key(*document), part, len(parts), *passage, passage_crc(part, *passage))
            for document, parts in passages.items() for part, passage in enumerate(parts)
        ]  # fmt: skip

        def write(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            pages, free, size = (db.execute(f"PRAGMA {name}").fetchone()[0]
                                 for name in ("page_count", "freelist_count", "page_size"))  # fmt: skip
            if (pages - free) * size > MOST_BYTES:
                db.execute("DELETE FROM vectors WHERE rowid <= (SELECT avg(rowid) FROM vectors)")

        if rows:
            self._use(write, None)
