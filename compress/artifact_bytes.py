"""What a program costs around its weights: the bytes of `model.pte`, and of `model.onnx` with its data.

The constants are least-squares fits to programs that this project's export wrote (ExecuTorch 1.5.1, multi-method;
ONNX opset 21) for many shapes; tests/compress/test_plan.py holds the prediction within 1 % of freshly written files.
"""

from __future__ import annotations

from compress.quantize import PrecisionPlan, weight_bytes_by_dtype
from compress.shapes import DENSE, PROJECT
from compress.student import StudentConfig

# Bytes of graph and alignment: once a file, a layer, a quantized product of a layer (query, key and value count as one
# in ONNX), a quantized map outside the layers; ONNX writes longer names inside a loop.
ONNX = {"file": 2200, "layer": 3120, "int8": 760, "outside": 900, "loop": 1.19}
PTE = {"file": 9700, "layer": 10000, "int8": 600, "outside": 900}


def _payload(config: StudentConfig, plan: PrecisionPlan) -> int:
    return sum(weight_bytes_by_dtype(config, plan).values())


def _quantized(config: StudentConfig, plan: PrecisionPlan) -> tuple[int, int]:
    """Quantized products inside the stored layers (q, k and v as one), and maps outside them."""
    inside = 0
    for index in range(config.unit):
        for part in ("query", "output", "up", "down"):
            inside += plan.dtype(f"layers.{index}.{part}.weight") != "fp32"
    return inside, sum(plan.dtype(name) != "fp32" for name in (PROJECT, DENSE))


def onnx_bytes(config: StudentConfig, plan: PrecisionPlan) -> int:
    """Bytes of `model.onnx` and `model.onnx.data` together."""
    inside, outside = _quantized(config, plan)
    layers = ONNX["layer"] * config.unit + ONNX["int8"] * inside
    factor = ONNX["loop"] if config.repeats > 1 else 1.0
    return round(_payload(config, plan) + ONNX["file"] + layers * factor + ONNX["outside"] * outside)


def executorch_bytes(config: StudentConfig, plan: PrecisionPlan) -> int:
    """Bytes of a multi-method `model.pte`."""
    inside, outside = _quantized(config, plan)
    layers = PTE["layer"] * config.unit + PTE["int8"] * inside
    return round(_payload(config, plan) + PTE["file"] + layers + PTE["outside"] * outside)
