"""The native runner on this machine, and how it is built."""

import hashlib
import json
import resource
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from folder_kinds import UNPOOLED, kind_bundle

from msdc.bench.devices.base import Job, run_devices
from msdc.bench.devices.host import HostDevice, PythonDevice
from msdc.bench.devices.runner_protocol import read_answer, runner_error, sentinel
from msdc.bench.measure import Tasks, collect
from msdc.bench.options import BenchSettings
from msdc.bench.system_programs import missing_programs
from msdc.bench.toolchain.build import build_runner, elf_machine, own_runner
from msdc.bench.toolchain.sdk import native_sdk
from msdc.encoders.encoder import configured
from msdc.errors import InputError, MsdcError
from msdc.export.bundle import load_bundle
from msdc.export.manifest import read_manifest
from msdc.machine import core_count

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed: apt-get install g++")


def settings(**changes) -> BenchSettings:
    return BenchSettings(**{"lengths": (4, 16), "runs": 3, "warmup": 1, "runtime": "executorch", "tasks": ()} | changes)


@pytest.fixture(scope="session")
def native_runs(tiny_bundle):
    return HostDevice().run(tiny_bundle, settings(runtime=None, tasks=("graded-pairs",)))


def test_both_runtimes_reproduce_the_export(native_runs):
    assert [run.artifact.runtime for run in native_runs] == ["executorch", "onnx"]
    for run in native_runs:
        golden = run.parity
        assert golden.texts >= 60
        assert golden.ids_equal
        assert golden.min_cosine > 0.999
        assert run.harness == "native"
        assert run.clock == "wall"
        assert run.device.kind == "host"
        assert not run.device.emulated
        assert [timing.length for timing in run.latency] == [4, 16]
        assert len(run.latency[0].samples) == 3
        assert run.load > 0
        assert run.init > 0
        assert run.first > 0
        assert run.pipeline.p50 > 0


def test_timed_calls_end_in_time(tiny_bundle):
    asked = settings(runtime="onnx", lengths=(4,), runs=100_000, stop_after_s=0.05, from_text=False)
    (run,) = HostDevice().run(tiny_bundle, asked)
    (timing,) = run.latency
    assert sum(timing.samples[:-1]) < 50 <= sum(timing.samples)


def test_scores_are_those_of_the_vectors_that_python_makes(native_runs, tiny_bundle):
    """The sentences were embedded by the runner; Python's own bindings are the oracle of their scores."""
    tasks = collect(settings(tasks=("graded-pairs",)))
    # The core's layer norm differs from ExecuTorch's in last bits, and int8 rounding makes ranks of them.
    for run, near in zip(native_runs, (0.2, 1e-3), strict=True):
        (expected,) = tasks.score(load_bundle(tiny_bundle, run.artifact.runtime))
        (accuracy,) = run.accuracy
        assert accuracy.pairs == expected.pairs
        assert abs(accuracy.spearman - expected.spearman) < near
        assert abs(accuracy.pearson - expected.pearson) < 0.01


@pytest.mark.parametrize("runtime", ["onnx", pytest.param("executorch", marks=pytest.mark.slow)])
def test_prompts_that_are_not_pooled(runtime):
    """The runner tells the program how many tokens are the prompt's: of the golden texts, and of a task's."""
    _, folder = kind_bundle(UNPOOLED, runtime)
    chosen = settings(runtime=runtime, tasks=("graded-pairs",), prompt="the cat: ")
    (native,), (python,) = HostDevice().run(folder, chosen), PythonDevice().run(folder, chosen)
    for run in (native, python):
        assert run.parity.ids_equal
        assert run.parity.min_cosine > 0.9999
    assert abs(native.accuracy[0].spearman - python.accuracy[0].spearman) < 0.05
    tasks = collect(chosen)
    (expected,) = tasks.score(configured(load_bundle(folder, runtime), prompt="the cat: "))
    assert abs(native.accuracy[0].spearman - expected.spearman) < 0.05


def test_memory_is_an_apps_and_not_pythons(native_runs):
    for run in native_runs:
        memory = run.memory
        assert memory.start.vmhwm_mib <= memory.loaded.vmhwm_mib <= memory.warm.vmhwm_mib
        assert memory.warm.vmhwm_mib < 60
        assert memory.warm.anon_mib < memory.warm.vmhwm_mib
    # ExecuTorch maps its program; a bundle of half a megabyte takes a few megabytes with all libraries.
    assert native_runs[0].memory.warm.anon_mib < 4


def test_warm_up_is_run_and_not_sampled(tiny_bundle):
    """10,000 calls of warm-up and 3 samples: the runner's CPU seconds show the calls, its samples do not."""

    def seconds(warmup):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        (run,) = HostDevice().run(tiny_bundle, settings(lengths=(16,), warmup=warmup))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert len(run.latency[0].samples) == 3
        assert run.latency[0].warmup == warmup
        return after.ru_utime - before.ru_utime

    seconds(0)  # compiles the runner where that is still to be done
    assert seconds(10_000) > 3 * seconds(0)


@pytest.mark.parametrize("name", ["model.pte", "sentencepiece.model", "golden.json"])
def test_damaged_bundle_is_refused_by_the_runner_itself(tiny_bundle, tmp_path, name, monkeypatch):
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    raw = bytearray((folder / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (folder / name).write_bytes(raw)
    # The host looks first; here it looks away.
    monkeypatch.setattr("msdc.bench.devices.base.check_files", lambda *_: None)
    with pytest.raises(InputError, match=rf"{name}: sha256 differs from the manifest"):
        HostDevice().run(folder, settings())


def test_threads_and_affinity(tiny_bundle):
    threads = min(2, core_count())
    (run,) = HostDevice().run(tiny_bundle, settings(threads=threads))
    assert run.threads == threads
    assert run.parity.min_cosine > 0.999
    with pytest.raises(InputError, match="not all of them are usable here"):
        HostDevice().run(tiny_bundle, settings(affinity=(1000,)))


def test_runner_that_hangs_or_dies(tiny_bundle, tmp_path):
    runner = tmp_path / "runner"
    for text, line in (
        ("sleep 77", "no result after 1 s"),
        ("kill -9 $$", "ended by SIGKILL .out of memory"),
        ("exit 3", "ended with code 3"),
        ("echo 'msdc-runner error: of its own' >&2; exit 1", "of its own"),
    ):
        runner.write_text(f"#!/bin/sh\n{text}\n")
        runner.chmod(0o755)
        with pytest.raises(MsdcError, match=line) as caught:
            HostDevice().run(tiny_bundle, settings(runner=runner, timeout_s=1))
        assert caught.value.exit_code == 1
    # What the hung one had started is gone with it.
    assert "sleep 77" not in subprocess.run(["ps", "ax"], capture_output=True, text=True, check=True).stdout
    runner.write_text("not a program")
    with pytest.raises(InputError, match="cannot be run here"):
        HostDevice().run(tiny_bundle, settings(runner=runner))


def test_without_a_compiler_python_measures_and_the_result_says_so(tiny_bundle, monkeypatch):
    def nothing(*_):
        raise MsdcError("g++ not found: apt-get install g++")

    monkeypatch.setattr("msdc.bench.toolchain.build.build_runner", nothing)
    (run,) = HostDevice().run(tiny_bundle, settings(runtime="onnx"))
    assert run.harness == "python"
    assert run.device.kind == "host"
    assert run.parity.ids_equal
    assert any("apt-get install g++" in note for note in run.notes)
    # A runner of the user's own is never replaced by something else.
    with pytest.raises(InputError, match="no such runner"):
        HostDevice().run(tiny_bundle, settings(runner=Path("nothing")))


def test_sentinel_belongs_to_its_run():
    line = f"msdc-runner done abc {'1' * 64} {'2' * 64}\n"
    assert sentinel(f"noise\n{line}", "abc") == ("1" * 64, "2" * 64)
    assert sentinel(line, "abd") is None
    # Warnings of a loader, on a device whose two streams are one.
    assert sentinel(f"WARNING: {line}after it\n", "abc") == ("1" * 64, "2" * 64)
    assert all(sentinel(line[:cut], "abc") is None for cut in range(len(line)))
    assert runner_error("x\nmsdc-runner error: one\nmsdc-runner error: two\n") == "two"
    assert runner_error("nothing") is None


def test_answer_is_checked_against_its_hashes(tiny_bundle, tmp_path):
    manifest = read_manifest(tiny_bundle)
    job = Job(tiny_bundle, manifest, "executorch", settings(), Tasks(()))
    answer, vectors = tmp_path / "answer.json", tmp_path / "vectors.bin"
    value = {"format": 1, "kind": "runner-answer", "clock": "wall", "runtime": "executorch", "embedded": 1,
             "golden": {"texts": 2}}  # fmt: skip

    def read(changes, rows=3):
        raw, numbers = json.dumps(value | changes).encode(), np.arange(rows * manifest.width, dtype="<f4").tobytes()
        answer.write_bytes(raw)
        vectors.write_bytes(numbers)
        hashes = (hashlib.sha256(raw).hexdigest(), hashlib.sha256(numbers).hexdigest())
        return read_answer(job, "here", tmp_path, hashes)

    _, golden_GD, vectors_UD = read({})
    assert golden_GD.shape == (2, manifest.width)
    assert vectors_UD[0, 0] == 2 * manifest.width
    for changes, rows, line in (
        ({"format": 9}, 3, "'format': 9"),
        ({"runtime": "onnx"}, 3, "'runtime': 'onnx'"),
        ({"clock": "instructions"}, 3, "'clock': 'instructions'"),
        ({}, 2, "numbers came back"),
    ):
        with pytest.raises(MsdcError, match=line):
            read(changes, rows)
    with pytest.raises(MsdcError, match="damaged on its way back"):
        read_answer(job, "here", tmp_path, ("0" * 64, "0" * 64))


def test_the_runner_names_its_version():
    first = build_runner("executorch")
    version_line = subprocess.run([str(first.program), "--version"], capture_output=True, text=True, check=True).stdout
    assert version_line == f"msdc-runner 1 executorch {first.version}\n"


def test_payload_needs_nothing_of_the_device():
    if missing_programs(["aarch64-linux-gnu-g++"]):
        pytest.skip("aarch64-linux-gnu-g++ is not installed: apt-get install g++-aarch64-linux-gnu")
    build = build_runner("executorch", "aarch64")
    names = {path.name for path in build.libraries}
    assert {"libc.so.6", "libstdc++.so.6", "libexecutorch.so", build.loader} <= names
    assert {elf_machine(path) for path in (build.program, *build.libraries)} == {"aarch64"}


def test_own_runner(tmp_path):
    with pytest.raises(InputError, match="no such runner"):
        own_runner(tmp_path / "nothing")
    program = tmp_path / "msdc-runner"
    program.write_text("#!/bin/sh\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libone.so").write_bytes(b"x")
    for path in (program, tmp_path):
        runner = own_runner(path)
        assert runner.machine is None
        assert [p.name for p in runner.libraries] == ["libone.so"]
        assert runner.loader is None
    odd = tmp_path / "odd"
    odd.write_bytes(b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x02\0" + b"\x16\0")
    with pytest.raises(InputError, match="unknown machine"):
        own_runner(odd)


def test_machines_without_libraries():
    with pytest.raises(InputError, match="no published executorch libraries for riscv64"):
        native_sdk("executorch", "riscv64", "x86_64")


def test_headers_are_those_of_the_library():
    from importlib import metadata

    sdk = native_sdk("onnx", "x86_64", "x86_64")
    header = Path(sdk.includes[0]) / "onnxruntime_c_api.h"
    version = int(header.read_text(encoding="utf-8").split("#define ORT_API_VERSION ")[1].split()[0])
    # The library serves every older version of its interface, none newer.
    assert version <= int(metadata.version("onnxruntime").split(".")[1])


def test_a_wordpiece_bundle_takes_text_natively_and_one_that_was_not_compiled_runs_through_python(tmp_path):
    from click.testing import CliRunner
    from native_core import seal
    from stock_models import write_stock

    from msdc.export.cli import command

    model = write_stock(tmp_path / "bert", "bert")
    out = tmp_path / "out"
    options = ["--target", "linux", "--runtime", "onnx", "--precision", "fp32", "-o", str(out)]
    CliRunner().invoke(command, [str(model), *options], catch_exceptions=False)
    [run] = HostDevice().run(out, settings(runtime="onnx"))
    assert run.harness == "native"
    assert run.tokenize is not None
    assert run.parity.ids_equal
    assert run.parity.min_cosine > 0.999

    manifest = json.loads((out / "bundle.json").read_text(encoding="utf-8"))
    manifest["tokenizer"] |= {"compiled": None, "refused": "the native core does not support the model Other"}
    (out / "bundle.json").write_text(seal(manifest), encoding="utf-8")
    [run] = HostDevice().run(out, settings(runtime="onnx"))
    assert run.harness == "python"
    assert run.parity.ids_equal
    assert run.parity.min_cosine > 0.999
    assert any("does not support the model Other" in note for note in run.notes)


def test_what_was_measured_before_a_device_is_lost_is_kept(tiny_bundle, tmp_path):
    real, runner = build_runner("executorch"), tmp_path / "runner"
    # Its first run is real; then it is gone.
    libraries = ":".join({str(path.parent) for path in real.libraries})
    runner.write_text(f"""#!/bin/sh
        mkdir {tmp_path}/used || exit 7
        LD_LIBRARY_PATH={libraries} exec {real.program} "$@"\n""")
    runner.chmod(0o755)
    both = settings(runner=runner, runtime="both")
    runs, (failure,) = run_devices([HostDevice()], tiny_bundle, both)
    assert [run.artifact.runtime for run in runs] == ["executorch"]
    assert "ended with code 7" in failure
