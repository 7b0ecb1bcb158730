"""Inputs of about n bytes that once cost a native parser more than n times a constant, or are made to."""

import functools
import itertools
import struct
from collections.abc import Callable

import numpy as np
from native_core import seal

from msdc.export.tokenizer.binary import NONE, Tables, character_map, pair_table, text_table

Maker = Callable[[int], bytes]


def _many(part: str, length: int, first: str, last: str) -> bytes:
    count = max((length - len(first) - len(last)) // (len(part) + 1), 1)
    return f"{first}{','.join([part] * count)}{last}".encode()


def _keys(length: int, prefix: str = "") -> str:
    size = len(prefix) + 10
    return ",".join(f'"{prefix}{i:05d}":0' for i in range(max(length // size, 1)))


JSON: dict[str, Maker] = {
    # The path of every value was stored with it: 100 KB took 1.2 GiB.
    "long-path": lambda n: _many("1", n, '{"' + "k" * (n // 2) + '":[', "]}"),
    "long-paths-inside-each-other": lambda n: _many(
        "[]", n, "".join('{"' + "k" * (n // 120) + '":' for _ in range(60)) + "[", "]" + "}" * 60
    ),
    "digits": lambda n: _many("0", n, "[", "]"),
    "empty-lists": lambda n: _many("[]", n, "[", "]"),
    "empty-objects": lambda n: _many("{}", n, "[", "]"),
    "empty-texts": lambda n: _many('""', n, "[", "]"),
    "small-objects": lambda n: _many('{"a":0}', n, "[", "]"),
    "keys": lambda n: ("{" + _keys(n) + "}").encode(),
    "keys-with-one-long-beginning": lambda n: ("{" + _keys(n, "p" * 200) + "}").encode(),
    "escapes": lambda n: b'["' + b"\\u0041" * (n // 6) + b'"]',
    "one-text": lambda n: b'"' + b"x" * n + b'"',
    "spaces": lambda n: b" " * n + b"1",
    "numbers": lambda n: _many("1" * 60, n, "[", "]"),
    "nested": lambda n: _many("[" * 60 + "]" * 60, n, "[", "]"),
}


def _manifest(**changes: object) -> bytes:
    manifest = {
        "format": 1, "seal": "", "name": "n", "width": 4, "max_length": 64, "vocabulary": 8,
        "tokenizer": {"kind": "sentencepiece", "file": "tokenizer.model", "bos_id": 2, "eos_id": 3, "pad_id": 0,
                      "unk_id": 1},
        "programs": {"executorch": None, "onnx": None}, "files": {},
    }  # fmt: skip
    return seal(manifest | changes).encode()


def _sealed(**changes: Maker) -> Maker:
    """A manifest whose values are the JSON that the makers write."""

    def make(length: int) -> bytes:
        marks = {name: f"@{name}@" for name in changes}
        text = _manifest(**marks).decode()
        for name, maker in changes.items():
            text = text.replace(f'"@{name}@"', maker(length).decode(), 1)
        return text.encode()

    return make


MANIFEST: dict[str, Maker] = {
    "small": lambda n: _manifest(),
    **{f"beside-{name}": _sealed(more=maker) for name, maker in JSON.items()},
    "prompts": _sealed(prompts=lambda n: ("{" + ",".join(f'"{i}":""' for i in range(n // 9)) + "}").encode()),
    "files": _sealed(
        files=lambda n: ("{" + ",".join(f'"{i}":{{"sha256":"","bytes":0}}' for i in range(n // 34)) + "}").encode()
    ),
    "path-of-many-parts": _sealed(
        name=lambda n: b'"a"', files=lambda n: b'{"' + b"a/" * (n // 2) + b'b":{"sha256":"","bytes":0}}'
    ),
    "long-seal": lambda n: (
        b'{"format":1,"x":"' + b'\\"seal\\": \\"' * (n // 24) + b'","seal":"' + b'\\"seal\\": \\"' * (n // 24) + b'"}'
    ),
}

_VECTORS = '"width":4,"vectors":{"executorch":"AACAPwAAAAAAAAAAAAAAAA=="}'
GOLDEN: dict[str, Maker] = {
    "small": lambda n: f'{{"texts":["a"],"ids":[[1]],{_VECTORS}}}'.encode(),
    "texts": lambda n: _many('""', n, '{"texts":[', f'],"ids":[],{_VECTORS}}}'),
    "ids": lambda n: _many("[]", n, '{"texts":[],"ids":[', f"],{_VECTORS}}}"),
    "one-row": lambda n: _many("1", n, '{"texts":[],"ids":[[', f"]],{_VECTORS}}}"),
    "vectors": lambda n: b'{"texts":["a"],"ids":[[1]],"width":4,"vectors":{"executorch":"' + b"A" * n + b'"}}',
}


def _request(**changes: str) -> bytes:
    parts = {
        "nonce": '"n"', "bundle": '"b"', "rows": '[{"length":1,"ids":[1]}]', "texts": '["a"]', "clock": '"wall"',
        "runs": "1", "stop_ms": "0", "warmup": "0", "threads": "1", "cooldown_ms": "0", "deadline_s": "0",
        "affinity": "[]", "embed_file": '""', "prompt": '""', "answer_file": '"a"', "vectors_file": '"v"',
    }  # fmt: skip
    return ("{" + ",".join(f'"{name}":{value}' for name, value in (parts | changes).items()) + "}").encode()


REQUEST: dict[str, Maker] = {
    "small": lambda n: _request(),
    "texts": lambda n: _request(texts=_many('""', n, "[", "]").decode()),
    "rows": lambda n: _request(rows=_many('{"length":1,"ids":[]}', n, "[", "]").decode()),
    "affinity": lambda n: _request(affinity=_many("1", n, "[", "]").decode()),
}


# --- SentencePiece models


def field(number: int, value: bytes | int) -> bytes:
    """A field of a protobuf message."""

    def varint(rest: int) -> bytes:
        out = b""
        while rest >= 128:
            out, rest = out + bytes([rest & 127 | 128]), rest >> 7
        return out + bytes([rest])

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text: bytes, kind: int = 1, score: float = -1.0, extra_fields: bytes = b"") -> bytes:
    return field(1, field(1, text) + b"\x15" + struct.pack("<f", score) + field(3, kind) + extra_fields)


_HEAD = piece(b"<unk>", 2) + piece(b"a")


def _distinct(length: int) -> bytes:
    return b"".join(piece(f"p{i:06d}".encode()) for i in range(length // 18))


def _long(sizes: range, kind: int = 1) -> bytes:
    return b"".join(piece(b"x" * size, kind) for size in sizes)


@functools.cache
def colliding(count: int) -> list[bytes]:
    """Texts of equal FNV-1a hash: pairs of equal hash after equal hash, put together in every way."""
    state, parts = 2166136261, []
    texts = np.random.default_rng(0).integers(97, 123, (400_000, 6)).astype(np.uint64)
    while 2 ** len(parts) < count:
        hashes = np.full(len(texts), state, dtype=np.uint64)
        for position in range(texts.shape[1]):
            hashes = ((hashes ^ texts[:, position]) * np.uint64(16777619)) & np.uint64(0xFFFFFFFF)
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
        # The birthday of 400,000 texts in 2^32 days: about 18 pairs.
        pair = next(p for p in same if not np.array_equal(texts[order[p]], texts[order[p + 1]]))
        first, second = order[pair], order[pair + 1]
        parts.append((bytes(texts[first].astype(np.uint8)), bytes(texts[second].astype(np.uint8))))
        state = int(hashes[first])
    return [b"".join(text) for text in itertools.islice(itertools.product(*parts), count)]


_X = ord("x")
_X_NODE = 256 ^ _X
_LONG = {0: 256 << 10, _X_NODE: _X | 1 << 8 | (_X_NODE ^ 1) << 10, 1: 1 << 31}


def _map_of(replacements: bytes, units: dict[int, int] = _LONG) -> bytes:
    return struct.pack("<513I", 2048, *(units.get(i, 0) for i in range(512))) + replacements


def _charsmap(*parts) -> bytes:
    return field(3, field(1, b"custom") + field(2, _map_of(*parts)))


PIECES: dict[str, Maker] = {
    "small": lambda n: _HEAD,
    "distinct": lambda n: _HEAD + _distinct(n),
    "distinct-bpe": lambda n: _HEAD + _distinct(n) + field(2, field(3, 2)),
    # SentencePiece refuses it; the core looked up every prefix of it at every position of a text.
    "one-long": lambda n: _HEAD + piece(b"x" * n),
    "long": lambda n: _HEAD + _long(range(min(n // 8, 7999), 40, -997)),
    "long-user-defined": lambda n: _HEAD + _long(range(min(n // 8, 7999), 40, -997), kind=4),
    "long-bpe": lambda n: _HEAD + _long(range(1, min(int((2 * n) ** 0.5), 7999))) + field(2, field(3, 2)),
    # 50,000 fields were read at every look at such a piece.
    "fields-in-a-piece": lambda n: _HEAD + piece(b"x", extra_fields=b"\x20\x00" * (n // 2)),
    "fields-between": lambda n: _HEAD + piece(b"y") + b"\x20\x00" * (n // 2) + piece(b"x") + piece(b"xx"),
    "empty-pieces": lambda n: b"\x0a\x00" * (n // 2),
    # Quadratic to open: each insertion walked over all before it.
    "equal-hashes": lambda n: _HEAD + b"".join(piece(text) for text in colliding(max(n // 100, 20))),
    "long-replacement": lambda n: _HEAD + _charsmap(b"r" * n + b"\0"),
    "replacement-of-spaces": lambda n: _HEAD + _charsmap(b" " * n + b"\0"),
    "trie-in-a-circle": lambda n: _HEAD + _charsmap(b"\0", {0: 256 << 10, _X_NODE: _X | _X << 10}),
}  # fmt: skip


# --- compiled tokenizers

Part = Callable[[Tables], list]
_ANY = character_map({})
_EMPTY_TEXTS = text_table([])


def _nothing(tables: Tables) -> list:
    return []


def compiled(
    length: int, *, sets: Part = _nothing, maps: Part = _nothing, patterns: Part = _nothing, rules: Part = _nothing,
    steps: Part = _nothing, vocabulary: bytes | None = None, model: Part | None = None, added: bytes = _EMPTY_TEXTS,
    ballast: int = 0,
) -> bytes:  # fmt: skip
    """A file of the parts given, the others the smallest that open; `ballast` is a table that nothing names."""
    tables = Tables()
    words: list[int] = []
    for kind in (sets(tables), maps(tables), patterns(tables)):
        words += [len(kind), *kind]
    every = tables.add(struct.pack("<2I", 0, 0x110000))
    words += [every, every]
    for _ in range(2):
        words += [tables.add(added), tables.add(struct.pack("<2I", 1, 0) * 8), every]
    for list_ in (rules(tables), steps(tables)):
        words += [len(list_), *itertools.chain.from_iterable(list_)]
    words.append(tables.add(vocabulary if vocabulary is not None else text_table([b"[UNK]", b"a", b"b"])))
    words += model(tables) if model else [1, 0, 100, tables.add(b"##")]
    if ballast:
        tables.add(b"b" * ballast)
    return tables.write([*words, 8, 0, 0])


def _program(count: int) -> bytes:
    return struct.pack("<4I", 2, ord("q"), 0, 0) * (count - 1) + struct.pack("<4I", 0, 0, 0, 0)


def _pattern_bomb(tables: Tables) -> list[int]:
    """(.*)*-like: a choice at every character, under four lookaheads."""
    anything = [(3, 1, 4, 0), (5, 0, 0, NONE), (5, 0, 0, NONE), (5, 0, 0, NONE), (2, ord("!"), 0, 0), (0, 0, 0, 0)]
    return [tables.add(b"".join(struct.pack("<4I", *instruction) for instruction in anything))]


def _full_probes(length: int) -> bytes:
    """A text table whose slots are all taken with every tag, so that a look-up reads the longest probe."""
    count = max(length // 16, 8)
    slots = b"".join(struct.pack("<I", (i % 4096) << 20 | 1 + i % count) for i in range(2 * count))
    offsets = struct.pack(f"<{count + 1}I", *range(count + 1))
    return struct.pack("<5I", count, 2 * count, 256, 1024, 2 * count) + slots + offsets + b"x" * count


COMPILED: dict[str, Maker] = {
    "small": lambda n: compiled(n),
    # Each pattern was copied when it was opened: 256 KiB a thousand times.
    "one-pattern-many-times": lambda n: compiled(
        n, patterns=lambda t: [t.add(_program(min(n // 16, 16384)))] * min(1024, n // 4)
    ),
    "one-set-many-times": lambda n: compiled(n, sets=lambda t: [t.add(struct.pack("<2I", 1, 2) * (n // 8))] * 1024),
    "one-map-many-times": lambda n: compiled(n, maps=lambda t: [t.add(_ANY)] * min(1024, n // 4), ballast=n),
    "long-replacement": lambda n: compiled(n, rules=lambda t: [[3, t.add(b"x"), t.add(b"y" * n)]]),
    "replacements": lambda n: compiled(n, rules=lambda t: [[3, t.add(b"x"), t.add(b"x" * 1000)]] * 5, ballast=n),
    "rules": lambda n: compiled(n, rules=lambda t: [[5, t.add(b"")]] * (n // 8)),
    "long-mark": lambda n: compiled(n, steps=lambda t: [[2, t.add(b" " * n), 1, 0]]),
    "marks": lambda n: compiled(n, steps=lambda t: [[2, t.add(b" " * 1000), 1, 0]] * 4, ballast=n),
    "letters-for-letters": lambda n: compiled(n, steps=lambda t: [[4]] * min(n // 4, 200), ballast=n),
    "steps": lambda n: compiled(n, steps=lambda t: [[3]] * (n // 4)),
    "long-prefix": lambda n: compiled(
        n, model=lambda t: [2, t.add(pair_table({})), NONE, 0, t.add(b"p" * n), t.add(b"")]
    ),
    "backtracking": lambda n: compiled(
        n, sets=lambda t: [t.add(struct.pack("<2I", 0, 0x110000))], patterns=_pattern_bomb,
        steps=lambda t: [[1, 0, 1, 0]], ballast=n,
    ),
    "full-probes": lambda n: compiled(n, vocabulary=_full_probes(n)),
    "full-probes-unigram": lambda n: compiled(
        n, vocabulary=_full_probes(n // 3), model=lambda t: [3, t.add(bytes(n)), 0, 0, 0, 0]
    ),
    "full-probes-added": lambda n: compiled(n, added=_full_probes(128)),
    "long-cluster-map": lambda n: compiled(
        n, sets=lambda t: [t.add(b"")],
        rules=lambda t: [[7, t.add(_map_of(b"r" * n + b"\0")), 0, 0, 0, 0]],
    ),
}  # fmt: skip


_WORDS = "bcdefghjklmnpqrstuvw"  # which are not common
TEXT: dict[str, Maker] = {
    "small": lambda n: b"The title\nA sentence. And another one!",
    "one-word": lambda n: b"x" * n,
    "words": lambda n: b"the inger " * (n // 10),
    "spaces": lambda n: b"a\n" + b" " * n,
    "sentences": lambda n: b"title\n" + b"a. " * (n // 3),
    "marks-and-closers": lambda n: b"\n" + b".)" * (n // 2),
    "one-mark-many-closers": lambda n: b"\n." + b")" * n,
    "a-blank-at-the-front": lambda n: b"\na " + b"b" * n,
    "long-title": lambda n: b"word " * (n // 5) + b"\ntext",
    "no-text-of-unicode": lambda n: b"\n" + b"\xff\xc3" * (n // 2),
    "without-blanks": lambda n: b"\n" + "\u6f22\u3002".encode() * (n // 6),
    "ends-of-lines": lambda n: b"\n" * n,
    # Queries: each opening quote was compared with the rest of the text, each word with all joined ones.
    "quotes-without-an-end": lambda n: "\u00ab ".encode() * (n // 3),
    "quotes-without-a-word": lambda n: b'" ' * (n // 2),
    "quotes": lambda n: b'"ab" ' * (n // 5),
    "excluded": lambda n: b"-ab " * (n // 4),
    "joints-before-a-run": lambda n: (
        "".join(f"{'-'.join(three)}," for three in itertools.islice(itertools.product(_WORDS, repeat=3), n // 9))
        + "".join(map(chr, range(0x4E00, 0x4E00 + n // 9)))
    ).encode(),
    "one-code": lambda n: b"a." * (n // 2),
    "nearly-the-same-code": lambda n: b"a." * (n // 4) + b"b " + b"a." * (n // 4),
    "codes": lambda n: b"a.b " * (n // 4),
    "umlauts": lambda n: "\u00e4 ".encode() * (n // 3),
    "names": lambda n: b"getUserAddress " * (n // 15),
    "one-name": lambda n: b"aB" * (n // 2),
    "distinct-words": lambda n: " ".join(f"{i:x}" for i in range(n // 5)).encode(),
    "longer-and-longer": lambda n: b" ".join(b"x" * size for size in range(1, int((2 * n) ** 0.5))),
    "long-forms": lambda n: "\ufdfa".encode() * (n // 3),
}
BOMBS = {"json": JSON, "manifest": MANIFEST, "golden": GOLDEN, "request": REQUEST, "pieces": PIECES,
         "compiled": COMPILED, "text": TEXT, "search": TEXT}  # fmt: skip
