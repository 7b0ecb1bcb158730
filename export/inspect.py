"""The content of an artifact, read without running it: a dictionary for scripts, and the same as text.

A file may be untrusted: it is parsed in a child process of bounded time and memory (`export.origin`).

Shapes are lists of sides; sizes are bytes.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from msdc.errors import InputError
from msdc.export.executorch.program import BACKEND, XNNPACK, Constant, read_pte, without_compiler
from msdc.export.manifest import check_files, read_manifest
from msdc.export.onnx.program import MAX_ONNX_BYTES, check_onnx_file, external_files, subgraphs
from msdc.export.origin import answer, ask_child
from msdc.extras import require
from msdc.files import regular_size, sha256_file

MAX_PTE_BYTES = 4 * 1024**3
COLUMNS, LARGEST = 100, 12  # of the text for a person: its width, and the tensors that it lists
FLOATS = {"float": "float32", "double": "float64"}
# Float products over weights: an int8 artifact must hold none.
FLOAT_PRODUCTS = ("MatMul", "Gemm")


def inspect_path(path: str | Path) -> dict[str, Any]:
    """Report of a program file or a bundle folder, whose hashes are checked.

    Raises:
        InputError: missing, of no known format, or damaged.
        MissingExtra: a `.pte`, and ExecuTorch is not installed.
    """
    path = Path(path)
    if path.is_dir():
        manifest = read_manifest(path)
        check_files(path, manifest)
        programs = [inspect_path(path / manifest.part(runtime).file) for runtime in manifest.runtimes]
        values = manifest.model_dump(mode="json")
        return {"kind": "bundle", "name": manifest.name, "hashes": "ok", "manifest": values, "programs": programs}
    size = regular_size(path)
    with open(path, "rb") as handle:
        is_pte = handle.read(64)[4:8] == b"ET12"
    if path.suffix not in (".pte", ".onnx") and not is_pte:
        raise InputError(f"{path}: expected .pte or .onnx or a bundle folder")
    if size > (MAX_PTE_BYTES if is_pte else MAX_ONNX_BYTES):
        raise InputError(f"{path}: {size} bytes, larger than any program")
    if path.suffix == ".pte" and not is_pte:
        raise InputError(f"{path}: not an ExecuTorch program")
    if is_pte:
        require("executorch", "reading a .pte")
    report: dict[str, Any] = ask_child("msdc.export.inspect", path, "reading", is_pte=is_pte)
    return report


def inspect_file(path: Path, is_pte: bool) -> dict[str, Any]:
    """Report of one program, made in this process; an `InputError` where it is damaged."""
    if not is_pte:
        return _onnx_report(path)
    program = read_pte(path)
    backends = {delegate["backend"] for method in program.methods for delegate in method["delegates"]}
    return {
        "kind": "executorch",
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": sha256_file(path),
        "schema_version": program.schema_version,
        "flatbuffer_bytes": program.flatbuffer_bytes,
        "methods": program.methods,
        "foreign_backends": sorted(backends - {BACKEND}),
        **_tensor_figures(program.constants),
    }


def _onnx_report(path: Path) -> dict[str, Any]:
    model = check_onnx_file(path)
    try:
        counts_by_graph: dict[str, Counter[str]] = {}
        nodes = _walk(model.graph, "", counts_by_graph)
        constants = [_constant(tensor, path) for tensor in model.graph.initializer]
        matrices = {c.name for c in constants if c.dtype == "float32" and len(c.shape) == 2 and min(c.shape) > 1}
        data_files = [path.parent / name for name in sorted(external_files(model, path))]
        data = [{"file": f.name, "bytes": f.stat().st_size, "sha256": sha256_file(f)} for f in data_files]
        return {
            "kind": "onnx",
            "file": path.name,
            "bytes": path.stat().st_size + sum(file.stat().st_size for file in data_files),
            "sha256": sha256_file(path),
            "data_files": data,
            "opsets": {used.domain or "ai.onnx": used.version for used in model.opset_import},
            "ir_version": model.ir_version,
            "producer": f"{model.producer_name} {model.producer_version}".strip(),
            "inputs": [_value(info) for info in model.graph.input],
            "outputs": [_value(info) for info in model.graph.output],
            "operators": dict(sorted(counts_by_graph.pop("").items())),
            "subgraphs": {
                name.lstrip("/"): dict(sorted(counts.items())) for name, counts in sorted(counts_by_graph.items())
            },
            "float_weight_products": [
                node.name for node in nodes if node.op_type in FLOAT_PRODUCTS and matrices & set(node.input)
            ],
            **_tensor_figures(constants),
        }
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        # protobuf hands out a name that is no UTF-8 as bytes, and an unknown enum as a bare number.
        raise InputError(f"{path}: damaged ONNX model ({' '.join(str(error).split())[:200]})") from error


def _dtype(number: int) -> str:
    name = onnx.TensorProto.DataType.Name(number).lower()
    return FLOATS.get(name, name)


def _constant(tensor: onnx.TensorProto, path: Path) -> Constant:
    dtype, shape = _dtype(tensor.data_type), tuple(tensor.dims)
    digest = hashlib.sha256()
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        with open(path.parent / entries["location"], "rb") as handle:
            handle.seek(int(entries.get("offset", "0")))
            digest.update(handle.read(int(entries.get("length", "0"))))
    else:
        # Whichever field holds the numbers, the serialized form distinguishes two tensors.
        nameless = onnx.TensorProto()
        nameless.CopyFrom(tensor)
        nameless.ClearField("name")
        digest.update(tensor.raw_data or nameless.SerializeToString(deterministic=True))
    bits = int((re.search(r"\d+", dtype) or ["8"])[0])
    return Constant(tensor.name, dtype, shape, math.prod(shape) * bits // 8, digest.hexdigest())


def _walk(graph: onnx.GraphProto, where: str, counts_by_graph: dict[str, Counter[str]]) -> list[onnx.NodeProto]:
    """Every node, those of subgraphs included; operators are counted in `counts_by_graph` by graph."""
    counts, nodes = counts_by_graph.setdefault(where, Counter()), []
    for node in graph.node:
        counts[f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type] += 1
        nodes.append(node)
        for inner in subgraphs(node):
            nodes += _walk(inner, f"{where}/{node.name or node.op_type}", counts_by_graph)
    return nodes


def _value(info: onnx.ValueInfoProto) -> str:
    kind = info.type.tensor_type
    sides = [side.dim_param or (str(side.dim_value) if side.HasField("dim_value") else "?") for side in kind.shape.dim]
    return f"{info.name}: {_dtype(kind.elem_type)} [{', '.join(sides)}]"


def _tensor_figures(constants: Sequence[Constant]) -> dict[str, Any]:
    """The part of a report that is the same for both formats; duplicates are tensors stored twice, byte for byte."""
    sizes: Counter[str] = Counter()
    groups: dict[str, list[Constant]] = defaultdict(list)
    for constant in constants:
        sizes[constant.dtype] += constant.bytes
        groups[constant.sha256].append(constant)
    wasted = [(sum(c.bytes for c in group[1:]), [c.name for c in group]) for group in groups.values() if group[1:]]
    return {
        "payload_bytes": sizes.total(),
        "bytes_by_dtype": dict(sizes.most_common()),
        "duplicates": [{"names": names, "wasted_bytes": n} for n, names in sorted(wasted, key=lambda w: -w[0])],
        "tensors": [c._asdict() for c in sorted(constants, key=lambda c: (-c.bytes, c.name))],
    }


def _counts(operators: dict[str, int]) -> str:
    """Operators by name and count in one line."""
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in operators.items()) or "nothing"


def _pte_lines(report: dict[str, Any]) -> list[str]:
    lines = [f"  program format {report['schema_version']}"]
    for method in report["methods"]:
        if method["constant"] is not None:
            lines.append(f"  {method['name']} = {method['constant']}")
            continue
        lines += [
            f"  {method['name']}({', '.join(method['inputs'])}) -> {', '.join(method['outputs'])}, "
            f"{method['planned_bytes']:,} bytes planned",
            f"    outside the delegates: {_counts(method['outside'])}",
            *(f"    {delegate['backend']}: {_counts(delegate['operators'])}" for delegate in method["delegates"]),
        ]
    return lines


def _onnx_lines(report: dict[str, Any]) -> list[str]:
    opsets = ", ".join(f"{domain} {number}" for domain, number in report["opsets"].items())
    lines = [
        f"  opset {opsets}; IR {report['ir_version']}; producer {report['producer'] or 'not named'}",
        f"  {', '.join(report['inputs'])} -> {', '.join(report['outputs'])}",
        f"  operators: {_counts(report['operators'])}",
        *(f"  inside {name}: {_counts(counts)}" for name, counts in report["subgraphs"].items()),
    ]
    if report["float_weight_products"]:
        lines.append(f"  products over float32 weights: {', '.join(report['float_weight_products'][:8])}")
    return lines


def _wrapped(line: str) -> str:
    """A line of at most COLUMNS characters, continued on indented ones."""
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line, COLUMNS, subsequent_indent=f"{indent}    ", break_long_words=False, break_on_hyphens=False
    )


def as_text(report: dict[str, Any]) -> str:
    """The report for a person, with the largest tensors."""
    if report["kind"] == "bundle":
        manifest = report["manifest"]
        lines = [
            f"bundle {report['name']}: {manifest['precision']} for {manifest['target']}, width {manifest['width']}, "
            f"longest input {manifest['max_length']}, vocabulary {manifest['vocabulary']:,}",
            f"  hashes ok, gates {manifest['gates']}",
            *(f"  {name} {number}" for name, number in manifest["versions"].items()),
        ]
        return "\n".join([*lines, *(as_text(program) for program in report["programs"])])
    payload = report["payload_bytes"]
    around = report["bytes"] - payload
    wasted = sum(entry["wasted_bytes"] for entry in report["duplicates"])
    return "\n".join(
        [
            f"{report['file']}: {report['kind']}, {report['bytes']:,} bytes",
            f"  sha256 {report['sha256']}",
            *map(_wrapped, (_pte_lines if report["kind"] == "executorch" else _onnx_lines)(report)),
            f"  tensors    {payload:,} bytes in {len(report['tensors'])}, {around:,} bytes around them",
            *(f"    {d:<9} {n:>14,}  {100 * n / max(1, payload):5.1f} %" for d, n in report["bytes_by_dtype"].items()),
            *(f"    {t['bytes']:>14,}  {t['dtype']} {t['shape']}  {t['name']}" for t in report["tensors"][:LARGEST]),
            f"  duplicates {len(report['duplicates'])} groups, {wasted:,} bytes stored twice",
        ]
    )


if __name__ == "__main__":
    # The deserializers need nothing of the compiler, in whose packages they are.
    with without_compiler(XNNPACK):
        sys.exit(answer(inspect_file))
