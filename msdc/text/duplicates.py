"""Equal and near sentences: a normal form, and near duplicates by MinHash (Broder 1997) with banding.

Two sentences are near when the Jaccard similarity of their sets of character 5-grams is high. The chance that two sets
have the same minimum under a random order is that similarity; BANDS bands of ROWS minima each find a pair at 0.7 with
probability 0.9995 and an unrelated one almost never. Candidates are confirmed by the exact similarity.

Shapes: N sentences, G 5-grams of all of them, P = BANDS x ROWS orders.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Sequence

import numpy as np

SHINGLE = 5
BANDS, ROWS = 28, 4
SEED = 1
NEAR = 0.7  # similarity from which two sentences count as near duplicates


@functools.cache
def _dropped() -> dict[int, None]:
    """Punctuation, symbols, control and format characters, for `str.translate`."""
    letters = ((code, chr(code)) for code in range(sys.maxunicode + 1))
    kinds = ("P", "S", "Cc", "Cf")
    return {code: None for code, c in letters if unicodedata.category(c).startswith(kinds) and not c.isspace()}


def normalise(text: str) -> str:
    """Case-folded NFKC text without punctuation and symbols; runs of space become one."""
    # Punctuation may separate words ("well-known") or not ("don't"); without it more duplicates are found.
    return " ".join(unicodedata.normalize("NFKC", text).casefold().translate(_dropped()).split())


def shingles(normal: str) -> set[str]:
    """Character 5-grams; a shorter text is its own shingle."""
    if len(normal) <= SHINGLE:
        return {normal}
    return {normal[i : i + SHINGLE] for i in range(len(normal) - SHINGLE + 1)}


def jaccard(first: set[str], second: set[str]) -> float:
    """Shared shingles over all shingles."""
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared)


def _mixed(values: np.ndarray) -> np.ndarray:
    """64-bit hash of each value (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


def _grams(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hashes uint32 [G] of all 5-grams, and the offset of each text [N]; short texts are padded with NUL."""
    filled = [text if len(text) >= SHINGLE else text.ljust(SHINGLE, "\0") for text in texts]
    lengths = np.array([len(text) for text in filled])
    codes = np.frombuffer("".join(filled).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    rolled = np.zeros(len(codes) - SHINGLE + 1, dtype=np.uint64)
    for offset in range(SHINGLE):
        rolled = rolled * np.uint64(1_000_003) + codes[offset : len(codes) - SHINGLE + 1 + offset]
    # 5-grams that begin in the last four characters of a text would include the next text.
    ends = lengths.cumsum()
    inside = np.ones(len(codes), dtype=bool)
    for back in range(1, SHINGLE):
        inside[ends - back] = False
    counts = lengths - (SHINGLE - 1)
    hashes = (_mixed(rolled) >> np.uint64(32)).astype(np.uint32)[inside[: len(rolled)]]
    return hashes, np.concatenate([[0], counts.cumsum()[:-1]])


class NearIndex:
    """Index of texts for near-duplicate search. `near` is the minimum similarity.

    Texts are in normal form, distinct, and not empty.
    """

    def __init__(self, texts: Sequence[str], near: float) -> None:
        self.texts = list(texts)
        self.near = near
        generator = np.random.default_rng(SEED)
        # x -> a x + b modulo 2^32 with odd a permutes all 32-bit numbers.
        self._factors_P = generator.integers(0, 1 << 32, BANDS * ROWS, dtype=np.uint32) | np.uint32(1)
        self._shifts_P = generator.integers(0, 1 << 32, BANDS * ROWS, dtype=np.uint32)
        self._parts: dict[int, set[str]] = {}
        self._bands: list[tuple[np.ndarray, np.ndarray]] = []
        if self.texts:
            for keys_N in self._band_keys(self.texts):
                order_N = np.argsort(keys_N, kind="stable").astype(np.uint32)
                self._bands.append((keys_N[order_N], order_N))

    def _band_keys(self, texts: Sequence[str]) -> np.ndarray:
        """One key per band and text, uint32 [BANDS, N]; equal where all ROWS minima are equal."""
        hashes_G, starts_N = _grams(texts)
        keys = np.zeros((BANDS, len(texts)), dtype=np.uint64)
        for order, (factor, shift) in enumerate(zip(self._factors_P, self._shifts_P, strict=True)):
            least_N = np.minimum.reduceat(hashes_G * factor + shift, starts_N)
            keys[order // ROWS] = _mixed(keys[order // ROWS] + least_N.astype(np.uint64))
        # Half of each key saves half of the memory; candidates are confirmed.
        return (keys >> np.uint64(32)).astype(np.uint32)

    def _candidates(self, texts: Sequence[str]) -> list[tuple[int, int]]:
        """(position in `texts`, position in the index) of all pairs that share a band."""
        pairs: set[tuple[int, int]] = set()
        for keys_N, (sorted_keys, order) in zip(self._band_keys(texts), self._bands, strict=True):
            first_N = np.searchsorted(sorted_keys, keys_N, side="left")
            last_N = np.searchsorted(sorted_keys, keys_N, side="right")
            for row in np.flatnonzero(last_N > first_N).tolist():
                pairs.update((row, int(j)) for j in order[first_N[row] : last_N[row]])
        return sorted(pairs)

    def matches(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """For each of `texts` (normal form, not empty): the indexed texts at or above `near`, with their similarity."""
        out: list[list[tuple[str, float]]] = [[] for _ in texts]
        if not texts or not self.texts:
            return out
        mine: tuple[int, set[str]] = (-1, set())
        for first, second in self._candidates(texts):
            if mine[0] != first:
                mine = (first, shingles(texts[first]))
            if second not in self._parts:
                self._parts[second] = shingles(self.texts[second])
            similarity = jaccard(mine[1], self._parts[second])
            if similarity >= self.near:
                out[first].append((self.texts[second], similarity))
        return out

    def forget(self) -> None:
        """Free the shingles of candidates, which `matches` keeps for its next call."""
        self._parts.clear()

    def extend(self, other: NearIndex) -> None:
        """Add the texts of `other` behind these; `other` is empty afterwards."""
        offset = np.uint32(len(self.texts))
        self.texts += other.texts
        self._parts.clear()
        for number, (keys_N, order_N) in enumerate(self._bands):
            more_keys_N, more_order_N = other._bands.pop(0)  # band by band: a copy of all of them would be large
            keys_N = np.concatenate([keys_N, more_keys_N])
            order = np.argsort(keys_N, kind="stable")
            self._bands[number] = keys_N[order], np.concatenate([order_N, more_order_N + offset])[order]
        other.texts = []


class GrowingTexts:
    """Texts of which none is near an earlier one: indexes of growing sizes, up to 1 KB per text."""

    def __init__(self, near: float = NEAR) -> None:
        self.near = near
        self._parts: list[NearIndex] = []

    def add(self, texts: Sequence[str]) -> list[bool]:
        """Add those of `texts` (in normal form) that are not near an added one; returns which.

        An empty normal form (punctuation alone) is near no other.
        """
        is_new = [True] * len(texts)
        for part in self._parts:
            numbers = [number for number, text in enumerate(texts) if text and is_new[number]]
            for number, matches in zip(numbers, part.matches([texts[number] for number in numbers]), strict=True):
                is_new[number] = not matches
            part.forget()
        distinct = list(dict.fromkeys(text for number, text in enumerate(texts) if text and is_new[number]))
        added = self._first_of_near(distinct)
        part = NearIndex([text for text, is_first in added.items() if is_first], self.near)
        while self._parts and len(self._parts[-1].texts) < 2 * len(part.texts):
            self._parts[-1].extend(part)
            part = self._parts.pop()
        self._parts += [part] if part.texts else []
        for number, text in enumerate(texts):
            if text and is_new[number]:
                is_new[number], added[text] = added[text], False
        return is_new

    def _first_of_near(self, distinct: Sequence[str]) -> dict[str, bool]:
        """Whether each text is near no earlier one that is itself new.

        Each is compared with new ones only: of ten thousand lines of one pattern all pairs would be a hundred million.
        """
        is_new: dict[str, bool] = {}
        if not distinct:
            return is_new
        by_key: list[dict[int, list[str]]] = [{} for _ in range(BANDS)]
        parts: dict[str, set[str]] = {}
        for text, keys in zip(distinct, NearIndex([], self.near)._band_keys(distinct).T.tolist(), strict=True):
            others = {other for texts, key in zip(by_key, keys, strict=True) for other in texts.get(key, ())}
            grams = shingles(text) if others else set()
            for other in others - parts.keys():
                parts[other] = shingles(other)
            is_new[text] = all(jaccard(grams, parts[other]) < self.near for other in others)
            if is_new[text]:
                for texts, key in zip(by_key, keys, strict=True):
                    texts.setdefault(key, []).append(text)
        return is_new
