"""Inputs that are made to harm, one table for Python, the JVM and browsers: texts, damaged bundles, damaged indexes."""

import json
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from msdc.export.manifest import MANIFEST_FILE

ENDS = [plane * 0x10000 + offset for plane in range(17) for offset in (0, 1, 0xFFFD, 0xFFFE, 0xFFFF)]


def _characters(points: Iterable[int]) -> str:
    return "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)


TEXTS = {
    "empty": "",
    "blank": " \t\n\r\u3000\u2003",
    "NUL": "\0",
    "NULs inside": "the\0ticket \0\0 x\0",
    "controls": _characters([*range(1, 32), *range(127, 160)]),
    "every plane": _characters(range(0, 0x110000, 197)),
    "ends of planes": _characters(ENDS),
    "noncharacters": _characters(range(0xFDD0, 0xFDF0)),
    "tags": "x" + _characters(range(0xE0000, 0xE0080)),
    "directions": "\u202eticket\u202c \u2066שלום\u2069 \u200f\u200e\u061c",
    "joiners": "\U0001f468\u200d\U0001f469\u200d\U0001f467\ufe0f\u200c\u2060\ufeff" * 20,
    "marks in any order": "a" + _characters([*range(0x300, 0x370), *range(0x36F, 0x2FF, -1)]) + "b\u0323\u0307" * 99,
    "marks without a letter": "\u0301\u0308 \u0301\u094d\u20e3",
    "letters of Hangul": "\u1112" * 30 + "\u1161" * 30 + "\u11ab" * 30 + "\u1112\u1161\u11ab",
    "short ones that grow": "\ufdfa" * 300 + "\ufdfb\u1f82\u0390ﬃ㌖" * 20,
    "cases": "İıIiẞßŉǰǅΣςſK Å" * 20,
    "spaces": _characters([*range(9, 14), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200C), 0x2028, 0x2029, 0x202F]) + "x",
    "names of special tokens": "<s></s><pad><unk><mask>[CLS][SEP]▁▁ <0x00> ticket",
    "code": "'; DROP TABLE documents; -- \" OR (NEAR* {\"a\": \"\\u0000\"}\\",
    "a long word": "a" * 100_000,
    "a long text": "the ticket " * 9_091,
    "long without blanks": "東京" * 50_000,
    "long marks": "e" + "\u0301" * 99_999,
    "long wide characters": "\U0001f468\u200d" * 50_000,
    "long blanks": " " * 99_999 + "x",
    "long NULs": "\0" * 100_000,
}  # fmt: skip
# A text without half of a surrogate pair that no id, value or filter may be.
NUL = "tick\0et"
HALVES = {"high": "a\ud83d b", "low": "\udc00", "wrong order": "\ude00\ud83d", "at the end": "ticket\ud800",
          "after a pair": "\U0001f600\ud83d"}  # fmt: skip
# Documents of an index: its passages are many, so only some of the long texts.
LONG = ("long without blanks", "long marks")
DOCUMENTS = [
    {"id": name, "text": text, "title": "ticket" if number % 3 else text[:40], "note": text[:50].replace("\0", "")}
    for number, (name, text) in enumerate(TEXTS.items())
    if name in LONG or (len(text) < 10_000 and text.strip())
]


def utf16(text: str) -> str:
    """The code units of a text as hexadecimal digits, halves of surrogate pairs included."""
    return text.encode("utf-16-be", "surrogatepass").hex()


def _flipped(raw: bytes, position: int) -> bytes:
    return raw[:position] + bytes([raw[position] ^ 0x20]) + raw[position + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "a byte": lambda raw: raw[:1],
    "a half": lambda raw: raw[: len(raw) // 2],
    "a byte less": lambda raw: raw[:-1],
    "a byte more": lambda raw: raw + b"\0",
    "first byte": lambda raw: _flipped(raw, 0),
    "a third": lambda raw: _flipped(raw, len(raw) // 3),
    "last byte": lambda raw: _flipped(raw, len(raw) - 1),
    "zeros": lambda raw: bytes(len(raw)),
    "another file": lambda raw: b"\x7fELF" * (len(raw) // 4) + b"x" * (len(raw) % 4),
}


def damaged_bundles(bundle: Path, folder: Path, files: Iterable[str]) -> dict[str, str]:
    """Copies of `bundle` below `folder`, each with a damaged file: name of the copy -> the file."""
    damaged_files = {}
    for number, name in enumerate([*files, MANIFEST_FILE]):
        for kind, change in DAMAGE.items():
            copy = folder / f"{number}-{kind.replace(' ', '-')}"
            shutil.copytree(bundle, copy)
            (copy / name).write_bytes(change((bundle / name).read_bytes()))
            damaged_files[copy.name] = name
    return damaged_files


def damaged_indexes(index: Path, folder: Path) -> list[str]:
    """Copies of an index file below `folder`: cut, or with one byte flipped, in its header most often; their names."""
    raw, chosen = index.read_bytes(), random.Random(7)
    cuts = [1, 15, 16, 99, 100, 512, 4095, 4096, len(raw) // 2, len(raw) - 4096, len(raw) - 1]
    flips = [*range(0, 100, 9), *(chosen.randrange(len(raw)) for _ in range(40))]
    changed = {f"cut-{size}.sqlite": raw[:size] for size in cuts}
    changed |= {f"flip-{position}.sqlite": _flipped(raw, position) for position in flips}
    folder.mkdir()
    for name, content in changed.items():
        (folder / name).write_bytes(content)
    return list(changed)


def write_inputs(bundle, folder: Path, bundle_folder: Path, index: Path) -> dict[str, int]:
    """The table as files that a program without a JSON reader takes; the number of checks by language.

    `bundle` is loaded from `bundle_folder`; `index` has `DOCUMENTS`.
    """
    vectors_ND, ids = bundle.encode(list(TEXTS.values()), prompt=""), bundle.tokenize(list(TEXTS.values()))
    texts = [
        [name, utf16(text), " ".join(map(str, row)), " ".join(f"{value:.6g}" for value in vector)]
        for (name, text), row, vector in zip(TEXTS.items(), ids, vectors_ND, strict=True)
    ]
    manifest = bundle.manifest
    files = [manifest.tokenizer.file, "golden.json", *manifest.program_files(bundle.runtime)]
    tables = {
        "texts": texts, "halves": [[name, utf16(text)] for name, text in HALVES.items()],
        "bundles": [[*names] for names in damaged_bundles(bundle_folder, folder / "bundles", files).items()],
        "indexes": [[name] for name in damaged_indexes(index, folder / "indexes")],
        "documents": [
            [*map(utf16, (document["id"], document["title"], document["text"],
                          json.dumps({"note": document["note"]}, ensure_ascii=False)))]
            for document in DOCUMENTS
        ],
    }  # fmt: skip
    for name, rows in tables.items():
        (folder / f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "nul.txt").write_text(utf16(NUL))
    asked = sum(bool(text.strip()) for text in TEXTS.values())
    checks = len(texts) + asked + len(tables["bundles"]) + len(tables["indexes"]) + 2
    # With each half of a pair and with a NUL character; a text of Swift has no such halves.
    return {"kotlin": checks + 16 * len(HALVES) + 8, "swift": checks + 7}
