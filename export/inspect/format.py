"""What all inspected formats share: the record of a format, and figures about stored tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msdc.export.executorch.pte import Constant


@dataclass(frozen=True)
class Format:
    """One inspected format.

    `report` makes the dictionary of a file; it must hold kind, file, bytes, sha256 and what `tensor_figures` gives.
    `lines` renders its own part as text. `magic` is (offset, bytes) of the file's start, None where it has none.
    """

    kind: str
    suffix: str
    magic: tuple[int, bytes] | None
    report: Callable[[Path], dict[str, Any]]
    lines: Callable[[dict[str, Any]], list[str]]

    def matches(self, path: Path, head: bytes) -> bool:
        """Is this a file of the format, by its first bytes or its suffix?"""
        if self.magic is not None and head[self.magic[0] :].startswith(self.magic[1]):
            return True
        return path.suffix == self.suffix


def _by_dtype(constants: list[Constant]) -> dict[str, int]:
    sizes: dict[str, int] = defaultdict(int)
    for constant in constants:
        sizes[constant.dtype] += constant.bytes
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def _duplicates(constants: list[Constant]) -> list[dict[str, Any]]:
    """Tensors stored more than once, byte for byte."""
    groups: dict[str, list[Constant]] = defaultdict(list)
    for constant in constants:
        groups[constant.sha256].append(constant)
    same = [group for group in groups.values() if len(group) > 1]
    found = [{"names": [c.name for c in group], "wasted_bytes": sum(c.bytes for c in group[1:])} for group in same]
    return sorted(found, key=lambda entry: -entry["wasted_bytes"])


def _tensors(constants: list[Constant]) -> list[dict[str, Any]]:
    ordered = sorted(constants, key=lambda c: (-c.bytes, c.name))
    return [
        {"name": c.name, "dtype": c.dtype, "shape": list(c.shape), "bytes": c.bytes, "sha256": c.sha256}
        for c in ordered
    ]


def tensor_figures(constants: list[Constant]) -> dict[str, Any]:
    """The part of a report that is the same for every format."""
    return {
        "payload_bytes": sum(constant.bytes for constant in constants),
        "bytes_by_dtype": _by_dtype(constants),
        "duplicates": _duplicates(constants),
        "tensors": _tensors(constants),
    }


def operator_counts(operators: dict[str, int]) -> str:
    """Operators by name and count in one line."""
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in operators.items()) or "nothing"
