"""Scored sentence pairs in every published layout: STS2017 and STS12-16, STSb, SICK, STSb-multi, KorSTS, graded pairs.

A layout is read off the first line, then demanded of every line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from msdc.bench.accuracy.readers.lines import Lines, Source, read_csv_rows, read_lines
from msdc.errors import InputError

GOLD_RANGE = (0.0, 5.0)
# column names in the wild -> ours
SCORE_NAMES = ("score", "similarity", "similarity_score", "relatedness_score", "gold", "label")
FIRST_NAMES = ("sentence_1", "sentence1", "sentence_a", "s1", "text1")
SECOND_NAMES = ("sentence_2", "sentence2", "sentence_b", "s2", "text2")
LANGUAGE_NAMES = (("language_1", "language1", "lang1"), ("language_2", "language2", "lang2"))


@dataclass(frozen=True)
class ScoredPairs:
    """N sentence pairs with gold scores; `subsets` names the part each pair belongs to (one name when undivided).

    `lines` holds the line number of each pair in its file, for messages.
    """

    name: str
    first: list[str]
    second: list[str]
    gold_N: np.ndarray
    subsets: list[str]
    lines: list[int]
    sources: list[Source]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.first)

    def texts(self) -> list[str]:
        """Every sentence, first sides then second sides."""
        return self.first + self.second

    def where(self, position: int) -> str:
        """Where text `position` of `texts()` stands."""
        row, side = position % len(self), 1 + position // len(self)
        return f"{self.name} line {self.lines[row]} (sentence {side})"

    def renamed(self, name: str) -> ScoredPairs:
        return replace(self, name=name)


@dataclass(frozen=True)
class _Columns:
    score: int
    first: int
    second: int
    languages: tuple[int, int] | None = None
    width: tuple[int, int] = (3, 3)
    header: bool = False

    def needs(self) -> str:
        low, high = self.width
        return f"{low}" if low == high else f"{low} to {high}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _named_columns(cells: list[str]) -> _Columns | None:
    names = [cell.strip().lower() for cell in cells]

    def find(candidates: tuple[str, ...]) -> int | None:
        return next((names.index(name) for name in candidates if name in names), None)

    score, first, second = find(SCORE_NAMES), find(FIRST_NAMES), find(SECOND_NAMES)
    if score is None or first is None or second is None:
        return None
    language_1, language_2 = (find(candidates) for candidates in LANGUAGE_NAMES)
    languages = (language_1, language_2) if language_1 is not None and language_2 is not None else None
    return _Columns(score, first, second, languages, (len(cells), len(cells)), header=True)


def _columns(cells: list[str]) -> _Columns | None:
    """Layout of a file, from its first row."""
    named = _named_columns(cells)
    if named is not None:
        return named
    if len(cells) == 3 and _is_number(cells[0]):
        return _Columns(0, 1, 2)
    if len(cells) == 3 and _is_number(cells[2]):
        return _Columns(2, 0, 1)
    if len(cells) in (7, 8, 9) and _is_number(cells[4]):
        # STSb: genre, file, year, id, score, s1, s2 and on some rows the sources of both sentences
        return _Columns(4, 5, 6, width=(7, 9))
    return None


def parse_gold(text: str, limits: tuple[float, float], fail: Callable[[str], InputError]) -> float:
    """A gold score inside `limits`."""
    try:
        value = float(text)
    except ValueError:
        raise fail(f"the score {text[:20]!r} is not a number") from None
    low, high = limits
    if not low <= value <= high:
        raise fail(f"the gold score {text.strip()} is outside {low:g}..{high:g}")
    return value


def read_pairs(path: str | Path, name: str | None = None, limits: tuple[float, float] = GOLD_RANGE) -> ScoredPairs:
    """Read scored pairs from a .tsv, .csv or .txt file, plain or gzip.

    Layouts: `score s1 s2`, `s1 s2 score`, STSb's seven columns, and any file with a header that names score and
    sentences (SICK, KorSTS, GLUE, graded pairs with languages). An official `STS.input.X.txt` finds its `STS.gs.X.txt`.

    Raises:
        InputError: unknown layout, a wrong column count, a score that is no number or outside `limits`, an empty
            sentence; each with the line number.
    """
    path = Path(path)
    if ".input." in path.name:
        return _read_official(path, path.with_name(path.name.replace(".input.", ".gs.")), name, limits)
    if path.name.removesuffix(".gz").endswith(".csv"):
        source, rows = read_csv_rows(path)
        separator = "comma"
    else:
        source = read_lines(path)
        rows = [(number, line.split("\t")) for number, line in enumerate(source.lines, start=1)]
        separator = "tab"
    columns = _columns(rows[0][1])
    if columns is None:
        raise source.error(
            rows[0][0],
            f"{len(rows[0][1])} {separator}-separated columns without a known layout; expected: score, sentence 1, "
            "sentence 2 (or a header with score, sentence1, sentence2)",
        )
    return _collect(source, rows[1:] if columns.header else rows, columns, separator, name or _stem(path), limits)


def _collect(
    source: Lines,
    rows: list[tuple[int, list[str]]],
    columns: _Columns,
    separator: str,
    name: str,
    limits: tuple[float, float],
) -> ScoredPairs:
    first: list[str] = []
    second: list[str] = []
    gold, subsets, lines = [], [], []
    low, high = columns.width
    for number, cells in rows:
        if not low <= len(cells) <= high:
            raise source.error(number, f"{len(cells)} {separator}-separated columns, expected {columns.needs()}")
        gold.append(parse_gold(cells[columns.score], limits, partial(source.error, number)))
        for side, cell in ((first, cells[columns.first]), (second, cells[columns.second])):
            text = cell.strip()
            if not text:
                raise source.error(number, f"sentence {1 if side is first else 2} is empty")
            side.append(text)
        if columns.languages is not None:
            subsets.append("-".join(cells[column].strip() for column in columns.languages))
        else:
            subsets.append(name)
        lines.append(number)
    if not first:
        raise InputError(f"{source.path}: a header and no pairs")
    gold_N = np.array(gold, dtype=np.float64)
    return ScoredPairs(name, first, second, gold_N, subsets, lines, [source.source], source.notes)


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]


def _read_official(input_path: Path, gold_path: Path, name: str | None, limits: tuple[float, float]) -> ScoredPairs:
    """SemEval's own two files: sentences, and one score a line; a pair nobody judged has an empty score line."""
    sentences, scores = read_lines(input_path), read_lines(gold_path)
    if len(sentences.lines) != len(scores.lines):
        last = min(len(sentences.lines), len(scores.lines)) + 1
        raise InputError(
            f"{gold_path} has {len(scores.lines)} lines and {input_path.name} {len(sentences.lines)}: "
            f"line {last} has no counterpart"
        )
    rows, unjudged = [], 0
    for number, (line, score) in enumerate(zip(sentences.lines, scores.lines, strict=True), start=1):
        if not score.strip():
            unjudged += 1
            continue
        cells = line.split("\t")
        if len(cells) < 2:
            raise sentences.error(number, "1 tab-separated column, expected 2 sentences")
        rows.append((number, [score, *cells[:2]]))
    name = name or _stem(input_path).replace("STS.input.", "")
    pairs = _collect(sentences, rows, _Columns(0, 1, 2), "tab", name, limits)
    notes = sentences.notes + scores.notes + ([f"{unjudged} pairs without a gold score left out"] if unjudged else [])
    return replace(pairs, sources=[sentences.source, scores.source], notes=notes)


def join_pairs(name: str, parts: list[ScoredPairs]) -> ScoredPairs:
    """Several files as one set, each part a subset under its own name (STS12-16)."""
    return ScoredPairs(
        name,
        [text for part in parts for text in part.first],
        [text for part in parts for text in part.second],
        np.concatenate([part.gold_N for part in parts]),
        [part.name for part in parts for _ in range(len(part))],
        [line for part in parts for line in part.lines],
        [source for part in parts for source in part.sources],
        [f"{part.name}: {note}" for part in parts for note in part.notes],
    )
