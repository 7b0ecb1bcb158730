"""`compress quantize`: the folder, the report against independent measurements, and the search for a plan."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.torch import load_file
from scipy.stats import spearmanr
from stock_models import write_stock

import msdc
from msdc.compress.cli import command
from msdc.compress.quantization.rounding import quantize_student
from msdc.compress.quantization.search import Calibration, levels, search, sqnr_db, weight_reports
from msdc.compress.quantization.search import quantize as quantize_folder
from msdc.compress.student.config import POSITION, TABLE, matrix_names
from msdc.compress.student.io import load_student
from msdc.compress.student.plan import plan_for, read_plan
from msdc.compress.student.weights import integers
from msdc.compress.texts import quickstart_texts
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    return write_stock(tmp_path_factory.mktemp("q") / "bert", "bert", hidden_size=64, intermediate_size=96)


@pytest.fixture(scope="module")
def texts():
    return quickstart_texts(["en", "de"], limit=40)


def calibrate(folder, texts):
    student = load_student(folder)
    return student, Calibration(student, {"": msdc.load_encoder(folder).tokenizer.encode(texts, 24)})


def test_the_cost_is_what_the_whole_quantized_student_loses(stock, texts):
    student, calibration = calibrate(stock, texts)
    encoder = msdc.load_encoder(stock)
    plan = plan_for(student, "int8-embed4")
    full = quantize_student(student, plan)
    vectors = Encoder(full, encoder.tokenizer, 24, "q").encode(texts)
    oracle = Encoder(student, encoder.tokenizer, 24, "f").encode(texts)
    cosine = (vectors * oracle).sum(1)
    upper = np.triu_indices(len(texts), 1)
    rank = spearmanr((vectors @ vectors.T)[upper], (oracle @ oracle.T)[upper]).statistic
    cost = calibration.cost(plan.weights, plan.group)
    assert cost.mean_cosine == pytest.approx(float(cosine.mean()), abs=1e-4)
    assert cost.min_cosine == pytest.approx(float(cosine.min()), abs=1e-3)
    assert cost.loss == pytest.approx(100 * (1 - rank), abs=0.05)
    nothing = calibration.cost(dict.fromkeys(plan.weights, "fp32"), plan.group)
    assert (nothing.loss, nothing.mean_cosine) == (0.0, pytest.approx(1.0))


def test_each_line_of_the_report(stock, texts):
    student, calibration = calibrate(stock, texts)
    plan = plan_for(student, "int8-embed4")
    lines = weight_reports(student, plan, calibration)
    assert [line["name"] for line in lines] == [*matrix_names(student.config), POSITION]
    for line, part in zip(lines, integers(student, plan).values(), strict=True):
        assert line["bytes"] == part.bytes
        assert line["dtype"] == part.dtype
        assert line["sqnr_db"] == pytest.approx(sqnr_db(student.to_numpy().arrays[part.name], part.dequantize()))
    table, query = lines[0], lines[1]
    assert 15 < table["sqnr_db"] < 25 < 35 < query["sqnr_db"]
    assert table["loss"] > query["loss"]


def test_the_search_keeps_the_loss_and_raises_only_what_it_must(stock, texts):
    student, calibration = calibrate(stock, texts)
    config = student.config
    lowest = {name: levels(config, name, True)[0] for name in matrix_names(config)}
    assert set(lowest.values()) == {"int4"}
    worst = calibration.cost(lowest).loss
    assert worst > 0.5
    steps = []
    for share in (0.6, 0.2, 0.0):
        plan = search(calibration, config, max_loss=worst * share, int4_linears=True)
        assert calibration.cost(plan.weights).loss <= worst * share
        steps.append(sum({"int4": 0, "int8": 1, "fp32": 2}[dtype] for dtype in plan.weights.values()))
        if share > 0:
            # What was raised is needed: one step lower for any raised weight breaks the bound.
            for name, dtype in plan.weights.items():
                if dtype == "int8" and name != POSITION:
                    lower = {**plan.weights, name: "int4"}
                    assert calibration.cost(lower).loss > worst * share
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
    assert search(calibration, config, max_loss=100.0).weights[TABLE] == "int4"
    assert set(search(calibration, config, max_loss=100.0).weights.values()) == {"int4", "int8"}
    with pytest.raises(InputError, match="must not be negative"):
        search(calibration, config, max_loss=-1)


@pytest.mark.parametrize("precision", ["int8", "int8-embed4", "auto"])
def test_the_folder(stock, tmp_path, precision):
    report = quantize_folder(str(stock), output=tmp_path / "q", precision=precision)
    plan = read_plan(tmp_path / "q")
    assert report.precision == precision
    assert {line["name"] for line in report.weights} == set(plan.weights)
    stored = load_file(tmp_path / "q/model.safetensors")
    assert sum(v.numel() * v.element_size() for v in stored.values()) == report.bytes_after
    assert report.file_bytes < 0.5 * report.bytes_before
    record = json.loads((tmp_path / "q/precision.json").read_text())
    assert record["report"]["weights"] == report.weights
    assert record["plan"] == plan.model_dump()
    quantized, source = load_student(tmp_path / "q"), load_student(stock)
    for name, part in integers(source, plan).items():
        assert np.array_equal(integers(quantized, plan)[name].values, part.values)
    texts = quickstart_texts(["fr"], limit=20)
    cosine = (msdc.load_encoder(tmp_path / "q").encode(texts) * msdc.load_encoder(stock).encode(texts)).sum(1)
    assert cosine.min() > 0.98


def test_command_and_bad_input(stock, tmp_path):
    run = CliRunner().invoke
    text = tmp_path / "t.txt"
    text.write_text("\n".join(quickstart_texts(["it"], limit=30)))
    arguments = ["quantize", str(stock), "-o", str(tmp_path / "q")]
    result = run(command, [*arguments, "--calibration", str(text)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "SQNR dB" in result.stdout
    assert "layers.2.down.weight" in result.stdout
    again = run(command, [*arguments, "--force", "--json"], catch_exceptions=False)
    assert json.loads(again.stdout)["precision"] == "int8"
    for extra, message in (
        (["--precision", "int3", "--force"], "known: fp32, int8, int8-embed4, int4-embed4, auto"),
        ([], "exists already"),
        (["--force", "--calibration", str(tmp_path / "none")], "no such file"),
    ):
        failed = run(command, [*arguments, *extra]).exception
        assert isinstance(failed, InputError)
        assert message in str(failed)
    text.write_text("one\ntwo\n")
    short = run(command, [*arguments, "--force", "--calibration", str(text)]).exception
    assert "at least 8 are needed" in str(short)


def test_export_takes_the_plan_of_the_folder(stock, tmp_path):
    from msdc.export import export

    quantize_folder(str(stock), output=tmp_path / "q", precision="int8-embed4")
    _, manifest = export(tmp_path / "q", target="web", output=tmp_path / "bundle", gates=False)
    assert manifest.precision == "int8-embed4"
    # The integers of the folder are the artifact's: it computes what the folder's own plan says.
    student, plan = load_student(tmp_path / "q"), read_plan(tmp_path / "q")
    encoder = msdc.load_encoder(tmp_path / "q")
    texts = quickstart_texts(["en"], limit=20)
    vectors = msdc.load_bundle(tmp_path / "bundle").encode(texts)
    oracle = Encoder(quantize_student(student, plan), encoder.tokenizer, 24, "q").encode(texts)
    assert (vectors * oracle).sum(1).min() > 0.995
