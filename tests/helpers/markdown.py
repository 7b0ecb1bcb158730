"""Parts of the Markdown files in the repository: code blocks, links, commands."""

import csv
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from places import ROOT

FENCE = re.compile(r"^```(?P<language>[a-z]*)\s*\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r'!?\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)(?: "(?P<title>[^"]*)")?\)')
# `<!-- not run: REASON -->` on the line before a block.
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>[^>]+?) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block; `not_run` is the reason why a test does not execute it."""

    file: Path
    line: int
    language: str
    text: str
    not_run: str | None

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """README, the other pages next to it, and everything below docs/."""
    names = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
    return [ROOT / name for name in names] + sorted(ROOT.glob("docs/**/*.md"))


def blocks(file: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page."""
    text = file.read_text(encoding="utf-8")
    parsed_blocks = []
    for match in FENCE.finditer(text):
        reason = NOT_RUN.search(text[: match.start()])
        line = text.count("\n", 0, match.start()) + 1
        parsed_blocks.append(Block(file, line, match["language"], match["text"], reason["reason"] if reason else None))
    return [block for block in parsed_blocks if language in (None, block.language)]


def prose(file: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", file.read_text(encoding="utf-8"))


def msdc_commands(block: Block) -> list[list[str]]:
    """The words of each `msdc ...` line; comments are dropped, continued lines joined."""
    lines = block.text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("msdc ")]
    return [line for line in words if line]


def tables(file: Path) -> list[list[list[str]]]:
    """The tables of a page, or of a .csv (after its line of source), as rows of cells; the first row is the header."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".csv":
        return [list(csv.reader(text.splitlines()[1:]))]
    parsed_tables: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else None
        if cells is not None and not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            parsed_tables.append([cells]) if not inside else parsed_tables[-1].append(cells)
        inside = cells is not None
    return parsed_tables


def cell(file: Path, where: str) -> str:
    """The cell that `ROW > COLUMN` names, the same in every table that has it.

    Its row begins with the words of ROW (one cell, two or three), its column is headed COLUMN.
    """
    row, _, column = where.partition(" > ")
    matches = [
        line[header.index(column)]
        for header, *lines in tables(file)
        if column in header
        for line in lines
        if any(" ".join(line[:count]) == row for count in (1, 2, 3))
    ]
    assert len(set(matches)) == 1, f"{file.name}: {len(matches)} cells are {where!r}: {matches}"
    return matches[0]
