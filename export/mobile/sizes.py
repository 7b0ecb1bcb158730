"""What an app grows by with a bundle: its files, and the runtime's and the module's libraries as measured."""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msdc.tables import Field, draw, text_field, to_markdown

# Written by benchmarks/app_size.py: runtime, or "core" -> {what, source, bytes, compressed} of its arm64 libraries.
MEASURED = Path(__file__).with_name("runtime_sizes.json")
LEVEL = 6  # of the archives that stores deliver


@functools.cache
def measured() -> dict[str, Any]:
    """Contents of `MEASURED`."""
    return json.loads(MEASURED.read_text(encoding="utf-8"))


def deflated(paths: Iterable[Path]) -> int:
    """Bytes of files as an archive compresses them."""
    return sum(len(zlib.compress(path.read_bytes(), LEVEL)) for path in paths)


def size_table(folder: Path, parts: Mapping[str, Sequence[str]], libraries: Mapping[str, tuple[int, int]]) -> str:
    """Markdown: bytes, plain and compressed, of a bundle's files in `folder`, of libraries, and together."""
    rows = []
    for what, files in parts.items():
        paths = [folder / name for name in files]
        rows.append((f"{what}: {', '.join(files)}", sum(path.stat().st_size for path in paths), deflated(paths)))
    rows += [(what, *sizes) for what, sizes in libraries.items()]
    rows.append(("together", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    fields: list[Field[tuple[str, int, int]]] = [
        text_field("part", lambda row: row[0]),
        Field("bytes", lambda row: row[1], ","),
        Field("bytes compressed", lambda row: row[2], ","),
    ]
    return to_markdown(draw("", fields, rows))


def app_sizes(folder: Path, parts: Mapping[str, Sequence[str]], runtime: str) -> str:
    """Markdown: the bytes that an arm64 app grows by with files in `folder` and the libraries of `runtime`."""
    libraries_measured = [measured()[name] for name in (runtime, "core")]
    libraries = {
        f"{library['what']}: {library['source']}": (library["bytes"], library["compressed"])
        for library in libraries_measured
    }
    return size_table(folder, parts, libraries)
