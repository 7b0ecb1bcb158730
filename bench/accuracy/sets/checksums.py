"""A data folder's own list of sums: a file that changed since the folder was made is not the published one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msdc.errors import InputError
from msdc.text.text_files import SourceFile, read_lines

SUMS_FILE = "SHA256SUMS"


def read_sums(folder: Path) -> dict[str, str]:
    """Relative path -> sha256, from `SHA256SUMS` (sha256sum's own format); empty where there is none.

    Raises:
        InputError: a line that is no sum and path.
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
    """Compare what was read with the folder's list; returns how many files it vouched for.

    Raises:
        InputError: a file that differs from its listed sum.
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
