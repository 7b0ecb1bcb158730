"""README files: the facts of a model's card that a bundle repeats; templates of a bundle's README.md and modules."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from msdc.export.manifest import GOLDEN_FILE, MANIFEST_FILE, Manifest

if TYPE_CHECKING:
    from jinja2 import Environment

# README.md of a bundle, with a section for each runtime: NAME.md.j2.
TEMPLATES = Path(__file__).with_name("templates")
MAX_CARD_BYTES = 1024 * 1024
MAX_ENTRIES = 200


class CardFacts(NamedTuple):
    """Languages, licenses and data sources of a model; empty where its card states none."""

    languages: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()
    data_sources: tuple[str, ...] = ()


def read_card(folder: Path | None) -> CardFacts:
    """Facts of `folder`'s README.md: its metadata block, then the bullets of its sections Licenses and Data.

    A missing or unreadable card gives no facts; it never fails an export.
    """
    path = folder / "README.md" if folder is not None else None
    if path is None or not path.is_file() or path.stat().st_size > MAX_CARD_BYTES:
        return CardFacts()
    text = path.read_text(encoding="utf-8", errors="replace")
    head = text[4:].split("\n---", 1)[0] if text.startswith("---\n") and "\n---" in text[4:] else ""
    try:
        # An alias in a metadata block is a mistake or an expansion attack.
        block = {} if "&" in head or "*" in head else yaml.safe_load(head)
    except (yaml.YAMLError, ValueError):
        block = {}
    block = block if isinstance(block, dict) else {}

    def listed(key: str, title: str) -> tuple[str, ...]:
        section = text.partition(f"\n## {title}\n")[2].split("\n## ", 1)[0]
        bullets = [line[2:].strip() for line in section.splitlines() if line.startswith(("* ", "- "))]
        value: Any = bullets if title and bullets else block.get(key)
        values = value if isinstance(value, list) else [value] if value else []
        return tuple(str(item)[:500] for item in values if isinstance(item, (str, int)))[:MAX_ENTRIES]

    return CardFacts(listed("language", ""), listed("license", "Licenses"), listed("datasets", "Data"))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # Markdown and source code: nothing is escaped.
    return Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip


def render(text: str, values: Mapping[str, object]) -> str:
    """`text` with its placeholders (`{{name}}`) replaced."""
    return _templates().from_string(text).render(values)


def bundle_readme(manifest: Manifest, module: str | None = None) -> str:
    """Markdown for `manifest`. `module` is the folder of its module for apps, as seen from the bundle; None: none."""
    part = manifest.tokenizer
    ids = [("first", part.bos_id), ("last", part.eos_id), ("padding", part.pad_id), ("unknown", part.unk_id)]
    text = _templates().get_template("bundle.md.j2").render(
        manifest=manifest, module=module, golden_file=GOLDEN_FILE, manifest_file=MANIFEST_FILE,
        special_ids=[f"{name} {value}" for name, value in ids if value is not None],
    )  # fmt: skip
    return text.rstrip("\n") + "\n"
