"""Predicted bytes within 1 % of the files that export writes, for small artifacts, where overhead weighs most."""

import pytest
import tiny_models
import torch

from msdc.compress.quantization.plan import plan_for
from msdc.compress.size import predict_bytes
from msdc.compress.student.model import Student, StudentConfig
from msdc.export.exporters import BundleOptions, write_bundle

LENGTH = 40
SLOW = pytest.mark.slow
# Runtimes and precisions for one shape each: lowering to XNNPACK takes long, the ONNX graph does not.
CASES = [
    ("executorch", "int8-embed4", {"unit": 1, "repeats": 2}),
    pytest.param("executorch", "fp32", {"unit": 1, "repeats": 1, "bottleneck": None, "dense": 32}, marks=SLOW),
    pytest.param("executorch", "int8", {"unit": 1, "repeats": 1, "base_rows": 700, "links": 3}, marks=SLOW),
    ("onnx", "int8", {"unit": 2, "repeats": 3}),
    ("onnx", "int8-embed4", {"unit": 1, "repeats": 2, "base_rows": 700, "links": 2}),
    ("onnx", "int8-embed4", {"unit": 1, "repeats": 1, "place": "embedding"}),
    ("onnx", "int4-embed4", {"unit": 3, "repeats": 2}),
    ("onnx", "fp32", {"unit": 1, "repeats": 2, "dense": 48, "dense_activation": "tanh"}),
]


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_models.tokenizer(3000)


@pytest.mark.parametrize(("runtime", "precision", "changes"), CASES)
def test_prediction(tmp_path, tokenizer, runtime, precision, changes):
    shape = {"hidden": 64, "heads": 4, "intermediate": 256, "bottleneck": 32, "positions": 64}
    config = StudentConfig(vocabulary=tokenizer.size, **{**shape, **changes})
    torch.manual_seed(0)
    student = Student(config).eval()
    with torch.no_grad():
        # Equal tensors are stored once: fresh biases, all zero, would make the file smaller than any trained one.
        for parameter in student.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    options = BundleOptions(precision=precision, runtimes=(runtime,), max_length=LENGTH, gates=False)
    manifest = write_bundle(student, tokenizer, tmp_path / "bundle", options=options)
    names = {"executorch": ["model.pte"], "onnx": ["model.onnx", "model.onnx.data"]}[runtime]
    written = sum(manifest.files[name].bytes for name in names)
    predicted = predict_bytes(config, plan_for(config, precision), runtime, LENGTH)
    assert predicted == pytest.approx(written, rel=0.01)
