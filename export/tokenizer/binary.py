"""The layout of `tokenizer.bin`, read by export/native/src/compiled_file.h.

Little-endian 32-bit words. Header: magic (8 bytes), version, number of tables, bytes of the file, then offset and size
of each table. Table 0 is the description: a stream of words that names the other tables by number, in this order:
character sets, character maps, patterns (each a count and table numbers), the sets of word characters and of white
space, added tokens matched before and after normalization (each: text table, table of id and flags, set of first
characters), normalizer rules, splitting steps, vocabulary, model, size, special ids before and after.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from msdc.errors import InputError

MAGIC = b"msdctok\0"
VERSION = 1
NONE = 0xFFFFFFFF
MAX_PROBE = 256
MAX_TEXT_BYTES = 1024
MAX_TEXTS = 2**20 - 2
MAX_STEPS = 256  # normalizer rules, and splitting steps
REPLACE, SHIFT, SURROUND, NUMBER = 1, 2, 3, 4

Range = tuple[int, int]  # code points [start, end)


def unsupported(what: str) -> InputError:
    """The refusal of a component."""
    return InputError(f"tokenizer.json: the native core does not support {what}")


def _words(values: Iterable[int]) -> bytes:
    return np.asarray([value & 0xFFFFFFFF for value in values], dtype="<u4").tobytes()


def _layout(home_N: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Order and slots (int64 [N]) of a linear-probing table without wrap-around, number of slots and longest probe."""
    if not len(home_N):
        return home_N, home_N, slots, 0
    order_N, count_N = np.argsort(home_N, kind="stable"), np.arange(len(home_N))
    slot_N = count_N + np.maximum.accumulate(home_N[order_N] - count_N)
    probe = int((slot_N - home_N[order_N]).max()) + 1
    if probe > MAX_PROBE:
        raise InputError("the tokenizer's table has too many collisions to be compiled")
    return order_N, slot_N, max(slots, int(slot_N[-1]) + 1), probe


def _home(mixed_N: np.ndarray, slots: int) -> np.ndarray:
    """The slot that a hash falls on, int64 [N]."""
    return (((mixed_N >> np.uint64(32)) * np.uint64(slots)) >> np.uint64(32)).astype(np.int64)


def text_table(texts: Sequence[bytes | None]) -> bytes:
    """A hash table from texts to their positions; None leaves a position without text."""
    raw = [text or b"" for text in texts]
    longest = max((len(text) for text in raw), default=0)
    if len(texts) > MAX_TEXTS or longest > MAX_TEXT_BYTES:
        raise unsupported(f"more than {MAX_TEXTS} tokens or {MAX_TEXT_BYTES} bytes of one: {len(texts)}, {longest}")
    length_N = np.asarray([len(text) for text in raw], dtype=np.int64)
    offset_N = np.concatenate([[0], np.cumsum(length_N)]).astype(np.int64)
    joined = np.frombuffer(b"".join(raw) + b"\0", dtype=np.uint8)
    hash_N = np.full(len(raw), 2166136261, dtype=np.uint64)
    for position in range(longest):
        here = np.flatnonzero(length_N > position)
        byte = joined[offset_N[here] + position].astype(np.uint64)
        hash_N[here] = ((hash_N[here] ^ byte) * np.uint64(16777619)) & np.uint64(0xFFFFFFFF)
    present = np.asarray([i for i, text in enumerate(texts) if text], dtype=np.int64)
    mixed = (hash_N[present] + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    slots = 2 * len(present) + 1
    order, slot, total, probe = _layout(_home(mixed, slots), slots)
    filled = np.zeros(total, dtype="<u4")
    tags = ((mixed[order] & np.uint64(0xFFF)) << np.uint64(20)).astype(np.uint32)
    filled[slot] = tags | (present[order] + 1).astype(np.uint32)
    head = _words([len(raw), slots, probe, longest, total])
    return head + filled.tobytes() + offset_N.astype("<u4").tobytes() + b"".join(raw)


def pair_table(pairs: Mapping[tuple[int, int], tuple[int, int]]) -> bytes:
    """A hash table from (left, right) to (rank, result)."""
    key = np.asarray(list(pairs), dtype=np.uint64).reshape(-1, 2)
    value = np.asarray(list(pairs.values()), dtype=np.uint64).reshape(-1, 2)
    with np.errstate(over="ignore"):
        mixed = key[:, 0] * np.uint64(0x9E3779B97F4A7C15) + key[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    slots = 2 * len(key) + 1
    order, slot, total, probe = _layout(_home(mixed, slots), slots)
    filled = np.full((total, 4), NONE, dtype="<u4")
    filled[slot, :2], filled[slot, 2:] = key[order].astype(np.uint32), value[order].astype(np.uint32)
    return _words([slots, probe]) + filled.tobytes()


# Planes 4 to 13 are unassigned in every version of Unicode and 15 and 16 are for private use: one character of each
# represents all, and one for the two noncharacters at the end of each.
_LIKE = {
    0x40000: [(plane << 16, (plane << 16) + 0xFFFE) for plane in range(4, 14)],
    0x4FFFE: [((plane << 16) + 0xFFFE, (plane + 1) << 16) for plane in range(4, 14)],
    0xF0000: [(plane << 16, (plane << 16) + 0xFFFE) for plane in (15, 16)],
    0xFFFFE: [((plane << 16) + 0xFFFE, (plane + 1) << 16) for plane in (15, 16)],
}
PROBED = [code for plane in (0, 1, 2, 3, 14) for code in range(plane << 16, (plane + 1) << 16)]
PROBED = sorted({code for code in PROBED if not 0xD800 <= code <= 0xDFFF} | set(_LIKE))


def ranges_of(codes: Iterable[int]) -> list[Range]:
    """Code points as sorted ranges, those that stand for others widened to them."""
    out: list[Range] = []
    for start, end in sorted(pair for code in set(codes) for pair in _LIKE.get(code, [(code, code + 1)])):
        if out and out[-1][1] == start:
            out[-1] = (out[-1][0], end)
        else:
            out.append((start, end))
    return out


def character_set(ranges: Iterable[Range]) -> bytes:
    """A set of code points."""
    return _words(number for pair in ranges for number in pair)


def character_map(changes: Mapping[int, str], *, surround: str = "") -> bytes:
    """What code points become; a text `surround` + character + `surround` is stored once per range."""
    pool = bytearray()
    places: dict[bytes, int] = {}

    def text(value: str) -> int:
        raw = value.encode()
        if raw not in places:
            places[raw] = len(pool)
            pool.extend(raw)
        if len(raw) > 255 or places[raw] >= 2**24:
            raise InputError("the tokenizer's normalizer makes a text too long to be compiled")
        return places[raw] << 8 | len(raw)

    entries: list[list[int]] = []
    for code, new in sorted(changes.items()):
        if surround and new == f"{surround}{chr(code)}{surround}":
            action, value = SURROUND, text(surround)
        elif len(new) == 1:
            action, value = SHIFT, (ord(new) - code) & 0xFFFFFFFF
        else:
            action, value = REPLACE, text(new)
        for start, end in _LIKE.get(code, [(code, code + 1)]):
            if entries and entries[-1][1] == start and entries[-1][2:] == [action, value]:
                entries[-1][1] = end
            else:
                entries.append([start, end, action, value])
    entries.sort()
    return _words([len(entries), *(number for entry in entries for number in entry)]) + bytes(pool)


def number_map(numbers: Mapping[int, int]) -> bytes:
    """A map from code points to numbers."""
    rows = [(code, code + 1, NUMBER, number) for code, number in sorted(numbers.items())]
    return _words([len(rows), *(number for row in rows for number in row)])


class Tables:
    """The tables of a file, equal ones stored once.

    Character sets, maps and patterns are numbered on their own as well: rules and patterns name them by those numbers.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}  # of the description, table 0, none yet
        self._sets: list[int] = []
        self._maps: list[int] = []
        self._patterns: list[int] = []

    def add(self, blob: bytes) -> int:
        """Number of the table with this content."""
        return self._places.setdefault(blob, len(self._places) + 1)

    def add_short(self, text: str) -> int:
        """Number of the table of a text that replaces parts of a text; bounded, so that no text grows without end."""
        raw = text.encode()
        if len(raw) > MAX_TEXT_BYTES:
            raise unsupported(f"a replacement or prefix of {len(raw)} bytes")
        return self.add(raw)

    def _number(self, kind: list[int], blob: bytes) -> int:
        table = self.add(blob)
        if table not in kind:
            kind.append(table)
        return kind.index(table)

    def set(self, ranges: Iterable[Range]) -> int:
        """Number of a character set."""
        return self._number(self._sets, character_set(ranges))

    def map(self, blob: bytes) -> int:
        """Number of a character map."""
        return self._number(self._maps, blob)

    def pattern(self, program: Sequence[tuple[int, int, int, int]]) -> int:
        """Number of a pattern, given as instructions."""
        return self._number(self._patterns, _words(number for instruction in program for number in instruction))

    def numbered(self) -> list[int]:
        """The first words of the description."""
        return [word for kind in (self._sets, self._maps, self._patterns) for word in (len(kind), *kind)]

    def write(self, description: Sequence[int]) -> bytes:
        """The whole file."""
        blobs = [_words(description), *self._places]
        head = len(MAGIC) + 12 + 8 * len(blobs)
        records, body = b"", bytearray()
        for blob in blobs:
            records += struct.pack("<II", head + len(body), len(blob))
            body += blob + bytes(-len(blob) % 4)
        return MAGIC + struct.pack("<III", VERSION, len(blobs), head + len(body)) + records + bytes(body)
