"""What every form has in common."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from msdc.distill.recipe import Strict
from msdc.errors import InputError

TextRow = tuple[str, ...]
# The files that a path of the source list names, in the order of their names; at least one.
Find = Callable[[str], list[Path]]


class FormBase(Strict):
    """How text is read from the files of a source."""

    def paths(self) -> list[str]:
        """The files that are read, as the source list names them."""
        raise NotImplementedError

    def rows(self, find: Find) -> Iterator[TextRow]:
        """One text, or a pair (English, other language)."""
        raise NotImplementedError


def read_text(path: Path) -> str:
    """A text file, plain or gzip; UTF-8 with or without a byte order mark, UTF-16 with one, or else Latin-1.

    Raises:
        InputError: a damaged gzip file.
    """
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{path.name}: damaged gzip file ({error})") from error
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16").replace("\r\n", "\n")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        # Files of the nineties, such as NLTK's
        return raw.decode("latin-1").replace("\r\n", "\n")
