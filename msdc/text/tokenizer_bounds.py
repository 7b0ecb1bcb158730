"""Bounds on a `tokenizer.json` of unknown origin, checked before the `tokenizers` library reads it.

The library aborts the process when memory runs out: a normalizer that writes a thousand letters for one, three times in
a row, is a file of a few kilobytes. Published tokenizers are far below every bound.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tokenizers import Tokenizer

# Bytes after normalization / bytes of the text. The worst case of published tokenizers: XLM-R 33, ALBERT 544.
MOST_GROWTH = 4096
# Normalizers, splits and processors. Ours have one split for each special piece.
MOST_STEPS = 1000
MOST_PATTERN = 20_000  # characters of all regular expressions
MOST_REPEATS, FEW = 2, 10
MOST_ADDED = 2**20  # bytes of all added tokens; 16 times that when they are normalized
MOST_SPECIAL = 1000  # ids that templates add
# Bytes of all unigram pieces: the library's tree of them takes about 170 for each.
MOST_PIECES = 16 * 2**20
# The library looks up every part of a word of so many characters, with the prefix before it.
LONGEST_WORD, LONGEST_AFFIX = 1000, 100
# Bytes of a normalized text: the library needs about 40 for each.
MOST_TEXT = 2**28
PARTS = ("added_tokens", "normalizer", "pre_tokenizer", "post_processor")
CHILDREN = ("normalizers", "pretokenizers", "processors")
# Growth of steps without settings, in bytes: U+0390 is 2 and decomposes to 6, U+FDFA is 3 and becomes 33.
GROWTH = {
    "NFD": 3, "NFC": 3, "NFKD": 11, "NFKC": 11, "Lowercase": 1.5, "BertNormalizer": 8, "ByteLevel": 2, "Metaspace": 4,
}  # fmt: skip
_MODEL = re.compile(rb'"model"\s*:\s*')
_KIND = re.compile(rb'\{\s*"type"\s*:\s*"(BPE|WordPiece|WordLevel)"')
_PREFIX = re.compile(rb'"continuing_subword_prefix"\s*:\s*"[^"]')
# A class, an escape or a character, or the end of a group; each with its number of repeats.
_PART = re.compile(
    r"[(|]|(?:\[(?:\\.|[^\]\\])*\]|\\[pPx]\{[^}]*\}|\\.|\)|[^*+{])(?P<times>[*+]|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\})?",
    re.DOTALL,
)
_HIDDEN = re.compile(rb"\\u00[4-7]")  # an escaped letter, which no library writes: it could hide a key


def _keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs) and not value.keys().isdisjoint(("type", "model")):
        raise ValueError("it has a key twice")
    return value


def _parsed(raw: bytes) -> dict[str, Any]:
    """The file as JSON; without the model if its bytes show that nothing in it needs a check.

    The vocabulary is nearly all of the file: parsing it here takes a fifth of the time that the library needs for it.
    """
    start = _MODEL.search(raw)
    if start and not _HIDDEN.search(raw) and all(raw.find(f'"{part}"'.encode(), start.end()) < 0 for part in PARTS):
        kind = _KIND.match(raw, start.end())
        # Unigram, or a kind that the library guesses. Unlike spaces, line ends are never inside a piece.
        pieces = 0 if kind else len(raw) - 7 * raw.count(b"\n      ")
        prefixed = (kind is None or kind[1] == b"BPE") and _PREFIX.search(raw, start.end())
        if pieces <= MOST_PIECES and not prefixed:
            raw = raw[: start.start()] + b'"model": null}'
    value = json.loads(raw, object_pairs_hook=_keys_once)
    if not isinstance(value, dict) or "model" not in value:
        raise ValueError("it has no model")
    return value


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or post-processor, in order."""
    if part is None:
        return
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise ValueError("it has a step without a type")
    inner = [part[key] for key in CHILDREN if key in part]
    for child in inner[0] if inner else ():
        yield from _steps(child)
    if not inner:
        yield part


def map_growth(table: bytes) -> float:
    """Growth by SentencePiece's character map: a trie, and the texts it points to, each ended by a zero."""
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    if table and not texts:
        raise ValueError("its character map is cut off")
    # Of a key of two bytes; those of one become at most two in published maps.
    return max(1.0, max(map(len, texts.split(b"\0"))) / 2)


def _growth(step: dict[str, Any]) -> float:
    """Bytes after a step / bytes before it, at most."""
    new = len(str(step.get("content", step.get("prepend", ""))).encode())
    if step["type"] == "Prepend":
        return 1 + new
    if step["type"] == "Precompiled":
        return map_growth(base64.b64decode(step["precompiled_charsmap"]))
    return GROWTH.get(step["type"], 1.0)


def _letters(pattern: str) -> str:
    """The characters that an expression replaces one at a time: `[abc]`; empty for any other."""
    inner = pattern[1:-1]
    return inner if pattern[:1] == "[" and pattern[-1:] == "]" and inner and not set(inner) & set("[]\\^-&") else ""


def _never_empty(pattern: str) -> bool:
    """Whether every match of an expression has at least one character, as far as Python can decide."""
    try:
        return not re.search(r"\(\?|\\[AbBzZG]|[\^$]", pattern) and re.compile(pattern).fullmatch("") is None
    except re.error:
        return False


def _total_growth(steps: Sequence[dict[str, Any]]) -> float:
    """Growth by all steps, one after the other.

    It is computed backwards, as the growth of a character in the remaining steps. Replaced characters that no later
    step replaces again do not multiply, as in a character map that is written as hundreds of steps.
    """
    times, becomes = 1.0, dict[str, float]()  # bytes of a byte, and of characters with a growth of their own

    def size(text: str) -> float:
        return min(1e100, sum(becomes.get(letter, times * len(letter.encode())) for letter in text))

    def most() -> float:
        return max([times, *(growth_bytes / len(letter.encode()) for letter, growth_bytes in becomes.items())])

    for step in reversed(steps):
        pattern = step["pattern"] if step["type"] == "Replace" else {}
        old, regex = str(pattern.get("String") or ""), str(pattern.get("Regex", ""))
        size_after = size(str(step.get("content", "")))
        if len(old) == 1 or _letters(regex):
            becomes |= dict.fromkeys(old or _letters(regex), size_after)
        elif old:
            becomes |= {letter: max(size(letter), size_after / len(old)) for letter in old}
        elif pattern and _never_empty(regex):
            becomes = {letter: max(growth_bytes, size_after) for letter, growth_bytes in becomes.items()}
            times = max(times, size_after)
        elif pattern:  # it may find nothing, between any two characters
            becomes = {letter: growth_bytes + size_after for letter, growth_bytes in becomes.items()}
            times += size_after
        else:
            times, becomes = min(1e100, most() * _growth(step)), {}
    return most()


def _check_template(step: dict[str, Any]) -> int:
    """Ids that a template adds; it must contain the text once."""
    if [item["Sequence"]["id"] for item in step["single"] if "Sequence" in item] != ["A"]:
        raise ValueError("its template does not contain the text once")
    names = [item["SpecialToken"]["id"] for item in step["single"] if "SpecialToken" in item]
    return sum(len(step["special_tokens"][name]["ids"]) for name in names)


def _patterns(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("Regex"), str):
            yield value["Regex"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _patterns(item)


def _repeats(pattern: str) -> int:
    """The number of repeats without a small bound that a match may go through, one after the other.

    With three of them on characters of one kind a backtracking matcher may take minutes for a line of text; published
    patterns have two. The library itself rejects repeats of repeats.
    """
    open_groups: list[list[int]] = [[0, 0]]  # repeats: the most of earlier alternatives, and those of this one
    for part in _PART.finditer(pattern):
        inner = 0
        if part[0] in ("(", "|"):
            if part[0] == "(":
                open_groups.append([0, 0])
            else:
                open_groups[-1] = [max(open_groups[-1]), 0]
            continue
        if part[0][0] == ")" and len(open_groups) > 1:
            inner = max(open_groups.pop())
        least, comma, most = part["least"], part["comma"], part["most"]
        times = int(most or (0 if comma else least or 1)) if part["times"] else 1
        is_long = part["times"] in ("*", "+") or times == 0 or times > FEW
        open_groups[-1][1] += is_long + inner * (1 if is_long else times)
    return max(map(max, open_groups))


def _check_model(model: Any) -> None:
    """A model that was read as a whole."""
    if not isinstance(model, dict):
        return
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, list) and sum(len(str(entry[0]).encode()) for entry in vocabulary) > MOST_PIECES:
        raise ValueError(f"its pieces have more than {MOST_PIECES} bytes")
    prefix = model.get("continuing_subword_prefix")
    if prefix and "merges" in model:
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        if not all(len(pair) == 2 and pair[1].startswith(prefix) for pair in pairs):
            raise ValueError("a merge lacks the prefix of continued words")


def bounded(what: str, value: float, most: float) -> None:
    """Raise a `ValueError` for a value that is too large."""
    if value > most:
        raise ValueError(f"{what}: {value:.4g}, more than the {most} allowed")


def check_tokenizer(raw: bytes) -> float:
    """Bytes of a text after the tokenizer of a `tokenizer.json` has normalized it / bytes before, at most.

    Raises:
        ValueError: the file exceeds a bound; other errors if it is not a tokenizer.
    """
    value = _parsed(raw)
    _check_model(value["model"])
    normalizing, splitting, processing = ([*_steps(value.get(part))] for part in PARTS[1:])
    bounded("steps", len(normalizing) + len(splitting) + len(processing), MOST_STEPS)
    patterns = list(_patterns({**value, "model": None}))
    bounded("characters of regular expressions", sum(map(len, patterns)), MOST_PATTERN)
    bounded("repeats in a row in a regular expression", max(map(_repeats, patterns), default=0), MOST_REPEATS)
    growth = _total_growth([*normalizing, *splitting])
    bounded("growth of a text, in times", growth, MOST_GROWTH)
    added = [(len(token["content"].encode()), token.get("normalized")) for token in value.get("added_tokens") or ()]
    bounded("bytes of added tokens", sum(size for size, _ in added), MOST_ADDED)
    bounded("bytes of normalized tokens", growth * sum(size for size, again in added if again), 16 * MOST_ADDED)
    special = sum(_check_template(step) for step in processing if step["type"] == "TemplateProcessing")
    bounded("special ids", special, MOST_SPECIAL)
    return growth


def check_loaded(backend: Tokenizer) -> None:
    """Check settings of a loaded model that matter only when it tokenizes; raises `ValueError`."""
    for name, most in (("continuing_subword_prefix", LONGEST_AFFIX), ("end_of_word_suffix", LONGEST_AFFIX)):
        bounded(f"characters of {name}", len(getattr(backend.model, name, None) or ""), most)
    bounded("max_input_chars_per_word", getattr(backend.model, "max_input_chars_per_word", 0), LONGEST_WORD)
