"""`msdc encode`: the vectors of texts, of a few or of a file of any size; `msdc compare`: their cosines."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from msdc.command_options import encode_options, json_option, quiet_option
from msdc.commands import program_options, require_utf8
from msdc.encoders.folder import DEFAULT_MODEL, bare_names, is_reserved
from msdc.errors import InputError, printable
from msdc.extras import require
from msdc.files import atomic_path, refuse_existing
from msdc.progress import say, track, warn
from msdc.text.tabular import iterate_texts, stdin_texts

if TYPE_CHECKING:
    import numpy as np

    from msdc.encoders.encoder import Precision, SentenceEncoder

CHUNK = 1024  # texts in memory at a time, and from one line of progress to the next
Blocks = Iterator[tuple[list[str], "np.ndarray"]]


def _names_a_model(word: str) -> bool:
    """Whether the first word of a command line is a model: a known name, a folder, a path, or a possible hub id."""
    path = Path(word)
    if is_reserved(word) or word.startswith(("./", "../", "~")):
        return True
    hub_id = re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", word)
    return not re.search(r"\s", word) and (path.is_dir() or path.is_absolute() or hub_id is not None)


def model_and_texts(words: Sequence[str]) -> tuple[str, list[str]]:
    """The model and the texts of `[MODEL] [TEXT]...`: the first word is the model if it names one."""
    texts, model = list(words), DEFAULT_MODEL
    if texts and _names_a_model(texts[0]):
        model = texts.pop(0)
    elif texts:
        word = texts[0]
        near = difflib.get_close_matches(word.lower(), [name.lower() for name in bare_names()], n=1, cutoff=0.75)
        if near and not re.search(r"\s", word):
            raise InputError(
                f"{word}: no model of this name; did you mean {near[0]!r}? To encode it as a text, put a model first: "
                f"{DEFAULT_MODEL} {word} ..."
            )
        say(f"model: {DEFAULT_MODEL} (to use another, put it before the texts)")
    for text in texts:
        if len(text) < 256 and not re.search(r"\s", text) and Path(text).is_file():
            raise InputError(
                f"{text}: a file; pass -i {text} to read its lines (pipe a text of this name through standard input)"
            )
    return model, require_utf8(texts, "TEXT")


def require_piped() -> None:
    """Refuse to wait for texts from a terminal."""
    if sys.stdin.isatty():
        raise click.UsageError("pass at least one TEXT or a file with -i, or pipe texts, one per line")


def _write_npy(file: BinaryIO, blocks: Blocks, width: int) -> int:
    """float32 [N, D]. N is written last, into the space that numpy's header reserves for a growing first axis."""

    import numpy as np

    def header(rows: int) -> None:
        shape = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(file, shape)

    rows = 0
    header(rows)
    for texts, vectors_ND in blocks:
        file.write(np.ascontiguousarray(vectors_ND, dtype="<f4").tobytes())
        rows += len(texts)
    file.seek(0)
    header(rows)
    return rows


def _json_lines(texts: list[str], vectors_ND: np.ndarray) -> Iterator[str]:
    for text, row in zip(texts, vectors_ND, strict=True):
        yield json.dumps({"text": text, "vector": [round(float(x), 7) for x in row]}, ensure_ascii=False)


def _write_jsonl(file: BinaryIO, blocks: Blocks, width: int) -> int:
    """One object per line: text and vector."""
    rows = 0
    for texts, vectors_ND in blocks:
        file.writelines(line.encode() + b"\n" for line in _json_lines(texts, vectors_ND))
        rows += len(texts)
    return rows


def _write_parquet(file: BinaryIO, blocks: Blocks, width: int) -> int:
    """Columns `text` and `vector`, a list of D float32."""
    require("pyarrow", "a parquet file")
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    schema = pa.schema({"text": pa.string(), "vector": pa.list_(pa.float32(), width)})
    with pq.ParquetWriter(file, schema) as parquet:
        for texts, vectors_ND in blocks:
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(vectors_ND.ravel(), pa.float32()), width)
            parquet.write_table(pa.table([pa.array(texts), vectors], schema=schema))
            rows += len(texts)
    return rows


WRITERS: dict[str, Callable[[BinaryIO, Blocks, int], int]] = {
    ".npy": _write_npy, ".jsonl": _write_jsonl, ".parquet": _write_parquet,
}  # fmt: skip


def encode_stream(model: SentenceEncoder, texts: Iterator[str]) -> Blocks:
    """Texts with their vectors, float32 [N, D], `CHUNK` texts at a time; at the end a line for those that were cut."""
    count = truncated = 0
    while block := list(islice(texts, CHUNK)):
        yield block, model.encode(block)
        count, truncated = count + len(block), truncated + model.count_truncated(block)
    warn_of_truncated(model, truncated, count)


def warn_of_truncated(model: SentenceEncoder, truncated: int, count: int) -> None:
    """One line on standard error where texts are longer than the model reads."""
    if truncated:
        warn(
            f"{truncated:,} of {count:,} texts have more than the {model.max_length} tokens that {model.name} reads: "
            "the rest of them is not in their vectors"
        )


def encode_to_file(model: SentenceEncoder, texts: Iterator[str], target: Path) -> int:
    """Write the vectors of texts to a complete .npy, .jsonl or .parquet file; returns the number of texts."""
    with atomic_path(target) as temporary, open(temporary, "wb") as file:
        blocks = track(encode_stream(model, texts), "texts encoded", size=lambda block: len(block[0]))
        return WRITERS[target.suffix](file, blocks, model.width)


def _print(model: SentenceEncoder, texts: Iterator[str], as_json: bool) -> None:
    """Vectors to standard output, block by block; as JSON one list."""
    before = "["
    for block, vectors_ND in encode_stream(model, texts):
        rows = (" ".join(f"{x:.6f}" for x in row) for row in vectors_ND)
        for line in _json_lines(block, vectors_ND) if as_json else rows:
            click.echo(before + line if as_json else line, nl=not as_json)
            before = ", "
    if as_json:
        click.echo("[]" if before == "[" else "]")


@click.command()
@click.argument("words", nargs=-1, metavar="[MODEL] [TEXT]...")
@click.option("-i", "--input", "file", help="File of texts, one per line, plain or compressed; - is standard input.")
@click.option("--column", help="Column of a table (csv, tsv, jsonl, parquet): its name, or its number from 1.")
@click.option("--header/--no-header", default=None, help="Whether the first row of a table names its columns.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write: .npy, .parquet or .jsonl.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@program_options
@encode_options
@json_option
@quiet_option
def command(
    words: tuple[str, ...],
    file: str | None,
    column: str | None,
    header: bool | None,
    output: Path | None,
    force: bool,
    runtime: str | None,
    precision: Precision | None,
    as_json: bool,
    **encoding: Any,
) -> None:
    """Print or write one vector per TEXT, per line of standard input, or per line of a file.

    MODEL is a shipped name, a folder, a bundle or a hub id; default: the shipped msdc-mini. Texts are read, encoded and
    written block by block, so memory does not grow with the file. The order is kept, and empty lines have vectors too.

    msdc encode -i reviews.csv.gz --column text -o reviews.npy
    """
    name, texts = model_and_texts(words)
    if texts and (file is not None or column is not None):
        raise click.UsageError(f"TEXT and {'-i' if file is not None else '--column'} exclude each other: {texts[0]!r}")
    if output is not None:
        if output.suffix not in WRITERS:
            raise InputError(f"{output}: vectors can be written as {', '.join(WRITERS)}")
        refuse_existing(output, force)
    source: Iterator[str] = iter(texts)
    if not texts:
        if file is None:
            require_piped()
        stdin = file in (None, "-")
        numbered = stdin_texts(column, header) if stdin else iterate_texts(Path(str(file)), column, header)
        source = (text for _, text in numbered)
    # Read the first text before the model is loaded, so that a wrong file fails early.
    first = list(islice(source, 1))
    if not first:
        empty = f"{'standard input' if file in (None, '-') else file}: no text to encode"
        if output is not None:
            raise InputError(empty)
        warn(empty)
    source = chain(first, source)
    from msdc.loading import open_model

    opened = open_model(name, runtime, precision=precision, **encoding)
    if output is None:
        _print(opened, source, as_json)
        return
    rows = encode_to_file(opened, source, output)
    say(f"{output}: {rows:,} vectors of {opened.width} dimensions by {opened.name}")


@click.command()
@click.argument("words", nargs=-1, metavar="[MODEL] [TEXT]...")
@program_options
@encode_options
@json_option
@quiet_option
def compare(
    words: tuple[str, ...],
    runtime: str | None,
    precision: Precision | None,
    as_json: bool,
    **encoding: Any,
) -> None:
    """Print the cosine of the first TEXT with each of the others.

    MODEL is a shipped name, a folder, a bundle or a hub id; default: the shipped msdc-mini.
    """
    name, texts = model_and_texts(words)
    if not texts:
        require_piped()
    lines = texts or [text for _, text in stdin_texts()]  # before the model is loaded, so that a wrong text fails early
    if len(lines) < 2:
        raise click.UsageError("compare needs at least two texts")
    from msdc.loading import open_model
    from msdc.scores import cosine_rows

    opened = open_model(name, runtime, precision=precision, **encoding)
    vectors_ND = opened.encode(lines)
    warn_of_truncated(opened, opened.count_truncated(lines), len(lines))
    cosines: list[float] = cosine_rows(vectors_ND[:1].repeat(len(lines) - 1, axis=0), vectors_ND[1:]).tolist()
    if as_json:
        result = {"query": lines[0], "texts": lines[1:], "cosine": [round(cosine, 6) for cosine in cosines]}
        click.echo(json.dumps(result, ensure_ascii=False))
        return
    for text, cosine in sorted(zip(lines[1:], cosines, strict=True), key=lambda pair: -pair[1]):
        click.echo(f"{cosine:7.4f}  {printable(' '.join(text.split()))}")
