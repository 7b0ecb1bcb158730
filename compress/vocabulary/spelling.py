"""How a vocabulary spells: the character map of a SentencePiece `.model`, which replaces text before it is segmented.

A word has one form. Beyond SentencePiece's own maps (NFKC, case folding), which are read here, `one_spelling` joins
letters that case folding leaves apart, digits of all scripts, dashes and quotation marks, and removes characters that
cannot be seen. `marks_apart` makes every mark a word of its own.
"""

from __future__ import annotations

import io
import struct
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from msdc.compress.vocabulary.tokens import read_proto
from msdc.errors import InputError
from msdc.extras import require

FOLDED, UNFOLDED = "nmt_nfkc_cf", "nmt_nfkc"  # SentencePiece's maps with and without case folding
MOST_NODES = 10_000_000  # of a map; SentencePiece's own maps have half a million
LAST_MARK = 0x3100  # higher ones belong to scripts that this does not split
# Letters that case folding does not join: dotted and dotless i (a Turkish word in capitals is read as its lower-case
# form), sharp s, alef with and without hamza.
_LETTERS = {"İ": "i", "ı": "i", "ß": "ss", "ẞ": "ss", "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا"}
# Signs that are no letters: Arabic vowel marks, and the stroke that widens a word.
_SIGNS = ["ـ", "\u0670", *map(chr, range(0x064B, 0x0660))]
# Characters without a shape: soft hyphen, grapheme joiner, directional marks and isolates, word joiner, operators.
_INVISIBLE = ["\u00ad", "\u034f", "\u061c", "\u180e", "\u200e", "\u200f", "\ufeff",
              *map(chr, [*range(0x202A, 0x202F), *range(0x2060, 0x2065), *range(0x2066, 0x2070)])]  # fmt: skip
_DASHES, _SINGLE, _DOUBLE = "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212", "‘’‚‛‹›ʼ", "“”„‟«»〝〞〟"
# Jamo as signs of their own (in tables, in chats), which `tokenizers` does not join to syllables.
_SINGLE_JAMO = frozenset(map(chr, [*range(0x3131, 0x3190), *range(0xFFA0, 0xFFDD)]))
# Every character of a second digit or mark is one of ASCII.
_MARKS = dict.fromkeys(_DASHES, "-") | dict.fromkeys(_SINGLE, "'") | dict.fromkeys(_DOUBLE, '"')
_HAN = range(0x3400, 0x4DC0), range(0x4E00, 0xA000), range(0xF900, 0xFB00)  # in the basic plane


@cache
def spellings() -> dict[str, str]:
    """Character -> what it is spelled as."""
    digits = {chr(code): unicodedata.decimal(chr(code), None) for code in range(0x80, sys.maxunicode + 1)}
    ascii_digits = {character: str(int(value)) for character, value in digits.items() if value is not None}
    return _LETTERS | dict.fromkeys([*_SIGNS, *_INVISIBLE], "") | _MARKS | ascii_digits


def is_mark(character: str) -> bool:
    """Whether a character is a word of its own: punctuation, ASCII symbols, currency signs."""
    category = unicodedata.category(character)
    return category[0] == "P" or category == "Sc" or (character.isascii() and category[0] == "S") or character in "°§©®"


def read_character_map(packed: bytes) -> dict[str, str]:
    """The rules of SentencePiece's `precompiled_charsmap`: text -> its replacement.

    A double array of 32-bit units (the layout of darts-clone) is read from its root, level by level; its values are
    offsets of NUL-terminated texts.
    """
    try:
        size = struct.unpack("<I", packed[:4])[0]
        units = np.frombuffer(packed, "<u4", size // 4, 4).astype(np.int64)
        texts = packed[4 + size :]
        offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
        owner = units & ((1 << 31) | 0xFF)
        labels = np.arange(1, 256)
        rules: dict[str, str] = {}
        bases, keys, met = offsets[:1], [b""], 0
        while keys:
            places = bases[:, None] ^ labels
            rows, columns = np.nonzero(owner[np.minimum(places, len(units) - 1)] == labels)
            values = places[rows, columns]
            inside = values < len(units)
            rows, columns, values = rows[inside], columns[inside], values[inside]
            met += len(values)
            if met > MOST_NODES:
                raise ValueError("it does not end")
            steps = zip(rows.tolist(), columns.tolist(), strict=True)
            keys = [keys[row] + bytes([column + 1]) for row, column in steps]
            bases = values ^ offsets[values]
            for row in np.flatnonzero(units[values] >> 8 & 1).tolist():
                start = int(units[bases[row]]) & ((1 << 31) - 1)
                rules[keys[row].decode()] = texts[start : texts.index(b"\0", start)].decode()
    except (ValueError, IndexError, struct.error) as error:
        raise InputError(f"a damaged character map of SentencePiece ({error})") from error
    return rules


@cache
def standard_rules(name: str) -> dict[str, str]:
    """The rules of one of SentencePiece's own maps."""
    return read_character_map(_map_of(normalization_rule_name=name))


def _map_of(**settings: Any) -> bytes:
    """The compiled character map of a model that is trained with these settings on next to nothing."""
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e"] * 8), model_writer=buffer, vocab_size=16, hard_vocab_limit=False,
        num_threads=1, minloglevel=2, **settings,
    )  # fmt: skip
    return bytes(read_proto(buffer.getvalue()).normalizer_spec.precompiled_charsmap)


def _apart(text: str) -> str:
    spaced = "".join(f" {character} " if is_mark(character) else character for character in text)
    return spaced.replace("  ", " ")


def marks_apart(rules: Mapping[str, str]) -> dict[str, str]:
    """Rules of a character map, with spaces around every mark."""
    cut = {key: _apart(text) if any(map(is_mark, text)) else text for key, text in rules.items()}
    marks = [chr(code) for code in range(33, LAST_MARK) if is_mark(chr(code))]
    return {mark: f" {mark} " for mark in marks if mark not in cut} | cut


def one_spelling(rules: Mapping[str, str], kept_characters: Iterable[str] = ()) -> dict[str, str]:
    """Rules of a character map that give all `spellings` of a word one form, except those of `kept_characters`.

    Jamo that are signs of their own are read one by one.
    """
    untouched = frozenset(kept_characters)
    rules = {key: text for key, text in rules.items() if len(key) == 1 or _SINGLE_JAMO.isdisjoint(key)}
    spelled = {character: text for character, text in spellings().items() if character not in untouched}
    table = str.maketrans(spelled)
    rules_with_dots = spelled | {"i\u0307": "i", "I\u0307": "i"}
    return rules_with_dots | {
        key: text.replace("i\u0307", "i").translate(table) for key, text in rules.items() if key not in spelled
    }


def simplified_han(rules: Mapping[str, str]) -> dict[str, str]:
    """Rules of a character map that give a traditional Chinese character its simplified form, in Japanese too.

    Character by character, by OpenCC's table.

    Raises:
        MissingExtra: OpenCC is not installed.
    """
    require("opencc", "simplified: true")
    import opencc

    convert = opencc.OpenCC("t2s").convert
    forms = {letter: form for code in chain(*_HAN) if (form := convert(letter := chr(code))) != letter}
    table = str.maketrans(forms)
    return forms | {key: text.translate(table) for key, text in rules.items() if key not in forms}


def readable(rules: Mapping[str, str], characters: Iterable[str]) -> dict[str, str]:
    """The rules whose texts a vocabulary with single tokens for `characters` can write.

    Text that no token can write is unknown also without its rule: nine tenths of a map are for other scripts.
    """
    alphabet = frozenset(characters)
    return {key: text for key, text in rules.items() if alphabet.issuperset(text.replace(" ", ""))}


def compile_rules(rules: Mapping[str, str]) -> bytes:
    """The map of these rules in SentencePiece's format."""
    with tempfile.TemporaryDirectory() as folder:
        write_rules(rules, file := Path(folder, "rules.tsv"))
        return _map_of(normalization_rule_tsv=str(file))


def write_rules(rules: Mapping[str, str], target: Path) -> None:
    """Write the rules for SentencePiece's trainer: code points in hexadecimal, tab-separated."""

    def codes(text: str) -> str:
        return " ".join(f"{ord(character):X}" for character in text)

    lines = [f"{codes(key)}\t{codes(rules[key])}\n" for key in sorted(rules)]
    target.write_text("".join(lines), encoding="utf-8")
