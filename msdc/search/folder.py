"""A folder of notes and pages as documents: each file is one, whose id is its path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from msdc.errors import InputError
from msdc.files import regular_size
from msdc.progress import say
from msdc.search.documents import Document, Missing, as_document
from msdc.text.markup import Kind, read_markup
from msdc.text.text_files import MAX_TEXT_BYTES, iterate_lines

KINDS: dict[str, Kind] = {
    ".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html", ".org": "org", ".txt": "plain"
}  # fmt: skip
MOST_FILE_BYTES = 1 << 24


def _refuse(error: OSError) -> NoReturn:
    raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error


def _files(folder: Path) -> list[Path]:
    """The files of KINDS below a folder, without hidden ones, in the order of their paths; reports what it skips."""
    files, others, links = list[Path](), 0, 0
    for root, folders, names in os.walk(folder, onerror=_refuse):
        visible = [name for name in folders if not name.startswith(".")]
        # A link may lead back up.
        folders[:] = [name for name in visible if not os.path.islink(os.path.join(root, name))]
        links += len(visible) - len(folders)
        paths = [Path(root, name) for name in names if not name.startswith(".")]
        files += (notes := [path for path in paths if path.suffix.lower() in KINDS])
        others += len(paths) - len(notes)
    skipped = [f"files of other kinds ({others})"] * bool(others) + [f"links to folders ({links})"] * bool(links)
    if skipped:
        say(f"{folder}: not searched: {', '.join(skipped)}; notes end in {', '.join(KINDS)}")
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def folder_documents(folder: Path, missing: Missing = "refuse") -> Iterator[Document]:
    """The files below a folder, of the kinds of KINDS; the id is the path from the folder.

    Values to filter by are the fields of a file's front matter and, unless that has it, `modified`: the time of the
    file's last change, in UTC. Files without text are left out, and reported.

    Raises:
        InputError: a file that cannot be read, is not text or too large, or whose front matter JSON cannot hold.
    """
    size, empty = 0, list[str]()
    for path in _files(folder):
        key = path.relative_to(folder).as_posix()
        if (length := regular_size(path)) > MOST_FILE_BYTES:
            raise InputError(f"{path}: {length >> 20} MiB, more than the {MOST_FILE_BYTES >> 20} MiB allowed")
        source = "\n".join(line for _, line in iterate_lines(path))
        size += len(source)
        if size > MAX_TEXT_BYTES:
            raise InputError(f"{path}: more than {MAX_TEXT_BYTES >> 20} MiB of text in the folder")
        modified = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
        document = {"modified": modified, **read_markup(source, KINDS[path.suffix.lower()], str(path)), "id": key}
        document["text"] = document["text"].strip() or document["title"]
        if document["text"]:
            yield as_document(document, str(path), missing)
        else:
            empty.append(key)
    if empty:
        say(f"{folder}: without text: {', '.join(empty[:3])}{f' and {len(empty) - 3} more' if len(empty) > 3 else ''}")
