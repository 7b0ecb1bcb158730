"""The written .pte: parity in both styles, exact tables, the gate that names what stayed outside the delegate."""

import hashlib

import numpy as np
import pytest
import tiny_models as tiny
import torch
from torch import nn

from msdc.compress.quantization.plan import integers, plan_for
from msdc.compress.size import predict_bytes
from msdc.compress.student.config import CODE, TABLE
from msdc.export.bundle import load_bundle
from msdc.export.executorch.lower import outside_delegate, write_executorch
from msdc.export.executorch.program import read_pte
from msdc.export.smoothing import TorchModel, not_smoothed, smooth


def test_int8_multi_method_program():
    """Its vectors, its methods, and a token table that is exactly the integers."""
    bundle = load_bundle(tiny.bundle(), "executorch")
    wanted, found = TorchModel(tiny.student()).vectors(tiny.rows()), bundle.encode_ids(tiny.rows())
    assert (wanted * found).sum(1).mean() > 0.998
    methods = {method["name"]: method for method in read_pte(bundle.folder / "model.pte").methods}
    constants = {name: method["constant"] for name, method in methods.items() if method["constant"] is not None}
    assert constants == {"repeats": 2, "width": 32, "max_length": tiny.MAX_LENGTH, "vocabulary": tiny.tokenizer().size}
    assert set(methods) - set(constants) == {"embed", "unit", "pool"}
    student = tiny.student()
    part = integers(student, plan_for(student, "int8"))["embedding.table.weight"]
    stored = [c for c in read_pte(bundle.folder / "model.pte").constants if c.shape == (tiny.tokenizer().size, 32)]
    assert [c.dtype for c in stored] == ["int8"]
    assert stored[0].sha256 == hashlib.sha256(part.values.tobytes()).hexdigest()


def test_coded_table_in_int8(tmp_path):
    """The code is stored as its integers, `embed` computes with them, and the file has the predicted size."""
    student = tiny.student(**tiny.SHAPES["coded"])
    plan, path = plan_for(student, "int8"), tmp_path / "model.pte"
    made = smooth(TorchModel(student), plan, tiny.tokenizer(), tiny.MAX_LENGTH)
    written = write_executorch(made, plan, path, max_length=tiny.MAX_LENGTH)
    assert written.low_bit_share == 1.0
    parts = integers(student, plan)
    constants = read_pte(path).constants
    digests = {c.sha256 for c in constants if c.shape == (tiny.tokenizer().size, 3)}
    wanted = (parts[CODE].values, student.embedding.code.index.numpy())
    assert digests == {hashlib.sha256(array.tobytes()).hexdigest() for array in wanted}
    assert [c.dtype for c in constants if c.shape == (60, 32)] == ["int8"]
    with torch.no_grad():
        for name in (TABLE, CODE):
            student.get_parameter(name).copy_(torch.from_numpy(parts[name].dequantize()))
    found = written.runner.run(tiny.rows())
    wanted_ND = TorchModel(student).vectors(tiny.rows())
    assert (wanted_ND * found).sum(1).mean() > 0.998
    assert path.stat().st_size == pytest.approx(predict_bytes(student.config, plan, "executorch"), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8-embed4"])
def test_coded_table_equals_eager(precision, tmp_path):
    student = tiny.student(**tiny.SHAPES["coded"])
    plan, path = plan_for(student, precision), tmp_path / "model.pte"
    smoothed = not_smoothed(student.numbers())
    runner = write_executorch(smoothed, plan, path, max_length=tiny.MAX_LENGTH, style="forward").runner
    with torch.no_grad():
        for name, part in integers(student, plan).items():
            if name in (TABLE, CODE):
                student.get_parameter(name).copy_(torch.from_numpy(part.dequantize()))
    found = runner.run(tiny.rows())
    wanted = TorchModel(student).vectors(tiny.rows())
    assert (wanted * found).sum(1).mean() > (0.999999 if precision == "fp32" else 0.998)


@pytest.mark.slow
def test_fp32_forward_style_equals_eager():
    bundle = load_bundle(tiny.bundle("fp32", ("executorch",), "forward"), "executorch")
    assert bundle.manifest.programs.executorch.style == "forward"
    wanted_ND = TorchModel(tiny.student()).vectors(tiny.rows())
    np.testing.assert_allclose(bundle.encode_ids(tiny.rows()), wanted_ND, atol=3e-6)
    methods = {method["name"] for method in read_pte(bundle.folder / "model.pte").methods}
    assert methods == {"forward", "repeats", "width", "max_length", "vocabulary"}


@pytest.mark.slow
def test_4_bit_table_runs_with_half_precision_scales():
    bundle = load_bundle(tiny.bundle("int8-embed4", ("executorch",)), "executorch")
    student = tiny.student()
    parts = integers(student, plan_for(student, "int8-embed4"))
    with torch.no_grad():
        student.embedding.table.weight.copy_(torch.from_numpy(parts["embedding.table.weight"].dequantize()))
    found, wanted = bundle.encode_ids(tiny.rows()), TorchModel(student).vectors(tiny.rows())
    assert (wanted * found).sum(1).mean() > 0.998
    dtypes = {c.dtype for c in read_pte(bundle.folder / "model.pte").constants}
    assert "float16" in dtypes
    assert bundle.manifest.parity["executorch"].low_bit_share == 1.0


def test_gate_names_the_operator_outside_the_delegate():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x).softmax(-1)

    graph = torch.export.export(Odd().eval(), (torch.ones(1, 4),)).graph_module
    found = outside_delegate(graph)
    assert any(text.startswith("linear at inner") for text in found), found
    assert any(text.startswith("softmax") for text in found), found
