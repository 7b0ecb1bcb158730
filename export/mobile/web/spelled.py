"""Character maps of SentencePiece, spelled out for transformers.js.

That library does not read a `Precompiled` normalizer's map: it drops control characters, makes spaces of others and
applies NFKC. The steps added here make the text such that this gives what the map gives; in `tokenizers`, which reads
the map, they change nothing. What they cannot say is left to the gate, which compares ids.
"""

from __future__ import annotations

import base64
import copy
import itertools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from msdc.compress.vocabulary.train import read_character_map

# What transformers.js does instead of reading the map.
_DROPPED = re.compile("[\u0001-\u0008\u000b\u000e-\u001f\u007f\u008f\u009f]")
_SPACES = re.compile("[\t\n\f\r\u00a0\u1680\u2000-\u200f\u2028\u2029\u202f\u205f\u2581\u3000\ufeff\ufffd]")
_WHOLE = "\uff5e"
DOTTED = "\u0130"
# Characters that no text has (Unicode keeps them for programs); NFKC neither changes them nor moves a mark over them.
_GUARDS = [chr(code) for code in range(0xFDD1, 0xFDF0)]
ASSIGNED = 0x33480  # beyond it NFKC changes nothing
MAX_STEPS = 500
Step = dict[str, Any]


def _instead(text: str) -> str:
    text = _SPACES.sub(" ", _DROPPED.sub("", text))
    return _WHOLE.join(unicodedata.normalize("NFKC", part) for part in text.split(_WHOLE))


def _squeezed(text: str) -> str:
    return re.sub(" +", " ", text)


def _class(characters: Iterable[str]) -> str:
    return "[" + "".join(f"\\{c}" if c in "\\]^-[&~" else c for c in sorted(characters)) + "]"


def _replace(pattern: str, content: str, regex: bool = False) -> Step:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def _apart(rules: Mapping[str, str]) -> list[str]:
    """Zero-width places between two marks that NFKC might swap or join, and no rule does."""
    follow: defaultdict[str, set[str]] = defaultdict(set)
    for key in rules:
        for first, second in itertools.pairwise(key):
            if unicodedata.combining(first) and unicodedata.combining(second):
                follow[first].add(second)
    joined = "|".join(f"(?<={first}){_class(follow[first])}" for first in sorted(follow))
    return [rf"(?<=\p{{M}})(?=\p{{M}}){f'(?!{joined})' if joined else ''}"]


def spelled_steps(rules: Mapping[str, str], lowered: bool) -> tuple[list[Step], list[Step]]:
    """Steps before and after the map whose rules these are; for maps whose extra spaces a later step removes.

    With `lowered` no capital reaches the map, but for the dotted I (`msdc.text.tokenizer.write_fast_copy`).
    """
    marks = {key for key, text in rules.items() if len(key) == 1 and text == f" {key} "}

    def found(text: str) -> str:
        return _squeezed("".join(f" {c} " if c in marks else c for c in _instead(text)))

    wanted: defaultdict[str, list[str]] = defaultdict(list)
    kept = []
    singles = {key for key in rules if len(key) == 1}
    for character in sorted(singles.union(map(chr, (*range(0xD800), *range(0xE000, ASSIGNED))))):
        text = rules.get(character, character)
        if lowered and character.lower() != character and character != DOTTED:
            continue
        if found(character) == _squeezed(text):
            continue
        if text == character:
            kept.append(character)
        elif found(text) == _squeezed(text):
            wanted[text].append(character)
    guards = dict(zip(kept, _GUARDS[1:], strict=False))
    before = [_replace(_class(characters), text, regex=True) for text, characters in wanted.items()]
    before += [_replace(character, guard) for character, guard in guards.items()]
    before += [_replace(pattern, _GUARDS[0], regex=True) for pattern in _apart(rules)]
    after = [_replace(_GUARDS[0], "")] + [_replace(guard, character) for character, guard in guards.items()]
    if marks:
        after.append(_replace(f"(?<={_class(marks)})|(?={_class(marks)})", " ", regex=True))
    return before, after


def spelled(tokenizer: Mapping[str, Any]) -> dict[str, Any] | None:
    """A `tokenizer.json` that transformers.js reads as `tokenizers` does, as far as it can be said.

    Returns:
        The value of the file; None where there is no map to spell out, or it takes too many steps.
    """
    made = copy.deepcopy(dict(tokenizer))
    normalizer = made.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    places = [place for place, step in enumerate(steps) if step.get("type") == "Precompiled"]
    if len(places) != 1:
        return None
    (place,) = places
    raw = base64.b64decode(steps[place].get("precompiled_charsmap") or "")
    rules = read_character_map(raw) if len(raw) > 4 else {}
    before, after = spelled_steps(rules, any(step.get("type") == "Lowercase" for step in steps[:place]))
    if not rules or len(before) > MAX_STEPS:
        return None
    steps = [*steps[:place], *before, steps[place], *after, *steps[place + 1 :]]
    made["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return made
