"""Regular expressions of a tokenizer compiled for the native core's matcher (export/native/src/pattern.h).

Character classes are taken as whole expressions and asked of the `tokenizers` library, so `\\p{L}` means what it means
there. Lookbehind, back references, line anchors and atomic groups are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from msdc.errors import InputError
from msdc.export.tokenizer.binary import NONE, Range, Tables
from msdc.export.tokenizer.probe import matched_by

MATCH, SET, CHARACTER, SPLIT, JUMP, REPEAT, LOOK, BEGIN, END = range(9)
MAX_INSTRUCTIONS = 8192
MAX_COPIES = 256
_POSSESSIVE = 1 << 31
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}

Instruction = tuple[int, int, int, int]


@dataclass(frozen=True)
class Node:
    """A part of an expression: `kind` is set, sequence, choice, repeat, look, begin or end."""

    kind: str
    parts: tuple[Node, ...] = ()
    ranges: tuple[Range, ...] = ()
    least: int = 0
    most: int | None = None
    mode: str = "greedy"
    negative: bool = False

    def shortest(self) -> int:
        """The least number of characters that a match of this part consumes."""
        if self.kind == "set":
            return 1
        if self.kind == "sequence":
            return sum(part.shortest() for part in self.parts)
        if self.kind == "choice":
            return min(part.shortest() for part in self.parts)
        return self.least * self.parts[0].shortest() if self.kind == "repeat" else 0


def one_of(ranges: Iterable[Range]) -> Node:
    """One character of a set."""
    return Node("set", ranges=tuple(ranges))


def literal(text: str) -> Node:
    """A text as it is."""
    characters = [one_of([(ord(c), ord(c) + 1)]) for c in text]
    return characters[0] if len(characters) == 1 else Node("sequence", tuple(characters))


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.offset = 0

    def fail(self, what: str) -> InputError:
        return InputError(f"the native core does not support {what} in the tokenizer's pattern {self.source!r}")

    def peek(self, text: str) -> bool:
        return self.source.startswith(text, self.offset)

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.offset += len(text)
            return True
        return False

    def next(self) -> str:
        if self.offset >= len(self.source):
            raise self.fail("an unfinished expression")
        self.offset += 1
        return self.source[self.offset - 1]

    def choice(self, fold: bool) -> Node:
        parts = [self.sequence(fold)]
        while self.take("|"):
            parts.append(self.sequence(fold))
        return parts[0] if len(parts) == 1 else Node("choice", tuple(parts))

    def sequence(self, fold: bool) -> Node:
        parts = []
        while self.offset < len(self.source) and not self.peek("|") and not self.peek(")"):
            parts.append(self.quantified(self.atom(fold)))
        return parts[0] if len(parts) == 1 else Node("sequence", tuple(parts))

    def quantified(self, atom: Node) -> Node:
        match = re.compile(r"([*+?])([?+]?)|\{(\d*)(,?)(\d*)\}").match(self.source, self.offset)
        if match is None:
            return atom
        self.offset = match.end()
        mode = {"?": "lazy", "+": "possessive"}.get(match[2], "greedy")
        if match[1]:
            least, most = int(match[1] == "+"), 1 if match[1] == "?" else None
        else:
            least = int(match[3] or 0)
            most = int(match[5]) if match[5] else (None if match[4] else least)
        if atom.kind in ("look", "begin", "end") or atom.shortest() == 0:
            raise self.fail("the repetition of something that may be empty")
        if atom.kind != "set" and (mode == "possessive" or max(least, most or 0) > MAX_COPIES):
            raise self.fail("this repetition of a group")
        if self.offset < len(self.source) and self.source[self.offset] in "*+?{":
            raise self.fail("a second quantifier")
        return Node("repeat", (atom,), least=least, most=most, mode=mode)

    def matched(self, source: str, fold: bool) -> Node:
        try:
            return one_of(matched_by(f"(?i:{source})" if fold else source))
        except Exception as error:
            raise self.fail(f"the character class {source}") from error

    def letter(self, value: str, fold: bool) -> Node:
        if fold and value.lower() != value.upper():
            return self.matched(re.escape(value), True)
        return literal(value)

    def atom(self, fold: bool) -> Node:
        start = self.offset
        now = self.next()
        if now == "[":
            return self.matched(self.bracket(start), fold)
        if now == ".":
            return self.matched(".", False)
        if now == "(":
            return self.group(fold)
        if now == "\\":
            return self.escape(start, fold)
        if now in "^$":
            raise self.fail(f"the line anchor {now}")
        if now in "*+?":
            raise self.fail("a quantifier without anything before it")
        return self.letter(now, fold)

    def bracket(self, start: int) -> str:
        depth = 1
        while depth:
            now = self.next()
            if now == "\\":
                self.next()
            elif now == "[":
                depth += 1
            elif now == "]":
                depth -= 1
        return self.source[start : self.offset]

    def group(self, fold: bool) -> Node:
        look = ""
        if self.take("?"):
            if self.take("i:"):
                fold = True
            elif self.peek("=") or self.peek("!"):
                look = self.next()
            elif not self.take(":"):
                raise self.fail("the group (?" + self.source[self.offset : self.offset + 2])
        inner = self.choice(fold)
        if not self.take(")"):
            raise self.fail("an unclosed group")
        return Node("look", (inner,), negative=look == "!") if look else inner

    def escape(self, start: int, fold: bool) -> Node:
        now = self.next()
        if now in "pP":
            if self.next() != "{":
                raise self.fail(f"the escape \\{now}")
            while self.next() != "}":
                pass
            return self.matched(self.source[start : self.offset], fold)
        if now in "sSdDwWhH":
            return self.matched(f"\\{now}", fold)
        if now in "Az":
            return Node("begin" if now == "A" else "end")
        if now in _CONTROLS:
            return literal(_CONTROLS[now])
        if now.isalnum():
            raise self.fail(f"the escape \\{now}")
        return self.letter(now, fold)


@dataclass
class _Emitter:
    tables: Tables
    out: list[Instruction] = field(default_factory=list)

    def add(self, op: int, operand_a: int = 0, operand_b: int = 0, operand_c: int = 0) -> int:
        if len(self.out) >= MAX_INSTRUCTIONS:
            raise InputError("the tokenizer's pattern is too long for the native core")
        self.out.append((op, operand_a, operand_b, operand_c))
        return len(self.out) - 1

    def patch(self, index: int, operand_a: int, operand_b: int = 0) -> None:
        op, _, _, operand_c = self.out[index]
        self.out[index] = (op, operand_a, operand_b, operand_c)

    def emit(self, node: Node) -> None:
        if node.kind == "set":
            start, end = node.ranges[0] if len(node.ranges) == 1 else (0, 0)
            if end - start == 1:
                self.add(CHARACTER, start)
            else:
                self.add(SET, self.tables.set(node.ranges))
        elif node.kind == "sequence":
            for part in node.parts:
                self.emit(part)
        elif node.kind == "choice":
            jumps = []
            for part in node.parts[:-1]:
                split = self.add(SPLIT)
                self.emit(part)
                jumps.append(self.add(JUMP))
                self.patch(split, split + 1, len(self.out))
            self.emit(node.parts[-1])
            for jump in jumps:
                self.patch(jump, len(self.out))
        elif node.kind == "repeat":
            self.repeat(node)
        elif node.kind == "look":
            look = self.add(LOOK)
            self.emit(node.parts[0])
            self.add(MATCH)
            self.patch(look, len(self.out), int(node.negative))
        else:
            self.add(BEGIN if node.kind == "begin" else END)

    def repeat(self, node: Node) -> None:
        (part,) = node.parts
        if part.kind == "set" and node.mode != "lazy":
            least = node.least | (_POSSESSIVE if node.mode == "possessive" else 0)
            self.add(REPEAT, self.tables.set(part.ranges), least, NONE if node.most is None else node.most)
            return
        lazy = node.mode == "lazy"

        def fork(index: int, inside: int, outside: int) -> None:
            self.patch(index, *((outside, inside) if lazy else (inside, outside)))

        for _ in range(node.least):
            self.emit(part)
        if node.most is None:
            split = self.add(SPLIT)
            self.emit(part)
            self.add(JUMP, split)
            fork(split, split + 1, len(self.out))
            return
        splits = []
        for _ in range(node.most - node.least):
            splits.append(self.add(SPLIT))
            self.emit(part)
        for split in splits:
            fork(split, split + 1, len(self.out))


def parse(source: str) -> Node:
    """A regular expression of the `tokenizers` library; an `InputError` for what the core's matcher does not have."""
    parser = _Parser(source)
    node = parser.choice(False)
    if parser.offset != len(source):
        raise parser.fail("an unopened group")
    if node.shortest() == 0:
        raise parser.fail("a match without characters")
    return node


def program(node: Node, tables: Tables) -> list[Instruction]:
    """Instructions of an expression; its character sets are added to `tables`."""
    emitter = _Emitter(tables)
    emitter.emit(node)
    emitter.add(MATCH)
    return emitter.out
