"""Finder, Explorer and packers leave files in folders: they change no model, are no text, reach no device."""

import shutil
from pathlib import Path

import pytest
import tiny_models as tiny
from bench_results import make_run
from refusals import one_line

from msdc.bench.accuracy.retrieval import read_bucc
from msdc.bench.accuracy.similarity import read_bias_sets
from msdc.bench.devices.base import open_jobs
from msdc.bench.devices.runner_protocol import bundle_files
from msdc.bench.options import BenchSettings
from msdc.bench.result import BenchFile, read_result, result_files
from msdc.bench.toolchain.build import own_runner
from msdc.cli import main
from msdc.distill.run_folder import RunFolder
from msdc.distill.training.checkpoint import checkpoints
from msdc.export.bundle import load_bundle
from msdc.export.manifest import list_files
from msdc.export.mobile import module
from msdc.loading import load_encoder

FILES = [".DS_Store", "Thumbs.db", "desktop.ini", ".directory"]


def litter(folder: Path) -> None:
    """What a look into the folder on three systems leaves, and a zip of it that was unpacked."""
    for path in [path for path in folder.iterdir() if path.is_file()]:
        path.with_name(f"._{path.name}").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X")
    for name in FILES:
        (folder / name).write_bytes(b"\0\1\2\3")
    (folder / "__MACOSX").mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        shutil.copy(folder / ".DS_Store", folder / "__MACOSX" / f"._{path.name}")


@pytest.fixture
def copied(tmp_path):
    def copy(source: Path) -> Path:
        shutil.copytree(source, tmp_path / "copy")
        litter(tmp_path / "copy")
        return tmp_path / "copy"

    return copy


def test_a_student_and_a_stock_model(copied, tiny_teacher, tmp_path):
    for source in (tiny.student_folder(), tiny_teacher):
        original, other = load_encoder(source), load_encoder(copied(source))
        assert other.fingerprint() == original.fingerprint()
        assert (other.encode(["a cat"]) == original.encode(["a cat"])).all()
        shutil.rmtree(tmp_path / "copy")


def test_a_bundle(copied):
    folder = copied(tiny.bundle())
    assert load_bundle(folder, "onnx").width
    (job,) = open_jobs(folder, BenchSettings(runtime="onnx", tasks=()))
    assert not any(name.startswith((".", "Thumbs", "desktop")) for name in bundle_files(job))
    assert list_files(folder) == list_files(tiny.bundle()), "one that is sealed again lists none of them"


def test_folders_of_text(tmp_path, capsys):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.en-de.tsv").write_text("The cat sat.\tDie Katze saß.\nThe dog ran.\tDer Hund lief.\n")
    litter(folder)
    with pytest.raises(SystemExit) as exit_info:
        main(["corpus", str(folder)])
    told = capsys.readouterr()
    assert exit_info.value.code == 0, told.err
    assert not [name for name in (*FILES, "._a") if name in told.out + told.err]


def test_sets_of_an_evaluation(tmp_path):
    bias, bucc = tmp_path / "bias", tmp_path / "bucc"
    bias.mkdir()
    (bias / "en-de.tsv").write_text("a cat\teine Katze\t4\na dog\tein Hund\t2\nrain\tRegen\t1\n")
    litter(bias)
    assert "a cat" in read_bias_sets(bias).texts()
    bucc.mkdir()
    for language in ("de", "en"):
        (bucc / f"de-en.training.{language}").write_text(f"{language}-1\tone\n{language}-2\ttwo\n")
    (bucc / "de-en.training.gold").write_text("de-1\ten-1\n")
    litter(bucc)
    assert read_bucc(bucc).name == "de-en"


def test_folders_of_results_runs_and_checkpoints(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    (results / "r.json").write_text(BenchFile(runs=(make_run(),)).model_dump_json())
    litter(results)
    assert result_files([results]) == [results / "r.json"]
    steps = tmp_path / "checkpoints"
    steps.mkdir()
    (steps / "step-00000004.json").write_text("{}")
    litter(steps)
    assert [path.name for path in checkpoints(steps)] == ["step-00000004.pt"]
    run = tmp_path / "run"
    run.mkdir()
    litter(run)
    assert RunFolder(run).unstarted()


def test_nothing_of_it_is_shipped(tmp_path):
    """A runner's libraries go to a device, a module's template into every bundle."""
    runner = tmp_path / "runner"
    (runner / "lib").mkdir(parents=True)
    (runner / "msdc-runner").write_text("#!/bin/sh\n")
    (runner / "lib/libone.so").write_bytes(b"x")
    litter(runner / "lib")
    assert [path.name for path in own_runner(runner).libraries] == ["libone.so"]
    names = ["build.gradle.kts", "__pycache__", "a.pyc", *FILES, "._build.gradle.kts", "__MACOSX"]
    assert module._left_out("", names) == set(names[1:])


def test_what_somebody_names_is_not_skipped_in_silence(tmp_path):
    file = tmp_path / "._r.json"
    file.write_bytes(b"\0\5\x16\7")
    assert "._r.json: not valid JSON" in one_line(lambda: [read_result(path) for path in result_files([file])])
