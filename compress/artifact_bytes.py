"""What a program costs around its weights: the bytes of `model.pte`, and of `model.onnx` with its data.

The constants are fits to programs that this project's export wrote (ExecuTorch 1.5.1, multi-method; ONNX opset 21) for
many shapes; tests/compress/test_predicted_bytes.py holds the prediction within 1 % of freshly written files.
"""

from __future__ import annotations

from collections.abc import Mapping

from compress.quantize import NORM_READERS, PrecisionPlan, reads_int8, weight_bytes_by_dtype
from compress.shapes import DENSE, LINEARS, POSITION, PROJECT, TABLE
from compress.student import StudentConfig

# Bytes of graph, names and alignment. "quantized": once where anything is; "int8", "int4": a product of a layer (ONNX
# joins query, key and value of one type into one int8 product); "smooth": a layer whose inputs export smooths;
# "outside", "bias", "outside_quantized": bottleneck map and dense head; "loop": ONNX writes longer names inside a loop.
ONNX = {
    "file": 1990, "quantized": 360, "layer": 1800, "int8": 451, "int4": 136, "smooth": 190, "outside": 200, "bias": 50,
    "outside_quantized": 400, "narrow": 250, "loop": 1.13,
}  # fmt: skip
PTE = {
    "file": 8700, "quantized": 0, "layer": 7765, "int8": 370, "int4": 390, "smooth": 512, "outside": 384, "bias": 768,
    "outside_quantized": 512, "narrow": 700, "smooth_once": 700,
}  # fmt: skip


def _payload(config: StudentConfig, plan: PrecisionPlan) -> int:
    return sum(weight_bytes_by_dtype(config, plan).values())


def _smoothed(config: StudentConfig, plan: PrecisionPlan) -> int:
    """Hidden states whose scales export stores: the inputs of int8 products behind a layer norm."""
    return sum(reads_int8(plan, index, state) for index in range(config.unit) for state in NORM_READERS)


def _outside(config: StudentConfig, plan: PrecisionPlan, cost: Mapping[str, float]) -> float:
    total = 0.0
    biased = {PROJECT: config.place == "embedding", DENSE: config.dense_bias}
    present = {PROJECT: config.bottleneck is not None, DENSE: config.dense is not None}
    for name, there in present.items():
        if there:
            total += cost["outside"] + cost["bias"] * biased[name]
            total += cost["outside_quantized"] * (plan.dtype(name) != "fp32")
    if plan.dtype(TABLE) == "int4" or plan.dtype(POSITION) == "int8":
        total += cost["narrow"]
    return total + cost["quantized"] * any(dtype != "fp32" for dtype in plan.weights.values())


def onnx_bytes(config: StudentConfig, plan: PrecisionPlan) -> int:
    """Bytes of `model.onnx` and `model.onnx.data` together."""
    smoothed = _smoothed(config, plan)
    layers = ONNX["layer"] * config.unit + ONNX["smooth"] * smoothed / 2
    for index in range(config.unit):
        dtypes = {part: plan.dtype(f"layers.{index}.{part}.weight") for part in LINEARS}
        joined = len({dtypes[part] for part in ("query", "key", "value")}) == 1 and dtypes["query"] == "int8"
        eight = [part for part, dtype in dtypes.items() if dtype == "int8"]
        layers += ONNX["int8"] * (len(eight) - 2 * joined)
        layers += ONNX["int4"] * sum(dtype == "int4" for dtype in dtypes.values())
    layers *= ONNX["loop"] if config.repeats > 1 else 1.0
    scales = 4 * config.hidden * smoothed
    return round(_payload(config, plan) + scales + ONNX["file"] + layers + _outside(config, plan, ONNX))


def executorch_bytes(config: StudentConfig, plan: PrecisionPlan) -> int:
    """Bytes of a multi-method `model.pte`."""
    smoothed = _smoothed(config, plan)
    layers = PTE["layer"] * config.unit + PTE["smooth"] * smoothed / 2
    for index in range(config.unit):
        for part in LINEARS:
            dtype = plan.dtype(f"layers.{index}.{part}.weight")
            layers += 0 if dtype == "fp32" else PTE[dtype]
    scales = 4 * config.hidden * smoothed + PTE["smooth_once"] * (smoothed > 0)
    return round(_payload(config, plan) + scales + PTE["file"] + layers + _outside(config, plan, PTE))
