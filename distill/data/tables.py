"""A corpus file as a table: read once, kept in the user's cache by its content and by how it is read.

    KEY/about.json            rows, language, format, what was dropped and why
    KEY/rows.arrow            the texts of all sides, in the order of the file
    KEY/places                of each text: a hash of it in lower case, uint32 [rows, sides]; that of the source decides
                              whether a row is held out
    KEY/keys                  of each text: its key in the teacher's store, uint64 [rows, sides]
    KEY/labels                of each row, if the corpus has labels
    KEY/kept-SHARE-SAMPLE-HELDOUT  the rows to train on, shuffled once
    KEY/HASH/                 token ids of all texts by one tokenizer: ids, where each text ends, about.json

Nothing of a table is in memory as a whole: files are mapped, and no descriptor stays open. Sides are the source, the
target (text without translations has none) and the negatives.

Shapes: N rows, S sides.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from msdc.distill.data import Row
from msdc.distill.data.corpora import TextSource
from msdc.distill.recipe import Recipe
from msdc.encoders.folder import with_prompt
from msdc.errors import InputError, MsdcError
from msdc.files import (
    PACKAGE,
    atomic_path,
    disk_errors,
    file_state,
    first_damaged,
    locked,
    read_json,
    sha256_file,
    staged_folder,
    user_cache,
    write_json,
)
from msdc.progress import track, warn
from msdc.text.tokenizer import Tokenizer, count_truncated, text_key

if TYPE_CHECKING:
    import pyarrow as pa

Read = TypeVar("Read")
READ = 16_384  # rows of a record batch
NO_PROMPTS = ("", "")  # of the source, and of the other sides
SCANNED = 1 << 20  # rows whose hashes are compared at once
ABOUT = "about.json"  # of a table, and of its ids: with bytes and sha256 of the files
TRUNCATED = "truncated"  # next to the ids: the number of texts that are longer
# Settings of a corpus that change its rows.
SETTINGS = {"kind", "source", "languages", "limit", "columns", "header", "scores", "scale", "tokenized",
            "max_characters", "join", "recombine", "on_bad", "most_bad"}  # fmt: skip


def tables_folder(recipe: Recipe | None = None) -> Path:
    """The folder of tables: below the recipe's `cache`, else in the user's cache."""
    if recipe is None or not recipe.cache:
        return user_cache() / "text"
    return Path(recipe.cache).expanduser() / "text"


def heldout_hash(text: str) -> int:
    """A number of 32 bits that depends only on the lower-cased text."""
    return zlib.crc32(text.lower().encode())


def _mapped(path: Path, dtype: str) -> np.ndarray:
    """A file as an array. pyarrow's map outlives its file; numpy's would keep a descriptor."""
    if not path.stat().st_size:
        return np.zeros(0, dtype)
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        return np.frombuffer(file.read_buffer(), dtype)


# --- keys -------------------------------------------------------------------------------------------------------------


def _hash(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts, default=str).encode(), digest_size=16).hexdigest()


@cache
def _readers() -> str:
    """A hash of the code that reads corpora: a newer version reads them again."""
    places = [*sorted((PACKAGE / "text").glob("*.py")), *sorted((PACKAGE / "distill" / "data").glob("*.py"))]
    return _hash([sha256_file(path) for path in places])


def file_hash(path: Path, folder: Path, note_it: bool = True) -> str:
    """The sha256 of a file; not read again while its size, times and inode are equal, if that may be noted."""
    note, state = folder / "files" / f"{_hash(str(path.absolute()))}.json", file_state(path)
    if note.is_file():
        try:
            stored = read_json(note)
            if stored["state"] == list(state or ()):
                return str(stored["sha256"])
        except (InputError, KeyError, TypeError):
            pass  # a note of another version
    digest = sha256_file(path)
    if note_it:
        write_json(note, {"file": str(path), "state": state, "sha256": digest})
    return digest


def source_key(source: TextSource, folder: Path | None = None, note_it: bool = True) -> str:
    """The hash of what a source reads and how: its files' content, its settings, the excluded sentences."""
    folder = tables_folder() if folder is None else folder
    corpus = source.corpus.model_dump(mode="json", include=SETTINGS)
    part = source.name
    for file in source.files:
        part = part.replace(str(file), "").replace(file.name, "")
    contents = [file_hash(file, folder, note_it) for file in source.files]
    if not contents:  # a data set without files of its own: the rows are its content
        digest = hashlib.blake2b(digest_size=16)
        for row in source.rows():
            digest.update(repr(row).encode())
        contents = [digest.hexdigest()]
    excluded = None if source.excluded is None else source.excluded.digest
    return _hash(contents, part, source.language, corpus, source.variant, excluded)


# --- write ------------------------------------------------------------------------------------------------------------


def open_source_table(source: TextSource, folder: Path | None = None) -> SourceTable:
    """The table of a source; its files are read if they were not read before.

    Several processes may ask for the same table: one reads, the others wait.
    """
    folder = tables_folder() if folder is None else folder
    key = source_key(source, folder)
    target = folder / _hash(key, _readers())

    def write(stage: Path) -> None:
        if target.exists():
            warn(f"{target}: damaged; {source.name} is read again")
        _write_table(source, stage)

    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _once(target, lambda: _is_whole(target) or None, write)
    return SourceTable(target, source, key)


def _once(target: Path, read: Callable[[], Read | None], write: Callable[[Path], None]) -> Read:
    """What `read` finds in a folder, which `write` fills if it finds None: one process writes, the others wait."""
    if (stored := read()) is None:
        with locked(target.with_name(f"{target.name}.lock")):
            if (stored := read()) is None:
                with staged_folder(target, force=True) as stage:
                    write(stage)
                stored = read()
    assert stored is not None
    return stored


_verified: set[Path] = set()  # folders whose files this process has compared with their hashes


def _is_whole(folder: Path) -> bool:
    """Whether a folder is there, with the files that were written: compared with their sha256 once per process."""
    try:
        about = read_json(folder / ABOUT)
        if any((folder / name).stat().st_size != size for name, size in about["bytes"].items()):
            return False
        hashes = {folder / name: sha256 for name, sha256 in about["sha256"].items()}
        if folder not in _verified and first_damaged(hashes) is not None:
            return False
        _verified.add(folder)
        return True
    except (InputError, OSError, KeyError, TypeError, AttributeError):
        return False


def _facts_of_files(folder: Path) -> dict[str, dict[str, Any]]:
    """The bytes and sha256 of the files in a folder, for its `about.json`."""
    files = sorted(folder.iterdir())
    return {
        "bytes": {path.name: path.stat().st_size for path in files},
        "sha256": {path.name: sha256_file(path) for path in files},
    }


def stored_about(source: TextSource, folder: Path) -> dict[str, Any] | None:
    """The `about.json` of a source's table; None if its files were not read yet. Nothing is written."""
    if not source.files or not folder.is_dir():
        return None
    about = folder / _hash(source_key(source, folder, note_it=False), _readers()) / ABOUT
    return dict(read_json(about)) if about.is_file() else None


def _write_table(source: TextSource, stage: Path) -> None:
    import pyarrow as pa

    count, sides, out = 0, 0, None
    rows = iter(track(source.read(), f"read {Path(source.name).name}"))
    with (
        open(stage / "places", "wb") as places,
        open(stage / "keys", "wb") as keys,
        open(stage / "labels", "wb") as labels,
    ):
        while block := list(islice(rows, READ)):
            if out is None:
                sides = 2 + len(block[0].negatives) if block[0].target or block[0].negatives else 1
                schema = pa.schema([(str(side), pa.string()) for side in range(sides)])
                out = pa.ipc.new_file(str(stage / "rows.arrow"), schema)
            # A target without any known word counts as untranslated: the source is its own translation.
            texts = [(row.source, row.target or row.source, *row.negatives)[:sides] for row in block]
            columns = [pa.array(column, pa.string()) for column in zip(*texts, strict=True)]
            if len(columns) != sides:
                raise MsdcError(f"{source.name}: rows of {len(columns)} and of {sides} texts")
            out.write(pa.RecordBatch.from_arrays(columns, schema=schema))
            np.fromiter(map(heldout_hash, chain.from_iterable(texts)), "<u4", sides * len(block)).tofile(places)
            np.fromiter(map(text_key, chain.from_iterable(texts)), "<u8", sides * len(block)).tofile(keys)
            if block[0].label is not None:
                np.array([row.label for row in block], "<f4").tofile(labels)
            count += len(block)
    assert out is not None  # `read` refuses a source without rows
    out.close()
    about = {"name": Path(source.name).name, "form": source.form, "language": source.language, "rows": count,
             "why": source.why, "sides": sides, "dropped": source.drops(),
             **_facts_of_files(stage)}  # fmt: skip
    (stage / ABOUT).write_text(json.dumps(about, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


# --- read -------------------------------------------------------------------------------------------------------------


class SourceTable:
    """The rows of one source, in `folder`; `key` is the hash of what it contains."""

    def __init__(self, folder: Path, source: TextSource, key: str) -> None:
        self.folder, self.source, self.key = folder, source, key
        self.about = read_json(folder / ABOUT)
        self.rows, self.sides = int(self.about["rows"]), int(self.about["sides"])
        self.places = _mapped(folder / "places", "<u4").reshape(self.rows, self.sides)
        labels = _mapped(folder / "labels", "<f4")
        self.labels = labels.reshape(self.rows, -1) if len(labels) > self.rows else labels  # [N], or scores [N, S - 1]
        self.keys = _mapped(folder / "keys", "<u8").reshape(self.rows, self.sides)

    @cached_property
    def _batches(self) -> list[pa.RecordBatch]:
        import pyarrow as pa

        with pa.memory_map(str(self.folder / "rows.arrow")) as file:
            reader = pa.ipc.open_file(file)
            return [reader.get_batch(number) for number in range(reader.num_record_batches)]

    def texts(self, rows: np.ndarray, side: int = 0) -> list[str]:
        """Texts of some rows. Batch by batch: pyarrow's `take` of a chunked column copies all of it."""
        texts: list[str] = [""] * len(rows)
        for number in np.unique(rows // READ).tolist():
            here = np.flatnonzero(rows // READ == number)
            taken = self._batches[number].column(side).take(rows[here] % READ).to_pylist()
            for position, text in zip(here.tolist(), taken, strict=True):
                texts[position] = text
        return texts

    def read(self, rows: np.ndarray) -> list[Row]:
        """Some rows, in the order of `rows`."""
        source, *others = (self.texts(rows, side) for side in range(self.sides))
        target = others.pop(0) if others else [""] * len(rows)
        negatives = list(zip(*others, strict=True)) if others else [()] * len(rows)
        labels = self.labels[rows].tolist() if len(self.labels) else [None] * len(rows)
        labels = [tuple(label) if isinstance(label, list) else label for label in labels]
        language, domain = self.source.language, self.source.domain
        return [
            Row(first, second, language, tuple(negative_texts), domain, label)
            for first, second, negative_texts, label in zip(source, target, negatives, labels, strict=True)
        ]

    def heldout(self, share: float, most: int) -> np.ndarray:
        """Up to `most` rows whose source sentence is in the held-out share, in the order of the file."""
        heldout_rows = np.zeros(0, np.int64)
        for start in range(0, self.rows, SCANNED):
            here = np.flatnonzero(self.places[start : start + SCANNED, 0] < share * 2**32)
            heldout_rows = np.concatenate([heldout_rows, start + here])
            if len(heldout_rows) >= most:
                break
        return heldout_rows[:most]

    def rows_with(self, texts: Collection[str], sides: int | None = None) -> np.ndarray:
        """The rows with one of these lower-cased texts on any of the first `sides` (None: on any), in file order."""
        codes = np.unique(np.fromiter(map(heldout_hash, texts), np.uint32, len(texts)))
        matching_rows: list[np.ndarray] = [np.zeros(0, np.int64)]
        for start in range(0, self.rows, SCANNED):
            row_M, side_M = np.nonzero(np.isin(self.places[start : start + SCANNED, :sides], codes))
            row_M += start
            for side in np.unique(side_M).tolist():
                rows = row_M[side_M == side]
                # Few of all texts: those whose hash alone is equal are not among `texts`.
                same = [text.lower() in texts for text in self.texts(rows, side)]
                matching_rows.append(rows[np.array(same, dtype=bool)])
        return np.unique(np.concatenate(matching_rows))

    def drawn(self, share: float, sample: float) -> np.ndarray:
        """Whether the source sentence of each row is in the sample and not in the held-out share, bool [N]."""
        low, high = share * 2**32, (share + sample * (1.0 - share)) * 2**32
        return (self.places[:, 0] >= low) & (self.places[:, 0] < high)

    def training_rows(self, share: float, sample: float = 1.0, heldout: HeldOutTexts | None = None) -> np.ndarray:
        """The rows to train on, uint32, shuffled: sampled ones that have no held-out text on any side.

        A source is held out by its hash; `heldout` has those of all tables of a run.
        """
        heldout = heldout_texts([self], share) if heldout is None else heldout
        path = self.folder / f"kept-{share:g}-{sample:g}-{heldout.digest}"
        if not path.is_file() or path.stat().st_size % 4:
            trained = self.drawn(share, sample)
            trained[heldout.rows_of(self)] = False
            trained_rows = np.flatnonzero(trained).astype("<u4")
            np.random.default_rng(0).shuffle(trained_rows)
            with atomic_path(path) as part:
                trained_rows.tofile(part)
        return _mapped(path, "<u4")

    def tokens(
        self, tokenizer: Tokenizer, max_length: int, prompts: tuple[str, str] = NO_PROMPTS
    ) -> tuple[np.ndarray, np.ndarray]:
        """(ids, ends) of all texts, row after row and side after side: text n has ids[ends[n]:ends[n + 1]].

        They are computed once for a tokenizer, a length and the prompts of the source and of the other sides.
        """
        dtype = "<u2" if tokenizer.size <= 65_536 else "<i4"
        folder = self._tokens_place(tokenizer, max_length, prompts)
        return _once(
            folder,
            lambda: self._stored_tokens(folder, dtype),
            lambda stage: self._tokenize(stage, tokenizer, max_length, prompts, dtype),
        )

    def truncated(self, tokenizer: Tokenizer, max_length: int, prompts: tuple[str, str] = NO_PROMPTS) -> int:
        """How many of all texts have more ids than `max_length`: of these `tokens` has the beginnings."""
        self.tokens(tokenizer, max_length, prompts)
        return int((self._tokens_place(tokenizer, max_length, prompts) / TRUNCATED).read_bytes())

    def prompted_keys(self, prompts: tuple[str, str]) -> np.ndarray:
        """The keys of all texts with their prompts, uint64 [N, S], computed once."""
        path = self.folder / f"keys-{_hash(*prompts)}"
        if not path.is_file() or path.stat().st_size != self.keys.nbytes:
            with atomic_path(path) as part, open(part, "wb") as file:
                for texts in self._prompted(prompts):
                    np.fromiter(map(text_key, texts), "<u8", len(texts)).tofile(file)
        return _mapped(path, "<u8").reshape(self.rows, self.sides)

    def _prompted(self, prompts: tuple[str, str]) -> Iterator[list[str]]:
        """All texts with their prompts, row after row and side after side, in batches."""
        for batch in track(self._batches, f"tokenize {self.about['name']}"):
            sides = [
                with_prompt(prompts[min(side, 1)], column.to_pylist()) for side, column in enumerate(batch.columns)
            ]
            yield list(chain.from_iterable(zip(*sides, strict=True)))

    def _tokens_place(self, tokenizer: Tokenizer, max_length: int, prompts: tuple[str, str]) -> Path:
        kind, content = type(tokenizer).__name__, hashlib.sha256(tokenizer.content).hexdigest()
        return self.folder / _hash(content, kind, tokenizer.size, max_length, *prompts)

    def _stored_tokens(self, folder: Path, dtype: str) -> tuple[np.ndarray, np.ndarray] | None:
        """The ids and ends in a folder; None if they are absent, or not of the sizes that were written."""
        try:
            ids, ends = _mapped(folder / "ids", dtype), _mapped(folder / "ends", "<i8")
            int((folder / TRUNCATED).read_bytes())
        except (OSError, ValueError):
            return None
        if not _is_whole(folder):
            return None
        is_complete = len(ends) == self.rows * self.sides + 1 and len(ids) == ends[-1]
        return (ids, ends) if is_complete else None

    def _tokenize(
        self, stage: Path, tokenizer: Tokenizer, max_length: int, prompts: tuple[str, str], dtype: str
    ) -> None:
        last, truncated = np.zeros(1, "<i8"), 0
        with open(stage / "ids", "wb") as ids, open(stage / "ends", "wb") as ends:
            last.tofile(ends)
            for texts in self._prompted(prompts):
                encoded = tokenizer.encode(texts, max_length)
                full = [text for text, row in zip(texts, encoded, strict=True) if len(row) >= max_length]
                truncated += count_truncated(tokenizer, full, max_length)
                here = last[-1] + np.cumsum(np.fromiter(map(len, encoded), "<i8", len(encoded)))
                np.fromiter(chain.from_iterable(encoded), dtype, here[-1] - last[-1]).tofile(ids)
                here.tofile(ends)
                last = here
        (stage / TRUNCATED).write_text(f"{truncated}\n", encoding="ascii")
        (stage / ABOUT).write_text(json.dumps(_facts_of_files(stage)) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class HeldOutTexts:
    """The lower-cased texts of held-out pairs.

    A row is not trained if it has a source of these on any side, or if its own source is a target of these. A target
    may be that of other sources, as an answer to several questions: these rows are trained.
    """

    sources: frozenset[str]
    targets: frozenset[str]

    @cached_property
    def digest(self) -> str:
        """A hash of them."""
        return _hash(sorted(self.sources), sorted(self.targets))

    def rows_of(self, table: SourceTable) -> np.ndarray:
        """The rows of a table that are not trained."""
        return np.union1d(table.rows_with(self.sources), table.rows_with(self.targets, sides=1))


def heldout_texts(tables: Sequence[SourceTable], share: float) -> HeldOutTexts:
    """The texts of the pairs whose source is in the held-out share by its hash, of all tables together."""
    sides: list[set[str]] = [set(), set()]
    for table in tables:
        rows = table.heldout(share, table.rows)
        for side in range(min(2, table.sides)):
            sides[side].update(text.lower() for text in table.texts(rows, side))
    return HeldOutTexts(frozenset(sides[0]), frozenset(sides[1]))


def reading_lines(about: Mapping[str, Any]) -> list[str]:
    """The lines for a person of what was read: format, language, rows, and lines without a row by reason."""
    language = f"language {about['language']}" + (f" ({about['why']})" if about["why"] else "")
    lines = [f"{about['name']}: {'; '.join(filter(None, (about['form'], language)))}; {about['rows']:,} rows"]
    for drop in about["dropped"]:
        places = ", ".join(map(str, drop["lines"])) + (", ..." if drop["rows"] > len(drop["lines"]) else "")
        lines.append(f"  dropped {drop['rows']:,}: {drop['why']} (line {places})")
    return lines
