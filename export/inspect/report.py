"""One report for any artifact: a dictionary for scripts, and the same as text."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.export.executorch.pte import BACKEND, Constant, read_pte
from msdc.export.manifest import MANIFEST_FILE, check_files, read_manifest
from msdc.files import sha256_file


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


def inspect_pte(path: Path) -> dict[str, Any]:
    """Report of an ExecuTorch program."""
    program = read_pte(path)
    methods = []
    for method in program.methods:
        methods.append(
            {
                "name": method.name,
                "inputs": method.inputs,
                "outputs": method.outputs,
                "constant": method.constant,
                "delegates": [
                    {"backend": d.backend, "operators": d.operators, "bytes": d.bytes} for d in method.delegates
                ],
                "outside": method.operators,
                "planned_bytes": method.planned_bytes,
            }
        )
    return {
        "kind": "executorch",
        "file": path.name,
        "bytes": program.bytes,
        "sha256": sha256_file(path),
        "schema_version": program.schema_version,
        "flatbuffer_bytes": program.flatbuffer_bytes,
        "payload_bytes": sum(c.bytes for c in program.constants),
        "methods": methods,
        "foreign_backends": sorted({d.backend for m in program.methods for d in m.delegates} - {BACKEND}),
        "bytes_by_dtype": _by_dtype(program.constants),
        "duplicates": _duplicates(program.constants),
        "tensors": _tensors(program.constants),
    }


def inspect_onnx(path: Path) -> dict[str, Any]:
    """Report of an ONNX model."""
    from msdc.export.inspect.onnx_file import read_onnx

    model = read_onnx(path)
    return {
        "kind": "onnx",
        "file": path.name,
        "bytes": model.bytes + sum(model.data_files.values()),
        "sha256": sha256_file(path),
        "data_files": [
            {"file": name, "bytes": size, "sha256": sha256_file(path.parent / name)}
            for name, size in model.data_files.items()
        ],
        "opsets": model.opsets,
        "ir_version": model.ir_version,
        "producer": model.producer,
        "inputs": model.inputs,
        "outputs": model.outputs,
        "operators": model.operators,
        "subgraphs": model.subgraphs,
        "float_weight_products": model.float_weight_products,
        "payload_bytes": sum(c.bytes for c in model.constants),
        "bytes_by_dtype": _by_dtype(model.constants),
        "duplicates": _duplicates(model.constants),
        "tensors": _tensors(model.constants),
    }


def inspect_bundle(folder: Path) -> dict[str, Any]:
    """Report of a bundle: manifest, hashes checked, each program."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    programs = []
    if manifest.programs.executorch:
        programs.append(inspect_pte(folder / manifest.programs.executorch.file))
    if manifest.programs.onnx:
        programs.append(inspect_onnx(folder / manifest.programs.onnx.file))
    return {
        "kind": "bundle",
        "name": manifest.name,
        "hashes": "ok",
        "manifest": manifest.model_dump(mode="json"),
        "programs": programs,
    }


def inspect_path(path: str | Path) -> dict[str, Any]:
    """Report of a `.pte`, an `.onnx` or a bundle folder, by its form and its first bytes.

    Raises:
        InputError: missing, of another kind, or damaged.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / MANIFEST_FILE).is_file():
            raise InputError(f"{path}: not a bundle (no {MANIFEST_FILE})")
        return inspect_bundle(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    with open(path, "rb") as handle:
        head = handle.read(8)
    if head[4:8] == b"ET12" or path.suffix == ".pte":
        return inspect_pte(path)
    if path.suffix == ".onnx":
        return inspect_onnx(path)
    raise InputError(f"{path}: neither a .pte nor an .onnx nor a bundle folder")


def _counts(operators: dict[str, int]) -> str:
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in operators.items()) or "nothing"


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
    if report["kind"] == "executorch":
        lines.append(f"  program format {report['schema_version']}")
        for method in report["methods"]:
            if method["constant"] is not None:
                lines.append(f"  {method['name']} = {method['constant']}")
                continue
            lines.append(f"  {method['name']}({', '.join(method['inputs'])}) -> {', '.join(method['outputs'])}, "
                         f"{method['planned_bytes']:,} bytes planned")  # fmt: skip
            lines.append(f"    outside the delegates: {_counts(method['outside'])}")
            for delegate in method["delegates"]:
                lines.append(f"    {delegate['backend']}: {_counts(delegate['operators'])}")
    else:
        opsets = ", ".join(f"{domain} {number}" for domain, number in report["opsets"].items())
        lines.append(f"  opset {opsets}; IR {report['ir_version']}; made by {report['producer'] or 'nobody named'}")
        lines.append(f"  {', '.join(report['inputs'])} -> {', '.join(report['outputs'])}")
        lines.append(f"  operators: {_counts(report['operators'])}")
        for name, counts in report["subgraphs"].items():
            lines.append(f"  inside {name}: {_counts(counts)}")
        if report["float_weight_products"]:
            lines.append(f"  products over float32 weights: {', '.join(report['float_weight_products'][:8])}")
    return "\n".join([*lines, *_sizes(report, tensors)])
