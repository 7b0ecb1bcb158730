"""The report of a `.pte`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msdc.export.executorch.pte import BACKEND, read_pte
from msdc.export.inspect.format import Format, operator_counts, tensor_figures
from msdc.files import sha256_file


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
        "methods": methods,
        "foreign_backends": sorted({d.backend for m in program.methods for d in m.delegates} - {BACKEND}),
        **tensor_figures(program.constants),
    }


def _lines(report: dict[str, Any]) -> list[str]:
    lines = [f"  program format {report['schema_version']}"]
    for method in report["methods"]:
        if method["constant"] is not None:
            lines.append(f"  {method['name']} = {method['constant']}")
            continue
        lines.append(
            f"  {method['name']}({', '.join(method['inputs'])}) -> {', '.join(method['outputs'])}, "
            f"{method['planned_bytes']:,} bytes planned"
        )
        lines.append(f"    outside the delegates: {operator_counts(method['outside'])}")
        for delegate in method["delegates"]:
            lines.append(f"    {delegate['backend']}: {operator_counts(delegate['operators'])}")
    return lines


PTE = Format("executorch", ".pte", (4, b"ET12"), inspect_pte, _lines)
