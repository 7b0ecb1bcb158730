"""Scored sentence pairs in every published layout: STS2017 and STS12-16, STSb, SICK, STSb-multi, KorSTS, graded pairs.

The layout is inferred from the first line and then required of every line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from msdc.errors import InputError
from msdc.text.tabular import is_number
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


def _find_layout(cells: list[str]) -> _Layout | None:
    """Layout of a file, inferred from its first row."""
    names = [cell.strip().lower() for cell in cells]

    def find(*candidates: tuple[str, ...]) -> list[int]:
        """The first matching column of each set of names."""
        found = ([names.index(name) for name in known if name in names] for known in candidates)
        return [places[0] for places in found if places]

    width = len(cells)
    if len(places := find(SCORE_NAMES, FIRST_NAMES, SECOND_NAMES)) == 3:
        languages = find(*LANGUAGE_NAMES)
        both = (languages[0], languages[1]) if len(languages) == 2 else None
        return _Layout((width, width), places[0], places[1], places[2], both, header=True)
    fit = (one for one in LAYOUTS if one.widths[0] <= width <= one.widths[1] and is_number(cells[one.score]))
    return next(fit, None)


def parse_gold(text: str, limits: tuple[float, float], fail: Callable[[str], InputError]) -> float:
    """A gold score within `limits`."""
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

    Layouts: those of `LAYOUTS`, and any file with a header that names score and sentences (SICK, KorSTS, GLUE, graded
    pairs with languages). An official `STS.input.X.txt` finds its `STS.gs.X.txt`.

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
    name = name or path.name.removesuffix(".gz").rsplit(".", 1)[0].replace("STS.input.", "")
    separator, sources, notes = "tab", [], list[str]()
    layout: _Layout | None = None
    if ".input." in path.name:
        source, scores, rows = _read_official(path)
        layout, sources = SCORE_FIRST, [scores.source]
        notes += scores.notes
        if unjudged := len(source.lines) - len(rows):
            notes.append(f"{unjudged} pairs without a gold score skipped")
    elif path.name.removesuffix(".gz").endswith(".csv"):
        source, rows = read_csv_rows(path)
        separator = "comma"
    else:
        source = read_lines(path)
        rows = [(number, line.split("\t")) for number, line in enumerate(source.lines, start=1)]
    if skip_bad and layout is None:
        # Rows before the first one of a known layout are a header with other names.
        rows = rows[next((at for at, (_, cells) in enumerate(rows) if _find_layout(cells) is not None), 0) :]
    if layout is None and (layout := _find_layout(rows[0][1])) is None:
        raise source.error(
            rows[0][0],
            f"{len(rows[0][1])} {separator}-separated columns without a known layout; expected: score, sentence 1, "
            "sentence 2 (or a header with score, sentence1, sentence2)",
        )
    low, high = layout.widths

    def parse(number: int, cells: list[str]) -> tuple[str, str, float, str, int]:
        if not low <= len(cells) <= high:
            expected = f"{low}" if low == high else f"{low} to {high}"
            raise source.error(number, f"{len(cells)} {separator}-separated columns, expected {expected}")
        gold = parse_gold(cells[layout.score], limits, partial(source.error, number))
        one, two = cells[layout.first].strip(), cells[layout.second].strip()
        if not one or not two:
            raise source.error(number, f"sentence {2 if one else 1} is empty")
        subset = "-".join(cells[column].strip() for column in layout.languages) if layout.languages else name
        return one, two, gold, subset, number

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
