"""Sizes against the published tables and against brute force; the budget's Pareto set against its definition."""

import json

import pytest
import torch
from click.testing import CliRunner
from paper_rows import msd_students

from msdc.compress import size
from msdc.compress.cli import command
from msdc.compress.quantization.plan import plan_for
from msdc.compress.size import cut_config, enumerate_students, macs_per_token, plan_budget, predict_bytes, size_plan
from msdc.compress.student.config import SHAPES, parameter_counts
from msdc.compress.student.cut import kept_shares, weighted_svd
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.stock import to_student
from msdc.encoders.encoder import load_encoder
from msdc.errors import InputError
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
    for name, embedding, encoder in (("mbert", 92.20, 85.05), ("xlmr-base", 192.40, 85.05), ("minilm", 96.21, 21.29),
                                     ("labse", 385.28, 85.05)):  # fmt: skip
        counts = parameter_counts(SHAPES[name])
        assert counts["embedding"] / 1e6 == pytest.approx(embedding, abs=0.01)
        assert counts["encoder"] / 1e6 == pytest.approx(encoder, abs=0.01)


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


def test_a_model_folder_is_planned_as_its_shape(bert_folder):
    sizes = plan(str(bert_folder), "--bottleneck", "8", "--unit", "1")
    config = sizes["config"]
    assert (config["unit"], config["repeats"], config["bottleneck"], config["vocabulary"]) == (1, 3, 8, 120)
    assert sizes["parameters"] == sum(p.numel() for p in Student(StudentConfig(**config)).parameters())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"unit": 13}, "13 layers out of a model that stores 12"),
        ({"unit": 5}, "does not divide 12 layers"),
        ({"bottleneck": 999}, "wider than the hidden size"),
        ({"max_length": 4000}, "exceeds the 514 positions"),
    ],
)
def test_a_cut_that_does_not_fit_is_refused(changes, said):
    with pytest.raises(InputError, match=said):
        cut_config(SHAPES["xlmr-base"], **changes)


def test_sizes_of_a_budget(monkeypatch):
    found = []
    monkeypatch.setattr(size, "enumerate_students", lambda base, size_bytes, **_: found.append(size_bytes) or [])
    for text in ("10MB", "9.5 MiB", "12000", 7_000):
        plan_budget(text, shape="minilm")
    assert found == [10_000_000, int(9.5 * 1024**2), 12_000, 7_000]
    for wrong in ("", "ten", "10QB", "-3MB", "nan", "10MB5"):
        with pytest.raises(InputError, match=r"10MB or 9\.5MiB"):
            plan_budget(wrong, shape="minilm")


def test_the_pareto_set_is_what_its_definition_says():
    generator = torch.Generator().manual_seed(0)
    points = [tuple(row) for row in torch.randint(0, 6, (300, 3), generator=generator).tolist()]

    def dominated(a):
        return any(all(y <= x for x, y in zip(a, b, strict=True)) and b != a for b in points)

    assert pareto(points) == [not dominated(point) for point in points]


def test_a_budget_lists_what_fits_and_marks_the_best():
    base = SHAPES["all-minilm-l6"]
    rows = enumerate_students(base, 6_000_000, max_length=128)
    assert rows and all(row.bytes <= 6_000_000 for row in rows)
    assert rows == sorted(rows, key=lambda row: row.expected_loss) and any(row.pareto for row in rows)
    assert rows[0].pareto
    assert {row.needs_qat for row in rows if row.precision != "int4-embed4"} == {False}
    with pytest.raises(InputError, match="the smallest takes"):
        enumerate_students(base, 1000)


def test_the_share_a_bottleneck_keeps_is_that_of_its_svd():
    torch.manual_seed(0)
    table = torch.randn(200, 24) @ torch.diag(torch.logspace(0, -2, 24))
    frequency = torch.rand(200)
    for width, share in kept_shares(table, [4, 12, 24], frequency).items():
        narrow, _ = weighted_svd(table, frequency, width)
        kept = (narrow.square().sum(1) @ frequency) / (table.square().sum(1) @ frequency)
        assert share == pytest.approx(float(kept), abs=1e-5)


def test_budget_command(bert_folder):
    arguments = ["plan", str(bert_folder), "--budget", "60KB"]
    rows = json.loads(CliRunner().invoke(command, [*arguments, "--json"]).stdout)
    assert rows and all(row["pareto"] and row["bytes"] <= 60_000 for row in rows)
    shown = CliRunner().invoke(command, [*arguments, "--all"])
    assert "Pareto" in shown.output and shown.exit_code == 0


def test_a_budget_of_coded_students(bert_folder):
    """Every candidate is coded as asked, has the bytes that a plan of just it predicts, and is smaller for it."""
    words = ["plan", str(bert_folder), "--budget", "60KB", "--json", "--all", "--links", "3", "--base-rows", "40"]
    result = CliRunner().invoke(command, words)
    rows = json.loads(result.stdout)
    assert rows and {(row["links"], row["base_rows"]) for row in rows} == {(3, 40)}
    assert all(row["bytes"] <= 60_000 for row in rows)
    base = to_student(load_encoder(str(bert_folder))).config
    for row in rows[:: max(1, len(rows) // 5)]:
        names = ("vocabulary", "bottleneck", "unit", "repeats", "links", "base_rows")
        config = cut_config(base, **{name: row[name] for name in names})
        assert row["bytes"] == predict_bytes(config, plan_for(config, row["precision"]), "executorch")
    alone = CliRunner().invoke(command, [*words[:6], "--base-rows", "40"])
    assert {row["links"] for row in json.loads(alone.stdout)} == {2, 3, 4, 5}
    for wrong in (["--links", "6"], ["--links", "3", "--base-rows", "0"]):
        refused = CliRunner().invoke(command, ["plan", str(bert_folder), "--budget", "60KB", *wrong])
        assert refused.exit_code != 0 and "Traceback" not in refused.output


def test_size_plan_lists_only_precisions_that_fit():
    narrow = StudentConfig(vocabulary=50, hidden=40, heads=4, intermediate=80, unit=1, positions=20)
    assert list(size_plan("narrow", narrow).bytes) == ["fp32", "int8"]
