"""Coded tables against what they multiply out to, and the fit of a code against planted codes and brute force."""

import itertools
import json

import numpy as np
import pytest
import tiny_models as tiny
import torch
from click.testing import CliRunner
from refusals import one_line
from safetensors.torch import load_file, save_file

from msdc.compress.cli import command
from msdc.compress.cut import fit_student, shrink, wide_table
from msdc.compress.size import cut_config
from msdc.compress.student.coded_table import _start_base, choose_nonzeros, fit_code, index_type, kept_variance, prune
from msdc.compress.student.config import CODE, INDEX, SHORT_ROWS, TABLE, parameter_counts, tensor_shapes
from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.plan import (
    PrecisionPlan,
    check_plan,
    plan_for,
    read_plan,
    weight_bytes_by_dtype,
)
from msdc.compress.student.stock import decode, materialise, stock_type
from msdc.compress.student.weights import integers
from msdc.compress.vocabulary.trim import with_rows
from msdc.errors import InputError
from msdc.loading import load_encoder
from msdc.text.tokenizer import pad

SHAPES = {
    "word": {},
    "plain table": {"bottleneck": None},
    "embedding": {"place": "embedding", "bottleneck": 16},
}


def coded(**changes) -> Student:
    student = tiny.student(**{"base_rows": 90, "nonzeros": 3, **changes})
    with torch.no_grad():
        # Pieces with fewer nonzeros than the code allows.
        student.embedding.code.weight[::7, 1:] = 0.0
    return student


def batch():
    return pad(tiny.rows(), tiny.tokenizer().pad_id)


def multiplied_out(student: Student) -> torch.Tensor:
    """The definition."""
    code, base = student.embedding.code, student.embedding.table.weight.detach()
    return torch.einsum("vk,vke->ve", code.weight.detach(), base[code.index.long()])


@pytest.mark.parametrize("shape", SHAPES)
def test_forward_is_that_of_the_table_multiplied_out(shape):
    student = coded(**SHAPES[shape])
    dense = decode(student)
    assert not dense.config.coded
    assert dense.embedding.code is None
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
    gradients = [embedding.table.weight.grad.clone(), embedding.code.weight.grad.clone()]
    student.zero_grad()
    (embedding.rows()[ids] * direction).sum().backward()
    for gradient, other_gradient in zip(
        gradients, (embedding.table.weight.grad, embedding.code.weight.grad), strict=True
    ):
        assert torch.allclose(gradient, other_gradient, atol=1e-4)


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
    assert index_type(SHORT_ROWS) == torch.int16
    assert index_type(SHORT_ROWS + 1) == torch.int32
    wide = config.model_copy(update={"base_rows": SHORT_ROWS + 1})
    assert weight_bytes_by_dtype(wide, plan_for(wide, "int8"))["indices"] == V * 3 * 4


@pytest.mark.parametrize("precision", [None, "int8", "int8-embed4", "int4-embed4"])
def test_a_folder_keeps_the_code(precision, tmp_path):
    student = coded()
    plan = None if precision is None else plan_for(student, precision)
    save_student(student, tiny.tokenizer().path, tmp_path / "one", plan=plan)
    back = load_student(tmp_path / "one")
    assert back.config == student.config
    assert back.embedding.code.index.dtype == torch.int16
    expected = student.state_dict()
    if plan is not None:
        expected |= {name: torch.from_numpy(part.dequantize()) for name, part in integers(student, plan).items()}
    assert all(torch.equal(back.state_dict()[name], value) for name, value in expected.items())
    # Written again, the integers are the same.
    save_student(back, tiny.tokenizer().path, tmp_path / "two", plan=read_plan(tmp_path / "one"))
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert first == second
    assert load_encoder(str(tmp_path / "one")).encode(["one word", "zwei Wörter"]).shape == (2, 32)


def test_a_folder_without_a_code_is_written_as_before(tmp_path):
    folder = save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "plain")
    assert not {"base_rows", "nonzeros"} & json.loads((folder / "config.json").read_text()).keys()
    assert {"base_rows", "nonzeros"} <= coded().config.model_dump().keys()
    assert StudentConfig(**tiny.student().config.model_dump()) == tiny.student().config


def test_int8_weights_are_within_half_a_step_of_their_column():
    student = coded()
    part = integers(student, plan_for(student, "int8"))[CODE]
    weight = student.embedding.code.weight.detach()
    assert part.scale.shape == (1, 3)
    assert part.bytes == weight.numel() + 3 * 4
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
    code = student.embedding.code
    used = set(code.index[rows][code.weight[rows] != 0].tolist())
    assert small.config.vocabulary == len(rows)
    assert small.config.base_rows == len(used) < 90
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
    _, base_rows = prune(stored.embedding.code.index[rows], stored.embedding.code.weight[rows])
    assert np.array_equal(after[TABLE].values, before[TABLE].values[base_rows])


@pytest.mark.parametrize("bottleneck_place", ["word", "embedding"])
def test_cutting_keeps_the_code(bottleneck_place):
    large = coded(bottleneck=None, unit=2, repeats=1)
    # Full width: nothing is lost, so the cut student is the same function of its layers.
    small = shrink(large, layers=[1], bottleneck=32, place=bottleneck_place)
    assert small.config.nonzeros == 3
    assert torch.equal(small.embedding.code.index, large.embedding.code.index)
    dense = shrink(decode(large), layers=[1], bottleneck=32, place=bottleneck_place)
    assert torch.allclose(wide_table(small), wide_table(dense), atol=1e-5)
    with torch.no_grad():
        assert torch.allclose(small(*batch()), dense(*batch()), atol=1e-5)
    narrow = shrink(large, bottleneck=8, place=bottleneck_place)
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
    assert message in one_line(lambda: load_student(folder), InputError)


@pytest.mark.parametrize(
    "change",
    [{"nonzeros": 0}, {"nonzeros": 6}, {"nonzeros": 1}, {"nonzeros": None}, {"base_rows": 0}, {"base_rows": 2**24}],
)
def test_a_config_that_is_no_code_is_refused(change, tmp_path):
    folder = save_student(coded(), tiny.tokenizer().path, tmp_path / "one")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    assert "config.json: " in one_line(lambda: load_student(folder), InputError)


def test_indices_of_a_large_base_take_four_bytes(tmp_path):
    config = StudentConfig(vocabulary=400, hidden=8, heads=2, intermediate=8, unit=1, bottleneck=4, positions=8,
                           base_rows=40_000, nonzeros=2)  # fmt: skip
    student = Student(config).eval()
    student.embedding.code.index[5] = 39_999
    folder = save_student(student, tiny.tokenizer().path, tmp_path / "large")
    assert load_student(folder).embedding.code.index[5].tolist() == [39_999, 39_999]
    with pytest.raises(InputError, match="is stored as int16, expected int32"):
        load_student(damaged(folder, lambda tensors: tensors.__setitem__(INDEX, tensors[INDEX].to(torch.int16))))


def test_a_planned_code():
    base = tiny.student().config
    config = cut_config(base, base_rows=70, nonzeros=4)
    assert (config.base_rows, config.nonzeros) == (70, 4)
    assert cut_config(config, vocabulary=200).base_rows == 70
    for changes, message in (
        ({"nonzeros": 4}, "needs both"),
        ({"base_rows": 70}, "needs both"),
        ({"base_rows": 70, "nonzeros": 6}, "2 to 5"),
        ({"base_rows": base.vocabulary, "nonzeros": 2}, "must be less"),
    ):
        with pytest.raises(InputError, match=message):
            cut_config(base, **changes)


R, K, E, V = 40, 2, 24, 400


def random_numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def planted(noise=0.0):
    """A base and a table whose rows are sums of two of its rows."""
    base = random_numbers(R, E)
    generator = torch.Generator().manual_seed(1)
    index = torch.stack([torch.randperm(R, generator=generator)[:K] for _ in range(V)])
    weight = 0.5 + random_numbers(V, K, seed=2).abs()
    rows = (weight.unsqueeze(2) * base[index]).sum(1)
    return base, rows + noise * random_numbers(V, E, seed=3)


def best_of_all_supports(row, base, nonzeros):
    """The least squared error over every choice of `nonzeros` base rows."""
    errors = []
    for chosen in itertools.combinations(range(len(base)), nonzeros):
        picked = base[list(chosen)].T
        weight = torch.linalg.lstsq(picked, row.unsqueeze(1)).solution
        errors.append(float((picked @ weight - row.unsqueeze(1)).square().sum()))
    return min(errors)


def test_nonzeros_over_the_planted_base_are_found():
    base, rows = planted()
    code = choose_nonzeros(rows, base, K)
    error = (code.rows() - rows).square().sum(1) / rows.square().sum(1)
    # Greedy: where the first of two parallel base rows is taken, a support may be missed.
    assert float((error < 1e-8).float().mean()) > 0.9
    assert code.index_Vk.dtype == torch.int16
    # The strongest nonzero comes first, so that each column of weights has a scale of its own.
    assert bool((code.weight_Vk[:, 0].abs() >= code.weight_Vk[:, 1].abs()).all())


def test_a_first_link_is_the_best_one_and_further_ones_are_near_it():
    base, rows = planted(noise=0.3)
    for row in rows[:8]:
        for nonzeros, most in ((1, 1.0001), (2, 1.5)):
            code = choose_nonzeros(row.unsqueeze(0), base, nonzeros)
            error, slack = (
                float((code.rows()[0] - row).square().sum()),
                0.05 * float(row.square().sum()) * (nonzeros - 1),
            )
            assert error <= most * best_of_all_supports(row, base, nonzeros) + slack


def test_weights_are_least_squares_for_the_support():
    base, rows = planted(noise=0.3)
    code = choose_nonzeros(rows, base, 3)
    residual = rows - code.rows()
    # The error is orthogonal to every base row that was used.
    products = (base[code.index_Vk.long()] @ residual.unsqueeze(2)).squeeze(2)
    assert float(products.abs().max()) < 1e-3


def test_a_fit_beats_a_random_code_and_the_rows_it_starts_from():
    _, rows = planted(noise=0.1)
    fitted = kept_variance(rows, fit_code(rows, R, K, rounds=4).rows())
    start = kept_variance(rows, fit_code(rows, R, K, rounds=0).rows())
    random = kept_variance(rows, choose_nonzeros(rows, random_numbers(R, E, seed=9), K).rows())
    assert fitted > start > random
    assert fitted > 0.85
    assert kept_variance(rows, rows) == 1.0


def test_a_base_starts_from_rows_of_large_weight_that_no_earlier_one_covers():
    """Rows n and n + 6 are parallel, the second is longer: one of each pair is chosen, the longer one."""
    rows_VE = torch.cat([0.9 * torch.eye(6, 8), torch.eye(6, 8)])
    weight_V = torch.ones(12, dtype=torch.float64)
    weight_V[[0, 6, 5, 11]] = 10.0
    base_RE = _start_base(rows_VE, weight_V, 6)
    assert sorted(map(tuple, base_RE.tolist())) == sorted(map(tuple, rows_VE[6:].tolist()))
    # Of fewer rows than directions those of the largest weight, which come first.
    assert set(map(tuple, _start_base(rows_VE, weight_V, 2).tolist())) == {tuple(rows_VE[n].tolist()) for n in (6, 11)}


def test_frequent_rows_are_kept_best():
    _, rows = planted(noise=0.5)
    frequency = torch.ones(V)
    frequency[:20] = 1000
    code = fit_code(rows, R, K, frequency)
    error = (code.rows() - rows).square().sum(1)
    assert float(error[:20].mean()) < 0.05 * float(error[20:].mean())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_student_whose_rows_repeat_stays_the_same_model(shape):
    """Few distinct rows fit a small base exactly; what is left is the mean, which moves into the positions."""
    student = tiny.student(**SHAPES[shape])
    with torch.no_grad():
        table = student.embedding.table.weight
        table.copy_(table[torch.arange(len(table)) % 30] + 0.7)
    fitted, kept_share = fit_student(student, 30, 2)
    assert kept_share == pytest.approx(1.0, abs=1e-6)
    assert fitted.config.base_rows == 30
    with torch.no_grad():
        for model in (fitted, fit_student(fitted, 32, 3)[0]):  # a code can be fitted anew
            assert torch.allclose(model(*batch()), student(*batch()), atol=2e-5)


@pytest.mark.parametrize(
    ("base_rows", "nonzeros", "frequency", "message"),
    [
        (R, 0, None, "2 to 5"),
        (R, 6, None, "2 to 5"),
        (V, 2, None, "must be less than the 400"),
        (1, 2, None, "at least the 2 nonzeros"),
        (R, 2, torch.zeros(V), "not all zero"),
        (R, 2, torch.ones(V - 1), "400 non-negative"),
    ],
)
def test_bad_input_of_a_fit(base_rows, nonzeros, frequency, message):
    with pytest.raises(InputError, match=message):
        fit_code(planted()[1], base_rows, nonzeros, frequency)


@pytest.mark.parametrize(("shape", "nonzeros"), [((3, E), 4), ((30, E + 1), 2)])
def test_nonzeros_that_a_base_cannot_give(shape, nonzeros):
    with pytest.raises(InputError, match="cannot be chosen"):
        choose_nonzeros(planted()[1], random_numbers(*shape), nonzeros)


def test_command(tiny_teacher, tmp_path):
    out = tmp_path / "coded"
    arguments = ["code", str(tiny_teacher), "-o", str(out), "--base-rows", "60", "--nonzeros", "3"]
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    report, config = json.loads(result.stdout), load_student(out).config
    assert 0.5 < report["kept_variance"] < 1
    assert 0.5 < report["cosine"] < 1
    assert (config.base_rows, config.nonzeros) == (60, 3)
    shown = CliRunner().invoke(command, [*arguments, "--force"], catch_exceptions=False).stdout
    assert "each a sum of 3 of 60 base rows" in shown
    for changed, message in ((["--nonzeros", "0"], "2 to 5"), (["--base-rows", "500"], "must be less"), ([], "exists")):
        refused = CliRunner().invoke(command, [*arguments, *changed, *(["--force"] if changed else [])])
        assert isinstance(refused.exception, InputError)
        assert message in str(refused.exception)
