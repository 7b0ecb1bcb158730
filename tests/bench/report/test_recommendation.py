"""The first screen of a report of invented results: what to take, targets, noise, regressions; sizes and history."""

import json

import numpy as np
import pytest
from bench_results import make_file, make_models, make_run

from msdc.bench.report.page import build_report, to_html, to_json, to_markdown, to_text
from msdc.bench.report.recommendation import sizes_of
from msdc.bench.report.targets import parse_targets
from msdc.bench.result import Accuracy, BenchFile, BrowserFacts, DeviceState, Timing
from msdc.cli import main
from msdc.errors import InputError
from msdc.export.mobile.sizes import measured
from msdc.tables import megabytes


def section(report, name):
    return next(part for part in report.sections if part.id == name)


def rows(report, name, table=0):
    chosen_table = section(report, name).tables[table]
    return {
        row[0]: dict(zip([column.title for column in chosen_table.columns], row, strict=True))
        for row in chosen_table.rows
    }


def sentences(report):
    return ["".join(sentence) for sentence in report.recommendation]


def decisions(report):
    return {name: row["Decision"] for name, row in rows(report, "choice").items()}


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
        parse_targets(**{f"target_{kind}": limit for kind, limit in options.items()})
    assert "\n" not in str(stop.value)


def test_units_of_limits():
    targets = parse_targets(["0.02s@32", "20 ms@8"], "12MB", "1GiB", ["70", "71.5@sts17/en-en"])
    assert [(t.kind, t.limit, t.subject) for t in targets] == [
        ("latency", 20.0, "32"), ("latency", 20.0, "8"), ("size", 12.0, ""), ("memory", 1024.0, ""),
        ("accuracy", 70.0, ""), ("accuracy", 71.5, "sts17/en-en"),
    ]  # fmt: skip


def test_verdicts_stand_at_the_top():
    runs = (make_run("executorch", harness="native"), make_run("onnx", scale=3.0, seed=1))
    targets = parse_targets(["5ms@32", "9ms@64"], "9.9MB", "40MiB", ["70"])
    report = build_report(BenchFile(runs=runs, models=make_models()), targets=targets)
    by_runtime = rows(report, "targets")
    first, second = (by_runtime[name] for name in ("executorch", "onnx"))
    assert first["Verdict"] == "incomplete"
    assert second["Verdict"] == "fail"
    assert first["Latency at 32 tokens"].startswith("pass, 4.")
    assert second["Latency at 32 tokens"].startswith("fail, 12.")
    assert first["Peak memory"] == "pass, 30.0 MiB"
    # An interpreter is not an app.
    assert second["Peak memory"] == "not measured"
    assert len(report.missed) == 2
    assert "12." in report.missed[0]
    assert "not measured" in report.missed[1]
    assert sentences(report)[1] == "Misses 1 target: latency at 64 tokens (not measured; at most 9 ms)."
    assert decisions(report) == {"executorch": "recommended", "onnx": "rejected: misses a target"}
    assert to_json(report)["missed"] == list(report.missed)
    assert "fail, 12." in to_html(report)


def test_counted_instructions_are_not_judged_as_time():
    report = build_report(BenchFile(runs=(make_run(clock="instructions"),)), targets=parse_targets(["1s@32"]))
    assert rows(report, "targets")["executorch"]["Latency at 32 tokens"] == "not measured"
    assert "executes 8.0 M instructions at 32 tokens" in sentences(report)[0]
    assert " ms" not in sentences(report)[0]


def scored(runtime, spearman, low, **changes):
    entry = Accuracy(task="sts", name="set", spearman=spearman, pairs=9, interval=[low, spearman + 2.0])
    return make_run(runtime, accuracy=[entry], **changes)


@pytest.mark.parametrize(
    ("other", "taken", "reason"),
    [
        # Inside the interval there is no winner: the smaller download is taken, though it scores lower.
        (scored("onnx", 80.9, 78.0), "executorch", "rejected: larger; highest score"),
        (scored("onnx", 90.0, 88.0), "onnx", "rejected: less accurate; smallest download"),
        (scored("onnx", 80.0, 78.0, scale=0.1), "executorch", "rejected: larger; fastest"),
    ],
)
def test_the_answer_names_no_winner_inside_the_interval(other, taken, reason):
    report = build_report(BenchFile(runs=(scored("executorch", 80.0, 78.0), other)))
    assert sentences(report)[0].startswith(f"Take tiny {taken} int8: ")
    assert decisions(report) == {taken: "recommended", ({"executorch", "onnx"} - {taken}).pop(): reason}
    table = section(report, "choice").tables[0]
    assert table.marked == [0]
    assert list(table.rows[0][:2]) == [taken, "recommended"]
    assert 'class="marked"' in to_html(report)
    bounds = "[78.0, 82.0]" if taken == "executorch" else "[88.0, 92.0]"
    assert table.rows[0][-1].endswith(bounds)
    assert "95 % interval" in table.note


def sized(bundle, compressed, **changes):
    artifact = make_run("onnx").artifact.model_dump() | {"bundle": bundle, "compressed_bytes": compressed}
    return make_run("onnx", artifact=artifact | {"sha256": 32 * bundle[:2]}, **changes)


@pytest.mark.parametrize(("factor", "taken"), [(1.015, "b2"), (1.03, "a1")])
def test_of_nearly_equal_downloads_the_faster_is_taken(factor, taken):
    small = sized("a1", 9_000_000)
    large = sized("b2", round(factor * sizes_of(small).download) - sizes_of(small).runtime_compressed, scale=0.5)
    assert sentences(build_report(BenchFile(runs=(small, large))))[0].startswith(f"Take {taken} onnx int8")


@pytest.mark.parametrize(("score", "taken"), [(79.2, "a1"), (78.8, "b2")])
def test_without_an_interval_scores_within_a_point_are_equal(score, taken):
    def entry(value):
        return [Accuracy(task="sts", name="set", spearman=value, pairs=9)]

    runs = sized("a1", 5_000_000, accuracy=entry(score)), sized("b2", 9_000_000, accuracy=entry(80.0))
    assert sentences(build_report(BenchFile(runs=runs)))[0].startswith(f"Take {taken} onnx int8")


def test_artifacts_that_are_not_taken_stand_by_the_size_of_their_download():
    sizes = {"c3": 9_000_000, "a1": 5_000_000, "d4": 8_000_000, "b2": 7_000_000}
    report = build_report(BenchFile(runs=tuple(sized(name, size) for name, size in sizes.items())))
    assert [row[0] for row in section(report, "choice").tables[0].rows] == [
        f"{name} onnx" for name in ("a1", "b2", "d4", "c3")
    ]


def test_a_program_that_computes_something_else_is_not_taken():
    wrong = {"texts": 9, "mean_cosine": 0.8, "min_cosine": 0.5, "ids_equal": True}
    runs = (make_run(parity=wrong), make_run("onnx"))
    assert sentences(build_report(BenchFile(runs=runs)))[0].startswith("Take tiny onnx int8: ")
    alone = build_report(BenchFile(runs=runs[:1]))
    assert "It does not compute what was exported" in sentences(alone)[1]
    assert decisions(alone) == {"executorch": "rejected: other output"}
    assert decisions(build_report(BenchFile(runs=runs))) == {**decisions(alone), "onnx": "recommended"}


def test_the_answer_has_every_figure_and_says_where_it_was_measured():
    artifact = make_run().artifact.model_copy(update={"compressed_bytes": 7_000_000})
    float_scores = (Accuracy(task="sts", name="graded-pairs", spearman=80.0, pairs=112),)
    run = make_run(artifact=artifact.model_dump(), float_accuracy=float_scores)
    first, last = sentences(build_report(BenchFile(runs=(run,))))
    small = sum(measured()[name]["compressed"] for name in ("executorch", "core"))
    assert first.startswith(f"Take tiny executorch int8: it adds {(7_000_000 + small) / 1e6:.2f} MB to the download")
    assert "answers in 4." in first
    assert "at 32 tokens, takes 13.0 MiB of memory" in first
    claim = "keeps 98 % of the float model's Spearman on graded-pairs (112 home-made pairs): 78.4 [70, 84] of 80.0."
    assert first.endswith(claim)
    assert last == "Measured on bench machine, not on a phone: its times and memory differ."
    # The float model that a result names counts before what a bundle kept; without either it is said.
    assert "keeps 99.1 %" in sentences(build_report(BenchFile(runs=(run,), models=make_models())))[0]
    golden = {"texts": 9, "mean_cosine": 1.0, "min_cosine": 1.0, "ids_equal": True, "float_mean_cosine": 0.9951}
    unknown = sentences(build_report(BenchFile(runs=(make_run(parity=golden),))))[0]
    assert "whether it keeps the float model's accuracy is not known" in unknown
    assert "cosine of 0.9951" in unknown
    phone = make_run(device={"name": "a phone", "kind": "adb", "cores": 8}, harness="native")
    both = build_report(BenchFile(runs=(run, phone)))
    assert sentences(both)[-1] == "Measured on bench machine and a phone."
    assert "at 32 tokens on a phone, takes" in sentences(both)[0]
    assert [row[2] for row in section(both, "choice").tables[0].rows] == ["a phone", "bench machine"]
    assert to_text(both).startswith("Take tiny")


@pytest.mark.parametrize(("system", "phone"), [("Android", True), ("iOS", True), ("", True), ("Windows 15", False)])
def test_a_link_is_a_phone_unless_a_computer_opened_it(system, phone):
    device = {"name": "Ada's phone, Chromium 140", "kind": "link", "os": system}
    run = make_run("onnx", harness="browser", browser=facts(), memory=None, device=device)
    last = sentences(build_report(BenchFile(runs=(run,))))[-1]
    assert last.startswith("Measured on Ada's phone, Chromium 140")
    assert ("not on a phone" in last) != phone


def test_a_web_page_has_an_answer_of_its_own():
    web = make_run("onnx", harness="browser", browser=facts(), memory=None)
    answers = sentences(build_report(BenchFile(runs=(make_run(), web))))
    assert answers[0].startswith("Take tiny executorch int8")
    assert answers[1].startswith("In a web page take tiny onnx")
    assert "takes 24.0 MiB" in answers[1]


def test_regressions_and_what_is_undecided_stand_at_the_top():
    old, slow = make_run(), make_run(scale=1.3, seed=4)
    built = make_run(scale=1.3, seed=4, artifact={**old.artifact.model_dump(), "sha256": "c" * 64})
    loaded = built.model_copy(update={"state_before": DeviceState(load_1min=5.0)})
    idle = old.model_copy(update={"state_before": DeviceState(load_1min=0.1)})
    for new, words in ((loaded, "Not decided, executorch"), (built, "Slower than before, executorch")):
        report = build_report(BenchFile(runs=(new,)), before=[BenchFile(runs=(idle,))])
        (line,) = report.warnings
        assert line.startswith(words)
        assert "rose by" in line
        assert line in to_markdown(report)
    same = build_report(BenchFile(runs=(slow,)), before=[BenchFile(runs=(old,))])
    comparison = section(same, "comparison")
    assert not same.warnings
    assert not comparison.figures
    assert comparison.lead.startswith("The same program in both")
    timing = rows(same, "comparison")["latency, 32 tokens, median"]
    assert (timing["Change"], timing["Verdict"]) == ("–", "same program")
    assert "95 % interval" not in timing
    assert not build_report(BenchFile(runs=(make_run(seed=2),)), before=[BenchFile(runs=(old,))]).warnings


def test_targets_without_a_run_are_refused():
    with pytest.raises(InputError, match="no run"):
        build_report(BenchFile(models=make_models()), targets=parse_targets(target_size="12MB"))


def test_the_exit_code_says_missed_targets_only_where_asked(tmp_path, capsys):
    result = tmp_path / "result.json"
    result.write_text(make_file().model_dump_json())

    target = tmp_path / "r.json"

    def report(*options):
        with pytest.raises(SystemExit) as exit_info:
            main(["report", str(result), "-o", str(target), "--force", *options])
        return exit_info.value.code

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


def test_a_noisy_time_is_a_range_everywhere():
    report = build_report(BenchFile(runs=(noisy_run(), noisy_run(seed=1, created="2026-01-03T00:00:00"))))
    assert rows(report, "choice")["executorch"]["32 tokens"] == "4.0–9.0 (noisy)"
    assert "answers in 4.0 to 9.0 ms (noisy)" in sentences(report)[0]
    assert "answers in <strong>" not in to_html(report)  # no figure to rely on
    assert "takes 4.0 to 9.0 ms (noisy)" in section(report, "latency").lead
    assert {row[2] for row in section(report, "history").tables[0].rows} == {"4.0 to 9.0 ms (noisy)"}
    assert rows(build_report(BenchFile(runs=(make_run(),))), "choice")["executorch"]["32 tokens"].startswith("4.13 (4.")


def test_a_noisy_machine_is_said_at_the_top():
    quiet = build_report(BenchFile(runs=(make_run(),)))
    assert not quiet.warnings
    state = {"load_1min": 5.25}
    report = build_report(BenchFile(runs=(noisy_run(state_before=state),)), targets=parse_targets(["5ms@32"]))
    (warning,) = report.warnings
    assert "bench machine was noisy" in warning
    assert "spread of 125 % of the median" in warning
    assert "5.2 on 2" in warning
    assert warning in to_html(report)
    assert "**Warning:** " in to_markdown(report)
    assert warning in " ".join(to_text(report).split())
    assert rows(report, "targets")["executorch"]["Latency at 32 tokens"].endswith(", noisy")
    # One peak in a hundred runs is no noise, and counts are no times.
    peak = Timing(samples=[4.0] * 99 + [40.0], warmup=1, length=32)
    assert not build_report(BenchFile(runs=(make_run(latency=[peak]),))).warnings
    assert not build_report(BenchFile(runs=(make_run(clock="instructions"),))).warnings


def test_earlier_results_are_one_history_and_clocks_are_not_mixed():
    def measured_on(day, **changes):
        return BenchFile(runs=(make_run(created=f"2026-01-0{day}T10:00:00+00:00", **changes),
                               make_run(created=f"2026-01-0{day}T10:00:00+00:00", clock="instructions")))  # fmt: skip

    report = build_report(measured_on(3, scale=2.0), before=[measured_on(2, scale=1.5), measured_on(1)])
    history = section(report, "history")
    assert history.lead == "3 measurements from 2026-01-01 to 2026-01-03."
    timed, counted = history.figures
    assert "million instructions" in counted.alt
    assert " ms" not in counted.svg
    assert "cortex" not in timed.alt
    dates = [row[2] for row in history.tables[0].rows]
    assert dates == ["2026-01-01 10:00", "2026-01-02 10:00", "2026-01-03 10:00"] * 2
    assert "then tiny int8 (aaaaaaaa, 2026-01-03 10:00)" in section(report, "comparison").tables[0].caption
    assert "2026-01-02 10:00" in section(report, "comparison").tables[0].caption, "the latest of the earlier ones"
    assert "history" not in [part.id for part in build_report(measured_on(1)).sections]


def test_one_panel_per_device_and_one_point_per_artifact():
    phone = {"name": "a phone", "kind": "adb", "cores": 8}
    runs = [make_run(name, **changes) for name in ("executorch", "onnx")
            for changes in ({}, {"device": phone, "harness": "native", "scale": 9.0})]  # fmt: skip
    report = build_report(BenchFile(runs=tuple(runs), models=make_models()))
    (sizes,) = section(report, "choice").figures
    assert sizes.svg.count("<title>") == 2 + 3
    assert [figure.title for figure in section(report, "latency").figures] == ["bench machine", "a phone"]
    assert len(section(report, "artifacts").tables[0].rows) == 2 + 3


def test_what_an_app_and_a_page_grow_by():
    run = make_run("onnx")
    artifact = run.artifact.model_copy(update={"compressed_bytes": 7_000_000, "delegated_share": 0.75})
    web = make_run("onnx", harness="browser", browser=facts(), memory=None, artifact=artifact.model_dump())
    native = make_run("onnx", artifact=artifact.model_dump())
    report = build_report(BenchFile(runs=(native, web, make_run("executorch"))))
    table = section(report, "artifacts").tables[0]
    app, page, unknown = table.rows
    assert table.columns[6].title == "Download"
    assert (app[1], page[1]) == ("Android, arm64", "web page")
    assert app[6] == megabytes(7_000_000 + sum(measured()[name]["compressed"] for name in ("onnx", "core")))
    assert 10 < float(page[6]) < 12
    assert app[-1] == "75.0"
    assert unknown[6] == "–"
    assert float(unknown[5]) > 20


def test_the_largest_sample_stands_for_p99_below_500_and_memory_is_a_rise():
    few, many = make_run(), make_run("onnx", runs=600)
    columns = [[column.title for column in section(build_report(BenchFile(runs=runs)), "latency").tables[0].columns]
               for runs in ((few,), (many,), (few, many))]  # fmt: skip
    assert ["p99" in titles for titles in columns] == [False, True, True]
    assert ["Max" in titles for titles in columns] == [True, False, True]
    table = section(build_report(BenchFile(runs=(few,))), "memory").tables[0]
    rise = [column.title for column in table.columns].index("Rise")
    assert [row[rise] for row in table.rows] == ["0.0", "7.8", "13.0"]


def test_sustained_load_is_a_curve_with_its_ratio():
    state = {"battery_c": 31.5, "battery_percent": 80.0}
    load = {"length": 32, "medians": [4.0, 5.0, 6.0], "before": state, "after": {**state, "battery_c": 40.0}}
    sustained = section(build_report(BenchFile(runs=(make_run(sustained=load),))), "sustained")
    assert sustained.lead == "The last second takes up to 1.50 times as long as the first."
    assert "1.50" in sustained.tables[0].rows[0]
    assert "battery 80 %, battery 40.0 °C" in sustained.tables[0].rows[0]
    assert [figure.title for figure in sustained.figures] == ["bench machine"]
