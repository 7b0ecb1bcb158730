"""Character sets and maps as the `tokenizers` library itself has them, found by asking it about every code point.

Its Unicode version is the one that counts, and it is none of Python's. Each answer is computed once per process.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from msdc.export.tokenizer.binary import PROBED, Range, ranges_of

_BLOCK = 64


@functools.cache
def _every() -> str:
    return "".join(map(chr, PROBED))


def _absent(pieces: list[tuple[str, tuple[int, int]]]) -> tuple[Range, ...]:
    """Code points that are in no piece of `_every()`."""
    return tuple(complement(ranges_of(code for _, (start, end) in pieces for code in PROBED[start:end])))


def complement(ranges: list[Range]) -> list[Range]:
    """All other code points."""
    out, next_start = [], 0
    for start, end in ranges:
        if start > next_start:
            out.append((next_start, start))
        next_start = end
    return out if next_start >= 0x110000 else [*out, (next_start, 0x110000)]


@functools.cache
def matched_by(pattern: str) -> tuple[Range, ...]:
    """Code points that a pattern of one character matches."""
    unmatched_parts = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed").pre_tokenize_str(_every())
    return _absent(unmatched_parts)


@functools.cache
def removed_by(specification: str) -> tuple[Range, ...]:
    """Code points that the pre-tokenizer (JSON) drops."""
    return _absent(component("pre_tokenizer", specification).pre_tokenize_str(_every()))


@functools.cache
def cut_out_by(specification: str) -> tuple[Range, ...]:
    """Code points that the pre-tokenizer (JSON) separates from letters on both sides and keeps."""
    step = component("pre_tokenizer", specification)

    def alone(code: int) -> bool:
        return len(step.pre_tokenize_str(f"a{chr(code)}a")) == 3

    codes: list[int] = []
    for text, (start, end) in step.pre_tokenize_str(_every()):
        # Pieces of one kind of character: the first one decides, ASCII is asked one by one.
        if end - start > 1 and ord(text[0]) > 127:
            codes += PROBED[start:end] if alone(PROBED[start]) else []
        else:
            codes += [code for code in PROBED[start:end] if alone(code)]
    return tuple(ranges_of(codes))


def component(part: str, specification: str) -> Any:
    """The library's `normalizer` or `pre_tokenizer` of a specification (JSON)."""
    document = json.loads(Tokenizer(models.BPE()).to_str()) | {part: json.loads(specification)}
    return getattr(Tokenizer.from_str(json.dumps(document)), part)


@functools.cache
def changed_by(specification: str) -> dict[int, str]:
    """Code points that a normalizer (JSON) changes when they stand alone, and what they become."""
    apply: Callable[[str], str] = component("normalizer", specification).normalize_str
    out: dict[int, str] = {}
    for start in range(0, len(PROBED), _BLOCK):
        block = PROBED[start : start + _BLOCK]
        text = "".join(map(chr, block))
        together = apply(f"a{text}a")
        if together == "aa":
            out |= dict.fromkeys(block, "")
        elif together != f"a{text}a":
            out |= {code: new for code in block if (new := apply(chr(code))) != chr(code)}
    return out


@functools.cache
def white_space() -> tuple[Range, ...]:
    """Code points that Strip and added tokens take for white space; all of them are in the first plane."""
    apply = normalizers.Strip().normalize_str
    return tuple(ranges_of(code for code in PROBED if code < 0x10000 and not apply(chr(code))))


@functools.cache
def combining_classes() -> dict[int, int]:
    """Code points with a canonical combining class, ranked: the order of the numbers is that of the classes."""
    apply = normalizers.NFD().normalize_str
    first, last = "\u0334", "\u0345"  # classes 1 and 240, the lowest and the highest
    moved = changed_by('{"type": "NFD"}')
    marks = []
    for start in range(0, len(PROBED), _BLOCK):
        block = [code for code in PROBED[start : start + _BLOCK] if code not in moved]
        text = "".join(f"a{chr(code)}{first}a{last}{chr(code)}" for code in block)
        if apply(text) != text:
            marks += [
                code for code in block
                if apply(f"a{chr(code)}{first}")[1] == first or apply(f"a{last}{chr(code)}")[2] == last
            ]  # fmt: skip
    marks += [ord(first), ord(last)]

    def compare(first: int, second: int) -> int:
        pair, back = f"a{chr(first)}{chr(second)}", f"a{chr(second)}{chr(first)}"
        return (apply(pair) != pair) - (apply(back) != back)

    # The library sorts stably, so a class is the set of marks that keep their order among each other.
    by_class = functools.cmp_to_key(compare)
    classes = itertools.groupby(sorted(sorted(set(marks)), key=by_class), by_class)
    return {code: rank for rank, (_, group) in enumerate(classes, 1) for code in group}


@functools.cache
def compositions() -> dict[tuple[int, int], int]:
    """Pairs of code points that NFC joins, Hangul syllables left out."""
    compose, decompose = normalizers.NFC().normalize_str, changed_by('{"type": "NFD"}')
    out = {}
    for code, parts in decompose.items():
        if 0xAC00 <= code < 0xD7A4 or len(parts) < 2 or compose(chr(code)) != chr(code):
            continue
        joined = compose(parts[:-1])
        if len(joined) == 1 and compose(joined + parts[-1]) == chr(code):
            out[ord(joined), ord(parts[-1])] = code
    return out


@functools.cache
def word_characters() -> tuple[Range, ...]:
    """Code points that are part of a word for added tokens with `single_word`."""
    backend = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    backend.add_tokens([AddedToken("Z", single_word=True)])
    number = backend.token_to_id("Z")
    codes: list[int] = []
    # One text of many cases: the token is separate after a character exactly where that is not part of a word.
    for start in range(0, len(PROBED), 50_000):
        chunk = PROBED[start : start + 50_000]
        row = backend.encode("".join(f"{chr(code)}Z " for code in chunk))
        free = {end for token, (_, end) in zip(row.ids, row.offsets, strict=True) if token == number}
        codes += [code for i, code in enumerate(chunk) if 3 * i + 2 not in free]
    return tuple(ranges_of(codes))


def _charsmap(rules: dict[bytes, bytes]) -> bytes:
    """SentencePiece's character map (a double array, Darts-clone) of a few rules; offsets under 256 * 2**10."""
    pool = b"".join(new + b"\0" for new in rules.values())
    values, pool_offset = {}, 0
    for key, new in rules.items():
        values[key] = pool_offset
        pool_offset += len(new) + 1
    units = [0] * 4096
    used = {0}

    def place_children(prefix: bytes, node: int) -> None:
        children = sorted({key[len(prefix)] for key in rules if key.startswith(prefix) and len(key) > len(prefix)})
        leaf = prefix in rules
        base = next(b for b in range(256, 3840, 256) if b not in used)
        used.add(base)
        # The children of a unit are at its position, exclusive-or its offset, exclusive-or their byte.
        offset = node ^ base
        units[node] |= offset << 10 | (1 << 8 if leaf else 0)
        if leaf:
            units[base] = 1 << 31 | values[prefix]
        for byte in children:
            units[base ^ byte] |= byte
            place_children(prefix + bytes([byte]), base ^ byte)

    place_children(b"", 0)
    array = b"".join(unit.to_bytes(4, "little") for unit in units)
    return len(array).to_bytes(4, "little") + array + pool


@functools.cache
def cluster_sets() -> tuple[tuple[Range, ...], tuple[Range, ...], tuple[Range, ...], tuple[Range, ...]]:
    """Grapheme clusters as the library's Precompiled normalizer cuts them.

    Characters that join the one before, those that join the one after, those that join none (controls), and pictures,
    which a zero-width joiner binds. Flags and syllable blocks are left out: they are longer than the clusters that the
    normalizer looks up whole.
    """
    # Two rules tell where a cluster ends: a rule replaces all of a short cluster that begins with it.
    acute, tilde = "\u0301", "\u0303"
    apply = normalizers.Precompiled(_charsmap({b"a": b"X", (acute + tilde).encode(): b"Y"})).normalize_str
    before: list[int] = []
    after: list[int] = []
    breaks: list[int] = []
    for start in range(0, len(PROBED), _BLOCK):
        block = list(map(chr, PROBED[start : start + _BLOCK]))
        if apply("".join(f"a{c}\n" for c in block)) != "".join(f"X{c}\n" for c in block):
            before += [ord(c) for c in block if apply(f"a{c}") == "X"]
        # Not joined, "a" with its accent is a short cluster and loses it.
        if apply("".join(f"{c}a{acute}\n" for c in block)) != "".join(f"{c}X\n" for c in block):
            after += [ord(c) for c in block if apply(f"{c}a{acute}") == f"{c}X{acute}"]
        rows = apply("".join(f"{c}{acute}{tilde}\n" for c in block))
        if rows == "".join(f"{c}Y\n" for c in block):
            breaks += map(ord, block)
        elif "Y" in rows:
            breaks += [ord(c) for c in block if "Y" in apply(f"{c}{acute}{tilde}")]
    break_codes = set(breaks)
    after = [code for code in after if code not in break_codes]
    pictures = matched_by(r"\p{Extended_Pictographic}")
    return tuple(ranges_of(before)), tuple(ranges_of(after)), tuple(ranges_of(breaks)), pictures
