"""`msdc inspect` against other readers of the same files, and against what the student itself says."""

import json
from collections import Counter

import numpy as np
import onnx
import pytest
import tiny_models as tiny
from click.testing import CliRunner

from msdc.compress.quantization.plan import plan_for, weight_bytes_by_dtype
from msdc.errors import InputError
from msdc.export.executorch.flatbuffer import Flatbuffer
from msdc.export.inspect.cli import command
from msdc.export.inspect.report import inspect_path


@pytest.fixture(scope="module")
def pte() -> dict:
    return inspect_path(tiny.bundle() / "model.pte")


@pytest.fixture(scope="module")
def graph() -> dict:
    return inspect_path(tiny.bundle() / "model.onnx")


def test_methods_and_operators_as_executorch_itself_reads_them(pte):
    from executorch.exir._serialize._program import deserialize_pte_binary

    program = deserialize_pte_binary((tiny.bundle() / "model.pte").read_bytes()).program
    wanted = {}
    for plan in program.execution_plan:
        calls = Counter()
        for instruction in plan.chains[0].instructions:
            arguments = instruction.instr_args
            if type(arguments).__name__ == "KernelCall":
                operator = plan.operators[arguments.op_index]
                calls[f"{operator.name}{'.' + operator.overload if operator.overload else ''}"] += 1
        delegates = [delegate.id for delegate in plan.delegates]
        wanted[plan.name] = (dict(calls), delegates, sum(plan.non_const_buffer_sizes))
    found = {
        method["name"]: (method["outside"], [d["backend"] for d in method["delegates"]], method["planned_bytes"])
        for method in pte["methods"]
    }
    assert found == wanted


def test_pte_bytes_are_the_students(pte):
    student = tiny.student()
    wanted = weight_bytes_by_dtype(student, plan_for(student, "int8"))
    assert pte["bytes_by_dtype"]["int8"] == wanted["int8"]
    # floats: scales, norms, biases, positions, and what smoothing multiplies back (entry, middle, end)
    floats = pte["bytes_by_dtype"]["float32"] - wanted["fp32"] - wanted["scales"]
    assert 0 < floats <= 4 * 3 * 32 + 64
    assert pte["payload_bytes"] == sum(entry["bytes"] for entry in pte["tensors"]) < pte["bytes"]


def test_nothing_heavy_is_outside_the_delegates(pte):
    inside = Counter()
    for method in pte["methods"]:
        for delegate in method["delegates"]:
            inside.update(delegate["operators"])
        assert not any(word in name for name in method["outside"] for word in ("mm", "linear", "softmax", "gelu"))
    assert inside["fully_connected"] == 1 + 6 and inside["softmax"] == 1 and inside["batch_matmul"] == 2


def test_onnx_tensors_as_onnx_itself_reads_them(graph):
    model = onnx.load(tiny.bundle() / "model.onnx")
    wanted = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert {entry["name"] for entry in graph["tensors"]} == set(wanted)
    for entry in graph["tensors"]:
        array = wanted[entry["name"]]
        assert entry["bytes"] == array.nbytes and tuple(entry["shape"]) == array.shape
        assert entry["dtype"] == str(array.dtype)
    size = sum((tiny.bundle() / name).stat().st_size for name in ("model.onnx", "model.onnx.data"))
    assert graph["bytes"] == size and graph["float_weight_products"] == []
    assert graph["subgraphs"] and "MatMulIntegerToFloat" in str(graph["subgraphs"])


def test_duplicates_and_float_products_are_found(tmp_path):
    weight = np.ones((4, 4), np.float32)
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "a"], ["t"], "first"),
        onnx.helper.make_node("MatMul", ["t", "b"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes, "g",
        [onnx.helper.make_tensor_value_info("x", 1, ["n", 4])], [onnx.helper.make_tensor_value_info("y", 1, ["n", 4])],
        [onnx.numpy_helper.from_array(weight, "a"), onnx.numpy_helper.from_array(weight, "b")],
    )  # fmt: skip
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "m.onnx",
    )
    found = inspect_path(tmp_path / "m.onnx")
    assert found["duplicates"] == [{"names": ["a", "b"], "wasted_bytes": 64}]
    assert found["float_weight_products"] == ["first", ""]


def test_command_on_a_bundle_prints_text_and_json():
    text = CliRunner().invoke(command, [str(tiny.bundle())], catch_exceptions=False).output
    for word in (
        "hashes ok",
        "embed(int64",
        "XnnpackBackend",
        "inside recurrence",
        "quantized_decomposed",
        "duplicates",
    ):
        assert word in text
    report = json.loads(CliRunner().invoke(command, [str(tiny.bundle()), "--json"], catch_exceptions=False).output)
    assert [program["kind"] for program in report["programs"]] == ["executorch", "onnx"]
    assert report["manifest"]["name"] == "tiny"


def test_other_files_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path / "notes.txt", tmp_path, tmp_path / "absent.pte"):
        with pytest.raises(InputError):
            inspect_path(path)


def test_flatbuffer_work_is_bounded():
    """One vector of a million entries that all lead to the same table, again and again: a budget ends it."""
    import flatbuffers

    builder = flatbuffers.Builder(0)
    builder.StartObject(1)
    leaf = builder.EndObject()
    builder.StartVector(4, 1000, 4)
    for _ in range(1000):
        builder.PrependUOffsetTRelative(leaf)
    vector = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, vector, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"TEST")
    buffer = Flatbuffer(memoryview(bytes(builder.Output())), "x")
    buffer.tables_left = 1500
    root = buffer.root(b"TEST")
    assert len(root.tables(0)) == 1000
    with pytest.raises(InputError, match="tables"):
        root.tables(0)
