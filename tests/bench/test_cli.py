"""`msdc bench` and `msdc report` as a user calls them: exit codes, one-line errors, what is written."""

import json
import subprocess
import sys
from functools import partial

import pytest
from bench_results import make_models, make_run

from msdc.bench import bench, devices
from msdc.bench.devices.base import Device
from msdc.bench.measure import parity_failures
from msdc.bench.result import BenchFile
from msdc.cli import main
from msdc.errors import GateError, InputError, MsdcError

OTHER = {**make_run().artifact.model_dump(), "sha256": "c" * 64}


def call(*arguments):
    with pytest.raises(SystemExit) as exit_info:
        main([str(a) for a in arguments])
    return exit_info.value.code


@pytest.fixture(scope="module")
def result_file(tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    code = call("bench", tiny_bundle, "--lengths", "4,8", "--runs", 10, "--warmup", 1, "--runtime", "onnx",
                "--json", folder / "r.json", "-o", folder / "r.html")  # fmt: skip
    assert code == 0
    return folder / "r.json"


def test_bench_writes_results_and_report(result_file):
    file = BenchFile.model_validate(json.loads(result_file.read_text()))
    assert file.runs[0].artifact.bundle == "tiny"
    assert file.runs[0].accuracy[0].name == "graded-pairs"
    assert "<html" in result_file.with_suffix(".html").read_text()


def test_nothing_is_overwritten_without_force_and_that_is_said_first(result_file, tiny_bundle, capsys):
    for flag in ("--json", "-o"):
        target = result_file if flag == "--json" else result_file.with_suffix(".html")
        assert call("bench", tiny_bundle, flag, target) == 2
        assert "exists already" in capsys.readouterr().err


def test_json_to_standard_output_is_only_json(tiny_bundle, capsys, fake):
    fake("good", [make_run()])
    assert call("bench", tiny_bundle, "--device", "good", "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "bench"


def test_report_with_comparison(result_file, tmp_path, capsys):
    assert call("report", result_file, "--compare", result_file, "-o", tmp_path / "c.md") == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "c.md")
    assert "## Comparison with an earlier result" in (tmp_path / "c.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["bench", "all-MiniLM-L6-v2"], 2, "it is a model: `msdc export all-MiniLM-L6-v2 --target linux"),
        (["bench", "/no/such/bundle"], 2, "no such folder"),
        (["bench", "x", "--lengths", "8,x"], 2, "whole numbers"),
        (["bench", "x", "--lengths", "1"], 2, "equal to 2"),
        (["bench", "x", "--runs", "0"], 2, "--runs"),
        (["bench", "x", "--device", "toaster"], 2, "unknown device"),
        (["report", "/no/such.json"], 2, "no such file"),
    ],
)
def test_errors_are_one_line(arguments, code, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(*arguments) == code
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def fake(monkeypatch):
    """Adds a device by name that gives runs, or raises."""

    def add(name, answer):
        class Fake(Device):
            kind = name

            def run(self, bundle, settings):
                if isinstance(answer, Exception):
                    raise answer
                return answer() if callable(answer) else answer

        monkeypatch.setattr(sys.modules[__name__], name, Fake, raising=False)
        monkeypatch.setitem(devices.DEVICES, name, devices.DeviceKind(f"{__name__}:{name}"))

    return add


@pytest.mark.parametrize(("mean", "least", "lines"), [(0.9991, 0.9905, 0), (0.9989, 0.9985, 1), (0.9998, 0.985, 1)])
def test_parity_is_the_mean_and_no_text_far_off(mean, least, lines):
    parity = {"texts": 90, "mean_cosine": mean, "min_cosine": least, "ids_equal": True}
    assert len(parity_failures([make_run(parity=parity)])) == lines


def test_one_device_failing_keeps_the_others_and_fails_the_command(tiny_bundle, tmp_path, capsys, fake):
    fake("broken", MsdcError("the device went away"))
    fake("good", [make_run()])
    assert call("bench", tiny_bundle, "--device", "broken,good", "--json", tmp_path / "r.json") == 1
    assert "the device went away" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "r.json").read_text())["runs"]) == 1


def test_gate_on_an_earlier_result(tiny_bundle, tmp_path, capsys, fake):
    fake("slow", [make_run(clock="instructions", scale=1.03)])
    before = tmp_path / "before.json"
    before.write_text(BenchFile(runs=(make_run(clock="instructions"),)).model_dump_json())
    assert call("bench", tiny_bundle, "--device", "slow", "--compare", before, "--gate", 5) == 0
    assert call("bench", tiny_bundle, "--device", "slow", "--compare", before, "--gate", 2, "--json",
                tmp_path / "r.json") == 1  # fmt: skip
    assert "rose by 3.0 %" in capsys.readouterr().err
    assert (tmp_path / "r.json").is_file()
    assert call("bench", tiny_bundle, "--gate", 2) == 2


def test_gate_on_a_folder_of_earlier_results(tiny_bundle, tmp_path, capsys, fake):
    (folder := tmp_path / "past").mkdir()
    words = ["bench", tiny_bundle, "--device", "one", "--compare", folder, "--gate", 5]
    for night, scale in enumerate((0.95, 1.0, 1.04, 0.98, 1.07, 1.01)):
        run = make_run(scale=scale, seed=night, created=f"2026-01-0{night + 1}T03:00:00+00:00")
        (folder / f"{night}.json").write_text(BenchFile(runs=(run,)).model_dump_json())
    fake("one", [make_run(scale=1.1, seed=9, artifact=OTHER)])
    assert call(*words) == 0
    assert "executorch on bench machine: compared with 6 earlier runs" in capsys.readouterr().err
    fake("one", [make_run(scale=1.5, seed=9, artifact=OTHER)])
    assert call(*words) == 1
    assert "latency, 32 tokens, median rose by" in capsys.readouterr().err
    fake("one", [make_run(scale=1.5, seed=9, artifact=OTHER, threads=2)])
    assert call(*words) == 3
    line = (
        "executorch on bench machine: 0 comparable earlier runs, a spread needs 5 (left out: 6 runs with other threads)"
    )
    assert f"inconclusive: {line}" in capsys.readouterr().err
    assert call(*words[:-2]) == 1
    assert line in capsys.readouterr().err


def test_an_inconclusive_gate_is_measured_again_and_has_its_own_exit_code(tiny_bundle, tmp_path, capsys, fake):
    slow, answers = make_run(scale=1.3, seed=4), []
    before = tmp_path / "before.json"
    before.write_text(BenchFile(runs=(make_run(),)).model_dump_json())

    def compared(*runs):
        answers[:] = [[run] for run in runs]
        fake("twice", lambda: answers.pop(0))
        target = tmp_path / "r.json"
        code = call("bench", tiny_bundle, "--device", "twice", "--compare", before, "--gate", 10, "--json", target,
                    "--force")  # fmt: skip
        assert not answers, "measured as often as needed"
        return code, len(json.loads(target.read_text())["runs"]), capsys.readouterr().err

    code, runs, err = compared(slow, slow)
    assert (code, runs) == (3, 1)
    assert "inconclusive: executorch on bench machine" in err
    assert "(it is the same program) (gate 10 %), measured twice" in err
    assert compared(slow, make_run(seed=2))[:2] == (0, 1)
    assert compared(make_run(seed=2))[:2] == (0, 1)


def test_a_gate_that_compares_nothing_does_not_pass(tiny_bundle, tmp_path, capsys, fake):
    """What only one result holds is on standard error, in the table and on the page; results are written first."""
    before, target, page = tmp_path / "before.json", tmp_path / "r.json", tmp_path / "r.md"
    short = make_run(latency=make_run().latency[:1], tokenize=None)
    line = "executorch on bench machine: latency, 128 tokens, median: only in the earlier result"
    for now, code, named in (
        (make_run(seed=2, latency=make_run().latency[:1]), 3, line),
        (short, 3, line),
        (make_run("onnx"), 3, "on bench machine (host, python, 1 thread): only in the earlier result"),
        # A timing that rose decides first; the rest is named all the same.
        (make_run(scale=1.5, artifact=OTHER, tokenize=None), 1, "tokenization, median: only in the earlier result"),
    ):
        before.write_text(BenchFile(runs=(make_run(),)).model_dump_json())
        fake("one", [now])
        words = ["bench", tiny_bundle, "--device", "one", "--compare", before, "--json", target, "-o", page, "--force"]
        assert call(*words, "--gate", 5) == code
        out, err = capsys.readouterr()
        assert named in err
        assert "only in the earlier result" in " ".join(out.split())
        assert "only in the earlier result" in page.read_text(encoding="utf-8")
        assert len(json.loads(target.read_text())["runs"]) == 1
        # Without a gate it is a warning, and an error where nothing at all is shared.
        assert call(*words) == (1 if now.artifact.runtime == "onnx" else 0)
        assert f"not compared: {'tiny' if now.artifact.runtime == 'onnx' else 'executorch'}" in capsys.readouterr().err


@pytest.mark.parametrize("held", [{}, {"models": [model.model_dump() for model in make_models()]}])
def test_an_earlier_result_without_a_run_is_refused_before_measuring(held, tiny_bundle, tmp_path, capsys, fake):
    before = tmp_path / "before.json"
    before.write_text(json.dumps({"kind": "bench", "format": 2, **held}))
    fake("never", lambda: pytest.fail("measured"))
    assert call("bench", tiny_bundle, "--device", "never", "--compare", before, "--gate", 5) == 2
    assert "before.json: holds no run of a device: nothing to compare with" in capsys.readouterr().err


def test_a_report_of_results_that_share_nothing_is_refused(tmp_path, capsys):
    for name, runs in (("new", [make_run("onnx")]), ("old", [make_run()]), ("both", [make_run(), make_run("onnx")])):
        (tmp_path / f"{name}.json").write_text(BenchFile(runs=tuple(runs)).model_dump_json())
    words = ["report", tmp_path / "new.json", "-o", tmp_path / "r.md", "--compare"]
    assert call(*words, tmp_path / "old.json") == 2
    assert "share no device, runtime and thread count" in capsys.readouterr().err
    assert not (tmp_path / "r.md").exists()
    assert call(*words, tmp_path / "both.json") == 0
    assert "not compared: tiny executorch int8" in capsys.readouterr().err


def test_a_second_measurement_that_fails_loses_nothing(tiny_bundle, tmp_path, capsys, fake):
    slow = make_run(scale=1.3, seed=4)
    before = tmp_path / "before.json"
    before.write_text(BenchFile(runs=(make_run(),)).model_dump_json())
    for options in (["--compare", before, "--gate", 10], ["--sustain", 1]):
        answers = [[slow]]
        # The second call finds nothing to pop.
        fake("once", lambda answers=answers: answers.pop())
        assert call("bench", tiny_bundle, "--device", "once", *options, "--json", tmp_path / "r.json") == 1
        assert "pop from empty list" in capsys.readouterr().err
        assert len(json.loads((tmp_path / "r.json").read_text())["runs"]) == 1
        (tmp_path / "r.json").unlink()


def test_parity_below_the_gate_fails_after_writing(tiny_bundle, tmp_path, capsys, fake):
    parity = {"texts": 90, "mean_cosine": 0.9, "min_cosine": 0.5, "ids_equal": False, "ids_differ": [4, 7]}
    fake("wrong", [make_run(parity=parity)])
    assert call("bench", tiny_bundle, "--device", "wrong", "--json", tmp_path / "r.json") == 1
    err = capsys.readouterr().err
    assert "0.5000" in err
    assert "2 golden texts" in err
    assert (tmp_path / "r.json").is_file()


def test_the_function_gives_what_the_command_prints(tiny_bundle, fake):
    fake("wrong", [make_run(parity={"texts": 9, "mean_cosine": 0.9, "min_cosine": 0.5, "ids_equal": True})])
    done = bench(tiny_bundle, device="wrong", tasks="none")
    assert done.results.runs[0].load == 14.0
    assert done.report is not None
    assert not done.failures
    with pytest.raises(GateError, match=r"lowest 0\.5000"):
        done.raise_failures()
    with pytest.raises(TypeError, match=r"bench\(\) got an unexpected keyword argument 'warmupp'"):
        bench(tiny_bundle, device="wrong", warmupp=3)
    with pytest.raises(InputError, match="`warmup`: Input should be"):
        bench(tiny_bundle, warmup=-1)


def test_a_data_folder_replaces_the_home_made_pairs(tiny_bundle, tmp_path):
    done = partial(bench, tiny_bundle, device="python", runs=2, warmup=0, lengths=(8,), from_text=False)
    with pytest.raises(InputError, match=r"no .*stsb/sts-test\.tsv"):
        done(data=tmp_path)
    words = ("a cat", "the old train", "my neighbour", "a small boat", "her sister")
    rows = [
        f"{abs(i - j)}.0\t{first} sleeps\t{second} waits"
        for i, first in enumerate(words)
        for j, second in enumerate(words)
    ]
    (tmp_path / "stsb").mkdir()
    (tmp_path / "stsb" / "sts-test.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *rows]) + "\n")
    for options, name in (({"data": tmp_path}, "stsb"), ({}, "graded-pairs")):
        ran = done(**options, runtime="onnx")
        assert [accuracy.name for accuracy in ran.results.runs[0].accuracy] == [name]
        (first, *_) = ran.report.recommendation
        assert ("home-made" in "".join(first)) == (name == "graded-pairs") or "not known" in "".join(first)
        note = ran.report.sections[0].tables[0].note
        assert ("on stsb (25 pairs) [95 % interval]" in note) == (name == "stsb")
        assert ("112 home-made pairs" in note) == (name == "graded-pairs")
    assert [accuracy.name for accuracy in done(data=tmp_path, tasks=["graded-pairs"]).results.runs[0].accuracy] == [
        "graded-pairs"
    ]


def test_help_of_the_verbs_imports_no_torch():
    code = (
        "import sys\nfrom msdc.cli import main\n"
        "for verb in ('bench', 'report', 'quickstart', 'doctor'):\n"
        "    try: main([verb, '--help'])\n"
        "    except SystemExit as left: assert left.code == 0, left.code\n"
        "assert not {'torch', 'onnxruntime', 'matplotlib'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_what_is_measured_before_an_interruption_is_kept(tiny_bundle, tmp_path, capsys, fake):
    def interrupted():
        raise KeyboardInterrupt

    fake("good", [make_run()])
    fake("slow", interrupted)
    words = ["bench", tiny_bundle, "--device", "good,slow"]
    assert call(*words, "--json", tmp_path / "r.json") == 130
    assert f"on bench machine are kept in {tmp_path / 'r.json'}" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "r.json").read_text())["runs"]) == 1
    assert call(*words) == 130
    assert "on bench machine are lost: name a result file" in capsys.readouterr().err


def test_a_label_is_the_identity_of_a_device(tiny_bundle, tmp_path, fake):
    fake("good", lambda: [make_run()])
    code = call("bench", tiny_bundle, "--device", "good=left,good=right", "--json", tmp_path / "r.json")
    assert code == 0
    runs = BenchFile.model_validate_json((tmp_path / "r.json").read_text()).runs
    assert [run.device.identity for run in runs] == ["left", "right"]


def test_a_hot_phone_gives_a_gate_its_own_exit_code(tiny_bundle, tmp_path, capsys, fake):
    phone = {**make_run().device.model_dump(), "kind": "adb", "name": "Pixel 7"}
    hot, before = {"battery_c": 45.0}, tmp_path / "before.json"
    before.write_text(BenchFile(runs=(make_run(device=phone),)).model_dump_json())
    words = ["bench", tiny_bundle, "--device", "good", "--compare", before, "--gate", 5]
    fake("good", lambda: [make_run(device=phone, scale=1.6, seed=3, artifact=OTHER, state_before=hot)])
    assert call(*words) == 3
    assert "hot (battery 45 °C)" in capsys.readouterr().err
    (tmp_path / "hot.json").write_text(BenchFile(runs=(make_run(device=phone, state_before=hot),)).model_dump_json())
    report = ["report", tmp_path / "hot.json", "-o", tmp_path / "r.md", "--force", "--fail", "--target-latency"]
    assert call(*report, "1ms@32") == 3
    assert call(*report, "9ms@32") == 0
