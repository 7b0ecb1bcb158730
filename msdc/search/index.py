"""The search index: documents, their words (FTS5) and the vectors of their passages (int8), in one SQLite file.

An index belongs to its user: only `add`, `update`, `remove`, `rebuild` and `compact` write to it, and no
error deletes it. One process writes, any number read; a write is complete or absent, also after kill -9 (SQLite's
write-ahead log). A vector is int8 with one scale per passage.

Shapes: N passages, D width.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from msdc.arguments import checked, require_characters
from msdc.encoders.encoder import SentenceEncoder
from msdc.errors import InputError, OtherModel
from msdc.files import atomic_path, refuse_existing
from msdc.progress import track, warn
from msdc.scores import unit_rows
from msdc.search.blocks import Block, Passage, add_passages, passage_crc, read_blocks, remove_documents
from msdc.search.documents import (
    Boosts,
    Document,
    Hit,
    Missing,
    SearchResult,
    as_document,
    numbered_rows,
    one_or_more,
    require_key,
)  # fmt: skip
from msdc.search.file import IndexFile, is_index, read_document, require_index, stored_documents
from msdc.search.folder import folder_documents
from msdc.search.hits import Ranking, SearchRequest
from msdc.search.passages import IndexFacts, PassageEncoder, StoredPassages, model_facts
from msdc.search.ranking import BLOCK, Mode, add_document, form_of, read_plan, run_all, sql, value_of
from msdc.search.rebuild import rebuild_passages
from msdc.search.vectors import PassageVectors
from msdc.search.words import Syntax, index_words, parse_query

Model = SentenceEncoder | Callable[[], SentenceEncoder]
Progress = Callable[[int, int | None], None]
Rows = str | Mapping[str, object] | Iterable[str | Mapping[str, object]]  # one document, or several


class Index(IndexFile):
    """Documents that are found by words and by meaning, with one model; created by `msdc.open_index`.

    `path` is the SQLite file, None for an index in memory. `model` is loaded when it is first needed: not to search by
    words; None: words only. `query_model` encodes queries. `encoded` is the number of documents that had to be encoded,
    `open_s` the seconds until the index was ready. With `keep_vectors` the vectors of documents are kept in the user's
    cache.
    """

    def __init__(
        self,
        model: Model | None,
        path: Path | None = None,
        *,
        query_model: Model | None = None,
        keep_vectors: bool = False,
        check: bool = True,
    ) -> None:
        began = time.perf_counter()
        super().__init__(path, check)
        self.encoded = 0
        self._model_source, self._query_source, self._keep = model, query_model, keep_vectors
        self._compared: str | None = None  # the file's model, once this index's model was compared with it
        if model is not None and not callable(model):
            try:
                _ = self.model
            except BaseException:
                self._db.close()
                raise
        self.open_s = time.perf_counter() - began

    def __repr__(self) -> str:
        return f"Index({str(self.path) if self.path else 'in memory'!r}, {len(self)} texts)"

    def __len__(self) -> int:
        return self._count(sql("count"))

    @property
    def relevant_cosine(self) -> float | None:
        """The least cosine of an entry worth showing, for `threshold`; None in an empty index."""
        with self._transaction("DEFERRED") as db:
            least = None if self._empty() else value_of(db, "relevant")
            return None if least is None else float(least)

    @property
    def unread(self) -> int:
        """Number of documents that the model cannot read (other characters, base64): they are found by their words
        only."""
        return self._count(
            "SELECT count(*) FROM documents WHERE id NOT IN (SELECT document FROM passages WHERE block IS NOT NULL)"
        )

    # --- the model ----------------------------------------------------------------------------------------------------

    @cached_property
    def model(self) -> SentenceEncoder:
        """The model that encodes documents.

        Raises:
            OtherModel: the index was made with another one.
            InputError: the index was opened without a model.
        """
        if self._model_source is None:
            raise InputError(f"{self.path or 'index'}: opened without a model, which only words need not")
        return self._require_model(self._model_source() if callable(self._model_source) else self._model_source)

    @cached_property
    def query_model(self) -> SentenceEncoder:
        """The model that encodes queries."""
        query_source = self._query_source
        return self.model if query_source is None else query_source() if callable(query_source) else query_source

    @cached_property
    def _vectors(self) -> PassageVectors:
        return PassageVectors()

    @cached_property
    def _encoder(self) -> PassageEncoder:
        return PassageEncoder(self.model, self._keep)

    def _require_model(self, model: SentenceEncoder) -> SentenceEncoder:
        with self._lock, self._errors():
            facts = {} if self._empty() else dict(self._db.execute("SELECT name, value FROM facts"))
        # Float, int8 and exported programs of one model search in each other's indexes.
        if (
            self.path is not None
            and facts
            and {facts.get("model"), facts.get("source")}.isdisjoint((model.fingerprint(), model.source))
        ):
            name = facts.get("name", "model")
            same = name == model.name
            former = f"another version of {name}" if same else f"another {name}, not with this {model.name}"
            otherwise = "" if same else "open it with that model, or "
            raise OtherModel(
                f"{self.path}: made with {former}; {otherwise}encode its documents again: `rebuild()` in Python, "
                "`msdc search FILE QUERY --index NEW` in the shell"
            )
        self._compared = facts.get("model")
        return model

    def _require_same_model(self) -> None:
        """Compare the models again if another process has written or rebuilt the file since."""
        if self.path is not None and not self._empty() and self._value("model") != self._compared:
            self._require_model(self.model)

    # --- writing ------------------------------------------------------------------------------------------------------

    def add(self, rows: Rows, *, missing: Missing = "refuse", progress: Progress | None = None) -> int:
        """Add one or several documents: texts, or mappings with `text`, optionally `id`, `title` and metadata.

        A document without an id gets one. Documents are written in blocks as they are encoded: those before an error or
        a kill stay. A missing number (NaN) is an error, or stored as null. `progress` gets the numbers of written and
        all documents (or None) after each block; its errors stop. Returns the number of documents.

        Raises:
            InputError: a document without text, a value that JSON cannot hold, an id that exists.
        """
        rows = one_or_more(rows, "add")
        documents = (as_document(row, f"row {n}", missing) for n, row in enumerate(rows, 1))
        return self._put(documents, rows, False, progress=progress)

    def update(self, rows: Rows, *, missing: Missing = "refuse", progress: Progress | None = None) -> int:
        """`add`, but documents of the same id are replaced; if their text is the same, it is not encoded again."""
        rows = one_or_more(rows, "update")
        documents = (as_document(row, f"row {n}", missing) for n, row in enumerate(rows, 1))
        return self._put(documents, rows, True, progress=progress)

    def remove(self, ids: str | int | Iterable[str | int]) -> int:
        """Remove documents by id, one or several; unknown ids are ignored. Returns the number of removed documents."""
        keys = [require_key(key, "remove") for key in one_or_more(ids, "remove")]
        if not len(self):  # a transaction would write to a file without tables
            return 0
        with self._transaction() as db:
            removed = remove_documents(db, json.dumps(keys))
        self._checkpoint()
        return removed

    def _put(
        self,
        documents: Iterable[Document],
        origin: object,
        replace: bool,
        encode: bool = True,
        progress: Progress | None = None,
    ) -> int:
        """Write documents in blocks; `origin` is what they come from, for the progress."""
        source, written = iter(documents), 0
        total = len(origin) if isinstance(origin, Sequence) else None
        blocks = iter(lambda: list(islice(source, BLOCK)), [])
        for block in track(blocks, "encoding", total=total, size=len):
            self._write(block, self._passages(block) if encode else [()] * len(block), replace)
            written += len(block)
            if progress is not None:
                progress(written, total)
        self._checkpoint()
        return written

    def _write(self, block: Sequence[Document], passages: Sequence[Sequence[Passage]], replace: bool) -> None:
        """Write a block in one transaction, in which ids are given and compared."""
        rows = {
            entry.id or number: (entry, parts)
            for number, (entry, parts) in enumerate(zip(block, passages, strict=True))
        }
        keys = json.dumps([entry.id for entry in block if entry.id])
        facts = self._facts()
        with self._transaction() as db:
            self._create(db, facts)
            self._require_same_model()
            if replace:
                remove_documents(db, keys)
            written = list[tuple[int, Passage]]()
            # Of one id the last stays.
            for entry, parts in rows.values() if replace else zip(block, passages, strict=True):
                entry = entry if entry.id else entry._replace(id=self._value("key", keys))
                try:
                    row = add_document(db, *entry, entry.crc)
                except sqlite3.IntegrityError as error:
                    label = self.path or "index"
                    raise InputError(f"{label}: a document {entry.id!r} exists already; use update") from error
                written += [(row, part) for part in parts]
            add_passages(db, written)

    def _facts(self) -> IndexFacts | None:
        """The facts of the model for a new index; an index in memory needs no identity of it."""
        with self._lock, self._errors():
            exists = not self._empty()
        return None if exists or self._model_source is None else model_facts(self.model, self.path is not None)

    def _create(self, db: sqlite3.Connection, facts: IndexFacts | None) -> None:
        """Create the tables with the first documents."""
        if self._empty():
            run_all(db, "schema")
            if facts is not None:
                db.execute(sql("add_facts"), facts)
                self._compared = facts[0]

    def _passages(self, block: Sequence[Document]) -> list[list[Passage]]:
        """The passages of documents: those that the index or the cache has are not encoded again."""
        texts = [(document.title, document.text) for document in block]
        passages, encoded = self._encoder.passages(list(dict.fromkeys(texts)), self._stored(block))
        self.encoded += sum(document in encoded for document in texts)
        return [passages[document] for document in texts]

    def _stored(self, block: Sequence[Document]) -> StoredPassages:
        """What the index has under the ids of a block, and under other ids with the same words."""
        stored = StoredPassages({}, {})
        if not len(self):
            return stored
        keys = json.dumps([incoming.id for incoming in block if incoming.id])
        forms = [form_of(index_words(incoming.title), index_words(incoming.text)) for incoming in block]
        incoming_texts = {(incoming.title, incoming.text) for incoming in block}
        blocks, prefixes, parts_by_document = dict[int, Block](), dict[str, str](), dict[int, list[Passage]]()
        with self._transaction("DEFERRED") as db:
            for key, title, text, document, start, end, crc, row, number in db.execute(
                sql("stored"), (keys, json.dumps(forms))
            ):
                if passage_crc(document, start, end) != crc:
                    raise ValueError(f"a passage of document {key}")
                if row is not None and row not in blocks:
                    (blocks[row],) = read_blocks(db, "block", row)
                part = Passage(start, end, None, None) if row is None else blocks[row].passage(number, start, end)
                if title not in prefixes:
                    prefixes[title] = self._encoder.prefix(title)
                stored.vectors[prefixes[title] + text[start:end]] = part.scale, part.vector
                if (title, text) in incoming_texts:
                    parts = parts_by_document.setdefault(document, [])
                    parts.append(part)
                    stored.documents.setdefault((title, text), parts)
        return stored

    # --- what is stored -----------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """The ids of all documents, in order."""
        with self._transaction("DEFERRED") as db:
            return [] if self._empty() else [key for (key,) in db.execute(sql("ids"))]

    def get(self, key: str | int) -> Document | None:
        """The document of an id, or None."""
        key = require_key(key, "get")
        with self._transaction("DEFERRED") as db:
            fields = None if self._empty() else db.execute(sql("document"), (key,)).fetchone()
            return None if fields is None else read_document(fields)

    def rebuild(self, model: Model | None = None, progress: Callable[[int, int], None] | None = None) -> int:
        """Encode all documents again with `model`, for an index of another one.

        Until the end searches by words go on. The next call continues one that was interrupted; an index of this model
        is left as it is.

        Args:
            model: None: the model with which the index was opened.
            progress: gets the numbers of encoded and of all documents.

        Returns:
            The number of documents encoded now.
        """
        opener = self._model_source if model is None else model
        if opener is None:
            raise InputError("`rebuild` needs a model")
        encoder = PassageEncoder(opener() if callable(opener) else opener, self._keep)
        count = rebuild_passages(self, encoder, BLOCK, progress)
        with self._lock:
            for name in ("model", "query_model", "_vectors", "_encoder"):
                self.__dict__.pop(name, None)
            self._model_source = encoder.model
            _ = self.model  # compared with the file's
        self._checkpoint()
        return count

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
        order: str | Sequence[str] = (),
        boost: Boosts = (),
        group: str | None = None,
        group_size: int = 1,
    ) -> SearchResult:
        """The entries nearest to a query, best first.

        Args:
            query: the text, in any of the model's languages; the last word may be the beginning of one.
            top: maximum number of hits.
            threshold: minimum cosine of hits without every word of the query.
            mode: rank by the words (BM25), by the vectors (cosine of the best passage), or by both.
            where: required metadata by name: a value, a list of alternatives, (least, most) with None for no bound,
                None for no value, {"not": any of these}. "and" and "or" have a list of such filters, "not" has one.
            offset: the number of hits to skip, for pages.
            distinct: entries with the same words are one hit, the best.
            syntax: with "operators" a query may have "words in quotes" and -excluded words; "plain" takes quotes and
                minus as text.
            order: columns that sort the hits which match, at most three; "-date" has the greatest value first. A hit
                matches by every word, or by a cosine three deviations above unrelated sentences.
            boost: pairs of a filter and a number that its entries get on their score.
            group: a column of which each value has at most `group_size` hits; an entry without a value is a group.
                `top` and `offset` count groups.

        Raises:
            InputError: an empty query, an argument out of range, a column that no entry has.
        """
        if not require_characters(query, "the query").strip():
            raise InputError("a query is empty")
        for name, value, allowed_values in (
            ("mode", mode, ("words", "vectors", "both")),
            ("syntax", syntax, ("operators", "plain")),
        ):
            if value not in allowed_values:
                raise InputError(f"`{name}` {value!r} is unknown; known: {', '.join(allowed_values)}")
        began = time.perf_counter()
        if self._model_source is None and mode == "both":
            mode = "words"
        request = SearchRequest.of(mode, top, offset, threshold, where, order, boost, group, group_size, distinct)
        with self._lock, self._errors():
            plan = read_plan(self._db, parse_query(query, syntax))
        query_D = self._query_vector(plan.text) if mode != "words" else None
        encoded = time.perf_counter()
        with self._transaction("DEFERRED") as db:  # one state of the file for the whole search
            hits: list[Hit] = []
            if not self._empty():
                if query_D is not None:
                    self._require_same_model()
                vectors = None if query_D is None else self._present_vectors()
                if vectors is not None and query_D is not None:
                    vectors.compare(query_D)
                hits = Ranking(db, vectors, request, plan, len(self)).hits()
        return SearchResult(query, hits, 1e3 * (encoded - began), 1e3 * (time.perf_counter() - encoded))

    def similar(
        self,
        key: str | int,
        top: int = 5,
        threshold: float | None = None,
        *,
        where: Mapping[str, object] | None = None,
        offset: int = 0,
        distinct: bool = True,
        order: str | Sequence[str] = (),
        boost: Boosts = (),
        group: str | None = None,
        group_size: int = 1,
    ) -> SearchResult:
        """The entries nearest to the one of an id, by the stored vectors: nothing is encoded, no model is needed.

        An entry's vector is the mean of its passages', compared with each passage of the others. The entry itself is no
        hit, nor, with `distinct`, are those with the same words. The other arguments are those of `search`.

        Raises:
            InputError: an unknown id, an entry that the model could not read, an argument out of range.
        """
        began = time.perf_counter()
        request = SearchRequest.of("vectors", top, offset, threshold, where, order, boost, group, group_size, distinct)
        key = require_key(key, "similar")
        with self._transaction("DEFERRED") as db:
            row = None if self._empty() else self._value("number", key)
            if row is None:
                raise InputError(f"no document {key!r} in the index")
            vectors = self._present_vectors()
            mean_D = vectors.mean_of(row)
            if mean_D is None:
                raise InputError(f"document {key!r} has no vector: the model could not read it")
            vectors.compare(mean_D)
            hits = Ranking(db, vectors, request, read_plan(db, parse_query("", "plain")), len(self), row).hits()
        return SearchResult("", hits, 0.0, 1e3 * (time.perf_counter() - began))

    def _query_vector(self, query: str) -> NDArray[np.float32] | None:
        """The unit vector of a query; None if the model cannot read it."""
        encoder = self._encoder
        if encoder.reader.unread([query]).any():
            warn(f"the query {query[:80]!r} is mostly characters that {self.query_model.name} does not know, or data")
            return None
        if (tokens := encoder.count([query])[0]) > encoder.most:
            warn(f"the query has {tokens} tokens; {self.query_model.name} reads the first {encoder.most}")
        return np.asarray(unit_rows(self.query_model.encode([query]))[0])

    def _present_vectors(self) -> PassageVectors:
        """The vectors of the file's present state."""
        self._vectors.refresh(self._db)
        return self._vectors


@checked
def index_of(
    source: str | Path | Sequence[str],
    model: Model | None,
    *,
    column: str | None = None,
    id_column: str | None = None,
    title_column: str | None = None,
    index: str | Path | None = None,
    force: bool = False,
    missing: Missing = "refuse",
    query_model: Model | None = None,
    check: bool = True,
) -> Index:
    """`msdc.open_index` with a model, or a function that loads one."""
    new_index, began = None if index is None else Path(index), time.perf_counter()
    if new_index is not None:
        require_index(new_index)
        refuse_existing(new_index, force)
    if not isinstance(source, str | Path | Iterable):
        raise InputError(f"open_index takes a file, a folder or texts, not {source!r}")
    file = Path(source) if isinstance(source, str | Path) else None
    is_folder = file is not None and file.is_dir()
    stored = file is not None and not is_folder and is_index(file)
    if (file is None or stored or is_folder) and (column, id_column, title_column) != (None, None, None):
        kind = "a folder" if is_folder else "an index" if stored else "texts in memory"
        raise InputError(f"`column`, `id_column` and `title_column` are for text files and tables, not for {kind}")
    if file is not None and stored:
        if new_index is None:
            return Index(model, file, query_model=query_model, check=check)
        rows = list(stored_documents(file))
    elif file is not None and is_folder:
        rows = list(folder_documents(file, missing))
    elif file is not None:
        rows = list(numbered_rows(file, column, id_column=id_column, title_column=title_column, missing=missing))
    else:
        texts = ((number, text.strip()) for number, text in enumerate(cast(Sequence[str], source), 1))
        rows = [as_document({"id": number, "text": text}, "") for number, text in texts if text]
    if not rows:
        raise InputError(f"{file}: no text to search in" if file else "no text to search in")
    if new_index is None:
        opened = Index(model, query_model=query_model, keep_vectors=file is not None)
        opened._put(rows, rows, False, encode=model is not None)
    else:
        with atomic_path(new_index) as stage, Index(model, stage, keep_vectors=True) as written:
            written._put(rows, rows, False)
        opened = Index(model, new_index, query_model=query_model)
        opened.encoded = written.encoded
    opened.open_s = time.perf_counter() - began
    return opened
