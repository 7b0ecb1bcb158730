"""Checksums of a data folder: a file that differs from them is not the published one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msdc.errors import InputError
from msdc.text.text_files import SourceFile, read_lines

SUMS_FILE = "SHA256SUMS"


def read_sums(folder: Path) -> dict[str, str]:
    """Relative path -> sha256, from `SHA256SUMS` (sha256sum's own format); empty where there is none.

    Raises:
        InputError: a line that is not a checksum and a path.
    """
    path = folder / SUMS_FILE
    if not path.is_file():
        return {}
    lines = read_lines(path)
    sums = {}
    for number, line in enumerate(lines.lines, start=1):
        digest, _, name = line.partition(" ")
        name = name.strip().lstrip("*").removeprefix("./")
        if len(digest) != 64 or not name:
            raise lines.error(number, "expected a sha256 and a path")
        sums[name] = digest.lower()
    return sums


def check_sums(folder: Path | None, sources: Iterable[SourceFile]) -> int:
    """Compare the files that were read with the folder's list; returns how many of them it lists.

    Raises:
        InputError: a file that differs from its checksum.
    """
    sums = read_sums(folder) if folder is not None else {}
    if folder is None or not sums:
        return 0
    root, checked = folder.resolve(), 0
    for source in sources:
        if source.path is None or not source.path.resolve().is_relative_to(root):
            continue
        listed = sums.get(source.path.resolve().relative_to(root).as_posix())
        if listed is None:
            continue
        if listed != source.sha256:
            raise InputError(
                f"{source.path}: its sha256 is not the one in {SUMS_FILE}; the file was changed or damaged"
            )
        checked += 1
    return checked
