"""A coded table against the table it multiplies out to: forward, gradients, folders, cuts, trimming, and bad input."""

import json

import numpy as np
import pytest
import tiny_models as tiny
import torch
from safetensors.torch import load_file, save_file

from msdc.compress.quantization.plan import (
    PrecisionPlan,
    check_plan,
    integers,
    plan_for,
    read_plan,
    weight_bytes_by_dtype,
)
from msdc.compress.size import cut_config
from msdc.compress.student.coded_table import index_type, prune
from msdc.compress.student.config import CODE, INDEX, SHORT_ROWS, TABLE, parameter_counts, tensor_shapes
from msdc.compress.student.cut import shrink, wide_table
from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.stock import decode, materialise, stock_type
from msdc.compress.vocabulary.trim import with_rows
from msdc.encoders.encoder import load_encoder
from msdc.errors import InputError
from msdc.text.tokenizer import pad

SHAPES = {
    "word": {},
    "plain table": {"bottleneck": None},
    "embedding": {"place": "embedding", "bottleneck": 16},
}


def coded(**changes) -> Student:
    student = tiny.student(**{"base_rows": 90, "links": 3, **changes})
    with torch.no_grad():
        # Pieces with fewer links than the code allows.
        student.embedding.code.weight[::7, 1:] = 0.0
    return student


def batch():
    return pad(tiny.rows(), tiny.tokenizer().pad_id)


def multiplied_out(student: Student) -> torch.Tensor:
    """The definition, written as loops."""
    code, base = student.embedding.code, student.embedding.table.weight.detach()
    return torch.stack([
        sum(float(w) * base[int(i)] for w, i in zip(weights, indices, strict=True))
        for weights, indices in zip(code.weight.detach(), code.index, strict=True)
    ])  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_forward_is_that_of_the_table_multiplied_out(shape):
    student = coded(**SHAPES[shape])
    dense = decode(student)
    assert not dense.config.coded and dense.embedding.code is None
    assert torch.allclose(dense.embedding.table.weight, multiplied_out(student), atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(student(*batch()), dense(*batch()), atol=1e-6)
        assert torch.allclose(student.embed(batch()[0]), dense.embed(batch()[0]), atol=1e-5)


def test_gradients_of_base_and_weights_are_those_of_the_multiplied_out_table():
    student = coded()
    ids = batch()[0]
    direction = torch.randn(*ids.shape, 32)
    embedding = student.embedding
    (embedding.code(ids, embedding.table) * direction).sum().backward()
    found = [embedding.table.weight.grad.clone(), embedding.code.weight.grad.clone()]
    student.zero_grad()
    (embedding.rows()[ids] * direction).sum().backward()
    for one, other in zip(found, (embedding.table.weight.grad, embedding.code.weight.grad), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_shapes_and_counts():
    student = coded()
    config = student.config
    state = student.state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == tensor_shapes(config)
    assert parameter_counts(config)["total"] == sum(p.numel() for p in student.parameters())
    sizes = weight_bytes_by_dtype(config, plan_for(config, "int8"))
    V, E = config.vocabulary, config.table_width
    dense = weight_bytes_by_dtype(decode(student), plan_for(decode(student), "int8"))
    # bytes per piece: k x (2 + 1); no scale of its own
    assert sum(dense.values()) - sum(sizes.values()) == V * (E + 4) - 90 * (E + 4) - V * 3 * (2 + 1) - 3 * 4
    assert index_type(SHORT_ROWS) == torch.int16 and index_type(SHORT_ROWS + 1) == torch.int32
    wide = config.model_copy(update={"base_rows": SHORT_ROWS + 1})
    assert weight_bytes_by_dtype(wide, plan_for(wide, "int8"))["indices"] == V * 3 * 4


@pytest.mark.parametrize("precision", [None, "int8", "int8-embed4", "int4-embed4"])
def test_a_folder_keeps_the_code(precision, tmp_path):
    student = coded()
    plan = None if precision is None else plan_for(student, precision)
    save_student(student, tiny.tokenizer().path, tmp_path / "one", plan=plan)
    back = load_student(tmp_path / "one")
    assert back.config == student.config and back.embedding.code.index.dtype == torch.int16
    wanted = student.state_dict()
    if plan is not None:
        wanted |= {name: torch.from_numpy(part.dequantize()) for name, part in integers(student, plan).items()}
    assert all(torch.equal(back.state_dict()[name], value) for name, value in wanted.items())
    # Written again, the integers are the same.
    save_student(back, tiny.tokenizer().path, tmp_path / "two", plan=read_plan(tmp_path / "one"))
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
    assert load_encoder(str(tmp_path / "one")).encode(["one word", "zwei Wörter"]).shape == (2, 32)


def test_a_folder_without_a_code_is_written_as_before(tmp_path):
    folder = save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "plain")
    assert not {"base_rows", "links"} & json.loads((folder / "config.json").read_text()).keys()
    assert {"base_rows", "links"} <= coded().config.model_dump().keys()
    assert StudentConfig(**tiny.student().config.model_dump()) == tiny.student().config


def test_int8_weights_are_within_half_a_step_of_their_column():
    student = coded()
    part = integers(student, plan_for(student, "int8"))[CODE]
    weight = student.embedding.code.weight.detach()
    assert part.scale.shape == (1, 3) and part.bytes == weight.numel() + 3 * 4
    assert bool(((torch.from_numpy(part.dequantize()) - weight).abs() <= weight.abs().amax(0) / 255 * 1.001).all())
    with pytest.raises(ValueError, match="fp32 or int8"):
        PrecisionPlan(precision="x", weights={CODE: "int4"})
    with pytest.raises(InputError, match="cannot quantize"):
        check_plan(tiny.student().config, plan_for(student, "int8"))


def test_trimmed_pieces_keep_their_vectors_and_unused_base_rows_go():
    student = coded()
    V = student.config.vocabulary
    rows = list(range(0, V, 9))
    small = with_rows(student, rows, 0)
    used = {
        int(i)
        for r in rows
        for i, w in zip(student.embedding.code.index[r], student.embedding.code.weight[r], strict=True)
        if float(w.detach()) != 0
    }
    assert small.config.vocabulary == len(rows) and small.config.base_rows == len(used) < 90
    ids = torch.arange(len(rows)).unsqueeze(0)[:, : tiny.MAX_LENGTH]
    with torch.no_grad():
        assert torch.allclose(small.embed(ids), student.embed(torch.tensor(rows)[ids]), atol=1e-6)


def test_trimming_an_int8_folder_keeps_its_integers(tmp_path):
    student = coded()
    plan = plan_for(student, "int8")
    save_student(student, tiny.tokenizer().path, tmp_path / "int8", plan=plan)
    rows = list(range(3, 60))
    stored = load_student(tmp_path / "int8")
    small = with_rows(stored, rows, 0)
    before, after = integers(student, plan), integers(small, plan)
    assert np.array_equal(after[CODE].values, before[CODE].values[rows])
    # Weights that were rounded to 0 hold no base row either.
    _, kept = prune(stored.embedding.code.index[rows], stored.embedding.code.weight[rows])
    assert np.array_equal(after[TABLE].values, before[TABLE].values[kept])


@pytest.mark.parametrize("place", ["word", "embedding"])
def test_cutting_keeps_the_code(place):
    large = coded(bottleneck=None, unit=2, repeats=1)
    # Full width: nothing is lost, so the cut student is the same function of its layers.
    small = shrink(large, layers=[1], bottleneck=32, place=place)
    assert small.config.links == 3 and torch.equal(small.embedding.code.index, large.embedding.code.index)
    dense = shrink(decode(large), layers=[1], bottleneck=32, place=place)
    assert torch.allclose(wide_table(small), wide_table(dense), atol=1e-5)
    with torch.no_grad():
        assert torch.allclose(small(*batch()), dense(*batch()), atol=1e-5)
    narrow = shrink(large, bottleneck=8, place=place)
    assert narrow.embedding.table.weight.shape == (90, 8)
    same = shrink(small, keep_bottleneck=True)
    assert torch.allclose(same.embed(batch()[0]), small.embed(batch()[0]))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_stock_twin_is_multiplied_out(shape):
    student = coded(**SHAPES[shape])
    assert stock_type(student.config) == ""
    twin = materialise(student)
    assert stock_type(twin.config) == ("albert" if shape == "embedding" else "bert")
    with torch.no_grad():
        assert torch.allclose(twin(*batch()), student(*batch()), atol=2e-6)


def damaged(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _set(value):
    return lambda tensors: tensors[INDEX].__setitem__((2, 1), value)


def _int32(tensors):
    tensors[INDEX] = tensors[INDEX].to(torch.int32)


@pytest.mark.parametrize("plan", [None, "int8"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set(90), "names base row 90; the base has rows 0 to 89"),
        (_set(-1), "names base row -1"),
        (_int32, "is stored as int32, expected int16"),
        (lambda tensors: tensors.pop(INDEX), "index"),
    ],
)
def test_a_folder_with_wrong_indices_is_refused(plan, change, message, tmp_path):
    student = coded()
    plan = plan and plan_for(student, plan)
    folder = damaged(save_student(student, tiny.tokenizer().path, tmp_path / "one", plan=plan), change)
    with pytest.raises(InputError, match=message) as caught:
        load_student(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change", [{"links": 0}, {"links": 6}, {"links": 1}, {"links": None}, {"base_rows": 0}, {"base_rows": 2**24}]
)
def test_a_config_that_is_no_code_is_refused(change, tmp_path):
    folder = save_student(coded(), tiny.tokenizer().path, tmp_path / "one")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(InputError, match=r"config\.json: ") as caught:
        load_student(folder)
    assert "\n" not in str(caught.value)


def test_indices_of_a_large_base_take_four_bytes(tmp_path):
    config = StudentConfig(
        vocabulary=400, hidden=8, heads=2, intermediate=8, unit=1, bottleneck=4, positions=8, base_rows=40_000, links=2
    )
    student = Student(config).eval()
    student.embedding.code.index[5] = 39_999
    folder = save_student(student, tiny.tokenizer().path, tmp_path / "large")
    assert load_student(folder).embedding.code.index[5].tolist() == [39_999, 39_999]
    with pytest.raises(InputError, match="is stored as int16, expected int32"):
        load_student(damaged(folder, lambda tensors: tensors.__setitem__(INDEX, tensors[INDEX].to(torch.int16))))


def test_a_planned_code():
    base = tiny.student().config
    config = cut_config(base, base_rows=70, links=4)
    assert (config.base_rows, config.links) == (70, 4)
    assert cut_config(config, vocabulary=200).base_rows == 70
    for changes, message in (
        ({"links": 4}, "needs both"),
        ({"base_rows": 70}, "needs both"),
        ({"base_rows": 70, "links": 6}, "2 to 5"),
        ({"base_rows": base.vocabulary, "links": 2}, "no smaller"),
    ):
        with pytest.raises(InputError, match=message):
            cut_config(base, **changes)
