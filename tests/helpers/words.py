"""Texts whose words every language of the project must find alike, and the words of the Python package."""

import json
import random
from pathlib import Path

from msdc.search.words import index_words, match_expression

CASES = json.loads(Path(__file__).with_name("word_cases.json").read_text(encoding="utf-8"))


def texts() -> list[str]:
    """The golden cases, every character between letters, and characters of all kinds at random."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    some, drawn = random.Random(3), []
    # Half of them from where characters combine: marks, vowel signs, Korean letters, emoji.
    dense = [
        *range(0x20, 0x250),
        *range(0x300, 0x370),
        *range(0x590, 0x1200),
        *range(0x1F1E0, 0x1F700),
        *range(0x3040, 0x3100),
    ]
    for _ in range(3000):
        pool = dense if some.random() < 0.5 else codes
        first = some.randrange(len(pool) - 64)
        drawn.append("".join(map(chr, some.choices(pool[first : first + 64], k=some.randrange(1, 30)))))
    every = ["".join(f"a{chr(code)}b " for code in codes[at : at + 4096]) for at in range(0, len(codes), 4096)]
    return [case["text"] for case in CASES] + every + drawn


def expected() -> list[list[str]]:
    """Of each text what an index stores, and the expression of a query."""
    return [[index_words(text), match_expression(text)] for text in texts()]
