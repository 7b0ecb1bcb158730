"""Whether the native libraries of an .apk, .aar or folder load on devices with 16 KB pages.

python3 check_page_size.py app-release.apk

Prints one line per 64-bit library that does not and exits with code 1. Uses the standard library only.
"""

from __future__ import annotations

import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

PAGE = 16384
PT_LOAD = 1


def least_alignment(library: bytes) -> int | None:
    """Smallest alignment of the loaded segments of a 64-bit ELF library, None for anything else."""
    if library[:6] != b"\x7fELF\x02\x01":  # little-endian, as all of Android's
        return None
    (offset,), (size, count) = struct.unpack_from("<Q", library, 32), struct.unpack_from("<HH", library, 54)
    headers = [struct.unpack_from("<I44xQ", library, offset + i * size) for i in range(count)]
    return min((alignment for kind, alignment in headers if kind == PT_LOAD), default=None)


def libraries(path: Path) -> Iterator[tuple[str, bytes]]:
    """(name, content) of every .so of a file, archive or folder."""
    if path.is_dir():
        for file in sorted(path.rglob("*.so")):
            yield str(file.relative_to(path)), file.read_bytes()
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".so"):
                    yield name, archive.read(name)
    else:
        yield path.name, path.read_bytes()


def misaligned(path: Path) -> list[str]:
    """One line for each library whose segments are aligned to less than 16 KB."""
    found = ((name, least_alignment(content)) for name, content in libraries(path))
    return [f"{name}: aligned to {size} bytes, not to {PAGE}" for name, size in found if size and size < PAGE]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: check_page_size.py FILE.apk|FILE.aar|FILE.so|FOLDER")
    lines = misaligned(Path(sys.argv[1]))
    print("\n".join(lines) or "every 64-bit library is aligned to 16 KB")
    sys.exit(1 if lines else 0)
