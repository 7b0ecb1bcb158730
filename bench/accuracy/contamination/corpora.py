"""Training text as streams of sentences: files, folders, or the corpora of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.files import sha256_file
from msdc.text.text_files import iterate_lines

SUFFIXES = (".tsv", ".txt", ".csv")


@dataclass(frozen=True)
class CorpusText:
    """One corpus: its name in the result, its sha256 where it is one file, and (line or row number, sentence) pairs."""

    name: str
    sha256: str | None
    sentences: Callable[[], Iterator[tuple[int, str]]]


def corpus_streams(words: Iterable[str | Path], data: Path | None = None) -> list[CorpusText]:
    """Streams of files, of the text files of folders, and of recipes (a .yaml file, or the name of a shipped one).

    A recipe yields the rows that it trains on: its languages, limits, longest sentence and `exclude` apply. `data` is
    the folder that {data} stands for in a recipe.

    Raises:
        InputError: a corpus that does not exist, or a folder without text files.
    """
    streams: dict[str, CorpusText] = {}
    for word in words:
        for stream in _streams(word, data):
            streams.setdefault(stream.name, stream)
    return list(streams.values())


def _streams(word: str | Path, data: Path | None) -> list[CorpusText]:
    path = Path(word)
    if path.suffix in (".yaml", ".yml"):
        return _recipe_streams(str(word), data)
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.is_file() and p.name.removesuffix(".gz").endswith(SUFFIXES))
        if not inside:
            raise InputError(f"{path}: no .tsv, .txt or .csv file of a training corpus")
        return [_file_stream(file) for file in inside]
    if path.is_file():
        return [_file_stream(path)]
    if _is_recipe(str(word)):
        return _recipe_streams(str(word), data)
    raise InputError(f"{path}: no such training corpus, and no shipped recipe of that name")


def _file_stream(path: Path) -> CorpusText:
    # with the folder's name: many corpora are called train.en-de.tsv
    name = f"{path.parent.name}/{path.name}" if path.parent.name else path.name
    return CorpusText(name, sha256_file(path), partial(file_sentences, path))


def file_sentences(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, sentence) of every column of every line, streamed.

    Raises:
        InputError: as `iterate_lines`.
    """
    for number, line in iterate_lines(path):
        for cell in line.split("\t"):
            yield number, cell


def _is_recipe(name: str) -> bool:
    from msdc.distill.catalog import shipped

    return name in shipped()


def _recipe_streams(name: str, data: Path | None) -> list[CorpusText]:
    from msdc.distill.catalog import load_recipe
    from msdc.distill.data.corpora import open_corpora
    from msdc.distill.data.exclusion import read_exclusion

    recipe = load_recipe(name, data=data)
    # the last two parts of a path: a result names no folder of this machine
    return [
        CorpusText("/".join(Path(source.name).parts[-2:]), None, partial(_row_sentences, source))
        for source in open_corpora(recipe.corpora, read_exclusion(recipe.exclude))
    ]


def _row_sentences(source: Any) -> Iterator[tuple[int, str]]:
    for number, row in enumerate(source.read(), start=1):
        for text in (row.source, row.target, row.third):
            if text:
                yield number, text
