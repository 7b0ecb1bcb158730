"""`msdc search` and its index: the lines of a text file, the cells of a table's column, or texts, found by meaning.

The index is kept on disk; only new lines are encoded. Its folder holds `vectors.f16` (unit vectors, searched exactly),
`keys.u64` (a hash of each row's text) and `index.json` (which model, and the hashes of both). It is a cache: a damaged
one, or one of another model, is rebuilt. A line that the model cannot read (`msdc.text.tokenizer.Reader`) has a row of
zeros and is never found.

Shapes: N lines, D width.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from msdc.commands import DEFAULT_MODEL, encode_options, json_option, quiet_option, require_utf8, runtime_option
from msdc.encoders.encoder import SentenceEncoder, configured, open_model
from msdc.errors import InputError
from msdc.extras import named_extras
from msdc.files import file_state, parse_json, sha256_file, staged_folder, user_cache, write_json
from msdc.progress import say, track, warn
from msdc.scores import unit_rows
from msdc.text.tabular import iterate_texts
from msdc.text.text_files import MAX_TEXT_BYTES
from msdc.text.tokenizer import Reader, text_key

BLOCK = 1024
VECTORS, KEYS = FILES = ("vectors.f16", "keys.u64")
FORMAT = 2  # of index.json
# Vectors are kept in memory as float32 up to this size; larger ones as float16, converted block by block per query.
MOST_FLOAT_BYTES = 2**30
SHOWN = 5  # numbers of lines in a warning
TRIES = 100  # of reading an index that other processes keep replacing
ROWS = 256  # of a block: what the processor's cache holds


@dataclasses.dataclass(frozen=True)
class Hit:
    """One entry: its cosine with the query, its line number (from 1) and its text."""

    cosine: float
    line: int
    text: str


@dataclasses.dataclass(frozen=True)
class Found:
    """Hits of one query, best first, and the time they took."""

    query: str
    hits: list[Hit]
    encode_ms: float
    search_ms: float


def _seal(head: dict[str, Any]) -> str:
    """A hash of index.json without its `seal`."""
    plain = {key: value for key, value in head.items() if key != "seal"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def nearest(vectors_ND: np.ndarray, query_D: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Inner products with a query, the largest `top` of them, largest first, and their rows."""
    if vectors_ND.dtype == np.float32:
        cosine_N = vectors_ND @ query_D
    else:
        cosine_N = np.empty(len(vectors_ND), np.float32)
        for start in range(0, len(vectors_ND), ROWS):
            block = slice(start, start + ROWS)
            cosine_N[block] = vectors_ND[block].astype(np.float32) @ query_D
    rows = np.argpartition(-cosine_N, top - 1)[:top] if top < len(cosine_N) else np.arange(len(cosine_N))
    rows = rows[np.lexsort((rows, -cosine_N[rows]))]
    return cosine_N[rows], rows


def distinct_lines(file: Path, column: str | None = None) -> dict[str, int]:
    """Distinct non-empty lines, or cells of a table's column, and the number of each one's first occurrence."""
    found: dict[str, int] = {}
    size = 0
    for number, line in iterate_texts(file, column):
        if (text := line.strip()) and text not in found:
            found[text] = number
            size += len(text)
            if size > MAX_TEXT_BYTES:
                raise InputError(f"{file} line {number}: more than {MAX_TEXT_BYTES >> 20} MiB of text")
    if not found:
        raise InputError(f"{file}: no line with text in it")
    return found


class Index:
    """The lines of a file, or texts in memory, under one model.

    Made by `open_index`. `encoded` is the number of lines that had to be encoded, `open_s` the seconds until the index
    was ready, `unread` the number of lines that the model cannot read, which no search finds. A file that changed since
    is read again by the next search, and its new lines are encoded.

    `lines` is what `distinct_lines(file, column)` returned, if it was called already, or texts in memory, of which
    nothing is written; `query_model` encodes queries, where they take another prompt.
    """

    def __init__(
        self,
        model: SentenceEncoder,
        file: Path | None,
        folder: Path | None = None,
        lines: dict[str, int] | None = None,
        query_model: SentenceEncoder | None = None,
        column: str | None = None,
    ) -> None:
        self.model, self.file, self.column = model, file, column
        self.query_model = query_model or model
        self._identity = model.fingerprint() if file is not None else ""
        name = hashlib.sha256(f"{file and file.resolve()}\0{column or ''}\0{self._identity}".encode()).hexdigest()[:32]
        self.folder = folder if folder is not None else user_cache() / "search" / name
        self._reader = Reader(model.tokenizer, model.max_length)
        self._state = file_state(self.file or "")
        self._fill(lines)

    def __repr__(self) -> str:
        what = f"{str(self.file)!r}" if self.file is not None else "texts in memory"
        return f"Index({what}, {len(self.texts)} texts, model={self.model.name!r}, width={self.model.width})"

    def __len__(self) -> int:
        return len(self.texts)

    def _fill(self, lines: dict[str, int] | None = None) -> None:
        """Take the vectors of the lines from disk where they are there, encode and write the others."""
        began = time.perf_counter()
        if lines is None:
            assert self.file is not None
            lines = distinct_lines(self.file, self.column)
        self.lines, self.texts = lines, list(lines)
        keys_N = np.fromiter((text_key(text) for text in self.texts), dtype="<u8", count=len(self.texts))
        stored = self._stored() if self.file is not None else None
        stored_ND, stored_keys = stored or (np.zeros((0, self.model.width)), np.zeros(0))
        place = {key: row for row, key in enumerate(stored_keys.tolist())}
        rows_N = np.array([place.get(key, -1) for key in keys_N.tolist()])
        vectors_ND = np.zeros((len(keys_N), self.model.width), np.dtype("<f2"))
        vectors_ND[rows_N >= 0] = stored_ND[rows_N[rows_N >= 0]]
        todo = np.flatnonzero(rows_N < 0)
        for block in track([todo[start : start + BLOCK] for start in range(0, len(todo), BLOCK)], "encoding"):
            vectors_ND[block] = self._vectors([self.texts[i] for i in block])
        self.encoded = len(todo)
        self._places = np.flatnonzero(vectors_ND.any(axis=1))  # rows of `_vectors_ND` -> rows of `texts`
        self.unread = len(vectors_ND) - len(self._places)
        if len(unread := np.setdiff1d(todo, self._places)):
            shown = ", ".join(str(self.lines[self.texts[row]]) for row in unread[:SHOWN])
            shown += ", ..." if len(unread) > SHOWN else ""
            warn(f"{len(unread)} of {len(self.texts)} lines are mostly characters that {self.model.name} does not "
                 f"know; no search finds them (line {shown})")  # fmt: skip
        if self.file is not None and not np.array_equal(stored_keys, keys_N):
            self._write(vectors_ND, keys_N)
        found_ND = vectors_ND[self._places] if self.unread else vectors_ND
        self._vectors_ND = found_ND.astype(np.float32) if 4 * found_ND.size <= MOST_FLOAT_BYTES else found_ND
        self.open_s = time.perf_counter() - began

    def _stored(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The vectors on disk, float16 [N, D], and their keys; None if there are none or they cannot be used."""
        tried = None
        for _ in range(TRIES):
            try:
                raw = (self.folder / "index.json").read_bytes()
            except FileNotFoundError:
                if self.folder.exists() and any(path.name not in FILES for path in self.folder.glob("*")):
                    raise InputError(
                        f"{self.folder}: exists and is not a search index; choose another folder"
                    ) from None
                return None
            except OSError:
                break
            if raw == tried:  # no other process has replaced the folder meanwhile
                break
            tried = raw
            try:
                head = parse_json(raw.decode("utf-8"))
                # Read once: what is hashed is what is searched.
                found = {name: (self.folder / name).read_bytes() for name in FILES}
                whole = head["seal"] == _seal(head) and head["format"] == FORMAT
                if whole and all(head[name] == hashlib.sha256(found[name]).hexdigest() for name in FILES):
                    if head["model"] != self._identity:
                        return None
                    keys_N, numbers = np.frombuffer(found[KEYS], "<u8"), np.frombuffer(found[VECTORS], "<f2")
                    return numbers.reshape(len(keys_N), self.model.width), keys_N
            except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
                continue
        warn(f"{self.folder}: the index is damaged or of an earlier version; it is made anew")
        return None

    def _write(self, vectors_ND: np.ndarray, keys_N: np.ndarray) -> None:
        with staged_folder(self.folder, force=True) as stage:
            # Not tofile: its error for a full disk has no number.
            (stage / VECTORS).write_bytes(vectors_ND.data)
            (stage / KEYS).write_bytes(keys_N.data)
            head = {"format": FORMAT, "model": self._identity, "name": self.model.name, "lines": len(self.texts)}
            head |= {name: sha256_file(stage / name) for name in FILES}
            write_json(stage / "index.json", {**head, "seal": _seal(head)})

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors of texts, zeros for those that the model cannot read."""
        read = ~self._reader.unread(texts)
        rows_ND = np.zeros((len(texts), self.model.width), np.float32)
        if read.any():
            found_ND = self.model.encode([text for text, known in zip(texts, read, strict=True) if known])
            rows_ND[read] = unit_rows(found_ND)
        return rows_ND

    def search(self, query: str, top: int = 5, threshold: float | None = None) -> Found:
        """The entries nearest in meaning to a text, best first; none, with a warning, for one that it cannot read.

        Args:
            query: the text, in any of the model's languages.
            top: at most so many hits.
            threshold: hits have at least this cosine.
        """
        if not query.strip():
            raise InputError("a query is empty")
        if top < 1:
            raise InputError(f"top: {top}, expected at least 1")
        state = file_state(self.file or "")
        if state != self._state:
            self._state = state
            self._fill()
        if self._reader.unread([query]).any():
            warn(f"the query {query!r} is mostly characters that {self.query_model.name} does not know")
            return Found(query, [], 0.0, 0.0)
        began = time.perf_counter()
        query_1D = unit_rows(self.query_model.encode([query]))
        encoded = time.perf_counter()
        cosines, rows = nearest(self._vectors_ND, query_1D[0], min(top, len(self._places)))
        done = time.perf_counter()
        hits = [
            Hit(round(float(cosine), 4), self.lines[self.texts[row]], self.texts[row])
            for cosine, row in zip(cosines, self._places[rows], strict=True)
            if threshold is None or cosine >= threshold
        ]
        return Found(query, hits, 1e3 * (encoded - began), 1e3 * (done - encoded))


@named_extras("msdc.open_index")
def open_index(
    source: str | Path | Sequence[str],
    model: str | SentenceEncoder = DEFAULT_MODEL,
    *,
    column: str | None = None,
    folder: str | Path | None = None,
) -> Index:
    """Index texts for search by meaning: `open_index("notes.txt").search("wo ist das Auto?")`.

    Args:
        source: a file, one entry per line (plain or gzip) or a table with `column`; or a list of texts.
        model: a name as of `load_encoder` or a bundle's folder, or an open model.
        column: of a csv, tsv, jsonl or parquet file: its name, or its number from 1.
        folder: where the index of a file is kept; None: in the user's cache. Texts in memory are not kept.

    Raises:
        InputError: no text, a file that cannot be read, no such model.
    """
    opened = open_model(model) if isinstance(model, str) else model
    if isinstance(source, (str, Path)):
        return Index(opened, Path(source), Path(folder) if folder is not None else None, column=column)
    if column is not None or folder is not None:
        raise InputError("column and folder are for files; these are texts in memory")
    lines: dict[str, int] = {}
    for number, text in enumerate(source, 1):
        if text.strip():
            lines.setdefault(text.strip(), number)
    if not lines:
        raise InputError("no text to search in")
    return Index(opened, None, lines=lines)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("--model", "-m", default=DEFAULT_MODEL, show_default=True, help="A shipped name, a folder, or a bundle.")
@runtime_option
@click.option("--top", "-k", type=click.IntRange(1, 1000), default=5, show_default=True, help="Entries shown.")
@click.option("--threshold", type=click.FloatRange(-1, 1), help="Show entries of at least this cosine.")
@click.option("--column", help="Column of a table (csv, tsv, jsonl, parquet): its name, or its number from 1.")
@click.option("--index", type=click.Path(file_okay=False, path_type=Path),
              help="Folder of the index [the user's cache].")  # fmt: skip
@click.option("--line-prompt-name", help="The same as --prompt-name, for the lines of FILE.")
@click.option("--line-prompt", help="The same as --prompt, for the lines of FILE.")
@encode_options
@json_option
@quiet_option
def command(
    file: Path,
    queries: tuple[str, ...],
    model: str,
    runtime: str | None,
    top: int,
    threshold: float | None,
    column: str | None,
    index: Path | None,
    line_prompt_name: str | None,
    line_prompt: str | None,
    as_json: bool,
    **encoding: Any,
) -> None:
    """Find the lines of FILE (plain or gzip, or a column of a table) whose meaning is closest to QUERY.

    The index is kept; when FILE has changed, its new lines are encoded.

    --prompt-name and --prompt apply to the queries; --line-prompt-name and --line-prompt to the lines.

    msdc search notes.txt "wo habe ich das Auto geparkt?"
    """
    if any(not query.strip() for query in require_utf8(queries, "QUERY")):
        raise InputError("a query is empty")
    lines = distinct_lines(file, column)  # before the model is loaded, so that a wrong file fails early
    loaded = open_model(model, runtime)
    asking = configured(loaded, **encoding)
    reading = configured(loaded, line_prompt_name, line_prompt, encoding["truncate_dim"])
    opened = Index(reading, file, index, lines, asking, column)
    asking.encode(["warm"])  # the first text through a model pays for its set-up
    answers = [opened.search(query, top, threshold) for query in queries]
    if as_json:
        head = {"file": str(file), "lines": len(opened.texts), "encoded": opened.encoded, "unread": opened.unread,
                "open_s": opened.open_s}  # fmt: skip
        click.echo(json.dumps({**head, "queries": [dataclasses.asdict(a) for a in answers]}, ensure_ascii=False))
        return
    made = f"{opened.encoded} of them encoded now" if opened.encoded else "all from disk"
    made += f", {opened.unread} of unknown characters left out" if opened.unread else ""
    say(f"{len(opened.texts)} lines, {made}, in {opened.open_s:.2f} s: {opened.folder}")
    for answer in answers:
        click.echo(f"\n{answer.query}")
        if not answer.hits:
            click.echo("  (none)" if threshold is None else f"  (none of at least {threshold})")
        for hit in answer.hits:
            click.echo(f"  {hit.cosine:6.3f}  {hit.line:>6}  {hit.text}")
        say(f"  {answer.encode_ms:.1f} ms for the query's vector, {answer.search_ms:.1f} ms to search")
