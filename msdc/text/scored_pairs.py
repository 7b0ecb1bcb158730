"""Scored sentence pairs in every published layout: STS2017 and STS12-16, STSb, SICK, STSb-multi, KorSTS, graded pairs.

The layout is inferred from the first line and then required of every line.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from msdc.errors import InputError
from msdc.text.tabular import EMPTY_LINE, JSON_LINES, delimited_rows, is_number, open_table, suffix_of
from msdc.text.text_files import Lines, SourceFile, bare_name, read_lines, source_file, unusable

GOLD_RANGE = (0.0, 5.0)
ANY_SCORE = (-math.inf, math.inf)  # for rank correlations
# column names in the wild -> ours
SCORE_NAMES = ("score", "similarity", "similarity_score", "relatedness_score", "gold", "label")
FIRST_NAMES = ("sentence_1", "sentence1", "sentence_a", "s1", "text1")
SECOND_NAMES = ("sentence_2", "sentence2", "sentence_b", "s2", "text2")
LANGUAGE_NAMES = (("language_1", "language1", "lang1"), ("language_2", "language2", "lang2"))


@dataclass(frozen=True)
class ScoredPairs:
    """N sentence pairs with gold scores; `subsets` names the part each pair belongs to (one name when undivided).

    `lines` has the line number of each pair in its file, for messages.
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
        columns = ("first", "second", "gold_N", "subsets", "lines")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


class _Layout(NamedTuple):
    """The columns of score, sentences and languages (if any) in rows of `widths` (least, most) columns."""

    widths: tuple[int, int]
    score: int
    first: int
    second: int
    languages: tuple[int, int] | None = None
    header: bool = False


# Published layouts without a header; the first with a number as score is used.
SCORE_FIRST = _Layout((3, 3), 0, 1, 2)
LAYOUTS = (
    SCORE_FIRST,
    _Layout((3, 3), 2, 0, 1),
    _Layout((5, 5), 0, 3, 4, (1, 2)),  # graded pairs without their header: score, both languages, s1, s2
    # STSb: genre, file, year, id, score, s1, s2 and on some rows the sources of both sentences
    _Layout((7, 9), 4, 5, 6),
)


def _find_layout(cells: list[Any] | str) -> _Layout | None:
    """Layout of a file, inferred from its first row."""
    if isinstance(cells, str) or not all(isinstance(cell, str) for cell in cells):
        return None
    names = [cell.strip().lower() for cell in cells]

    def find(*candidates: tuple[str, ...]) -> list[int]:
        """The first matching column of each set of names."""
        positions = ([names.index(name) for name in alternatives if name in names] for alternatives in candidates)
        return [places[0] for places in positions if places]

    width = len(cells)
    if len(places := find(SCORE_NAMES, FIRST_NAMES, SECOND_NAMES)) == 3:
        languages = find(*LANGUAGE_NAMES)
        both = (languages[0], languages[1]) if len(languages) == 2 else None
        return _Layout((width, width), places[0], places[1], places[2], both, header=True)
    fit = (kind for kind in LAYOUTS if kind.widths[0] <= width <= kind.widths[1] and is_number(cells[kind.score]))
    return next(fit, None)


def parse_gold(text: str, limits: tuple[float, float], fail: Callable[[str], InputError]) -> float:
    """A gold score within `limits`."""
    try:
        value = float(text)
    except ValueError:
        raise fail(f"the score {text[:20]!r} is not a number") from None
    low, high = limits
    if not low <= value <= high or math.isinf(value):
        raise fail(f"the gold score {text.strip()} is outside {low:g}..{high:g}")
    return value


def read_pairs(
    path: str | Path, name: str | None = None, limits: tuple[float, float] = GOLD_RANGE, skip_bad: bool = False
) -> ScoredPairs:
    """Read scored pairs from a table of any format that training reads.

    Layouts: those of `LAYOUTS`, and any file with a header that names score and sentences (SICK, KorSTS, GLUE, graded
    pairs with languages), JSON and parquet with such names. An official `STS.input.X.txt` finds its `STS.gs.X.txt`.

    Args:
        path: the file.
        name: name of the set; None: the file's name without its endings.
        limits: lowest and highest gold score.
        skip_bad: skip rows that do not fit the layout, and count them in `notes`, instead of raising.

    Raises:
        InputError: unknown layout, a wrong column count, a score that is not a number or outside `limits`, an empty
            sentence, each with the line number; or no pairs.
    """
    path = Path(path)
    name = name or bare_name(path.name).rsplit(".", 1)[0].replace("STS.input.", "")
    sources, notes, columns = [], list[str](), "columns"
    rows: list[tuple[int, list[Any] | str]]
    layout: _Layout | None = None
    if ".input." in path.name:
        source, scores, judged = _read_official(path)
        rows, layout, sources = list(judged), SCORE_FIRST, [scores.source]
        notes += scores.notes
        if unjudged := len(source.lines) - len(rows):
            notes.append(f"{unjudged} pairs without a gold score skipped")
    elif suffix_of(path) in (*JSON_LINES, ".parquet"):
        table = open_table(path)
        source = Lines(path, [], source_file(path))
        rows = [(1, list(table.names)), *table.read(range(table.width))]
        columns = f"columns of {table.form}"
    else:
        source = read_lines(path)
        form, read = delimited_rows(path)
        rows = list(islice(read(), len(source.lines)))
        columns = "tab-separated columns" if suffix_of(path) != ".csv" else f"columns of {form}"
    while rows and rows[-1][1] in (EMPTY_LINE, []):
        rows.pop()
    if layout is None:
        # With `skip_bad`, rows before the first one of a known layout are a header with other names.
        places = [index for index, (_, cells) in enumerate(rows[: None if skip_bad else 1]) if _find_layout(cells)]
        rows = rows[places[0] if places else 0 :]
        layout = _find_layout(rows[0][1]) if rows else None
    if layout is None:
        number, cells = rows[0] if rows else (1, [])
        unknown = f"{len(cells) or 1} {columns} without a known layout; expected: score, sentence 1, sentence 2"
        why = cells if isinstance(cells, str) else f"{unknown} (or names score, sentence1, sentence2)"
        raise source.error(number, why)
    low, high = layout.widths

    def parse(number: int, row: list[Any] | str) -> tuple[str, str, float, str, int]:
        if not row or isinstance(row, str):
            raise source.error(number, str(row or EMPTY_LINE))
        if not low <= len(row) <= high:
            expected = f"{low}" if low == high else f"{low} to {high}"
            raise source.error(number, f"{len(row)} {columns}, expected {expected}")
        cells = ["" if cell is None else str(cell) for cell in row]
        gold = parse_gold(cells[layout.score], limits, partial(source.error, number))
        first_sentence, second_sentence = cells[layout.first].strip(), cells[layout.second].strip()
        if not first_sentence or not second_sentence:
            raise source.error(number, f"sentence {2 if first_sentence else 1} is empty")
        if why := unusable(first_sentence + second_sentence):
            raise source.error(number, why)
        subset = "-".join(cells[column].strip() for column in layout.languages) if layout.languages else name
        return first_sentence, second_sentence, gold, subset, number

    pairs, skipped = [], list[str]()
    for number, cells in rows[layout.header :]:
        try:
            pairs.append(parse(number, cells))
        except InputError as error:
            if not skip_bad:
                raise
            skipped.append(str(error).removeprefix(f"{source.path} "))
    if not pairs:
        raise InputError(f"{source.path}: no pairs" + (f"; {skipped[0]}" if skipped else ", only a header"))
    if skipped:
        notes.append(f"{len(skipped)} rows skipped; the first: {skipped[0]}")
    first, second, gold, subsets, lines = (list(column) for column in zip(*pairs, strict=True))
    gold_N = np.array(gold, dtype=np.float64)
    return ScoredPairs(name, first, second, gold_N, subsets, lines, [source.source, *sources], source.notes + notes)


def _read_official(path: Path) -> tuple[Lines, Lines, list[tuple[int, list[str]]]]:
    """SemEval's two files: sentences, and one score per line, which is empty for a pair without annotation."""
    gold_path = path.with_name(path.name.replace(".input.", ".gs."))
    sentences, scores = read_lines(path), read_lines(gold_path)
    # Empty lines at the end are pairs without a score.
    scores.lines += [""] * min(scores.blank, max(0, len(sentences.lines) - len(scores.lines)))
    if len(sentences.lines) != len(scores.lines):
        raise InputError(
            f"{gold_path} has {len(scores.lines)} lines and {path.name} {len(sentences.lines)}: "
            f"line {min(len(sentences.lines), len(scores.lines)) + 1} has no counterpart"
        )
    both = enumerate(zip(sentences.lines, scores.lines, strict=True), start=1)
    return sentences, scores, [(n, [score, *line.split("\t")[:2]]) for n, (line, score) in both if score.strip()]


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
