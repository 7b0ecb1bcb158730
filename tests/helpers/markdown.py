"""Parts of the Markdown files in the repository: code blocks, links, commands."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from places import ROOT

FENCE = re.compile(r"^```(?P<language>[a-z]*)\s*\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
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
    found = []
    for match in FENCE.finditer(text):
        reason = NOT_RUN.search(text[: match.start()])
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(file, line, match["language"], match["text"], reason["reason"] if reason else None))
    return [block for block in found if language in (None, block.language)]


def prose(file: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", file.read_text(encoding="utf-8"))


def msdc_commands(block: Block) -> list[list[str]]:
    """The words of each `msdc ...` line; comments are dropped, continued lines joined."""
    lines = block.text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("msdc ")]
    return [line for line in words if line]
