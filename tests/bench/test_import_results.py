"""Results from elsewhere: percentiles computed here, unknown keys refused, many files in one."""

import json

import pytest
from bench_results import make_file, make_run

from msdc.bench.import_results import read_result, read_results
from msdc.errors import InputError


def foreign() -> dict:
    return {
        "artifact": make_run().artifact.model_dump(),
        "device": {"name": "iPhone 15", "cpu": "A16", "cores": 6, "memory_mib": 6144, "os": "iOS 18"},
        "latency": [{"length": 32, "samples_ms": [3.0, 1.0, 2.0], "p50_ms": 99.0}],
    }


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_percentiles_are_computed_not_believed(tmp_path):
    (run,) = read_result(write(tmp_path / "a.json", foreign())).runs
    assert run.latency[0].p50 == 2.0
    assert (run.origin, run.harness, run.device.kind, run.device.name) == ("imported", "other", "other", "iPhone 15")


def test_a_list_of_runs(tmp_path):
    assert len(read_result(write(tmp_path / "a.json", [foreign(), foreign()])).runs) == 2


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda raw: raw.pop("latency"), "latency"),
        (lambda raw: raw.update(latancy=[]), "latancy"),
        (lambda raw: raw["latency"][0].update(samples_ms=[]), "samples_ms"),
        (lambda raw: raw["artifact"].update(runtime="coreml"), "artifact.runtime"),
    ],
)
def test_a_bad_one_names_the_field(tmp_path, spoil, words):
    raw = foreign()
    spoil(raw)
    with pytest.raises(InputError, match=words):
        read_result(write(tmp_path / "a.json", raw))


def test_folders_and_doubles(tmp_path):
    file = make_file()
    write(tmp_path / "a.json", json.loads(file.model_dump_json()))
    write(tmp_path / "b.json", json.loads(file.runs[0].model_dump_json()))
    found = read_results([tmp_path, tmp_path / "a.json"])
    assert len(found.runs) == len(file.runs) and len(found.models) == len(file.models)


def test_an_empty_folder_and_no_json(tmp_path):
    with pytest.raises(InputError, match="no result file"):
        read_results([tmp_path])
    (tmp_path / "x.json").write_text("{oops")
    with pytest.raises(InputError, match="not valid JSON"):
        read_results([tmp_path])
