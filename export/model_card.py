"""Facts of a model card that a bundle repeats: languages, licenses, data sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

MAX_CARD_BYTES = 1024 * 1024
MAX_ENTRIES = 200
CARD = "README.md"


@dataclass(frozen=True)
class CardFacts:
    """Facts of a model card; empty where the card states none."""

    languages: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()
    data_sources: tuple[str, ...] = ()


def _texts(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value] if value else []
    return tuple(str(item)[:500] for item in values if isinstance(item, (str, int)))[:MAX_ENTRIES]


def _section(text: str, title: str) -> tuple[str, ...]:
    lines = text.split(f"\n## {title}\n", 1)
    if len(lines) == 1:
        return ()
    section = lines[1].split("\n## ", 1)[0]
    return tuple(line[2:].strip()[:500] for line in section.splitlines() if line.startswith(("* ", "- ")))[:MAX_ENTRIES]


def read_card(folder: Path | None) -> CardFacts:
    """Facts of `folder`'s README.md: its metadata block, then the bullets of its sections Licenses and Data.

    A missing or unreadable card gives no facts; it never fails an export.
    """
    path = folder / CARD if folder is not None else None
    if path is None or not path.is_file() or path.stat().st_size > MAX_CARD_BYTES:
        return CardFacts()
    text = path.read_text(encoding="utf-8", errors="replace")
    block: Any = {}
    if text.startswith("---\n") and "\n---" in text[4:]:
        head = text[4:].split("\n---", 1)[0]
        # An alias in a metadata block is a mistake or an expansion attack.
        if "&" not in head and "*" not in head:
            try:
                block = yaml.safe_load(head)
            except yaml.YAMLError:
                block = {}
    block = block if isinstance(block, dict) else {}
    return CardFacts(
        languages=_texts(block.get("language")),
        licenses=_section(text, "Licenses") or _texts(block.get("license")),
        data_sources=_section(text, "Data") or _texts(block.get("datasets")),
    )
