"""One report for any artifact: a dictionary for scripts, and the same as text.

To add a format, write a `Format` in a file of its own and list it in `FORMATS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.export.inspect.format import Format
from msdc.export.inspect.onnx_file import ONNX
from msdc.export.inspect.pte_file import PTE
from msdc.export.manifest import MANIFEST_FILE, check_files, read_manifest

FORMATS: tuple[Format, ...] = (PTE, ONNX)


def inspect_file(path: Path) -> dict[str, Any]:
    """Report of one file, by its first bytes or its suffix.

    Raises:
        InputError: missing, of no known format, or damaged.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with open(path, "rb") as handle:
        head = handle.read(64)
    for known in FORMATS:
        if known.matches(path, head):
            return known.report(path)
    raise InputError(f"{path}: expected {' or '.join(known.suffix for known in FORMATS)} or a bundle folder")


def inspect_bundle(folder: Path) -> dict[str, Any]:
    """Report of a bundle: manifest, hashes checked, each program."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    programs = [inspect_file(folder / manifest.part(runtime).file) for runtime in manifest.runtimes]
    return {
        "kind": "bundle",
        "name": manifest.name,
        "hashes": "ok",
        "manifest": manifest.model_dump(mode="json"),
        "programs": programs,
    }


def inspect_path(path: str | Path) -> dict[str, Any]:
    """Report of a program file or a bundle folder.

    Raises:
        InputError: missing, of no known format, or damaged.
    """
    path = Path(path)
    if not path.is_dir():
        return inspect_file(path)
    if not (path / MANIFEST_FILE).is_file():
        raise InputError(f"{path}: not a bundle (no {MANIFEST_FILE})")
    return inspect_bundle(path)


def _sizes(report: dict[str, Any], tensors: int) -> list[str]:
    total = max(1, report["payload_bytes"])
    around = report["bytes"] - report["payload_bytes"]
    lines = [
        f"  tensors    {report['payload_bytes']:,} bytes in {len(report['tensors'])}, {around:,} bytes around them"
    ]
    for dtype, size in report["bytes_by_dtype"].items():
        lines.append(f"    {dtype:<9} {size:>14,}  {100 * size / total:5.1f} %")
    for entry in report["tensors"][:tensors]:
        lines.append(f"    {entry['bytes']:>14,}  {entry['dtype']} {entry['shape']}  {entry['name']}")
    wasted = sum(entry["wasted_bytes"] for entry in report["duplicates"])
    lines.append(f"  duplicates {len(report['duplicates'])} groups, {wasted:,} bytes stored twice")
    return lines


def as_text(report: dict[str, Any], tensors: int = 12) -> str:
    """The report for a person; `tensors` of the largest tensors are listed."""
    if report["kind"] == "bundle":
        manifest = report["manifest"]
        lines = [
            f"bundle {report['name']}: {manifest['precision']} for {manifest['target']}, width {manifest['width']}, "
            f"longest input {manifest['max_length']}, vocabulary {manifest['vocabulary']:,}",
            f"  hashes ok, gates {manifest['gates']}",
            *(f"  {name} {number}" for name, number in manifest["versions"].items()),
        ]
        return "\n".join([*lines, *(as_text(program, tensors) for program in report["programs"])])
    lines = [f"{report['file']}: {report['kind']}, {report['bytes']:,} bytes, sha256 {report['sha256']}"]
    (known,) = (known for known in FORMATS if known.kind == report["kind"])
    return "\n".join([*lines, *known.lines(report), *_sizes(report, tensors)])
