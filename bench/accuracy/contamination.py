"""Test sentences that stand in a training corpus: exactly (after case folding and punctuation), or nearly.

Near duplicates are found by MinHash (datasketch) and confirmed by the exact Jaccard similarity of character 5-grams: a
reported one is one. Corpora are streamed; memory holds the test sentences and a hash of each distinct sentence.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import unicodedata
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.accuracy.corpora import corpus_streams
from msdc.errors import InputError
from msdc.progress import track

SHINGLE = 5
NEAR = 0.7
PERMUTATIONS = 64
EXAMPLES = 5
# The index answers at a lower similarity than the one reported, since its answer is an estimate.
INDEX_SLACK = 0.15


@functools.cache
def _dropped() -> dict[int, None]:
    """Punctuation, symbols, control and format characters, as `str.translate` takes them."""
    letters = ((code, chr(code)) for code in range(sys.maxunicode + 1))
    kinds = ("P", "S", "Cc", "Cf")
    return {code: None for code, c in letters if unicodedata.category(c).startswith(kinds) and not c.isspace()}


def normalise(text: str) -> str:
    """Case-folded, compatibility forms unified, punctuation and symbols dropped, runs of space made one."""
    # a punctuation mark parts words ("well-known") or does not ("don't"); dropping it always is the stricter test
    return " ".join(unicodedata.normalize("NFKC", text).casefold().translate(_dropped()).split())


def shingles(normal: str) -> set[str]:
    """Character 5-grams; a shorter text is its own shingle."""
    if len(normal) <= SHINGLE:
        return {normal}
    return {normal[i : i + SHINGLE] for i in range(len(normal) - SHINGLE + 1)}


class _Hasher:
    """MinHash of shingle sets; one object holds the permutations, so that making one costs a copy."""

    def __init__(self) -> None:
        from datasketch import MinHash

        # crc32 in place of the default sha1: five times faster, and MinHash permutes it anyway
        self._base = MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=zlib.crc32)

    def of(self, parts: set[str]) -> Any:
        """MinHash of a shingle set."""
        one = self._base.copy()
        one.update_batch([part.encode("utf-8", "surrogatepass") for part in parts])
        return one


@dataclass
class _Counts:
    exact: set[str] = field(default_factory=set)
    near: set[str] = field(default_factory=set)
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Findings:
    """What one check found: per test set, and about the corpora."""

    by_set: dict[str, dict[str, Any]]
    corpora: list[dict[str, Any]]


class _Index:
    """Test sentences by normal form, and near ones by MinHash."""

    def __init__(self, tests: dict[str, list[str]], near: float | None) -> None:
        self.near = near
        # normal form -> (set, text number) of its occurrences
        self.where: dict[str, list[tuple[str, int]]] = {}
        for name, texts in tests.items():
            for number, text in enumerate(texts, start=1):
                normal = normalise(text)
                if normal:
                    self.where.setdefault(normal, []).append((name, number))
        if near is None:
            return
        from datasketch import MinHashLSH

        self.hasher = _Hasher()
        self.parts = {normal: shingles(normal) for normal in self.where}
        self.known = set().union(*self.parts.values()) if self.parts else set()
        # false positives are dropped by the exact comparison, so the index leans towards finding too much
        self.lsh = MinHashLSH(max(0.1, near - INDEX_SLACK), num_perm=PERMUTATIONS, weights=(0.2, 0.8))
        with self.lsh.insertion_session() as session:
            for normal, parts in self.parts.items():
                session.insert(normal, self.hasher.of(parts), check_duplication=False)

    def near_matches(self, normal: str) -> list[tuple[str, float]]:
        """Test sentences whose shingles overlap enough, with the exact Jaccard similarity."""
        assert self.near is not None
        parts = shingles(normal)
        # J(a, b) >= t needs |a and b| >= t |a|; shingles that no test sentence has cannot be in b
        if len(parts & self.known) < self.near * len(parts):
            return []
        found = []
        for candidate in self.lsh.query(self.hasher.of(parts)):
            other = self.parts[candidate]
            shared = len(parts & other)
            jaccard = shared / (len(parts) + len(other) - shared)
            if jaccard >= self.near:
                found.append((candidate, jaccard))
        return found


def check(
    tests: dict[str, list[str]], corpora: Iterable[str | Path], *, near: float | None = NEAR, progress: bool = False
) -> Findings:
    """Look for the sentences of every test set in every corpus.

    `tests` maps a set's name to its sentences. Counts are of distinct test sentences by normal form: `exact`, and
    `near` (similar at or above `near` and not exact). near=None looks for exact ones only.

    Raises:
        InputError: a corpus that is missing or damaged, or `near` outside 0..1.
    """
    if near is not None and not 0 < near <= 1:
        raise InputError(f"the near-duplicate similarity {near} is not between 0 and 1")
    index = _Index(tests, near)
    counts = {name: _Counts() for name in tests}
    by_corpus: list[dict[str, Any]] = []
    seen: set[bytes] = set()
    repeats: dict[bytes, list[tuple[str, float]]] = {}
    for stream in track(corpus_streams(corpora), "contamination", enabled=progress):
        entry: dict[str, Any] = {"file": stream.name, "sha256": stream.sha256, "sentences": 0, "exact": 0, "near": 0}
        hits: dict[str, set[str]] = {"exact": set(), "near": set()}
        for line, text in stream.sentences():
            normal = normalise(text)
            if not normal:
                continue
            entry["sentences"] += 1
            key = hashlib.blake2b(normal.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            if key in seen:
                matches = repeats.get(key, [])
            else:
                seen.add(key)
                matches = [(normal, 1.0)] if normal in index.where else []
                if near is not None:
                    matches += [match for match in index.near_matches(normal) if match[0] != normal]
                if matches:
                    repeats[key] = matches
            for match, similarity in matches:
                kind = "exact" if match == normal else "near"
                hits[kind].add(match)
                _note(counts, index.where[match], match, kind, similarity, stream.name, line)
        entry |= {"exact": len(hits["exact"]), "near": len(hits["near"] - hits["exact"])}
        by_corpus.append(entry)
    return Findings({name: _summary(tests[name], counts[name], near) for name in tests}, by_corpus)


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
