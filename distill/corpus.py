"""`msdc corpus`: what training would read from files: format, language, rows, lines without a row, examples."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import click
import numpy as np

from msdc.command_options import json_option, quiet_option
from msdc.distill.catalog import load_recipe
from msdc.distill.data import Row
from msdc.distill.data.corpora import NLI_CLASSES, TextSource, open_corpora, unread
from msdc.distill.data.exclusion import Exclusion, read_exclusion
from msdc.distill.data.tables import SourceTable, open_source_table, reading_lines, tables_folder
from msdc.distill.recipe import KINDS, Corpus, parse
from msdc.errors import InputError, printable, shortage
from msdc.extras import installed, require
from msdc.files import plain_name, staged_folder
from msdc.text.duplicates import GrowingTexts, normalise
from msdc.text.scored_pairs import ANY_SCORE, GOLD_RANGE, ScoredPairs, read_pairs
from msdc.text.tabular import suffix_of
from msdc.text.text_files import describe_text

SHOWN = 70  # characters of an example
WRITTEN_TOGETHER = 16_384  # rows


@dataclass(frozen=True)
class Part:
    """What training reads from a part of a corpus; `error` states why it cannot be read.

    `why` is how the language was found, `dropped` a list of the reason `why`, the number of `rows` and the first
    `lines`; `encoding` is how the file is written, where it is not plain UTF-8; `duplicates` are rows that an earlier
    part, or row, has too, `near_duplicates` those left out of the file `written`; `warnings` are what is probably wrong
    with the text.
    """

    name: str
    form: str = ""
    language: str = ""
    why: str = ""
    rows: int = 0
    all_rows: bool = False
    dropped: list[dict[str, Any]] = field(default_factory=list)
    encoding: str = ""
    duplicates: int = 0
    near_duplicates: int = 0
    written: str = ""
    examples: list[list[str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: str = ""


class CorpusWriter:
    """Writes the rows of sources to `folder`, one parquet file each that training reads, without (near) duplicates."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._texts, self._files = folder, GrowingTexts(), 0

    def write(self, table: SourceTable, most: int | None) -> tuple[str, int]:
        """The name of the file, empty if no row is left, and the number of rows that were left out."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        stem = plain_name(re.sub(r"\.[A-Za-z.0-9]+$", "", Path(table.source.name).name))
        name, rows = f"{self._files:05}-{stem}.parquet", table.rows if most is None else min(most, table.rows)
        self._files += 1
        writer, written = None, 0
        try:
            for start in range(0, rows, WRITTEN_TOGETHER):
                block = table.read(np.arange(start, min(rows, start + WRITTEN_TOGETHER)))
                texts = ["\t".join((row.source, row.target, *row.negatives)) for row in block]
                normal = [normalise(text) or text for text in texts]
                cells = [_columns(row, table) for row, new in zip(block, self._texts.add(normal), strict=True) if new]
                if cells:
                    part = pa.Table.from_pylist(cells)
                    writer = writer or pq.ParquetWriter(self.folder / name, part.schema)
                    writer.write_table(part)
                    written += len(cells)
        finally:
            if writer is not None:
                writer.close()
        return name if written else "", rows - written


def _columns(row: Row, table: SourceTable) -> dict[str, Any]:
    """The cells of a row by names that the readers of corpora know."""
    corpus = table.source.corpus
    if isinstance(row.label, tuple):
        scores = {f"score_{number}": score for number, score in enumerate(row.label, 1)}
        raise InputError(f"{table.source.name}: `write` has no columns for {', '.join(scores)}; omit `scores`")
    if row.negatives:
        names = ["negative"] if len(row.negatives) == 1 else [f"negative_{n + 1}" for n in range(len(row.negatives))]
        return {"anchor": row.source, "positive": row.target, **dict(zip(names, row.negatives, strict=True))}
    if row.label is not None:
        if corpus.kind == "nli-pairs":
            return {"label": NLI_CLASSES[int(row.label)], "premise": row.source, "hypothesis": row.target}
        return {"sentence1": row.source, "sentence2": row.target, "score": float(row.label)}
    if not row.target:
        return {"text": row.source}
    same = row.language == corpus.source
    return {"source" if same else corpus.source: row.source, "target" if same else row.language: row.target}


def _read_source(
    source: TextSource,
    folder: Path,
    examples: int,
    most: int | None,
    seen_hashes: set[int],
    graded: Sequence[ScoredPairs] = (),
    writer: CorpusWriter | None = None,
) -> Part:
    """Read a source into its table as training does, up to `most` rows; `seen_hashes` are hashes of all rows so far."""
    limit = min(filter(None, (most, source.corpus.limit)), default=None)
    source = replace(source, corpus=source.corpus.model_copy(update={"limit": limit}))
    text = [file for file in source.files if len(source.files) == 1 and suffix_of(file) != ".parquet"]
    part = Part(source.name, source.form, source.language, source.why, encoding="".join(map(describe_text, text)))
    first: list[Row] = []
    hashes: list[int] = []
    warnings: list[str] = []
    written, omitted = "", 0
    try:
        if installed("pyarrow"):
            table = open_source_table(source, folder)
            labels = map(str, table.labels.tolist()) if len(table.labels) else repeat(None)
            hashes += [
                hash((*keys, source.language, label)) for keys, label in zip(table.keys.tolist(), labels, strict=False)
            ]
            first, dropped = table.read(np.arange(min(examples, table.rows))), table.about["dropped"]
            # Needs PyTorch, as pyarrow is part of the same extra.
            from msdc.distill.data import checks

            texts = checks.texts_by_language(checks.sampled(table), source.corpus.source)
            warnings = checks.language_warnings(source.name, texts)
            for pairs in graded:
                warnings += checks.overlap_warnings(pairs, "graded file", [table])
            if writer is not None:
                written, omitted = writer.write(table, limit)
        else:  # training cannot run here: the same rows, not kept
            for row in source.read():
                first += [row] if len(first) < examples else []
                hashes.append(hash((row.source, row.target, *row.negatives, source.language, row.label)))
            dropped = source.drops()
    except InputError as error:
        if shortage(error):
            raise
        return replace(part, rows=source.taken, dropped=source.drops(), error=str(error))
    shown = [[text for text in (row.source, row.target, *row.negatives) if text] for row in first]
    before, rows = len(seen_hashes), len(hashes)
    seen_hashes.update(hashes)
    duplicates = rows - (len(seen_hashes) - before)
    return replace(part, rows=rows, all_rows=rows != most, dropped=dropped, duplicates=duplicates, examples=shown,
                   near_duplicates=max(0, omitted - duplicates), written=written,
                   warnings=[line.removeprefix(f"{source.name}: ") for line in warnings])  # fmt: skip


def _to_text(part: Part, writes: bool = False) -> str:
    """The lines for a person."""
    lines = reading_lines(vars(part))
    if part.error and not part.rows:
        lines[0] = f"{part.name}: {part.error.removeprefix(f'{part.name}: ')}"
    elif not part.all_rows:
        lines[0] += " (not read to the end)"
    if part.encoding:
        lines.insert(1, f"  written as {part.encoding}")
    if part.duplicates:
        lines.append(f"  {part.duplicates:,} rows are duplicates of earlier ones ({'left out' if writes else 'kept'})")
    if writes:
        lines.append(
            f"  {part.near_duplicates:,} rows are near earlier ones (left out); "
            + (f"the others are in {part.written}" if part.written else "no row is left, no file is written")
        )
    lines += [f"  warning: {line}" for line in part.warnings]
    for texts in part.examples:
        lines.append("  " + "  |  ".join(t if len(t) <= SHOWN else f"{t[: SHOWN - 1]}…" for t in texts))
    if part.error and part.rows:
        lines.append(f"  stops: {part.error}")
    return printable("\n".join(lines))


def _open(corpus: Corpus, exclusion: Exclusion | None) -> list[TextSource]:
    """The sources of a corpus; a file that is no translation may be one of scored pairs, which a recipe must name."""
    try:
        return open_corpora([corpus], exclusion)
    except InputError:
        if corpus.kind != "auto" or not Path(corpus.path or "").is_file():
            raise
        try:
            gold_N = read_pairs(Path(str(corpus.path)), limits=ANY_SCORE).gold_N
        except InputError:
            gold_N = None
        if gold_N is None:
            raise
    least, most = min(0.0, float(gold_N.min())), float(gold_N.max())
    scale = (least, next((end for end in (1.0, GOLD_RANGE[1]) if most <= end), most))
    opened = open_corpora([corpus.model_copy(update={"kind": "scored", "scale": scale})], exclusion)
    return [
        replace(source, form=f"{source.form}; in a recipe `kind: scored`, `scale: {[*scale]}`") for source in opened
    ]


def describe_corpus(
    file: str,
    settings: Mapping[str, Any],
    *,
    rows: int | None = None,
    examples: int = 3,
    data: Path | None = None,
    exclude: Sequence[str] = (),
    writer: CorpusWriter | None = None,
) -> list[Part]:
    """What training would read from a file, a folder, or the corpora of a recipe (.yaml), with `examples` of rows.

    `settings` are the keys of a corpus, for a file that is no recipe; `rows` is the most to read of each part (None:
    all); `data` replaces `{data}` in a recipe; `exclude` are files as of a recipe's `exclude`, in addition to those.
    `writer` writes the rows. Files of a folder or glob that are not read, and languages without text, are parts with
    an error.
    """
    graded: list[ScoredPairs] = []
    corpora, excluded, folder = [parse(Corpus, {"path": file, **settings}, file)], tuple(exclude), tables_folder()
    if Path(file).suffix in (".yaml", ".yml"):
        recipe = load_recipe(file, data=data)
        corpora, excluded = list(dict.fromkeys(recipe.all_corpora)), (*recipe.exclude, *exclude)
        folder = tables_folder(recipe)
        if installed("pyarrow"):
            from msdc.distill.data.graded import read_graded

            files = dict.fromkeys((*recipe.heldout.graded, *recipe.report))
            graded = [read_graded(path, choosing=False) for path in files]
    exclusion, seen_hashes = read_exclusion(excluded), set[int]()
    parts: list[Part] = []
    for corpus in corpora:
        try:
            sources = _open(corpus, exclusion)
            parts += [_read_source(source, folder, examples, rows, seen_hashes, graded, writer) for source in sources]
            parts += [Part(corpus.origin, error=error) for error in unread(corpus, sources)]
        except InputError as error:
            if shortage(error):
                raise
            parts.append(Part(corpus.origin, error=str(error)))
    return parts


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--source", default="en", show_default=True, help="Language of the source side.")
@click.option("--languages", default="", help="Target languages, e.g. de,es (default: all that are found).")
@click.option("--kind", type=click.Choice(KINDS), default="auto", show_default=True, help="Content of the files.")
@click.option("--columns", default="", help="Columns of a table: names, or numbers from 1, e.g. 2,4.")
@click.option("--header/--no-header", default=None, help="Whether the first row of a table names its columns.")
@click.option("--exclude", multiple=True, metavar="FILE", help="Text whose sentences, and near ones, are left out.")
@click.option("--rows", type=click.IntRange(min=1), help="Read at most this many rows of each file.")
@click.option("--examples", type=click.IntRange(min=0), default=3, show_default=True, help="Rows to show.")
@click.option("--data", type=click.Path(path_type=Path), envvar="MSDC_DATA",
              help="Folder that replaces {data} in a recipe [env MSDC_DATA].")  # fmt: skip
@click.option("--write", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Write the rows, without duplicates and near duplicates, to a new folder.")  # fmt: skip
@json_option
@click.pass_context
@quiet_option
def command(
    context: click.Context,
    files: tuple[str, ...],
    source: str,
    languages: str,
    kind: str,
    columns: str,
    header: bool | None,
    exclude: tuple[str, ...],
    rows: int | None,
    examples: int,
    data: Path | None,
    write: Path | None,
    as_json: bool,
) -> None:
    """Show what training would read from FILE...: files, folders, or the corpora of a recipe (FILE.yaml).

    For each part: format, encoding, language, rows, lines without a row by reason, duplicates and examples. Exit code 2
    if a part cannot be read. The options are the keys of a corpus in a recipe.
    """
    names = [cell.strip() for cell in columns.split(",") if cell.strip()]
    numbers = [int(cell) for cell in names if cell.isdigit()]
    settings = {
        "source": source,
        "languages": tuple(code.strip() for code in languages.split(",") if code.strip()),
        "kind": kind,
        "columns": tuple(numbers) if len(numbers) == len(names) else tuple(names),
        "header": header,
    }
    described = partial(describe_corpus, rows=rows, examples=examples, data=data, exclude=exclude)
    if write is None:
        readings = [reading for file in files for reading in described(file, settings)]
    else:
        require("pyarrow", "`write`")
        with staged_folder(write, force=None) as folder:
            writer = CorpusWriter(folder)
            readings = [reading for file in files for reading in described(file, settings, writer=writer)]
            if error := next((reading.error for reading in readings if reading.error), ""):
                raise InputError(f"{error}; nothing was written")
    shown = json.dumps([asdict(reading) for reading in readings], ensure_ascii=False)
    click.echo(shown if as_json else "\n".join(_to_text(reading, write is not None) for reading in readings))
    if any(reading.error for reading in readings):
        context.exit(InputError.exit_code)
