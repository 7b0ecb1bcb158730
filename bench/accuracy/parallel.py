"""Parallel sentences: two line-aligned files (Tatoeba, FLORES), or columns of one table."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from msdc.errors import InputError
from msdc.files import regular_size
from msdc.text.tabular import EMPTY_LINE, open_table, suffix_of
from msdc.text.text_files import SourceFile, bare_name, read_lines, source_file

# tatoeba.deu-eng.deu -> prefix "tatoeba", languages "deu" and "eng", this side "deu"
CODE = "[A-Za-z_]{2,8}"
ALIGNED_NAME = re.compile(rf"^(?P<stem>.*?)(?P<a>{CODE})-(?P<b>{CODE})\.(?P<side>{CODE})(?:\.gz)?$")
TABLE_NAME = re.compile(rf"(?:^|\.)(?P<a>{CODE})-(?P<b>{CODE})\.tsv(?:\.gz)?$")
LANGUAGE = re.compile(r"^[a-z]{2,3}(?:[-_][A-Za-z]{2,8})?$")


@dataclass(frozen=True)
class Parallel:
    """N sentences in two or more languages; equal rows are translations of each other."""

    name: str
    sides: dict[str, list[str]]
    lines: list[int]
    sources: list[SourceFile]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def languages(self) -> list[str]:
        """Language codes, in the order of the sides."""
        return list(self.sides)

    def texts(self) -> list[str]:
        """Every sentence that is encoded."""
        return [text for side in self.sides.values() for text in side]

    def where(self, position: int) -> str:
        """Place of text `position` of `texts()`, for messages."""
        return f"{self.name} line {self.lines[position % len(self)]} ({self.languages[position // len(self)]})"

    def two_sides(self) -> tuple[list[str], list[str]]:
        """The sentences of both languages."""
        if len(self.sides) != 2:
            raise InputError(f"{self.name}: needs two languages, got {self.languages}")
        first, second = self.sides.values()
        return first, second

    def pair(self, first: str, second: str, name: str) -> Parallel:
        """Two of the languages, under a name of their own."""
        return replace(self, name=name, sides={code: self.sides[code] for code in (first, second)})


def read_parallel(path: str | Path) -> Parallel:
    """One side of an aligned pair (`tatoeba.deu-eng.deu` finds `tatoeba.deu-eng.eng`), or a table of columns."""
    path = Path(path)
    match = ALIGNED_NAME.match(path.name)
    if match and match["side"] in (match["a"], match["b"]) and match["a"] != match["b"]:
        packed = ".gz" if path.name.endswith(".gz") else ""
        stem = f"{match['stem']}{match['a']}-{match['b']}"
        paths = {side: path.with_name(f"{stem}.{side}{packed}") for side in (match["a"], match["b"])}
        return read_aligned(paths, stem)
    return _read_table(path)


def read_aligned(paths: dict[str, Path], name: str) -> Parallel:
    """Files of equal length, one sentence per line; `paths` maps language to file."""
    files = {language: read_lines(path) for language, path in paths.items()}
    shortest, longest = (pick(files.values(), key=lambda file: len(file.lines)) for pick in (min, max))
    count = len(shortest.lines)
    if len(longest.lines) > count:
        raise InputError(
            f"{longest.path} has {len(longest.lines)} lines and {shortest.path.name} {count}: "
            f"line {count + 1} has no counterpart"
        )
    sides = {language: [line.strip() for line in lines.lines] for language, lines in files.items()}
    for language, texts in sides.items():
        if "" in texts:
            raise files[language].error(texts.index("") + 1, "this side is empty")
    notes = [f"{lines.path.name} {note}" for lines in files.values() for note in lines.notes]
    return Parallel(name, sides, list(range(1, count + 1)), [lines.source for lines in files.values()], notes)


def _read_table(path: Path) -> Parallel:
    regular_size(path)
    table = open_table(path, lambda cells, rows: all(map(LANGUAGE.match, cells)) and 1 < len(set(cells)) == len(cells))
    match = TABLE_NAME.search(path.name)
    languages = list(table.names) or ([match["a"], match["b"]] if match else ["1", "2"])
    notes = [] if suffix_of(path) == ".parquet" else read_lines(path).notes
    lines, rows, empty = [], [], 0
    for number, row in table.read(range(table.width)):
        if row == EMPTY_LINE:
            empty = empty or number
            continue
        if isinstance(row, str) or len(row) != len(languages) or empty:
            wrong = row if isinstance(row, str) else f"{len(row)} columns, expected {len(languages)}"
            raise InputError(f"{path} line {empty or number}: {EMPTY_LINE if empty else wrong}")
        cells = [str(cell or "").strip() for cell in row]
        if "" in cells:
            raise InputError(f"{path} line {number}: the {languages[cells.index('')]} side is empty")
        lines.append(number)
        rows.append(cells)
    if not rows:
        raise InputError(f"{path}: {'a header and no rows' if table.names else 'no rows'}")
    sides = {language: [cells[column] for cells in rows] for column, language in enumerate(languages)}
    return Parallel(bare_name(path.name).rsplit(".", 1)[0], sides, lines, [source_file(path)], notes)
