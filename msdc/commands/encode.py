"""`msdc encode`: the vectors of texts, of a few or of a file of any size; `msdc compare`: their cosines."""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from msdc.command_options import encode_options, json_option, quiet_option
from msdc.commands import program_options, require_utf8
from msdc.commands.vectors import (
    SCALE,
    WRITERS,
    Description,
    Texts,
    VectorType,
    describe,
    encode_stream,
    encode_to_file,
    is_text_pattern,
    json_lines,
    of_texts,
    open_texts,
    require_same,
    source_of,
    targets,
    warn_of_truncated,
    write_manifest,
)
from msdc.encoders.folder import DEFAULT_MODEL, bare_names, is_reserved
from msdc.errors import InputError, InUse, printable
from msdc.files import refuse_existing
from msdc.progress import say, warn
from msdc.text.tabular import stdin_texts

if TYPE_CHECKING:
    from msdc.encoders.encoder import Precision, SentenceEncoder


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
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("pass at least one TEXT or a file with -i, or pipe texts, one per line")


def _print(model: SentenceEncoder, texts: Texts, as_json: bool) -> None:
    """Vectors to standard output, block by block; as JSON one list."""
    before = "["
    for block, vectors_ND in encode_stream(model, texts.blocks):
        rows = (" ".join(f"{value:.6f}" for value in row) for row in vectors_ND)
        for line in json_lines(block, vectors_ND) if as_json else rows:
            click.echo(before + line if as_json else line, nl=not as_json)
            before = ", "
    if as_json:
        click.echo("[]" if before == "[" else "]")


def _write_folder(
    words: Sequence[str],
    folder: Path,
    skip_existing: bool,
    force: bool,
    described: Callable[[str], tuple[SentenceEncoder, Description]],
    open_file: Callable[[Path], Texts],
) -> None:
    """Write a file of vectors for each file of texts; `described` opens a model by its name."""
    files = list(words)
    name = files.pop(0) if files and _names_a_model(files[0]) and not is_text_pattern(files[0]) else DEFAULT_MODEL
    if not files:
        raise click.UsageError("pass the files of texts, globs or folders")
    pairs = targets(files, folder)
    for target in pairs.values():
        if not skip_existing:
            refuse_existing(target, force)
    next(open_file(next(iter(pairs))).blocks, None)  # a wrong column fails before the model is loaded
    model, description = described(name)
    write_manifest(folder, description)
    written, rows, existing, in_work = 0, 0, 0, list[Path]()
    for file, target in pairs.items():
        if skip_existing and target.exists():
            require_same(target, description, file)
            existing += 1
            continue
        try:
            rows += encode_to_file(model, open_file(file), target, description, source_of(file), skip_existing)
            written += 1
        except InUse:
            if not skip_existing:
                raise
            in_work.append(target)
        except FileExistsError:
            existing += 1
    say(
        f"{folder}: {rows:,} vectors of {model.width} dimensions by {model.name} in {written} files"
        + f"; {existing} existed" * bool(existing)
    )
    if in_work:
        warn(f"{len(in_work)} files are in work by other processes and were left to them, the first: {in_work[0]}")


@click.command()
@click.argument("words", nargs=-1, metavar="[MODEL] [TEXT|FILE]...")
@click.option("-i", "--input", "file", help="File of texts, one per line, plain or compressed; - is standard input.")
@click.option("--column", help="Column of a table (csv, tsv, jsonl, parquet): its name, or its number from 1.")
@click.option("--header/--no-header", default=None, help="Whether the first row of a table names its columns.")
@click.option("-o", "--output", type=click.Path(), help="File to write: .npy, .parquet or .jsonl; or a folder.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Column to write instead of the texts. Repeatable.")
@click.option("--dtype", type=click.Choice(get_args(VectorType)), default="float32", show_default=True,
              help="Type of the written vectors.")  # fmt: skip
@click.option("--skip-existing", is_flag=True, help="Leave complete files of a folder, and those in work elsewhere.")
@click.option("--force", is_flag=True, help="Replace existing files.")
@program_options
@encode_options
@json_option
@quiet_option
def command(
    words: tuple[str, ...],
    file: str | None,
    column: str | None,
    header: bool | None,
    output: str | None,
    keep: tuple[str, ...],
    dtype: VectorType,
    skip_existing: bool,
    force: bool,
    runtime: str | None,
    precision: Precision | None,
    as_json: bool,
    **encoding: Any,
) -> None:
    """Print or write one vector per TEXT, per line of standard input, or per line of a file.

    MODEL is a shipped name, a folder, a bundle or a hub id; default: the shipped msdc-mini. Texts are read, encoded and
    written block by block, so memory does not grow with the file. The order is kept, and empty lines have vectors too.
    A command that was killed continues where it stopped. With a folder as output, one parquet file is written for each
    FILE (also a glob or a folder).

    msdc encode -i reviews.csv.gz --column text -o reviews.npy
    """
    keep = tuple(dict.fromkeys(keep))
    target = None if output is None else Path(output)
    if reserved := {"vector", SCALE} & set(keep):
        raise InputError(f"`keep`: {reserved.pop()} is the name of a written column")

    def described(name: str) -> tuple[SentenceEncoder, Description]:
        from msdc.loading import open_model

        model = open_model(name, runtime, precision=precision, **encoding)
        return model, describe(model, dtype, column, keep)

    if target is not None and (
        target.is_dir() or (target.suffix not in WRITERS and (str(output).endswith(("/", os.sep)) or not target.suffix))
    ):
        inputs = [*words, *filter(None, [file])]
        open_file = functools.partial(open_texts, column=column, header=header, keep=keep)
        _write_folder(inputs, target, skip_existing, force, described, open_file)
        return
    if skip_existing:
        raise click.UsageError("--skip-existing needs a folder as output (-o)")
    if target is None and (keep or dtype != "float32"):
        raise click.UsageError("--keep and --dtype need an output (-o)")
    if target is not None and target.suffix == ".npy" and keep:
        raise InputError(f"{target}: has no columns; --keep needs .parquet or .jsonl")
    name, texts = model_and_texts(words)
    if texts and (file is not None or column is not None):
        raise click.UsageError(f"TEXT and {'-i' if file is not None else '--column'} exclude each other: {texts[0]!r}")
    if target is not None:
        if target.suffix not in WRITERS:
            raise InputError(f"{target}: vectors can be written as {', '.join(WRITERS)}")
        refuse_existing(target, force)
    if texts:
        source = Texts(of_texts(iter(texts)))
    else:
        if file is None:
            require_piped()
        source = open_texts(None if file in (None, "-") else Path(str(file)), column, header, keep)
    # Read the first texts before the model is loaded, so that a wrong file fails early.
    first = list(islice(source.blocks, 1))
    if not first:
        empty = f"{'standard input' if file in (None, '-') else file}: no text to encode"
        if target is not None:
            raise InputError(empty)
        warn(empty)
    source.blocks = chain(first, source.blocks)
    opened, description = described(name)
    if target is None:
        _print(opened, source, as_json)
        return
    rows = encode_to_file(opened, source, target, description)
    say(f"{target}: {rows:,} vectors of {opened.width} dimensions by {opened.name}")


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
