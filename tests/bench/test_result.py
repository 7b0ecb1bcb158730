"""The result file: percentiles, one clock per run, older and foreign files, bad ones refused."""

import json

import pytest
from bench_results import make_file, make_run
from pydantic import ValidationError

from msdc.bench.result import Timing, moments, parse_result, read_result, read_results
from msdc.errors import InputError


def test_percentiles_of_known_samples():
    timing = Timing(samples=[float(i) for i in range(1, 102)], warmup=3, length=8)
    assert (timing.p50, timing.p90, timing.p99, timing.minimum) == (51.0, 91.0, 100.0, 1.0)


def raw_of(value) -> dict:
    return json.loads(value.model_dump_json())


def test_a_file_and_a_single_run_read_back_equal():
    file, run = make_file(), make_run()
    assert parse_result(raw_of(file), "x.json") == file
    assert parse_result(raw_of(run), "x.json").runs == (run,)


def test_a_run_keeps_to_one_clock():
    with pytest.raises(ValidationError, match="unit of the run's clock"):
        make_run(latency=[Timing(samples=[1e6], warmup=0, length=8, unit="instructions")])
    with pytest.raises(InputError, match="unit of the run's clock"):
        parse_result(raw_of(make_run()) | {"clock": "instructions"}, "x.json")


def test_only_an_emulated_device_counts_instructions():
    raw = raw_of(make_run(clock="instructions"))
    raw["device"]["emulated"] = False
    with pytest.raises(InputError, match="only an emulated device"):
        parse_result(raw, "x.json")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda raw: raw.update(kind="other"), "not a result file"),
        (lambda raw: raw.update(format=9), "result format 9"),
        (lambda raw: raw.update(surprise=1), "surprise"),
        (lambda raw: raw["artifact"].update(sha256="zz"), "artifact.sha256"),
        (lambda raw: raw["latency"][0].update(samples=[-1.0]), "latency"),
        (lambda raw: raw["device"].update(cores=0), "device.cores"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(spoil, words):
    raw = raw_of(make_run())
    spoil(raw)
    with pytest.raises(InputError, match=words) as caught:
        parse_result(raw, "result.json")
    assert "result.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def foreign() -> dict:
    return {
        "artifact": make_run().artifact.model_dump(),
        "device": {"name": "iPhone 15", "cpu": "A16", "cores": 6, "memory_mib": 6144, "os": "iOS 18", "owner": "x"},
        "latency": [{"length": 32, "samples_ms": [3.0, 1.0, 2.0], "p50_ms": 99.0}],
        "load_ms": 5.0,
    }


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_percentiles_of_foreign_results_are_computed_not_believed(tmp_path):
    (run, _) = read_result(write(tmp_path / "a.json", [foreign(), foreign()])).runs
    assert run.latency[0].p50 == 2.0
    assert run.load == 5.0
    assert (run.origin, run.harness, run.device.kind, run.device.name) == ("imported", "other", "other", "iPhone 15")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda raw: raw.pop("latency"), "latency"),
        (lambda raw: raw.update(latancy=[]), "latancy"),
        (lambda raw: raw["latency"][0].update(samples_ms=[]), "latency.0.samples"),
        (lambda raw: raw["artifact"].update(runtime="coreml"), "artifact.runtime"),
    ],
)
def test_a_bad_foreign_result_names_the_field(tmp_path, spoil, words):
    raw = foreign()
    spoil(raw)
    with pytest.raises(InputError, match=words):
        read_result(write(tmp_path / "a.json", raw))


def test_moments_have_seconds_only_where_minutes_are_alike():
    first, second, third = "2026-01-02T03:04:05+00:00", "2026-01-02T03:04:59+00:00", "2026-01-02T03:05:00+00:00"
    assert moments([first, third, first]) == ["2026-01-02 03:04", "2026-01-02 03:05", "2026-01-02 03:04"]
    assert moments([first, second]) == ["2026-01-02 03:04:05", "2026-01-02 03:04:59"]


def test_folders_and_doubles(tmp_path):
    file = make_file()
    write(tmp_path / "a.json", raw_of(file))
    write(tmp_path / "b.json", raw_of(file.runs[0]))
    merged = read_results([tmp_path, tmp_path / "a.json"])
    assert len(merged.runs) == len(file.runs)
    assert len(merged.models) == len(file.models)


def test_an_empty_folder_and_no_json(tmp_path):
    with pytest.raises(InputError, match="no result file"):
        read_results([tmp_path])
    (tmp_path / "x.json").write_text("{oops")
    with pytest.raises(InputError, match="not valid JSON"):
        read_results([tmp_path])
