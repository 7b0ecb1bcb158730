"""Texts whose words every language of the project must store, look for and highlight alike, and what Python gives."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

from msdc.search.matches import find_terms, merged, passage_to_show
from msdc.search.words import index_words, parse_query

CASES = json.loads(Path(__file__).with_name("word_cases.json").read_text(encoding="utf-8"))


def texts() -> list[str]:
    """The golden cases, every character between letters, characters of all kinds at random, and operators."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    generator, drawn = random.Random(3), []
    # Half of them from where characters combine: marks, vowel signs, Korean letters, emoji.
    dense = [
        *range(0x20, 0x250),
        *range(0x300, 0x370),
        *range(0x590, 0x1200),
        *range(0x1F1E0, 0x1F700),
        *range(0x3040, 0x3100),
    ]
    for _ in range(3000):
        pool = dense if generator.random() < 0.5 else codes
        first = generator.randrange(len(pool) - 64)
        drawn.append("".join(map(chr, generator.choices(pool[first : first + 64], k=generator.randrange(1, 30)))))
    pieces = [
        *"aABb1 2-'’\"“”„«»._ ()uo\u0308\u030aüø 京都ガ가 \u1112\u1161\u11ab\u0301كة🔴🇩🇪\u200b\xa0",
        "the",
        "045",
        "1234567",
        "DE12",
        "get",
        "User",
        "HTTP",
        "-\n",
        "\xad\r\n ",
        "\x02",
        "\u1680",
    ]
    for _ in range(3000):
        drawn.append("".join(generator.choices(pieces, k=generator.randrange(1, 25))))
    every = ["".join(f"a{chr(code)}b " for code in codes[start : start + 4096]) for start in range(0, len(codes), 4096)]
    return [case["text"] for case in CASES] + every + drawn


def plan_of(query: str, syntax: Any = "operators") -> dict[str, Any]:
    """The plan of a query."""
    plan: dict[str, Any] = json.loads(parse_query(query, syntax))
    return plan


def expected() -> list[list[Any]]:
    """Of each text what an index stores, and if it is not long its plans as a query, with operators and plain."""
    return [
        [index_words(text), *([plan_of(text), plan_of(text, "plain")] if len(text) < 500 else [])] for text in texts()
    ]


def shown_cases() -> list[dict[str, Any]]:
    """Texts with terms to find in them, passages of some cosines, the merged spans, and the passage to show."""
    cases, generator, short = [], random.Random(5), [text for text in texts() if len(text) < 200]
    for number, text in enumerate(short):
        query = generator.choice(
            [
                text,
                text[: len(text) // 2],
                index_words(text),
                short[number - 1],
                text[generator.randrange(len(text)) :][:9],
            ]
        )
        lines = [form for _, form, _ in plan_of(query)["words"]]
        terms = "\n".join(lines).replace(" OR ", "\n").replace('"', "")
        if not terms:
            continue
        cuts = sorted({0, len(text), *(generator.randrange(len(text) + 1) for _ in range(3))})
        passages = [(start, end) for start, end in pairwise(cuts) if end > start]
        cosines = [generator.choice([0.0, 0.25, 0.5]) for _ in passages]
        places = find_terms(text, terms)
        cases.append({
            "text": text, "terms": terms, "passages": passages, "cosines": cosines,
            "spans": [list(span) for span in merged([span for spans in places for span in spans])],
            "best": passage_to_show(passages, cosines, terms, places),
        })  # fmt: skip
    return cases
