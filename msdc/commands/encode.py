"""`msdc encode`: the vectors of texts, of a few on the command line or of a file of any size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import click
import numpy as np

from msdc.commands.options import encode_options, model_and_texts, model_options, quiet_option, require_piped
from msdc.errors import InputError
from msdc.extras import require
from msdc.files import atomic_path, disk_errors, refuse_existing
from msdc.progress import Counter, say
from msdc.text.inputs import iterate_texts, stdin_texts

if TYPE_CHECKING:
    from msdc.encoders.encoder import SentenceEncoder

CHUNK = 4096  # texts held at a time


class Writer(Protocol):
    """Takes vectors block by block."""

    def write(self, texts: Sequence[str], vectors_ND: np.ndarray) -> None:
        """Add the vectors of some texts."""

    def close(self) -> None:
        """Finish the file."""


class _Npy:
    """float32 [N, D]. N is written last, into the space that numpy's header leaves for a growing first axis."""

    def __init__(self, file: BinaryIO, width: int) -> None:
        self.file, self.width, self.rows = file, width, 0
        self._header()
        self.start = file.tell()

    def _header(self) -> None:
        shape = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.width)}
        np.lib.format.write_array_header_1_0(self.file, shape)

    def write(self, texts: Sequence[str], vectors_ND: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(vectors_ND, dtype="<f4").tobytes())
        self.rows += len(vectors_ND)

    def close(self) -> None:
        self.file.seek(0)
        self._header()
        assert self.file.tell() == self.start  # numpy pads the header so that it does not grow


class _JsonLines:
    """One object per line: text and vector."""

    def __init__(self, file: BinaryIO, width: int) -> None:
        self.file = file

    def write(self, texts: Sequence[str], vectors_ND: np.ndarray) -> None:
        for text, row in zip(texts, vectors_ND, strict=True):
            line = json.dumps({"text": text, "vector": _digits(row)}, ensure_ascii=False)
            self.file.write(line.encode("utf-8", "surrogatepass") + b"\n")

    def close(self) -> None:
        pass


class _Parquet:
    """Columns `text` and `vector`, a list of D float32."""

    def __init__(self, file: BinaryIO, width: int) -> None:
        require("pyarrow", "a parquet file")
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.kind = pa.list_(pa.float32(), width)
        self.schema = pa.schema([("text", pa.string()), ("vector", self.kind)])
        self.parquet: Any = pq.ParquetWriter(file, self.schema)

    def write(self, texts: Sequence[str], vectors_ND: np.ndarray) -> None:
        import pyarrow as pa

        flat = pa.array(np.ascontiguousarray(vectors_ND, dtype=np.float32).reshape(-1))
        vectors = pa.FixedSizeListArray.from_arrays(flat, vectors_ND.shape[1])
        self.parquet.write_table(pa.table([pa.array(list(texts), pa.string()), vectors], schema=self.schema))

    def close(self) -> None:
        self.parquet.close()


WRITERS = {".npy": _Npy, ".jsonl": _JsonLines, ".parquet": _Parquet}


def _digits(row: np.ndarray) -> list[float]:
    return [round(float(x), 7) for x in row]


def encode_stream(
    model: SentenceEncoder, texts: Iterator[str], chunk: int = CHUNK
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Texts with their vectors, float32 [N, D], `chunk` texts at a time.

    Raises:
        InputError: a vector that is not finite.
    """
    from msdc.scores import require_finite

    while block := list(islice(texts, chunk)):
        yield block, require_finite(model.encode(block), model.name)


def encode_to_file(model: SentenceEncoder, texts: Iterator[str], target: Path, force: bool = False) -> int:
    """Write the vectors of texts to a .npy, .jsonl or .parquet file, whole or not at all; the number of texts.

    Raises:
        InputError: another suffix, an existing file without `force`, or no text.
    """
    make = writer_for(target, force)
    rows = 0
    with (
        disk_errors(target),
        atomic_path(target) as temporary,
        open(temporary, "wb") as file,
        Counter("texts") as count,
    ):
        writer: Writer | None = None
        for block, vectors_ND in encode_stream(model, texts):
            if writer is None:
                writer = make(file, vectors_ND.shape[1])
            writer.write(block, vectors_ND)
            rows += len(block)
            count.add(len(block))
        if writer is None:
            raise InputError("no text to encode")
        writer.close()
    return rows


def writer_for(target: Path, force: bool) -> Any:
    """The class that writes a file of this suffix.

    Raises:
        InputError: another suffix, or an existing file without `force`.
    """
    if target.suffix not in WRITERS:
        raise InputError(f"{target}: vectors are written as {', '.join(WRITERS)}")
    refuse_existing(target, force)
    return WRITERS[target.suffix]


def _print(model: SentenceEncoder, texts: Iterator[str], as_json: bool) -> None:
    """Vectors to standard output, block by block; as JSON one list."""
    first = True
    for block, vectors_ND in encode_stream(model, texts):
        for text, row in zip(block, vectors_ND, strict=True):
            if as_json:
                entry = json.dumps({"text": text, "vector": _digits(row)}, ensure_ascii=False)
                click.echo(("[" if first else ", ") + entry, nl=False)
            else:
                click.echo(" ".join(f"{x:.6f}" for x in row))
            first = False
    if as_json:
        click.echo("[]" if first else "]")


@click.command()
@model_options
@click.option("-i", "--input", "file", help="File of texts, one per line, plain or gzip; - is standard input.")
@click.option("--column", help="Column of a table (csv, tsv, jsonl, parquet): its name, or its number from 1.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write: .npy, .parquet or .jsonl.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@encode_options
@quiet_option
def command(
    words: tuple[str, ...],
    model: str | None,
    file: str | None,
    column: str | None,
    output: Path | None,
    force: bool,
    runtime: str | None,
    as_json: bool,
    prompt_name: str | None,
    prompt: str | None,
    truncate_dim: int | None,
) -> None:
    """Print or write one vector per TEXT, per line of standard input, or per line of a file.

    Texts are read, encoded and written block by block, so that a file of any size needs the same memory. The order
    stays, and empty lines have vectors too.

    msdc encode -i reviews.csv.gz --column text -o reviews.npy
    """
    name, texts = model_and_texts(words, model)
    if texts and (file is not None or column is not None):
        raise click.UsageError(f"TEXT and {'-i' if file is not None else '--column'} exclude each other: {texts[0]!r}")
    if output is not None:
        writer_for(output, force)
    source: Iterator[str] = iter(texts)
    if not texts:
        if file is None:
            require_piped()
        numbered = stdin_texts(column) if file in (None, "-") else iterate_texts(Path(str(file)), column)
        source = (text for _, text in numbered)
    # The first text before torch is imported, so that a wrong file fails early.
    source = chain(list(islice(source, 1)), source)
    from msdc.encoders.encoder import open_model

    opened = open_model(name, runtime, prompt_name=prompt_name, prompt=prompt, truncate_dim=truncate_dim)
    if output is None:
        _print(opened, source, as_json)
        return
    rows = encode_to_file(opened, source, output, force)
    say(f"{output}: {rows:,} vectors of {opened.width} numbers by {opened.name}")
