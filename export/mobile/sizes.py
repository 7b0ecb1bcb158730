"""What an app grows by with a bundle: its files, and the runtime's and the module's libraries as measured."""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msdc.export.manifest import GOLDEN_FILE, Manifest
from msdc.tables import Column, Table, to_markdown

# Written by benchmarks/app_size.py: runtime, or "core" -> {what, source, bytes, compressed} of its arm64 libraries.
MEASURED = Path(__file__).with_name("runtime_sizes.json")
LEVEL = 6  # of the archives that stores deliver
BLOCK_BYTES = 1 << 20


@functools.cache
def measured() -> dict[str, Any]:
    """Contents of `MEASURED`."""
    return json.loads(MEASURED.read_text(encoding="utf-8"))


def deflated(paths: Iterable[Path]) -> int:
    """Bytes of files as an archive compresses them."""
    size = 0
    for path in paths:
        packer = zlib.compressobj(LEVEL)
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                size += len(packer.compress(block))
        size += len(packer.flush())
    return size


def size_table(folder: Path, manifest: Manifest, runtime: str) -> str:
    """Markdown: the bytes that an arm64 app grows by with the bundle in `folder` and the program of `runtime`."""
    parts = [
        ("program", manifest.program_files(runtime)),
        ("tokenizer", [manifest.tokenizer.native_file or manifest.tokenizer.file]),
        ("self-test", [GOLDEN_FILE]),
    ]
    rows: list[tuple[str, int, int]] = []
    for what, files in parts:
        paths = [folder / name for name in files]
        size = sum(path.stat().st_size for path in paths)
        rows.append((f"{what}: {', '.join(files)}", size, deflated(paths)))
    for name in (runtime, "core"):
        found = measured()[name]
        rows.append((f"{found['what']}: {found['source']}", found["bytes"], found["compressed"]))
    rows.append(("together", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    columns = (Column("part", align="left"), Column("bytes"), Column("bytes compressed"))
    return to_markdown(Table("", columns, tuple((what, f"{size:,}", f"{small:,}") for what, size, small in rows)))
