"""Test sentences that occur in a training corpus: exact duplicates (ignoring case and punctuation) and near ones.

Near duplicates are found by MinHash and confirmed by the exact Jaccard similarity of character 5-grams, so there are no
false positives. Corpora are streamed; memory holds the test sentences, a hash of each distinct sentence, and a batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msdc.bench.accuracy.contamination.corpora import CorpusText, corpus_streams
from msdc.errors import InputError
from msdc.progress import track
from msdc.text.duplicates import NEAR, NearIndex, normalise

BATCH = 4096
EXAMPLES = 5


@dataclass
class _Counts:
    exact: set[str] = field(default_factory=set)
    near: set[str] = field(default_factory=set)
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Findings:
    """Results of a check, per test set and per corpus; `seen` are the sentences found, in normal form."""

    by_set: dict[str, dict[str, Any]]
    corpora: list[dict[str, Any]]
    seen: dict[str, frozenset[str]] = field(default_factory=dict)

    def is_seen(self, name: str, text: str) -> bool:
        """Whether a sentence of a test set, or one near it, is in the training text."""
        return normalise(text) in self.seen.get(name, ())


Where = dict[str, list[tuple[str, int]]]
Matches = list[tuple[str, float]]


def _places(tests: dict[str, list[str]]) -> Where:
    """Normal form -> (set, text number) of its occurrences."""
    where: Where = {}
    for name, texts in tests.items():
        for number, text in enumerate(texts, start=1):
            normal = normalise(text)
            if normal:
                where.setdefault(normal, []).append((name, number))
    return where


class _Seen:
    """Matches of corpus sentences; each distinct sentence is looked up once."""

    def __init__(self, where: Where, near: float | None) -> None:
        self.where = where
        self.index = NearIndex(list(where), near) if near is not None else None
        self._keys: set[bytes] = set()
        self._found: dict[bytes, Matches] = {}

    def of(self, normals: Sequence[str]) -> list[Matches]:
        """Per sentence (in normal form), the test sentences that equal it or are near it."""
        keys = [hashlib.blake2b(n.encode("utf-8", "surrogatepass"), digest_size=8).digest() for n in normals]
        fresh = {key: n for key, n in zip(keys, normals, strict=True) if key not in self._keys}
        near = self.index.matches(list(fresh.values())) if self.index is not None else [[] for _ in fresh]
        for (key, normal), similar in zip(fresh.items(), near, strict=True):
            found = [(normal, 1.0)] if normal in self.where else []
            found += [match for match in similar if match[0] != normal]
            if found:
                self._found[key] = found
        self._keys.update(fresh)
        return [self._found.get(key, []) for key in keys]


def _batches(stream: CorpusText) -> Iterator[tuple[list[int], list[str]]]:
    """Batches of (line numbers, sentences in normal form)."""
    lines: list[int] = []
    normals: list[str] = []
    for line, text in stream.sentences():
        normal = normalise(text)
        if not normal:
            continue
        lines.append(line)
        normals.append(normal)
        if len(normals) == BATCH:
            yield lines, normals
            lines, normals = [], []
    if normals:
        yield lines, normals


def check(
    tests: dict[str, list[str]],
    corpora: Iterable[str | Path],
    *,
    near: float | None = NEAR,
    progress: bool = False,
    data: Path | None = None,
) -> Findings:
    """Search every corpus for the sentences of every test set.

    `tests` maps a set's name to its sentences. Counts are of distinct test sentences by normal form: `exact`, and
    `near` (similar at or above `near` and not exact). near=None searches for exact ones only. `data` is the folder
    that {data} stands for in a recipe.

    Raises:
        InputError: a corpus that is missing or damaged, or `near` outside 0..1.
    """
    if near is not None and not 0 < near <= 1:
        raise InputError(f"the near-duplicate similarity {near} is not between 0 and 1")
    where = _places(tests)
    seen = _Seen(where, near)
    counts = {name: _Counts() for name in tests}
    by_corpus: list[dict[str, Any]] = []
    for stream in track(corpus_streams(corpora, data), "contamination", enabled=progress):
        entry: dict[str, Any] = {"file": stream.name, "sha256": stream.sha256, "sentences": 0, "exact": 0, "near": 0}
        hits: dict[str, set[str]] = {"exact": set(), "near": set()}
        for lines, normals in _batches(stream):
            entry["sentences"] += len(normals)
            for line, normal, matches in zip(lines, normals, seen.of(normals), strict=True):
                for match, similarity in matches:
                    kind = "exact" if match == normal else "near"
                    hits[kind].add(match)
                    _note(counts, where[match], match, kind, similarity, stream.name, line)
        entry |= {"exact": len(hits["exact"]), "near": len(hits["near"] - hits["exact"])}
        by_corpus.append(entry)
    found = {name: frozenset(one.exact | one.near) for name, one in counts.items()}
    return Findings({name: _summary(tests[name], counts[name], near) for name in tests}, by_corpus, found)


def _note(
    counts: dict[str, _Counts],
    occurrences: list[tuple[str, int]],
    match: str,
    kind: str,
    similarity: float,
    corpus: str,
    line: int,
) -> None:
    for name, number in occurrences:
        mine = counts[name]
        new = match not in mine.exact and match not in mine.near
        (mine.exact if kind == "exact" else mine.near).add(match)
        if new and len(mine.examples) < EXAMPLES:
            place = {"kind": kind, "similarity": round(similarity, 3), "test_text": number}
            mine.examples.append(place | {"corpus": corpus, "line": line})


def _summary(texts: list[str], counts: _Counts, near: float | None) -> dict[str, Any]:
    distinct = len({normal for text in texts if (normal := normalise(text))})
    return {
        "sentences": distinct,
        "exact": len(counts.exact),
        "near": len(counts.near - counts.exact) if near is not None else None,
        "near_at": near,
        "examples": counts.examples,
    }
