"""Nothing is stored about the user or their machine: what runs of msdc leave in an empty home folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from programs import python

from msdc.bench.devices import runner_protocol
from msdc.bench.devices.base import open_jobs
from msdc.bench.options import BenchSettings
from msdc.bench.toolchain.build import build_runner
from msdc.telemetry import VARIABLE

ENCODE = "import msdc; assert msdc.load_encoder('msdc-mini').encode(['a cat']).shape[0] == 1"


def environment(home: Path, **changes: str) -> dict[str, str]:
    """This one with an empty home folder and without the settings of ONNX Runtime that importing msdc made."""
    left_out = (VARIABLE, "XDG_CACHE_HOME", "MSDC_CACHE", "PYTHONSAFEPATH")
    return {name: value for name, value in os.environ.items() if name not in left_out} | {"HOME": str(home)} | changes


def left_in(home: Path) -> set[str]:
    """Files in the home folder, without those in the cache of msdc."""
    files = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    return {name for name in files if not name.startswith(".cache/msdc/")}


@pytest.fixture(scope="session")
def stores_by_itself(tmp_path_factory) -> None:
    """Skips where the installed ONNX Runtime leaves nothing: then its absence shows nothing."""
    home = tmp_path_factory.mktemp("home")
    python("import onnxruntime", env=environment(home))
    if not left_in(home):
        pytest.skip("this release of ONNX Runtime stores nothing")


@pytest.mark.parametrize("code", [
    ENCODE,
    "import msdc, onnxruntime",
    "import msdc.bench.cli, onnxruntime",
    # The first import runs in a child, which is started anew and inherits only the environment.
    "import msdc, subprocess, sys; subprocess.run([sys.executable, '-c', 'import onnxruntime'], check=True)",
    "import multiprocessing as m, msdc\nif __name__ == '__main__':\n"
    " p = m.get_context('spawn').Process(target=__import__, args=('onnxruntime',)); p.start(); p.join()\n"
    " assert p.exitcode == 0",
], ids=["encode", "import", "a verb", "child", "spawned"])  # fmt: skip
def test_python_leaves_nothing(stores_by_itself, code, tmp_path):
    python(code, env=environment(tmp_path))
    assert left_in(tmp_path) == set()


@pytest.mark.parametrize("words", [["search", "NOTES", "Wo ist mein Auto?"], ["doctor"]], ids=["search", "doctor"])
def test_the_command_line_leaves_nothing(stores_by_itself, words, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("My car is on level 2.\nThe meeting is at nine.\n")
    home = tmp_path / "home"
    home.mkdir()
    command = [sys.executable, "-m", "msdc.cli", *(str(notes) if word == "NOTES" else word for word in words)]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert left_in(home) == set()


@pytest.mark.parametrize("home", [None, "", "missing"])
def test_no_warning_without_a_home_folder(home, tmp_path):
    changed = environment(tmp_path) | {"MSDC_CACHE": str(tmp_path / "cache")}
    if home is None:
        del changed["HOME"]
    else:
        changed["HOME"] = home and str(tmp_path / home)
    done = subprocess.run([sys.executable, "-c", ENCODE], env=changed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("value", "expected"), [(None, "1"), ("", "1"), ("1", "1"), ("0", "0"), ("false", "false")])
def test_a_value_of_the_user_stays(value, expected, tmp_path):
    variables = {} if value is None else {VARIABLE: value}
    code = f"import os, msdc; print(os.environ['{VARIABLE}'])"
    assert python(code, env=environment(tmp_path, **variables)).strip() == expected


@pytest.mark.parametrize("first", [
    "import onnxruntime",
    "import sys; sys.modules['onnxruntime'] = None",
    "import sys, types; sys.modules['onnxruntime'] = types.ModuleType('onnxruntime')",
], ids=["imported", "blocked", "under way"])  # fmt: skip
def test_an_onnx_runtime_that_was_imported_before(first, tmp_path):
    code = f"{first}\nimport os, msdc; print(os.environ['{VARIABLE}'])"
    assert python(code, env=environment(tmp_path)).strip() == "1"
    if first == "import onnxruntime":
        python(f"{first}\n{ENCODE}", env=environment(tmp_path))


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed: apt-get install g++")
@pytest.mark.parametrize("value", [None, "", "0"])
def test_the_native_core_leaves_nothing_unless_told(stores_by_itself, value, tiny_bundle, tmp_path):
    """The runner is the core of phones with a main(); it opens a bundle and runs it."""
    asked = BenchSettings(lengths=(4,), runs=1, warmup=0, runtime="onnx", tasks=())
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (job,) = open_jobs(tiny_bundle, asked)
    nonce, _ = runner_protocol.write_request(job, work, str(tiny_bundle), str(work))
    variables = {} if value is None else {VARIABLE: value}
    done = subprocess.run(
        [str(build_runner("onnx").program), runner_protocol.REQUEST], cwd=work, env=environment(home, **variables),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert runner_protocol.sentinel(done.stdout, nonce) is not None, done.stderr
    assert bool(left_in(home)) == (value == "0")
