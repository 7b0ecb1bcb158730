"""Text as a reader sees it, from the markup of Org (Emacs): headings, blocks, drawers, links, emphasis."""

from __future__ import annotations

import re
from typing import Any

BORDER = re.compile(r"#\+(begin|end)_(\w+)", re.IGNORECASE)  # of a block
KEYWORD = re.compile(r"#\+([\w-]+):(?:\s+(.*))?$")
HEADING = re.compile(r"(\*+) +(.*)")
ITEM = re.compile(r"(?:[-+]|\d+[.)])\s+")
RULE_OF_TABLE = re.compile(r"\|[-+|]+$")
DRAWER = re.compile(r":(?:properties|logbook):$", re.IGNORECASE)
PROPERTY = re.compile(r":[^\s:]+:(?:\s.*)?$")
LINK = re.compile(r"\[\[([^\[\]\n]+)\](?:\[([^\[\]\n]+)\])?\]")
# The bound keeps a line of many marks linear.
EMPHASIS = re.compile(r"(?<![\w*/_+=~])([*/_+=~])(?=\S)(.{1,300}?)(?<=\S)\1(?![\w*/_+=~])")
VERBATIM = ("src", "example", "export", "verse", "comment")  # a comment is left out


def _without_marks(line: str) -> str:
    line = LINK.sub(lambda link: link[2] or re.sub(r"^(?:file|id):", "", link[1]), line)
    for _ in range(2):  # bold in italics
        line = EMPHASIS.sub(r"\2", line)
    return line


def read_org(source: str) -> tuple[str, str, dict[str, Any]]:
    """(text, first heading of level 1, fields of the `#+name:` lines above the text) of an Org file.

    `filetags` is a list. Comments, drawers of properties and the other `#+name:` lines are left out, except captions.
    """
    lines: list[str] = []
    fields: dict[str, Any] = {}
    paragraph: list[str] = []  # its lines, which are filled text
    heading = block = ""
    in_drawer = False

    def end_paragraph(*following: str) -> None:
        if paragraph:
            lines.append(_without_marks(" ".join(paragraph)))
            paragraph.clear()
        lines.extend(following)

    for raw in source.split("\n"):
        line = raw.strip()
        if block:
            if line.lower().startswith(f"#+end_{block}"):
                block = ""
            elif block != "comment":
                lines.append(raw.rstrip())
            continue
        in_drawer = bool(DRAWER.match(line)) or (in_drawer and bool(PROPERTY.match(line)))
        if in_drawer or line == "#" or line.startswith("# "):
            continue
        if border := BORDER.match(line):
            end_paragraph()
            block = border[2].lower() if border[1].lower() == "begin" else ""
            block = block if block in VERBATIM else ""
        elif keyword := KEYWORD.match(line):
            name, value = keyword[1].lower(), (keyword[2] or "").strip()
            if not lines and not paragraph:
                fields[name] = [tag for tag in value.split(":") if tag.strip()] if name == "filetags" else value
            else:
                end_paragraph(*[_without_marks(value)] * (name == "caption"))
        elif title := HEADING.match(raw):
            text = _without_marks(title[2].strip())
            heading = heading or (text if title[1] == "*" else "")
            end_paragraph()
            lines.extend(([""] if lines and lines[-1] else []) + [text])
        elif not line:
            end_paragraph()
            lines.extend([""] if lines and lines[-1] else [])
        elif line.startswith("|"):
            end_paragraph(*[_without_marks(line.strip("| "))] * (RULE_OF_TABLE.match(line) is None))
        else:
            if item := ITEM.match(line):
                end_paragraph()
                line = line[item.end() :] if line[0] in "-+" else line
            paragraph.append(line)
    end_paragraph()
    return "\n".join(lines).strip("\n"), heading, fields
