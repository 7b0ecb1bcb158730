"""Targets, baselines, noise, devices and dates, and what an app grows by, in a report of invented results."""

import json

import numpy as np
import pytest
from bench_results import make_file, make_models, make_run

from msdc.bench.accuracy.document import read_document
from msdc.bench.report.page import build_report, to_html, to_json, to_markdown, to_text
from msdc.bench.report.targets import parse_targets
from msdc.bench.result import BenchFile, BrowserFacts, Timing
from msdc.cli import main
from msdc.errors import InputError
from msdc.export.mobile.sizes import measured
from msdc.tables import megabytes


def section(report, name):
    return next(one for one in report.sections if one.id == name)


def rows(report, name, table=0):
    found = section(report, name).tables[table]
    return {row[0]: dict(zip([column.title for column in found.columns], row, strict=True)) for row in found.rows}


def facts(**changes):
    return BrowserFacts(**{
        "engine": "chromium", "agent": "x", "secure_context": True, "isolated": True, "worker": True,
        "clock_step_ms": 0.1, "golden_sha256": "ab" * 32, "heap_loaded_mib": 23.0, "heap_warm_mib": 24.0,
        "renderer_pss_mib": 150.0, **changes,
    })  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"latency": ["20@32"]}, {"latency": ["20ms"]}, {"latency": ["ms@32"]}, {"latency": ["-1ms@32"]},
        {"latency": ["0ms@32"]}, {"latency": ["20ms@32 ms"]}, {"latency": ["1e9ms@32"]},
        {"latency": ["9" * 400 + "ms@8"]},
        {"size": "12"}, {"size": "12 MBit"}, {"memory": "nan MiB"}, {"memory": ""}, {"accuracy": ["good"]},
        {"accuracy": ["70@"]}, {"accuracy": ["70@x\ny"]}, {"latency": ["٣ms@٣٢"]},
    ],
)  # fmt: skip
def test_what_is_no_limit_is_refused(options):
    with pytest.raises(InputError, match="expected a limit such as") as stop:
        parse_targets(**options)
    assert "\n" not in str(stop.value)


def test_units_of_limits():
    found = parse_targets(["0.02s@32", "20 ms@8"], "12MB", "1GiB", ["70", "71.5@sts17/en-en"])
    assert [(t.kind, t.limit, t.at) for t in found] == [
        ("latency", 20.0, "32"), ("latency", 20.0, "8"), ("size", 12.0, ""), ("memory", 1024.0, ""),
        ("accuracy", 70.0, ""), ("accuracy", 71.5, "sts17/en-en"),
    ]  # fmt: skip


def test_verdicts_stand_at_the_top_and_beside_baselines():
    runs = (make_run("executorch", harness="native"), make_run("onnx", scale=3.0, seed=1))
    targets = parse_targets(["5ms@32", "9ms@64"], "9.9MB", "40MiB", ["70"])
    report = build_report(BenchFile(runs=runs, models=make_models()), targets=targets)
    assert report.sections[0].id == "targets"
    tiles = {tile.label.split(",")[0]: (tile.value, tile.state) for tile in report.tiles[:5]}
    assert tiles == {
        "latency at 32 tokens": ("fail", "bad"), "latency at 64 tokens": ("not measured", ""),
        "program with tokenizer": ("pass", "good"), "peak memory": ("pass", "good"), "Spearman × 100": ("pass", "good"),
    }  # fmt: skip
    found = rows(report, "targets")
    first, second = (found[name] for name in list(found)[:2])
    assert first["Verdict"] == "incomplete" and second["Verdict"] == "fail"
    assert first["Latency at 32 tokens"].startswith("pass, 4.")
    assert second["Latency at 32 tokens"].startswith("fail, 12.")
    assert first["Peak memory"] == "pass, 30.0 MiB"
    # An interpreter is not an app.
    assert second["Peak memory"] == "not measured"
    assert found["teacher: some teacher"]["Program with tokenizer"] == "90.90 MB"
    assert found["float model: some student"]["Spearman × 100, mean"] == "76.6"
    assert len(report.missed) == 2 and "12." in report.missed[0] and "not measured" in report.missed[1]
    page, text = to_html(report), to_markdown(report)
    assert 'class="value bad">fail' in page and 'class="value good">pass' in page and "**fail**" in text
    assert to_json(report)["missed"] == list(report.missed)


def test_counted_instructions_are_not_judged_as_time():
    report = build_report(BenchFile(runs=(make_run(clock="instructions"),)), targets=parse_targets(["1s@32"]))
    assert report.tiles[0].value == "not measured"
    assert "instructions" not in report.tiles[0].detail


def test_baselines_of_an_evaluation_and_of_parameters_alone():
    document = read_document({
        "format": 1, "kind": "accuracy", "models": [{"label": "big model", "kind": "float", "bytes": 470_000_000}],
        "results": [{"task": "sts", "name": name, "model": "big model", "main": "spearman", "spearman": 80.0}
                    for name in ("graded-pairs", "sts17/en-es")],
    })  # fmt: skip
    targets = parse_targets(size="12MB", accuracy=["70"])
    found = rows(build_report(BenchFile(runs=(make_run(),)), evaluations=[document], targets=targets), "targets")
    assert found["float: big model"]["Spearman × 100, mean"] == "80.0"
    assert found["float: big model"]["Program with tokenizer"] == "470.00 MB"
    assert found["tiny in float32"]["Program with tokenizer"] == "36.40 MB"


def test_targets_without_a_run_are_refused():
    with pytest.raises(InputError, match="no run"):
        build_report(BenchFile(models=make_models()), targets=parse_targets(size="12MB"))


def test_the_exit_code_says_missed_targets_only_where_asked(tmp_path, capsys):
    result = tmp_path / "result.json"
    result.write_text(make_file().model_dump_json())

    target = tmp_path / "r.json"

    def report(*options):
        with pytest.raises(SystemExit) as left:
            main(["report", str(result), "-o", str(target), "--force", *options])
        return left.value.code

    assert report("--target-latency", "1ms@32") == 0
    assert json.loads(target.read_text())["missed"]
    target.unlink()
    assert report("--target-latency", "1ms@32", "--fail") == 1
    assert "error: latency at 32 tokens, at most 1 ms: 4." in capsys.readouterr().err
    assert target.is_file()
    assert report("--target-latency", "1s@32", "--fail") == 0
    assert report("--target-latency", "1ms", "--fail") == 2
    assert report("--fail") == 2


def noisy_run(**changes):
    samples = np.where(np.arange(100) % 3 == 0, 9.0, 4.0)
    return make_run(latency=[Timing(samples=samples.tolist(), warmup=1, length=32)], **changes)


def test_a_noisy_machine_is_said_at_the_top():
    quiet = build_report(BenchFile(runs=(make_run(),)))
    assert not quiet.warnings
    state = {"load_1min": 5.25}
    report = build_report(BenchFile(runs=(noisy_run(state_before=state),)), targets=parse_targets(["5ms@32"]))
    (warning,) = report.warnings
    assert "bench machine was noisy" in warning and "spread of 125 % of the median" in warning and "5.2 on 2" in warning
    assert warning in to_html(report) and "**Warning:** " in to_markdown(report) and warning in to_text(report)
    assert report.tiles[0].detail.endswith("(noisy)")
    # One peak in a hundred runs is no noise, and counts are no times.
    peak = Timing(samples=[4.0] * 99 + [40.0], warmup=1, length=32)
    assert not build_report(BenchFile(runs=(make_run(latency=[peak]),))).warnings
    assert not build_report(BenchFile(runs=(make_run(clock="instructions"),))).warnings


def test_devices_and_dates_are_columns_and_clocks_are_not_mixed():
    phone = {"name": "a phone", "kind": "adb", "cpu": "x", "cores": 8, "memory_mib": 4096}
    other = make_run(clock="instructions").device.model_copy(update={"name": "cortex-a76"})
    runs = (
        make_run(created="2026-01-01T10:00:00+00:00"),
        make_run(created="2026-02-01T10:00:00+00:00", scale=2.0),
        make_run(device=phone, harness="native"),
        make_run(clock="instructions"),
        make_run(clock="instructions", device=other.model_dump()),
    )
    report = build_report(BenchFile(runs=runs))
    timed, counted = section(report, "devices").tables
    assert [(column.title, column.unit) for column in timed.columns[2:]] == [
        ("bench machine, from Python", "2026-01-01"), ("a phone", "2026-01-02"),
        ("bench machine, from Python", "2026-02-01"),
    ]  # fmt: skip
    latency = next(row for row in timed.rows if row[1] == "median at 32 tokens, ms")
    assert all(cell != "–" for cell in latency) and latency[2] != latency[4]
    assert {column.title for column in counted.columns[2:]} == {"cortex-a53", "cortex-a76"}
    assert not any(" ms" in cell for row in counted.rows for cell in row)
    assert any("2026-01-01" in row[0] for row in section(report, "artifacts").tables[0].rows)
    # Twice on one day: by the minute.
    twice = (make_run(created="2026-01-01T10:00:00+00:00"), make_run(created="2026-01-01T11:30:00+00:00"))
    (table,) = section(build_report(BenchFile(runs=twice)), "devices").tables
    assert [column.unit for column in table.columns[2:]] == ["2026-01-01 10:00", "2026-01-01 11:30"]
    assert "devices" not in [one.id for one in build_report(BenchFile(runs=runs[:1])).sections]


def test_what_an_app_and_a_page_grow_by():
    run = make_run("onnx")
    artifact = run.artifact.model_copy(update={"compressed_bytes": 7_000_000})
    web = make_run("onnx", harness="browser", browser=facts(), memory=None, artifact=artifact.model_dump())
    native = make_run("onnx", artifact=artifact.model_dump())
    report = build_report(BenchFile(runs=(native, web, make_run("executorch"))))
    found = {row[1] + row[0]: row for row in section(report, "growth").tables[0].rows}
    app = next(row for key, row in found.items() if key.startswith("Android app, arm64") and "onnx" in key)
    parts = [measured()[name]["compressed"] for name in ("onnx", "core")]
    assert app[-1] == megabytes(7_000_000 + sum(parts))
    page = next(row for row in found.values() if row[1] == "web page")
    assert 10 < float(page[-1]) < 12
    unknown = next(row for key, row in found.items() if "executorch" in key)
    assert unknown[3] == unknown[-1] == "–" and float(unknown[-2]) > 20


def test_cosines_to_the_export_and_to_the_float_model_stand_side_by_side():
    golden = {"texts": 9, "mean_cosine": 1.0, "min_cosine": 0.9999, "ids_equal": True}
    known = make_run(parity={**golden, "float_mean_cosine": 0.9951, "float_min_cosine": 0.9712})
    table = section(build_report(BenchFile(runs=(known, make_run("onnx", parity=golden)))), "artifacts").tables[0]
    heads = [(column.title, column.unit) for column in table.columns]
    first = heads.index(("Cosine to export", "mean"))
    assert heads[first + 2 : first + 4] == [("Cosine to float model", "mean"), ("Cosine to float model", "lowest")]
    assert table.rows[0][first : first + 4] == ("1.0000", "0.9999", "0.9951", "0.9712")
    assert table.rows[1][first + 2 : first + 4] == ("–", "–")
