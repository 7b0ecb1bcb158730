"""The export twin, smoothing, and the written .pte: parity, exact tables, what stayed outside the delegate."""

import hashlib
import itertools

import numpy as np
import pytest
import tiny_models as tiny
import torch
from programs import python
from torch import nn

from msdc.compress.size import predict_bytes
from msdc.compress.student.config import CODE, TABLE
from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.plan import plan_for
from msdc.compress.student.weights import integers
from msdc.export.bundle import load_bundle
from msdc.export.executorch.lower import (
    ExportForward,
    TableInt4,
    TableInt8,
    methods_of,
    outside_delegate,
    write_executorch,
)
from msdc.export.executorch.program import read_pte
from msdc.export.smoothing import TorchModel, calibration_texts, not_smoothed, scales_for, smooth


def test_int8_multi_method_program():
    """Its vectors, its methods, and a token table that is exactly the integers."""
    bundle = load_bundle(tiny.bundle(), "executorch")
    expected, vectors = TorchModel(tiny.student()).vectors(tiny.rows()), bundle.encode_ids(tiny.rows())
    assert (expected * vectors).sum(1).mean() > 0.998
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
    smoothed = smooth(TorchModel(student), plan, tiny.tokenizer(), tiny.MAX_LENGTH)
    written = write_executorch(smoothed, plan, path, max_length=tiny.MAX_LENGTH)
    assert written.low_bit_share == 1.0
    parts = integers(student, plan)
    constants = read_pte(path).constants
    digests = {c.sha256 for c in constants if c.shape == (tiny.tokenizer().size, 3)}
    expected = (parts[CODE].values, student.embedding.code.index.numpy())
    assert digests == {hashlib.sha256(array.tobytes()).hexdigest() for array in expected}
    assert [c.dtype for c in constants if c.shape == (60, 32)] == ["int8"]
    wanted_ND = TorchModel(tiny.dequantized(student, "int8", (TABLE, CODE))).vectors(tiny.rows())
    assert (wanted_ND * written.runner.run(tiny.rows())).sum(1).mean() > 0.998
    assert path.stat().st_size == pytest.approx(predict_bytes(student.config, plan, "executorch"), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8-embed4"])
def test_coded_table_equals_eager(precision, tmp_path):
    student = tiny.student(**tiny.SHAPES["coded"])
    plan, path = plan_for(student, precision), tmp_path / "model.pte"
    smoothed = not_smoothed(student.to_numpy())
    runner = write_executorch(smoothed, plan, path, max_length=tiny.MAX_LENGTH, style="forward").runner
    expected = TorchModel(tiny.dequantized(student, precision, (TABLE, CODE))).vectors(tiny.rows())
    assert (expected * runner.run(tiny.rows())).sum(1).mean() > (0.999999 if precision == "fp32" else 0.998)


@pytest.mark.slow
def test_fp32_forward_style_equals_eager():
    bundle = load_bundle(tiny.bundle("fp32", "executorch", "forward"), "executorch")
    assert bundle.manifest.programs.executorch.style == "forward"
    wanted_ND = TorchModel(tiny.student()).vectors(tiny.rows())
    np.testing.assert_allclose(bundle.encode_ids(tiny.rows()), wanted_ND, atol=3e-6)
    methods = {method["name"] for method in read_pte(bundle.folder / "model.pte").methods}
    assert methods == {"forward", "repeats", "width", "max_length", "vocabulary"}


@pytest.mark.slow
def test_4_bit_table_runs_with_half_precision_scales():
    bundle = load_bundle(tiny.bundle("int8-embed4", "executorch"), "executorch")
    student = tiny.dequantized(tiny.student(), "int8-embed4", (TABLE,))
    vectors, expected = bundle.encode_ids(tiny.rows()), TorchModel(student).vectors(tiny.rows())
    assert (expected * vectors).sum(1).mean() > 0.998
    dtypes = {c.dtype for c in read_pte(bundle.folder / "model.pte").constants}
    assert "float16" in dtypes
    parity = bundle.manifest.parity["executorch"]
    assert parity.low_bit_share == 1.0
    assert 0.5 < parity.delegated_share < 1
    assert "native_layer_norm" in parity.outside


def test_gate_names_the_operator_outside_the_delegate():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, hidden):
            return self.inner(hidden).softmax(-1)

    graph = torch.export.export(Odd().eval(), (torch.ones(1, 4),)).graph_module
    operators = outside_delegate(graph)
    assert any(text.startswith("linear at inner") for text in operators), operators
    assert any(text.startswith("softmax") for text in operators), operators


def vectors(module: torch.nn.Module, masked: bool) -> torch.Tensor:
    with torch.inference_mode():
        rows = []
        for row in tiny.rows():
            ids_1T = torch.tensor([row])
            rows.append(module(ids_1T, torch.ones_like(ids_1T)) if masked else module(ids_1T))
    return torch.cat(rows)


@pytest.mark.parametrize(("shape", "smoothed"), itertools.product(tiny.SHAPES, [False, True]))
def test_twin_equals_student(shape, smoothed):
    student = tiny.student(**tiny.SHAPES[shape])
    plan = plan_for(student, "int8")
    model = TorchModel(student)
    prepared = smooth(model, plan, tiny.tokenizer(), tiny.MAX_LENGTH) if smoothed else not_smoothed(model.weights)
    if smoothed:
        scales = np.concatenate([*prepared.entry, *prepared.middle]) if student.layers else np.array([0.5, 2])
        assert scales.max() > 1.5 and scales.min() < 0.9, "nothing was smoothed: this test would prove nothing"
    twin = ExportForward(prepared.student, {}, tiny.MAX_LENGTH, prepared).eval()
    torch.testing.assert_close(vectors(twin, masked=False), vectors(student, masked=True), atol=2e-6, rtol=2e-5)


def test_a_layer_of_several_types_keeps_three_products():
    """Query, key and value of one type are one product; of several they are three, and compute the same."""
    import executorch.exir  # noqa: F401  (registers the conversion from int8)

    student = tiny.student()
    plan = plan_for(student, "int8")
    mixed = plan.model_copy(update={"weights": plan.weights | {"layers.0.key.weight": "fp32"}})
    for layer_plan, count in ((plan, 1), (mixed, 3)):
        module, _ = methods_of(not_smoothed(student.to_numpy()), layer_plan, tiny.MAX_LENGTH, "forward")["forward"]
        assert len(module.unit.layers[0].products) == count
        assert (vectors(module, masked=False) * vectors(student, masked=True)).sum(1).mean() > 0.998


def test_smoothing_spares_float_and_4_bit_and_the_student():
    student = tiny.student()
    before = {name: value.clone() for name, value in student.state_dict().items()}
    model = TorchModel(student)
    for precision in ("fp32", "int4-embed4"):
        smoothed = smooth(model, plan_for(student, precision), tiny.tokenizer(), tiny.MAX_LENGTH)
        assert smoothed.weights is model.weights
        assert smoothed.end is None
    mixed = plan_for(student, "int8")
    mixed = mixed.model_copy(update={"weights": {**mixed.weights, "layers.0.key.weight": "fp32"}})
    smoothed = smooth(model, mixed, tiny.tokenizer(), tiny.MAX_LENGTH)
    assert smoothed.entry[0] is None
    assert smoothed.middle[0] is not None
    for name, value in student.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_an_int8_folder_is_smoothed_and_its_table_keeps_its_integers(tmp_path):
    plan = plan_for(tiny.student(), "int8")
    folder = save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "int8", plan=plan)
    student = load_student(folder)
    smoothed = smooth(TorchModel(student), plan, tiny.tokenizer(), tiny.MAX_LENGTH)
    assert smoothed.end is not None
    before, after = integers(student, plan)[TABLE], integers(smoothed.student, plan)[TABLE]
    assert np.array_equal(before.values, after.values)
    assert np.array_equal(before.scale, student.stored_scales[TABLE])


def test_smoothing_makes_int8_activations_better():
    """By hand: per-token symmetric int8 of a layer's input, error of the query product with and without scales."""
    student = tiny.student()
    smoothed = smooth(TorchModel(student), plan_for(student, "int8"), tiny.tokenizer(), tiny.MAX_LENGTH)
    ids = [torch.tensor([row]) for row in tiny.tokenizer().encode(calibration_texts()[:20], tiny.MAX_LENGTH)]

    def error(model, scale_H):
        total = 0.0
        with torch.inference_mode():
            for ids_1T in ids:
                # The outlier channels are those of the unit's own output.
                x_TH = student.unit(student.embed(ids_1T))[0]
                want = x_TH @ student.layers[0].query.weight.T
                x_TH = x_TH / scale_H
                step = x_TH.abs().amax(1, keepdim=True) / 127
                got = (torch.round(x_TH / step) * step) @ model.layers[0].query.weight.T
                total += float((got - want).square().sum())
        return total

    assert error(smoothed.student, smoothed.entry[0]) < 0.7 * error(student, torch.ones(32))


def test_scales_follow_the_formula():
    activation, weight = np.array([1.0, 16.0, 1.0]), np.array([[1.0, 1.0, 4.0], [0.5, 1.0, 1.0]], np.float32)
    got = scales_for(activation, [weight])
    expected = np.array([1.0, 16**0.65, 4**-0.35])
    np.testing.assert_allclose(np.log2(got), np.round(np.log2(expected) * 8) / 8, atol=1e-6)


@pytest.mark.parametrize("precision", ["int8", "int8-embed4"])
def test_stored_tables_look_up_what_the_integers_say(precision):
    import executorch.exir  # noqa: F401  (registers the look-up operators)

    student = tiny.student()
    part = integers(student, plan_for(student, precision))["embedding.table.weight"]
    table = (TableInt8 if part.dtype == "int8" else TableInt4)(
        torch.from_numpy(part.values), torch.from_numpy(part.scale)
    )
    ids_1T = torch.arange(tiny.tokenizer().size)[None]
    expected = torch.from_numpy(part.dequantize())
    # torch's own 4-bit look-up multiplies in float16; the runtime's kernel does not (tests of the .pte hold it).
    torch.testing.assert_close(table(ids_1T)[0], expected, atol=0, rtol=1e-6 if precision == "int8" else 1e-3)


def test_a_program_runs_without_the_compiler_which_an_export_still_has(tiny_student, tmp_path):
    """In one process: first the program alone, then an export, then both. The compiler takes 4 s to import."""
    code = f"""if True:
        import sys, msdc
        from msdc.export import export
        before = msdc.load_bundle({str(tiny.bundle())!r}, runtime="executorch").encode(["a cat"])
        print([name for name in ("executorch.exir", "torch._dynamo") if name in sys.modules])
        out = {str(tmp_path / "out")!r}
        export({str(tiny_student)!r}, target="linux", runtime="executorch", precision="fp32", output=out)
        import executorch.exir
        print(callable(executorch.exir.to_edge_transform_and_lower))
        after = msdc.load_bundle({str(tiny.bundle())!r}, runtime="executorch").encode(["a cat"])
        print((before == after).all())
    """
    assert python(code).splitlines()[-3:] == ["[]", "True", "True"]
