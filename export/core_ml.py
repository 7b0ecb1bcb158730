"""A Core ML package of a student (`model.mlpackage`), for iOS 16 and macOS 13: ids [1, T] -> vector [1, D], float16.

coremltools, which ExecuTorch installs, writes it on any system and runs it on Apple's alone: here its structure is
checked against the model, and nothing is run. An app compares its vectors with those of `golden.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from msdc.compress.student.plan import plan_for
from msdc.compress.student.weights import StudentWeights
from msdc.errors import GateError
from msdc.export.executorch.lower import methods_of, not_exported
from msdc.export.smoothing import not_smoothed
from msdc.processes import quiet

# Every tensor has a head of so many bytes, and fills whole blocks.
BLOCK = 64
# Bytes of weights in the package, relative to those of the model: few tensors are folded, or of the program itself.
LEAST_BYTES, MOST_BYTES = 0.95, 1.05


def write_core_ml(weights: StudentWeights, path: Path, *, max_length: int) -> None:
    """Write the package and check its structure.

    Raises:
        GateError: the package is not that of the model.
        MsdcError: coremltools does not convert it.
    """
    smoothed = not_smoothed(weights)
    ((module, (ids_1T, *_)),) = methods_of(smoothed, plan_for(weights.config, "fp32"), max_length, "forward").values()
    weight_bytes = 0
    for part in module.modules():
        for name, tensor in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
            # Integers are inside the program.
            weight_bytes += BLOCK * (1 + -(-2 * tensor.numel() // BLOCK)) if tensor.is_floating_point() else 0
            # Core ML gathers by no other integers.
            if tensor.dtype in (torch.int16, torch.int64):
                part.register_buffer(name, tensor.to(torch.int32))
    captured = None
    try:
        with quiet() as captured:
            import coremltools as ct

            length = ({1: torch.export.Dim("T", min=1, max=max_length)},) if max_length > 1 else None
            program = torch.export.export(module.eval(), (ids_1T,), dynamic_shapes=length, strict=False)
            ct.convert(program.run_decompositions({}), minimum_deployment_target=ct.target.iOS16).save(str(path))
            # A map for ExecuTorch's debugger, which coremltools adds.
            (path / "executorch_debug_handle_mapping.json").unlink(missing_ok=True)
            check_package(path, width=weights.config.width, max_length=max_length, weight_bytes=weight_bytes)
    except GateError:
        raise
    except Exception as error:
        raise not_exported("Core ML", "this model", error, captured.last_line() if captured else "") from error


def check_package(path: Path, *, width: int, max_length: int, weight_bytes: int) -> None:
    """Compare the package at `path` with its model: input, lengths, output, operators, bytes of weights.

    Raises:
        GateError: it differs.
    """
    import coremltools as ct

    spec: Any = ct.utils.load_spec(str(path))
    inputs, outputs = spec.description.input, spec.description.output
    ranges = [(size.lowerBound, size.upperBound)
              for feature in inputs for size in feature.type.multiArrayType.shapeRange.sizeRanges]  # fmt: skip
    shapes = [list(feature.type.multiArrayType.shape) for feature in outputs]
    blocks = spec.mlProgram.functions["main"].block_specializations.values()
    kinds = {operation.type for block in blocks for operation in block.operations}
    size = sum(file.stat().st_size for file in path.rglob("*.bin"))
    problems = {
        f"lengths {ranges}, not 1 to {max_length}": ranges != [(1, 1), (1, max_length)],
        f"vectors of {shapes}, not [1, {width}]": shapes != [[1, width]],
        f"{size:,} bytes of weights, the model has {weight_bytes:,}": not (
            LEAST_BYTES <= size / weight_bytes <= MOST_BYTES
        ),
        "no look-up of token rows": "gather" not in kinds,
    }
    if wrong := [line for line, is_wrong in problems.items() if is_wrong]:
        raise GateError(f"{path.name} is not the model's: {'; '.join(wrong)}")
