"""`msdc inspect` against other readers of the same files, and against what the student itself says."""

import json
from collections import Counter

import numpy as np
import onnx
import pytest
import tiny_models as tiny
from click.testing import CliRunner
from programs import python

from msdc.compress.student.plan import plan_for, weight_bytes_by_dtype
from msdc.errors import InputError
from msdc.export.cli import inspect as command
from msdc.export.inspect import as_text, inspect_file, inspect_path


@pytest.fixture(scope="module")
def report() -> dict:
    done = CliRunner().invoke(command, [str(tiny.bundle()), "--json"], catch_exceptions=False)
    return json.loads(done.output)


def test_methods_and_operators_of_a_pte(report):
    pte = report["programs"][0]
    methods = {method["name"]: method for method in pte["methods"]}
    assert pte["kind"] == "executorch"
    assert pte["foreign_backends"] == []
    assert methods["repeats"]["constant"] == 2
    assert methods["embed"]["inputs"] == [f"int64 at most [1, {tiny.MAX_LENGTH}]"]
    assert methods["pool"]["outputs"] == ["float32 [1, 32]"]
    assert methods["unit"]["planned_bytes"] > 0
    assert any("embedding" in name for name in methods["embed"]["outside"])
    inside = Counter()
    for method in pte["methods"]:
        for delegate in method["delegates"]:
            inside.update(delegate["operators"])
        assert not any(word in name for name in method["outside"] for word in ("mm", "linear", "softmax", "gelu"))
    # Query, key and value are one product; the mean over tokens and the length are products too.
    assert inside["fully_connected"] == 1 + 4 + 1
    assert inside["convert"] == 1 + 1 + 4
    assert inside["static_slice"] == 3
    assert inside["softmax"] == 1 + 1
    assert inside["batch_matrix_multiply"] == 2 + 1
    assert not {name.split("::")[-1].split(".")[0] for name in methods["pool"]["outside"]} & {"mean", "sum", "pow"}


def test_bytes_of_a_pte_are_the_students(report):
    pte, student = report["programs"][0], tiny.student()
    expected = weight_bytes_by_dtype(student, plan_for(student, "int8"))
    assert pte["bytes_by_dtype"]["int8"] == expected["int8"]
    # floats: scales, norms, biases, positions, what smoothing multiplies back (entry, middle, end), the pooling's own
    floats = pte["bytes_by_dtype"]["float32"] - expected["fp32"] - expected["scales"]
    assert 0 < floats - 4 * (tiny.MAX_LENGTH + 32) <= 4 * 3 * 32 + 64
    assert pte["payload_bytes"] == sum(entry["bytes"] for entry in pte["tensors"]) < pte["bytes"]


def test_onnx_tensors_as_onnx_itself_reads_them(report):
    graph = report["programs"][1]
    model = onnx.load(tiny.bundle() / "model.onnx")
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert {entry["name"] for entry in graph["tensors"]} == set(tensors)
    for entry in graph["tensors"]:
        array = tensors[entry["name"]]
        assert entry["bytes"] == array.nbytes
        assert tuple(entry["shape"]) == array.shape
        assert entry["dtype"] == str(array.dtype)
    size = sum((tiny.bundle() / name).stat().st_size for name in ("model.onnx", "model.onnx.data"))
    assert graph["bytes"] == size
    assert graph["float_weight_products"] == []
    assert graph["subgraphs"]
    assert "MatMulIntegerToFloat" in str(graph["subgraphs"])


def test_duplicates_and_float_products_are_found(tmp_path):
    weight = np.ones((4, 4), np.float32)
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "a"], ["t"], "first"),
        onnx.helper.make_node("MatMul", ["t", "b"], ["y"]),
    ]
    ends = [[onnx.helper.make_tensor_value_info(name, 1, ["n", 4])] for name in "xy"]
    stored = [onnx.numpy_helper.from_array(weight, name) for name in "ab"]
    graph = onnx.helper.make_graph(nodes, "g", *ends, stored)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    facts = inspect_file(tmp_path / "m.onnx", is_pte=False)
    assert facts["duplicates"] == [{"names": ["a", "b"], "wasted_bytes": 64}]
    assert facts["float_weight_products"] == ["first", ""]


def test_text_of_a_bundle(report):
    text = as_text(report)
    words = ("hashes ok", "embed(int64", "XnnpackBackend", "inside recurrence", "aten::embedding", "duplicates")
    assert [word for word in words if word not in text] == []


def test_other_files_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path / "notes.txt", tmp_path, tmp_path / "absent.pte"):
        with pytest.raises(InputError):
            inspect_path(path)


def test_a_program_is_read_without_the_compiler():
    """Its import takes 4 s; the child process that reads a file is this module."""
    code = f"""if True:
        import json, runpy, sys
        sys.argv = ["inspect", json.dumps({{"path": {str(tiny.bundle() / "model.pte")!r}, "is_pte": True}})]
        try:
            runpy.run_module("msdc.export.inspect", run_name="__main__")
        except SystemExit as ended:
            print(ended.code, [name for name in ("torchao", "executorch.exir.program") if name in sys.modules])
    """
    assert python(code).splitlines()[-1] == "0 []"


def test_the_text_fits_a_hundred_columns(tiny_bundle):
    shown = CliRunner().invoke(command, [str(tiny_bundle)])
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 100
    # Nothing is cut: an operator on a continued line is listed too.
    (operators,) = [inspect_path(tiny_bundle / "model.onnx")["operators"]]
    assert all(name in shown.output for name in operators)
