"""The python device on a real, tiny bundle: every figure is there, memory as the kernel counts it, checks that bite."""

import json
import os
import shutil
from functools import partial
from time import sleep

import numpy as np
import pytest
from programs import python

from msdc.bench.accuracy import evaluate
from msdc.bench.devices import DEVICES, open_devices
from msdc.bench.devices.base import run_devices
from msdc.bench.devices.host import PythonDevice, host_info, short_cpu
from msdc.bench.devices.python_worker import read_memory, sample_ns
from msdc.bench.devices.runner_protocol import row_of_length
from msdc.bench.measure import compare_golden, parity_failures
from msdc.bench.options import BenchSettings
from msdc.bench.report.page import build_report, to_text
from msdc.bench.result import BenchFile
from msdc.errors import InputError, MsdcError
from msdc.export.bundle import load_bundle

QUICK = {"lengths": (4, 16), "runs": 12, "warmup": 2, "tasks": ()}


@pytest.fixture(scope="module")
def runs(tiny_bundle):
    return PythonDevice().run(tiny_bundle, BenchSettings(**QUICK | {"tasks": ("graded-pairs",)}))


def test_texts_that_the_artifact_reads_in_part_are_counted(runs, tiny_bundle, tmp_path):
    """With the prompt, as on every device: the host counts, with the bundle's tokenizer."""
    long = "The bus to the old station leaves at seven in the morning. " * 9
    (tmp_path / "pairs.tsv").write_text(f"{long}\ta bus\t3\na dog\t{long}\t2\nrain\tsnow\t4\n", encoding="utf-8")
    asked = BenchSettings(**QUICK | {"runs": 2, "runtime": "onnx", "tasks": (f"sts={tmp_path}/pairs.tsv",)})
    (run,) = PythonDevice().run(tiny_bundle, asked)
    assert [entry.truncated for entry in run.accuracy] == [1]
    prompt = "The bus to the old station leaves. "
    prompt *= 40 // len(load_bundle(tiny_bundle, "onnx").tokenize([prompt])[0])
    texts = [long, "a bus", "a dog", "rain", "snow"]
    (prompted,) = PythonDevice().run(tiny_bundle, asked.model_copy(update={"prompt": prompt}))
    expected = load_bundle(tiny_bundle, "onnx").count_truncated(texts, prompt=prompt)
    assert [entry.truncated for entry in prompted.accuracy] == [expected]
    assert {entry.truncated for run in runs for entry in run.accuracy} == {0}
    report = build_report(BenchFile(runs=(run,)))
    assert "1 text is longer than the model reads and only in part in its score" in to_text(report)


def test_both_runtimes_with_every_figure(runs, tiny_bundle):
    assert [run.artifact.runtime for run in runs] == ["executorch", "onnx"]
    for run in runs:
        assert [t.length for t in run.latency] == [4, 16]
        assert all(len(t.samples) == 12 and t.warmup == 2 for t in [*run.latency, run.tokenize, run.pipeline])
        assert 0 < run.tokenize.minimum < run.pipeline.minimum
        assert run.load > 0
        assert run.first > 0
        assert run.memory.loaded.vmhwm_mib >= run.memory.start.vmhwm_mib
        assert run.memory.warm.anon_mib > 0
        assert run.memory.warm.file_mib > 0
        assert run.clock == "wall"
        assert run.harness == "python"
        assert not run.device.emulated
        assert run.versions["python"]
    manifest = json.loads((tiny_bundle / "bundle.json").read_text())
    executorch, onnx = (run.artifact for run in runs)
    assert executorch.bytes == (tiny_bundle / "model.pte").stat().st_size
    assert onnx.bytes == sum((tiny_bundle / name).stat().st_size for name in ("model.onnx", "model.onnx.data"))
    assert executorch.sha256 == manifest["files"]["model.pte"]["sha256"]
    assert executorch.parameters == manifest["model"]["parameters"]


def test_parity_with_the_golden_vectors(runs):
    for run in runs:
        golden = run.parity
        assert golden.ids_equal
        assert golden.min_cosine > 0.99999
        assert golden.texts >= 60
    assert parity_failures(runs) == []


def test_accuracy_is_the_artifacts_own(runs, tiny_bundle):
    """Equal to scoring the loaded bundle directly, for each runtime."""
    for run in runs:
        direct = evaluate(load_bundle(tiny_bundle, runtime=run.artifact.runtime), "graded-pairs", resamples=0)
        assert run.accuracy[0].spearman == pytest.approx(direct["spearman"], abs=1e-6)
        assert run.accuracy[0].pairs == direct["pairs"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lengths": (8, 4000)}, "longest input"),
        ({"threads": 200}, r"may use \d+ cores?$"),
        ({"affinity": (4095,)}, "affinity"),
        ({"tasks": ("no-such-task",)}, "unknown set"),
        ({"tasks": ("sts=/no/such/file.tsv",)}, "no such file"),
    ],
)
def test_bad_settings_stop_before_any_work(tiny_bundle, settings, words):
    with pytest.raises(InputError, match=words):
        PythonDevice().run(tiny_bundle, BenchSettings(**(QUICK | settings)))


def test_a_bundle_whose_hash_does_not_match_is_not_run(tiny_bundle, tmp_path):
    copy = shutil.copytree(tiny_bundle, tmp_path / "copy")
    program = copy / "model.pte"
    data = bytearray(program.read_bytes())
    data[len(data) // 2] ^= 1
    program.write_bytes(bytes(data))
    with pytest.raises(InputError, match="sha256"):
        PythonDevice().run(copy, BenchSettings(**QUICK))
    with pytest.raises(InputError, match="not a bundle"):
        PythonDevice().run(tmp_path, BenchSettings(**QUICK))


def test_a_run_past_its_timeout_is_stopped(tiny_bundle):
    with pytest.raises(MsdcError, match="no result after"):
        PythonDevice().run(tiny_bundle, BenchSettings(**QUICK, runtime="onnx", timeout_s=0.2))


def test_parity_finds_a_wrong_vector_and_wrong_ids():
    vectors = np.eye(4, 8, dtype=np.float32)
    golden = {"texts": list("abcd"), "ids": [[1], [2], [3], [4]], "vectors": {"onnx": vectors}}
    wrong = vectors.copy()
    wrong[2] = [0, 0, 0.6, 0.8, 0, 0, 0, 0]
    parity = compare_golden(golden, "onnx", [[1], [2], [3], [9]], wrong)
    assert parity.min_cosine == pytest.approx(0.6)
    assert parity.mean_cosine == pytest.approx(0.9)
    assert not parity.ids_equal
    assert parity.ids_differ == (3,)
    with pytest.raises(MsdcError, match="lengths other than 1, by up to 50 %"):
        compare_golden(golden, "onnx", golden["ids"], 1.5 * vectors)
    assert compare_golden({**golden, "vectors": {"onnx": 2 * vectors}}, "onnx", golden["ids"], vectors).min_cosine == 1
    wrong[1, 0] = np.nan
    with pytest.raises(MsdcError, match="golden text 1"):
        compare_golden(golden, "onnx", golden["ids"], wrong)
    with pytest.raises(MsdcError, match="expected"):
        compare_golden(golden, "onnx", golden["ids"], vectors[:3])


def test_rows_have_the_asked_length_and_real_ids():
    golden_ids = [[2, 3], [2, 7, 8, 3], [2, 9, 10, 11, 12, 3]]
    for length in (2, 3, 8, 128):
        row = row_of_length(golden_ids, length)
        assert len(row) == length
        assert row[0] == 2
        assert row[-1] == 3
        assert set(row[1:-1]) <= set(range(7, 13))
    with pytest.raises(InputError):
        row_of_length([[2, 3]], 8)


def test_warm_up_is_not_among_the_samples():
    calls = []
    samples = sample_ns([lambda: calls.append(1), lambda: calls.append(2)], warmup=3, runs=5)
    assert len(samples) == 5
    assert len(calls) == 8
    assert calls[3:] == [1, 2, 1, 2, 1]


def test_device_names():
    assert set(DEVICES) >= {"host", "python", "adb", "emulator"}
    (device,) = open_devices("host, host")
    assert device.spec == "host"
    for bad, words in (("", "`device` names none"), ("toaster", "known: host")):
        with pytest.raises(InputError, match=words):
            open_devices(bad)
    with pytest.raises(InputError, match="takes no argument"):
        open_devices("host:x")[0].run(None, BenchSettings())


def test_the_machines_name_is_its_processor_not_its_host_name():
    assert short_cpu("Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz") == "Intel Xeon Platinum 8488C"
    assert host_info().name != os.uname().nodename


def test_no_collection_cools_the_first_timed_sample(monkeypatch):
    done = []
    monkeypatch.setattr("gc.collect", lambda: done.append("collected"))
    sample_ns([lambda: done.append("called")], warmup=2, runs=1)
    assert done == ["collected", "called", "called", "called"]


def test_timed_calls_end_in_time():
    samples = sample_ns([partial(sleep, 0.001)], 0, 100_000, 20)
    assert sum(samples[:-1]) < 20e6 <= sum(samples)
    assert len(sample_ns([partial(sleep, 0.001)], 1, 3, 60_000)) == 3


def test_sustained_load_takes_the_seconds_that_were_asked_for(tiny_bundle):
    settings = BenchSettings(tasks=(), lengths=(4,), runs=3, warmup=1, runtime="onnx", sustain_s=2, from_text=False)
    ((run,), failures) = run_devices([PythonDevice()], tiny_bundle, settings)
    assert not failures
    assert len(run.latency[0].samples) == 3
    assert len(run.sustained.medians) in (1, 2), "a stall may take a whole second"


def test_sustained_load_and_the_float_models_scores(tiny_bundle, tiny_student):
    settings = BenchSettings(tasks=(), lengths=(4, 16), runs=12, warmup=2, runtime="onnx", sustain_s=0.05)
    (run,), failures = run_devices([PythonDevice()], tiny_bundle, settings)
    assert not failures
    assert run.sustained.length == 16
    assert run.sustained.ratio == 1
    assert 0 < run.sustained.medians[0] < 100
    assert run.sustained.after.load_1min is not None
    (float_accuracy,) = run.float_accuracy
    float_model = evaluate(tiny_student, "graded-pairs", resamples=0)
    assert (float_accuracy.name, float_accuracy.pairs) == ("graded-pairs", 112)
    assert float_accuracy.spearman == pytest.approx(float_model["spearman"], abs=1e-6)
    prompted = BenchSettings(tasks=(), lengths=(4,), runs=2, runtime="onnx", prompt="query: ")
    assert run_devices([PythonDevice()], tiny_bundle, prompted)[0][0].float_accuracy == ()


STATUS = "Name:\tmsdc\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\nThreads:\t4\n"
ROLLUP = "55d0-7ffe ---p 00000000 00:00 0  [rollup]\nRss:  102400 kB\nPss:  81920 kB\nAnonymous:  61440 kB\n"


def test_fields_and_units(tmp_path):
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "smaps_rollup").write_text(f"{ROLLUP}Swap: 9 kB\nSwapPss: 8 kB\n")
    expected = {"vmhwm_kib": 204_800, "pss_kib": 81_920, "rss_kib": 102_400, "anon_kib": 61_440, "swap_kib": 8}
    assert read_memory(tmp_path) == expected
    (tmp_path / "smaps_rollup").write_text("Rss: 5 kB\n")
    with pytest.raises(MsdcError, match="memory cannot be measured"):
        read_memory(tmp_path)


@pytest.mark.parametrize("by_psutil", [False, True])
def test_a_touched_array_is_anonymous_memory(tmp_path, by_psutil):
    """In a process of its own: what earlier tests have freed must not move the figures."""
    code = (
        "import sys, json, numpy as np; from pathlib import Path; from msdc.bench.devices.python_worker import *\n"
        "place = [Path(word) for word in sys.argv[1:]]; before = read_memory(*place)\n"
        "block = np.ones(64 * 2**20 // 8); after = read_memory(*place)\n"
        "print(json.dumps([before, after]))"
    )
    before, after = json.loads(python(code, *[tmp_path] * by_psutil))
    grown = {name: (after[name] - before[name]) / 1024 for name in ("anon_kib", "rss_kib")}
    assert grown["anon_kib"] == pytest.approx(64, abs=4)
    assert by_psutil or abs(grown["rss_kib"] - grown["anon_kib"]) < 4
    assert (after["pss_kib"] is None) == by_psutil
    assert after["vmhwm_kib"] >= after["anon_kib"]


def test_the_peak_starts_again():
    code = (
        "import numpy as np; from msdc.bench.devices.python_worker import *\n"
        "np.ones(64 * 2**20 // 8).sum(); before = read_memory(); done = reset_peak(); after = read_memory()\n"
        "print(int(done), (before['vmhwm_kib'] - after['vmhwm_kib']) / 1024)"
    )
    out = python(code).split()
    if out[0] == "0":
        pytest.skip("this kernel lets no process reset its peak")
    assert float(out[1]) > 50
