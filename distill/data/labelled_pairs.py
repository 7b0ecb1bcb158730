"""Natural language inference: (label, premise, hypothesis) as triples, or as labelled pairs.

Tab-separated text has these as its first columns. Other tables (csv, JSON lines, parquet) have them under their usual
names, or under those that the corpus names in `columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from msdc.distill.data.columns import LABELLED_NAMES, find_labelled, is_header
from msdc.distill.data.sources import Row, Source
from msdc.distill.recipe import Corpus
from msdc.text.parquet import open_parquet
from msdc.text.tabular import MAX_LINE_BYTES, Table, open_delimited, open_json_lines, text_bytes
from msdc.text.text_files import iterate_lines

NLI_CLASSES = ("contradiction", "entailment", "neutral")  # in the order of the numbers that we train on
# The numbers of snli, multi_nli, all-nli and anli on the hub.
HUB_CLASSES = ("entailment", "neutral", "contradiction")
# The number of a line, and its label (empty: none of NLI), premise and hypothesis, or why it has none
Labelled = tuple[int, "tuple[str, str, str] | str"]


def _label(cell: object) -> str:
    """The name of a class; empty where it is none, as `-` and -1 of pairs whose annotators do not agree."""
    text = str(cell).strip().lower()
    number = text.removesuffix(".0")
    return HUB_CLASSES[int(number)] if number in ("0", "1", "2") else text if text in NLI_CLASSES else ""


def _open_table(path: Path, corpus: Corpus) -> Table | None:
    """The file as a table; None for tab-separated text whose columns the corpus does not name."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        return open_parquet(path, integers=True)
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return open_json_lines(path)
    if name.endswith(".csv") or corpus.columns:
        known = [set(names) for names in LABELLED_NAMES]

        def header(cells: list[str], rows: list[list[str]]) -> bool:
            names = {cell.lower() for cell in cells}
            return any(wanted <= names for wanted in known) or is_header(corpus, cells, rows)

        return open_delimited(path, header)
    return None


def _of_table(table: Table, columns: list[int]) -> Iterator[Labelled]:
    for number, cells in table.read(columns):
        if isinstance(cells, str):
            yield number, cells
        elif not all(isinstance(cell, str) for cell in cells[1:]):
            yield number, "not text"
        else:
            yield number, (_label(cells[0]), str(cells[1]), str(cells[2]))


def _of_lines(path: Path) -> Iterator[Labelled]:
    for number, line in iterate_lines(path, max_line_bytes=MAX_LINE_BYTES):
        cells = line.split("\t")
        yield number, (_label(cells[0]), cells[1], cells[2]) if len(cells) >= 3 else f"{len(cells)} columns"


def _open(path: Path, corpus: Corpus) -> tuple[str, Callable[[], Iterator[Labelled]]]:
    """What the file is read as, and its lines."""
    table = _open_table(path, corpus)
    if table is None:
        return "", lambda: _of_lines(path)
    columns = find_labelled(table, corpus)
    named = " + ".join(table.names[c] if table.names else str(c + 1) for c in columns)
    return f"{table.form}, columns {named}", lambda: _of_table(table, columns)


def read_nli(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
    """Triples.

    Pairs of one premise follow each other, as in SNLI and MultiNLI; every entailed hypothesis is combined with every
    contradicting one. A premise that lacks either gives no triple and counts as a bad line.
    """
    form, lines = _open(path, corpus)

    def rows() -> Iterator[Row]:
        premise = ""
        found: dict[str, list[str]] = {}
        ended: Labelled = (0, "")
        for number, line in chain(lines(), [ended]):
            if isinstance(line, str) or line[1].strip() != premise:
                if found:
                    entailed, contradicting = found.get("entailment", []), found.get("contradiction", [])
                    if not entailed or not contradicting:
                        source.complain(number, "the premise before has no entailment or no contradiction")
                    for one in entailed:
                        for other in contradicting:
                            yield Row(premise, one, corpus.source, other)
                premise, found = "", {}
            if not isinstance(line, str) and line[0]:
                premise = line[1].strip()
                found.setdefault(line[0], []).append(line[2])

    source = Source(str(path), corpus.source, text_bytes(path), corpus, rows, form=form)
    return [source]


def read_nli_pairs(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
    """Labelled pairs as they are, for classification."""
    form, lines = _open(path, corpus)

    def rows() -> Iterator[Row]:
        for number, line in lines():
            if isinstance(line, str) or not all(part.strip() for part in line):
                source.complain(number, "expected a label of NLI, a premise and a hypothesis")
            else:
                yield Row(line[1], line[2], corpus.source, label=float(NLI_CLASSES.index(line[0])))

    source = Source(str(path), corpus.source, text_bytes(path), corpus, rows, form=form)
    return [source]
