"""Sizes against the published tables and against brute force; the budget's Pareto set against its definition."""

import json

import pytest
import tiny_models
import torch
from click.testing import CliRunner
from paper_rows import msd_students

from msdc.compress.budget import plan_budget
from msdc.compress.cli import command
from msdc.compress.cut import kept_shares, weighted_svd
from msdc.compress.size import cut_config, macs_per_token, predict_bytes, size_plan
from msdc.compress.student.config import SHAPES, parameter_counts
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.plan import plan_for
from msdc.compress.student.stock import to_student
from msdc.errors import InputError
from msdc.export.exporters import write_bundle
from msdc.export.options import ExportSettings
from msdc.loading import load_encoder
from msdc.scores import pareto

BASES = {"XLM-R": "xlmr-base", "MiniLM": "minilm"}


def plan(*arguments: str) -> dict:
    result = CliRunner().invoke(command, ["plan", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_every_student_of_the_paper_has_the_papers_size():
    students = msd_students()
    assert len(students) == 10
    for student in students:
        arguments = ["--shape", BASES[student.base], "--unit", str(student.unit)]
        if student.bottleneck is not None:
            arguments += ["--bottleneck", str(student.bottleneck)]
        sizes = plan(*arguments)
        embedding = sizes["embedding_parameters"]
        if student.base == "MiniLM" and student.bottleneck is not None:
            # The paper leaves the positions out in these rows only.
            embedding -= sizes["embedding_parts"]["positions"]
        # The paper cuts or rounds the second decimal.
        assert embedding / 1e6 == pytest.approx(float(student.row["embedding_M"]), abs=0.01)
        assert sizes["encoder_parameters"] / 1e6 == pytest.approx(float(student.row["encoder_M"]), abs=0.01)
        assert sizes["config"]["unit"] * sizes["config"]["repeats"] == 12


def test_the_published_bases():
    for name, *published in (("mbert", 92.20, 85.05), ("xlmr-base", 192.40, 85.05), ("minilm", 96.21, 21.29),
                             ("labse", 385.28, 85.05)):  # fmt: skip
        counts = parameter_counts(SHAPES[name])
        assert [counts["embedding"] / 1e6, counts["encoder"] / 1e6] == pytest.approx(published, abs=0.01)


def test_macs_are_what_a_forward_pass_multiplies():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    config = StudentConfig(
        vocabulary=50, hidden=32, heads=4, intermediate=80, unit=2, repeats=3, bottleneck=16, positions=40, dense=24
    )
    student = Student(config).eval()
    ids = torch.zeros(1, 32, dtype=torch.int64)
    # The counter knows matrix products, not the fused attention of the CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        student(ids, torch.ones(1, 32))
    macs = counter.get_total_flops() / 2
    assert macs_per_token(config, 32) * 32 == pytest.approx(macs, rel=1e-3)


def test_a_model_folder_is_planned_as_its_shape(tiny_teacher):
    sizes = plan(str(tiny_teacher), "--bottleneck", "8", "--unit", "1")
    config = sizes["config"]
    assert (config["unit"], config["repeats"], config["bottleneck"], config["vocabulary"]) == (1, 3, 8, 120)
    assert sizes["parameters"] == sum(p.numel() for p in Student(StudentConfig(**config)).parameters())


def test_sizes_of_a_budget():
    for budget, size in (("10KB", 10_000), ("9.5 KiB", 9_728), ("12000", 12_000), (7_000, 7_000)):
        with pytest.raises(InputError, match=f"no student of this model fits {size} bytes"):
            plan_budget(budget, shape="all-minilm-l6", unit=1, vocabulary=8_000, bottleneck=64)
    with pytest.raises(InputError, match="no candidate has `unit` 1, `vocabulary` 8001"):
        plan_budget("10MB", shape="all-minilm-l6", unit=1, vocabulary=8_001)
    for wrong in ("", "ten", "10QB", "-3MB", "nan", "10MB5"):
        with pytest.raises(InputError, match=r"10MB or 9\.5MiB"):
            plan_budget(wrong, shape="minilm")


def test_the_pareto_set_is_what_its_definition_says():
    generator = torch.Generator().manual_seed(0)
    points = [tuple(row) for row in torch.randint(0, 6, (300, 3), generator=generator).tolist()]

    def dominated(point):
        return any(all(y <= x for x, y in zip(point, b, strict=True)) and b != point for b in points)

    assert pareto(points) == [not dominated(point) for point in points]


def test_a_budget_lists_what_fits_and_marks_the_best():
    rows = plan_budget(6_000_000, shape="all-minilm-l6", max_length=128)
    assert rows
    assert all(row.bytes <= 6_000_000 for row in rows)
    assert rows == sorted(rows, key=lambda row: row.expected_loss)
    assert any(row.pareto for row in rows)
    assert rows[0].pareto
    assert {row.needs_qat for row in rows if row.precision != "int4-embed4"} == {False}
    with pytest.raises(InputError, match="the smallest takes"):
        plan_budget(1000, shape="all-minilm-l6")


def test_the_share_a_bottleneck_keeps_is_that_of_its_svd():
    torch.manual_seed(0)
    table = torch.randn(200, 24) @ torch.diag(torch.logspace(0, -2, 24))
    frequency = torch.rand(200)
    shares = kept_shares(table, [4, 12, 24], frequency)
    assert list(shares) == [4, 12, 24]
    for width, share in shares.items():
        narrow, _ = weighted_svd(table, frequency, width)
        expected_share = (narrow.square().sum(1) @ frequency) / (table.square().sum(1) @ frequency)
        assert share == pytest.approx(float(expected_share), abs=1e-5)


def test_budget_command(tiny_teacher):
    arguments = ["plan", str(tiny_teacher), "--budget", "60KB"]
    rows = json.loads(CliRunner().invoke(command, [*arguments, "--json"]).stdout)
    assert rows
    assert all(row["pareto"] and row["bytes"] <= 60_000 for row in rows)
    shown = CliRunner().invoke(command, [*arguments, "--all"])
    assert "Pareto" in shown.output
    assert shown.exit_code == 0


def test_a_budget_of_coded_students(tiny_teacher):
    """Every candidate is coded as asked, has the bytes that a plan of just it predicts, and is smaller for it."""
    words = ["plan", str(tiny_teacher), "--budget", "60KB", "--json", "--all", "--nonzeros", "3", "--base-rows", "40"]
    result = CliRunner().invoke(command, words)
    rows = json.loads(result.stdout)
    assert rows
    assert {(row["nonzeros"], row["base_rows"]) for row in rows} == {(3, 40)}
    assert all(row["bytes"] <= 60_000 for row in rows)
    base = to_student(load_encoder(str(tiny_teacher))).config
    for row in rows[:: max(1, len(rows) // 5)]:
        names = ("vocabulary", "bottleneck", "unit", "repeats", "nonzeros", "base_rows")
        config = cut_config(base, **{name: row[name] for name in names})
        assert row["bytes"] == predict_bytes(config, plan_for(config, row["precision"]), "executorch")
    alone = CliRunner().invoke(command, [*words[:6], "--base-rows", "40"])
    assert {row["nonzeros"] for row in json.loads(alone.stdout)} == {2, 3, 4, 5}
    for wrong in (["--nonzeros", "6"], ["--nonzeros", "3", "--base-rows", "0"]):
        refused = CliRunner().invoke(command, ["plan", str(tiny_teacher), "--budget", "60KB", *wrong])
        assert refused.exit_code != 0
        assert "Traceback" not in refused.output


def test_size_plan_lists_only_precisions_that_fit():
    narrow = StudentConfig(vocabulary=50, hidden=40, heads=4, intermediate=80, unit=1, positions=20)
    assert list(size_plan("narrow", narrow).bytes) == ["fp32", "int8"]


LENGTH = 40
SLOW = pytest.mark.slow
# Runtimes and precisions for one shape each: lowering to XNNPACK takes long, the ONNX graph does not.
CASES = [
    ("executorch", "int8-embed4", {"unit": 1, "repeats": 2}),
    pytest.param("executorch", "fp32", {"unit": 1, "repeats": 1, "bottleneck": None, "dense": 32}, marks=SLOW),
    pytest.param("executorch", "int8", {"unit": 1, "repeats": 1, "base_rows": 700, "nonzeros": 3}, marks=SLOW),
    ("onnx", "int8", {"unit": 2, "repeats": 3}),
    ("onnx", "int8-embed4", {"unit": 1, "repeats": 2, "base_rows": 700, "nonzeros": 2}),
    ("onnx", "int8-embed4", {"unit": 1, "repeats": 1, "place": "embedding"}),
    ("onnx", "int4-embed4", {"unit": 3, "repeats": 2}),
    ("onnx", "fp32", {"unit": 1, "repeats": 2, "dense": 48, "dense_activation": "tanh"}),
]


@pytest.mark.parametrize(("runtime", "precision", "changes"), CASES)
def test_predicted_bytes_are_within_1_percent_of_the_files_that_export_writes(tmp_path, runtime, precision, changes):
    tokenizer = tiny_models.tokenizer(3000)
    shape = {"hidden": 64, "heads": 4, "intermediate": 256, "bottleneck": 32, "positions": 64}
    config = StudentConfig(vocabulary=tokenizer.size, **{**shape, **changes})
    options = ExportSettings(precision=precision, runtime=runtime, max_length=LENGTH, gates=False)
    manifest = write_bundle(tiny_models.shaken(config), tokenizer, tmp_path / "bundle", options=options)
    names = {"executorch": ["model.pte"], "onnx": ["model.onnx", "model.onnx.data"]}[runtime]
    written = sum(manifest.files[name].bytes for name in names)
    predicted = predict_bytes(config, plan_for(config, precision), runtime, LENGTH)
    assert predicted == pytest.approx(written, rel=0.01)
