"""Excludes rows whose source or target is equal or nearly equal to a sentence of a test set.

Equal means equal in the normal form of msdc.text.duplicates (case-folded, without punctuation); nearly equal, a Jaccard
similarity of character 5-grams of at least NEAR, as `msdc evaluate` uses to find test sentences in training text.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from msdc.distill.data import Row
from msdc.errors import InputError
from msdc.files import matching_files
from msdc.text.duplicates import NEAR, NearIndex, normalise
from msdc.text.tabular import iterate_cells

FIRST_BATCH, BATCH = 64, 4096
# Why a row is left out
EXCLUDED = ("equal to a sentence of `exclude`", "near a sentence of `exclude`")


def excluded_files(patterns: Sequence[str]) -> list[Path]:
    """The files of paths or globs, each once."""
    files = {pattern: matching_files(pattern) for pattern in patterns}
    if (missing := next((pattern for pattern, paths in files.items() if not paths), None)) is not None:
        raise InputError(f"exclude: {missing}: no such file")
    return list(dict.fromkeys(chain.from_iterable(files.values())))


def sentences_of(path: Path) -> set[str]:
    """Normal forms of the sentences in a file of any format that training reads.

    Cells without a letter (scores, numbers) are skipped.
    """
    sentences = {normal for _, cell in iterate_cells(path) if any(map(str.isalpha, normal := normalise(cell)))}
    if not sentences:
        raise InputError(f"exclude: {path}: contains no text")
    return sentences


class Exclusion:
    """The sentences of `files`, and the rows of corpora that contain one.

    Each row is compared once per corpus and process, not in later readings.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.sentences = frozenset[str]().union(*map(sentences_of, files))
        self.digest = hashlib.blake2b("\n".join(sorted(self.sentences)).encode(), digest_size=16).hexdigest()
        self._index = NearIndex(sorted(self.sentences), NEAR)
        self._verdicts: dict[Hashable, array[int]] = {}

    def _verdicts_of(self, rows: Sequence[Row]) -> list[int]:
        """0 for each row to keep, else 1 more than the index in `EXCLUDED`."""
        sides = [[normalise(text) for text in (row.source, row.target, *row.negatives) if text] for row in rows]
        fresh = sorted({text for texts in sides for text in texts} - self.sentences - {""})
        near = {text for text, near_matches in zip(fresh, self._index.matches(fresh), strict=True) if near_matches}
        equal = [any(text in self.sentences for text in texts) for texts in sides]
        return [
            1 if same else 2 * any(text in near for text in texts) for same, texts in zip(equal, sides, strict=True)
        ]

    def judge(self, key: Hashable, entries: Iterator[tuple[int, Row | str]]) -> Iterator[tuple[int, Row | str]]:
        """The entries; a row with an excluded sentence is the reason. `key` identifies them in later readings."""
        verdicts = self._verdicts.setdefault(key, array("b"))
        start, size = 0, FIRST_BATCH
        while batch := list(islice(entries, size)):
            rows = [row for _, row in batch if not isinstance(row, str)]
            if start + len(rows) > len(verdicts):
                verdicts.extend(self._verdicts_of(rows)[len(verdicts) - start :])
            out = iter(verdicts[start : start + len(rows)])
            start, size = start + len(rows), min(2 * size, BATCH)
            for line, row in batch:
                verdict = 0 if isinstance(row, str) else next(out)
                yield line, EXCLUDED[verdict - 1] if verdict else row


def read_exclusion(patterns: Sequence[str]) -> Exclusion | None:
    """The exclusion of a recipe's `exclude`; None if it is empty."""
    return Exclusion(excluded_files(patterns)) if patterns else None
