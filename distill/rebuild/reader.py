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


class OnePath(FormBase):
    """A form whose sources hold both languages, or only one."""

    path: str

    def paths(self) -> list[str]:
        """The files."""
        return [self.path]


class TwoPaths(FormBase):
    """A form with files of English beside files of the other language."""

    source: str
    target: str

    def paths(self) -> list[str]:
        """The files of both languages."""
        return [self.source, self.target]


def by_folder(find: Find, source: str, target: str, parts: tuple[str, str]) -> Iterator[tuple[Path, Path]]:
    """Files of two languages whose paths are equal but for one part (`/values/` and `/values-de/`)."""
    other = {path.as_posix(): path for path in find(target)}
    for path in find(source):
        twin = path.as_posix().replace(*parts)
        if twin in other:
            yield path, other[twin]


class TwinFiles(TwoPaths):
    """Files of two languages, each a mapping of texts, whose paths are equal but for `parts`."""

    parts: tuple[str, str]

    @staticmethod
    def texts(path: Path) -> dict[str, str]:
        """The texts of one file by their names."""
        raise NotImplementedError

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs of equal names, in the order of the English file."""
        for one, two in by_folder(find, self.source, self.target, self.parts):
            other = self.texts(two)
            yield from ((text, other[name]) for name, text in self.texts(one).items() if name in other)


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
