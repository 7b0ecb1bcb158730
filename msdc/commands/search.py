"""`msdc search`: find the lines of a text file by meaning. The index is kept on disk; only new lines are encoded.

The index folder holds `index.faiss` (float16 rows, inner product of unit vectors, exact search), `keys.u64` (a hash of
each row's text) and `index.json` (which model, and the hashes of all three). It is a cache: a damaged one, or one of
another model, is rebuilt.

Shapes: N lines, D width.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from msdc.cli import runtime_names
from msdc.commands.options import encode_options, require_utf8
from msdc.errors import InputError
from msdc.files import read_json, sha256_file, staged_folder, user_cache, write_json
from msdc.progress import say, track
from msdc.scores import require_finite, unit_rows
from msdc.text.text_files import MAX_TEXT_BYTES, iterate_lines
from msdc.text.tokenizer import text_key

if TYPE_CHECKING:
    from msdc.encoders.encoder import SentenceEncoder

BLOCK = 1024
FILES = ("index.faiss", "keys.u64")


def _seal(head: dict[str, Any]) -> str:
    """A hash of index.json without its `seal`."""
    plain = {key: value for key, value in head.items() if key != "seal"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Hit:
    """One entry: its cosine with the query, its line number (from 1) and its text."""

    cosine: float
    line: int
    text: str


@dataclass(frozen=True)
class Found:
    """Hits of one query, best first, and the time they took."""

    query: str
    hits: list[Hit]
    encode_ms: float
    search_ms: float


def _write_index(index: Any, path: Path) -> None:
    """Write through Python: the library's own writer does not notice that its last block did not fit on the disk."""
    import faiss

    failed: list[OSError] = []

    def write(block: bytes) -> None:
        try:
            handle.write(block)
        except OSError as error:
            failed.append(error)
            raise

    with open(path, "wb") as handle:
        try:
            faiss.write_index(index, faiss.PyCallbackIOWriter(write, 1 << 20))  # type: ignore[attr-defined]
        except Exception:
            if failed:
                raise failed[0] from None
            raise


def distinct_lines(file: Path) -> dict[str, int]:
    """Distinct non-empty lines and the number of each one's first occurrence.

    Raises:
        InputError: missing, more than 1 GiB, not UTF-8, or without text.
    """
    found: dict[str, int] = {}
    for number, line in iterate_lines(file, max_bytes=MAX_TEXT_BYTES):
        if text := line.strip():
            found.setdefault(text, number)
    if not found:
        raise InputError(f"{file}: no line with text in it")
    return found


class Index:
    """Lines of one file under one model.

    `encoded` is the number of lines that had to be encoded, `open_s` the seconds until the index was ready.
    """

    def __init__(
        self,
        model: SentenceEncoder,
        file: Path,
        folder: Path | None = None,
        lines: dict[str, int] | None = None,
        query_model: SentenceEncoder | None = None,
    ) -> None:
        self.model = model
        self.query_model = query_model or model
        identity = model.fingerprint()
        name = hashlib.sha256(f"{file.resolve()}\0{identity}".encode()).hexdigest()[:32]
        self.folder = folder if folder is not None else user_cache() / "search" / name
        self.lines = distinct_lines(file) if lines is None else lines
        self.texts = list(self.lines)
        began = time.perf_counter()
        self.encoded = self._open(identity)
        self.open_s = time.perf_counter() - began

    def _stored(self, identity: str) -> tuple[Any, np.ndarray] | None:
        """The index on disk and its keys; None if there is none or it cannot be used."""
        import faiss

        if not (self.folder / "index.json").is_file():
            if self.folder.exists() and any(path.name not in FILES for path in self.folder.iterdir()):
                raise InputError(f"{self.folder}: exists and is not a search index; choose another folder")
            return None
        try:
            head = read_json(self.folder / "index.json")
            # The hashes first: the library's reader is not for damaged files.
            if head["seal"] == _seal(head) and all(head[name] == sha256_file(self.folder / name) for name in FILES):
                if head["model"] != identity:
                    return None
                keys_N = np.fromfile(self.folder / "keys.u64", dtype="<u8")
                index = faiss.read_index(str(self.folder / "index.faiss"))
                if index.ntotal == len(keys_N) and index.d == self.model.width:
                    return index, keys_N
        except (InputError, OSError, RuntimeError, KeyError, TypeError, AttributeError):
            pass
        say(f"{self.folder}: the index is damaged or of an earlier version; it is made anew")
        return None

    def _open(self, identity: str) -> int:
        """Load or update the index; returns the number of lines that had to be encoded."""
        import faiss

        keys_N = np.fromiter((text_key(text) for text in self.texts), dtype="<u8", count=len(self.texts))
        stored = self._stored(identity)
        if stored is not None and np.array_equal(stored[1], keys_N):
            self.index = stored[0]
            return 0
        vectors_ND = np.zeros((len(self.texts), self.model.width), np.float32)
        missing = np.ones(len(self.texts), bool)
        if stored is not None:
            place = {key: row for row, key in enumerate(stored[1].tolist())}
            rows = np.array([place.get(key, -1) for key in keys_N.tolist()])
            missing = rows < 0
            if not missing.all():
                vectors_ND[~missing] = stored[0].reconstruct_n(0, stored[0].ntotal)[rows[~missing]]
        todo = np.flatnonzero(missing)
        blocks = [todo[start : start + BLOCK] for start in range(0, len(todo), BLOCK)]
        for block in track(blocks, "encoding"):
            vectors_ND[block] = self._unit([self.texts[i] for i in block])
        self.index = faiss.IndexScalarQuantizer(
            self.model.width, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        self.index.add(vectors_ND)
        with staged_folder(self.folder, force=True) as stage:
            _write_index(self.index, stage / "index.faiss")
            keys_N.tofile(stage / "keys.u64")
            head = {"model": identity, "name": self.model.name, "lines": len(self.texts)}
            head |= {name: sha256_file(stage / name) for name in FILES}
            write_json(stage / "index.json", {**head, "seal": _seal(head)})
        return len(todo)

    def _unit(self, texts: Sequence[str], model: SentenceEncoder | None = None) -> np.ndarray:
        model = model or self.model
        return unit_rows(require_finite(model.encode(texts), model.name))

    def search(self, query: str, top: int) -> Found:
        """The `top` entries nearest in meaning to `query`."""
        began = time.perf_counter()
        query_1D = self._unit([query], self.query_model)
        encoded = time.perf_counter()
        cosines, rows = self.index.search(query_1D, min(top, len(self.texts)))
        done = time.perf_counter()
        hits = [
            Hit(round(float(cosine), 4), self.lines[self.texts[row]], self.texts[row])
            for cosine, row in zip(cosines[0], rows[0], strict=True)
        ]
        return Found(query, hits, 1e3 * (encoded - began), 1e3 * (done - encoded))


def search(
    file: Path,
    queries: Sequence[str],
    model: SentenceEncoder,
    top: int = 5,
    folder: Path | None = None,
    lines: dict[str, int] | None = None,
    query_model: SentenceEncoder | None = None,
) -> tuple[Index, list[Found]]:
    """Index `file`, or reuse the index on disk, and answer `queries`.

    Args:
        file: text file, one entry per line.
        queries: texts to look for.
        model: what encodes lines and queries.
        top: hits per query.
        folder: folder of the index; None: in the user's cache.
        lines: what `distinct_lines(file)` returned, if it was called already.
        query_model: what encodes queries, where they take another prompt; None: `model`.

    Raises:
        InputError: no text in `file`, or an empty query.
    """
    if any(not query.strip() for query in queries):
        raise InputError("a query is empty")
    index = Index(model, file, folder, lines, query_model)
    index.query_model.encode(["warm"])  # the first text through a model pays for its set-up
    return index, [index.search(query, top) for query in queries]


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("--model", "-m", default="msdc-mini", show_default=True, help="A shipped name, a folder, or a bundle.")
@click.option("--runtime", type=click.Choice(runtime_names()), help="Runtime of a bundle.")
@click.option("--top", "-k", type=click.IntRange(1, 1000), default=5, show_default=True, help="Entries shown.")
@click.option(
    "--index", type=click.Path(file_okay=False, path_type=Path), help="Folder of the index [the user's cache]."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--line-prompt-name", help="The same as --prompt-name, for the lines of FILE.")
@click.option("--line-prompt", help="The same as --prompt, for the lines of FILE.")
@encode_options
def command(
    file: Path,
    queries: tuple[str, ...],
    model: str,
    runtime: str | None,
    top: int,
    index: Path | None,
    as_json: bool,
    line_prompt_name: str | None,
    line_prompt: str | None,
    prompt_name: str | None,
    prompt: str | None,
    truncate_dim: int | None,
) -> None:
    """Find the lines of FILE whose meaning is closest to QUERY, in any of the model's languages.

    --prompt-name and --prompt apply to the queries; --line-prompt-name and --line-prompt to the lines.

    msdc search notes.txt "wo habe ich das Auto geparkt?"
    """
    require_utf8(queries, "QUERY")
    from msdc.encoders.defaults import configured
    from msdc.encoders.encoder import open_model

    lines = distinct_lines(file)  # before the model is loaded, so that a wrong file fails early
    loaded = open_model(model, runtime)
    asking = configured(loaded, prompt_name, prompt, truncate_dim)
    reading = configured(loaded, line_prompt_name, line_prompt, truncate_dim)
    opened, answers = search(file, queries, reading, top, index, lines, asking)
    if as_json:
        head = {"file": str(file), "lines": len(opened.texts), "encoded": opened.encoded, "open_s": opened.open_s}
        click.echo(json.dumps({**head, "queries": [dataclasses.asdict(a) for a in answers]}, ensure_ascii=False))
        return
    made = f"{opened.encoded} of them encoded now" if opened.encoded else "all from disk"
    click.echo(f"{len(opened.texts)} lines, {made}, in {opened.open_s:.2f} s: {opened.folder}", err=True)
    for answer in answers:
        click.echo(f"\n{answer.query}")
        for hit in answer.hits:
            click.echo(f"  {hit.cosine:6.3f}  {hit.line:>6}  {hit.text}")
        click.echo(f"  {answer.encode_ms:.1f} ms for the query's vector, {answer.search_ms:.1f} ms to search", err=True)
