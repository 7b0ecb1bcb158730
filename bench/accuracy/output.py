"""Result files of `msdc evaluate`: the suffix chooses the form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msdc.bench.accuracy.render import markdown, page
from msdc.errors import InputError
from msdc.files import refuse_existing, write_json, write_text

SUFFIXES = (".json", ".md", ".html")


def check_output(path: Path, force: bool) -> None:
    """Refuse before hours of work what would be refused after them.

    Raises:
        InputError: the file exists and `force` is false, or its suffix is none of ours.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: the result is written as {', '.join(SUFFIXES)}; choose one of these suffixes")
    refuse_existing(path, force)


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Write a result document in the form its suffix names."""
    if path.suffix == ".json":
        write_json(path, document)
    else:
        write_text(path, markdown(document) if path.suffix == ".md" else page(document))
