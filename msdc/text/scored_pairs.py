"""Scored sentence pairs in every published layout: STS2017 and STS12-16, STSb, SICK, STSb-multi, KorSTS, graded pairs.

The layout is inferred from the first line and then required of every line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from msdc.errors import InputError
from msdc.text.text_files import Lines, SourceFile, read_csv_rows, read_lines

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
    sources: list[SourceFile]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.first)

    def texts(self) -> list[str]:
        """Every sentence, first sides then second sides."""
        return self.first + self.second

    def where(self, position: int) -> str:
        """Set name, line and side of text `position` of `texts()`."""
        row, side = position % len(self), 1 + position // len(self)
        return f"{self.name} line {self.lines[row]} (sentence {side})"

    def renamed(self, name: str) -> ScoredPairs:
        """The same pairs under another name."""
        return replace(self, name=name)

    def spread(self, limit: int) -> ScoredPairs:
        """At most `limit` pairs, evenly spread over the file."""
        rows = slice(None, None, -(-len(self) // limit) or 1)
        return replace(
            self,
            first=self.first[rows],
            second=self.second[rows],
            gold_N=self.gold_N[rows],
            subsets=self.subsets[rows],
            lines=self.lines[rows],
        )


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
    """Layout of a file, inferred from its first row."""
    named = _named_columns(cells)
    if named is not None:
        return named
    if len(cells) == 3 and _is_number(cells[0]):
        return _Columns(0, 1, 2)
    if len(cells) == 3 and _is_number(cells[2]):
        return _Columns(2, 0, 1)
    if len(cells) == 5 and _is_number(cells[0]):
        # graded pairs without their header: score, both languages, s1, s2
        return _Columns(0, 3, 4, (1, 2), (5, 5))
    if len(cells) in (7, 8, 9) and _is_number(cells[4]):
        # STSb: genre, file, year, id, score, s1, s2 and on some rows the sources of both sentences
        return _Columns(4, 5, 6, width=(7, 9))
    return None


def parse_gold(text: str, limits: tuple[float, float], fail: Callable[[str], InputError]) -> float:
    """A gold score within `limits`.

    Raises:
        InputError: made by `fail`, when the text is not a number or the number is outside `limits`.
    """
    try:
        value = float(text)
    except ValueError:
        raise fail(f"the score {text[:20]!r} is not a number") from None
    low, high = limits
    if not low <= value <= high:
        raise fail(f"the gold score {text.strip()} is outside {low:g}..{high:g}")
    return value


def read_pairs(
    path: str | Path, name: str | None = None, limits: tuple[float, float] = GOLD_RANGE, skip_bad: bool = False
) -> ScoredPairs:
    """Read scored pairs from a .tsv, .csv or .txt file, plain or gzip.

    Layouts: `score s1 s2`, `s1 s2 score`, `score language1 language2 s1 s2`, STSb's seven columns, and any file with a
    header that names score and sentences (SICK, KorSTS, GLUE, graded pairs with languages). An official
    `STS.input.X.txt` finds its `STS.gs.X.txt`.

    Args:
        path: the file.
        name: name of the set; None: the file's name without its endings.
        limits: lowest and highest gold score.
        skip_bad: leave out rows that do not fit the layout, and say how many in `notes`, instead of raising.

    Raises:
        InputError: unknown layout, a wrong column count, a score that is no number or outside `limits`, an empty
            sentence, each with the line number; or no pair at all.
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
    if skip_bad:
        # Rows before the first one of a known layout are a header that names its columns in another way.
        known = next((index for index, (_, cells) in enumerate(rows) if _columns(cells) is not None), 0)
        rows = rows[known:]
    columns = _columns(rows[0][1])
    if columns is None:
        raise source.error(
            rows[0][0],
            f"{len(rows[0][1])} {separator}-separated columns without a known layout; expected: score, sentence 1, "
            "sentence 2 (or a header with score, sentence1, sentence2)",
        )
    rows = rows[1:] if columns.header else rows
    return _collect(source, rows, columns, separator, name or _stem(path), limits, skip_bad)


def _collect(
    source: Lines,
    rows: list[tuple[int, list[str]]],
    columns: _Columns,
    separator: str,
    name: str,
    limits: tuple[float, float],
    skip_bad: bool = False,
) -> ScoredPairs:
    low, high = columns.width

    def parse(number: int, cells: list[str]) -> tuple[float, str, str]:
        if not low <= len(cells) <= high:
            raise source.error(number, f"{len(cells)} {separator}-separated columns, expected {columns.needs()}")
        score = parse_gold(cells[columns.score], limits, partial(source.error, number))
        one, two = cells[columns.first].strip(), cells[columns.second].strip()
        if not one or not two:
            raise source.error(number, f"sentence {2 if one else 1} is empty")
        return score, one, two

    pairs: list[tuple[float, str, str]] = []
    subsets: list[str] = []
    lines: list[int] = []
    skipped: list[str] = []
    for number, cells in rows:
        try:
            pairs.append(parse(number, cells))
        except InputError as error:
            if not skip_bad:
                raise
            skipped.append(str(error).removeprefix(f"{source.path} "))
            continue
        languages = columns.languages
        subsets.append(name if languages is None else "-".join(cells[column].strip() for column in languages))
        lines.append(number)
    if not pairs:
        raise InputError(f"{source.path}: no pairs" + (f"; {skipped[0]}" if skipped else ", only a header"))
    notes = [*source.notes, *([f"{len(skipped)} rows left out; the first: {skipped[0]}"] if skipped else [])]
    gold_N = np.array([score for score, _, _ in pairs], dtype=np.float64)
    first, second = [one for _, one, _ in pairs], [two for _, _, two in pairs]
    return ScoredPairs(name, first, second, gold_N, subsets, lines, [source.source], notes)


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]


def _read_official(input_path: Path, gold_path: Path, name: str | None, limits: tuple[float, float]) -> ScoredPairs:
    """SemEval's own two files: sentences, and one score per line, which is empty where a pair was not annotated."""
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
