"""The recurring student beside its plain twin: the sentence says what the figures say, whichever way they fall."""

import json

import pytest
from bench_results import make_models, make_run

from msdc.bench.report.model import Twin
from msdc.bench.report.page import build_report, to_markdown
from msdc.bench.result import BenchFile


def results(recurring_score: float) -> BenchFile:
    models = make_models()
    student = next(model for model in models if model.role == "student")
    accuracy = tuple(a.model_copy(update={"spearman": recurring_score}) for a in student.accuracy)
    twin = student.model_copy(update={"role": "other", "name": "recurring", "accuracy": accuracy})
    runs = []
    for name, scale, run_accuracy in ((student.name, 1.0, student.accuracy), ("recurring", 2.0, accuracy)):
        run = make_run("onnx", scale=scale)
        artifact = run.artifact.model_copy(update={"bundle": name})
        runs.append(run.model_copy(update={"artifact": artifact, "accuracy": run_accuracy}))
    return BenchFile(runs=tuple(runs), models=(*models, twin))


@pytest.mark.parametrize(
    ("gain", "message"),
    [(5.0, "recurrence pays in accuracy here"), (-5.0, "does not pay here"), (0.4, "not significant")],
)
def test_whether_recurrence_pays_is_what_the_figures_say(tmp_path, gain, message):
    runs = {}
    for name, shares in (("run", {"mcl": 0.75, "mse": 0.25}), ("twin", {"mcl": 0.5, "mse": 0.5})):
        runs[name] = tmp_path / name
        runs[name].mkdir()
        first = {"stage": "assistant", "step": 1, "loss": 1.0, "seconds": 1.0}
        rows = [first, first | {"stage": "contrast", "loss": 0.5 if name == "run" else 0.25},
                {"stage": "contrast", "done": {f"share_{key}": value for key, value in shares.items()}}]  # fmt: skip
        (runs[name] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    student = next(model for model in make_models() if model.role == "student")
    student_score = sum(a.spearman for a in student.accuracy) / len(student.accuracy)
    recurring = student_score + gain
    bench_file = results(recurring)
    text = to_markdown(build_report(bench_file, run_folder=runs["run"], twin=Twin("recurring", runs["twin"])))
    text = " ".join(text.split())
    assert f"the student scores {recurring:.1f}, with it applied once {student_score:.1f}" in text
    assert message in text
    assert "takes 2.00 times as long" in text
    assert "misses the gate" not in text
    # The stage that both share is shown once.
    assert "contrast (recurring)" in text
    assert "assistant (recurring)" not in text
    assert "mcl 75 %, mse 25 %" in text
    assert "mcl 50 %, mse 50 %" in text
    assert "Recurring unit" not in to_markdown(build_report(bench_file, run_folder=runs["run"]))


def test_a_missed_gate_is_said(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"stage": "one", "step": 1, "loss": 1.0, "seconds": 1.0}))
    bench_file = results(80.0)
    bench_file = bench_file.model_copy(update={"runs": bench_file.runs[:1]})
    twin = Twin("recurring", tmp_path, "mean cosine 0.992907 below 0.998")
    text = " ".join(to_markdown(build_report(bench_file, run_folder=tmp_path, twin=twin)).split())
    assert "misses the gate (mean cosine 0.992907 below 0.998), so only the float model is compared" in text
    assert "times as long" not in text
