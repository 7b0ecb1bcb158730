"""A device whose answers are made to harm: it loses no result of others, and nothing it prints is believed or executed.

The device is a program in the place of adb, since a real adbd does not lie.
"""

import errno
import shlex
from pathlib import Path

import pytest
from bench_results import make_run
from refusals import one_line

from msdc.bench.devices.adb import Adb, DeviceGone, RemoteFolder, _start_line, choose_serial, run_remote
from msdc.bench.devices.base import open_jobs, run_devices
from msdc.bench.options import BenchSettings
from msdc.bench.system_programs import run_tool
from msdc.bench.toolchain.build import own_runner
from msdc.cli import _one_line
from msdc.errors import MsdcError, printable


def device(folder: Path, answer: str) -> Adb:
    """A device that answers every script with what the shell code `answer` prints; $1 is the script."""
    program = folder / "adb"
    program.write_text(f'#!/bin/sh\nshift 2\n[ $1 = shell ] || exit 0\nset -- "$2"\n{answer}\n')
    program.chmod(0o755)
    return Adb("liar", str(program))


def test_serials_with_a_common_prefix(tmp_path):
    program = tmp_path / "adb"
    program.write_text("#!/bin/sh\nprintf 'List\\na1:55\\tdevice\\na1:555\\tdevice\\nlocked\\tunauthorized\\n'\n")
    program.chmod(0o755)
    for serial in ("a1:55", "a1:555"):
        assert choose_serial(str(program), serial) == serial
    for asked, line in (
        ("a1:5", "no device with serial a1:5; attached: a1:55, a1:555"),
        (None, "2 devices attached: name one of adb:a1:55, adb:a1:555"),
        ("locked", "device locked is unauthorized"),
    ):
        with pytest.raises(MsdcError, match=line):
            choose_serial(str(program), asked)


# Ends a script as a device would: with the mark and an exit code.
END = "mark=$(printf %s \"$1\" | grep -o 'msdc-end-[0-9a-f]*' | tail -n 1)"


@pytest.mark.parametrize("claimed", ["/", "/data", "$(reboot)", "/tmp/other", ""])
def test_folder_that_the_device_names_is_not_removed(tmp_path, claimed):
    log = tmp_path / "log"
    answer = f"printf '%s\\n' \"$1\" >> {log}; {END}; echo {shlex.quote(claimed)}; printf '\\n%s 0\\n' $mark"
    adb = device(tmp_path, answer)

    def attempt():
        with RemoteFolder(adb, "abc"):
            pass

    assert "instead of /data/local/tmp/msdc-run-abc or /tmp/msdc-run-abc" in one_line(attempt)
    assert f"rm -rf {claimed}\n" not in log.read_text()


@pytest.mark.parametrize("code", ["9" * 5000, "-1", "x", "4096"])
def test_exit_code_that_is_none(tmp_path, code):
    adb = device(tmp_path, f"{END}; printf '\\n%s {code}\\n' $mark")
    with pytest.raises(DeviceGone, match="went away"):
        adb.shell("true")


def test_flood(tmp_path):
    adb = device(tmp_path, "exec yes")
    assert "printed more than 16 MiB" in one_line(lambda: adb.shell("true"))
    assert "printed more than 16 MiB" in one_line(lambda: adb.run_long("true", timeout_s=60))


def test_escape_codes_do_not_reach_the_terminal(tmp_path, tiny_bundle):
    adb = device(tmp_path, "printf '\\033]0;owned\\007\\033[2Jerror: \\302\\233evil' >&2; exit 1")
    text = one_line(lambda: list(run_remote(adb, open_jobs(tiny_bundle, quick()))))
    shown = _one_line(MsdcError(text))
    assert "evil" in shown
    assert not set("\x1b\x07\x9b") & set(shown)
    assert printable("a\tb\nc\u202e\x1b[1m") == "a\tb\nc\ufffd\ufffd[1m"


def quick(**changes) -> BenchSettings:
    return BenchSettings(**{"tasks": (), "lengths": (4,), "runs": 2, "warmup": 0} | changes)


@pytest.mark.parametrize("name", ["my runner", "run;touch owned", "$(touch owned)", "-rf", "it's"])
def test_name_of_a_runner_is_no_shell_code(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / name
    program.write_text("#!/bin/sh\necho ran $#\n")
    program.chmod(0o755)
    line = _start_line(own_runner(program), 5, "wall")
    assert run_tool(["/bin/sh", "-c", line], "start", cwd=tmp_path).strip() == "ran 1"
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "error",
    [KeyError("golden"), ValueError("Exceeds the limit (4300 digits)"), RecursionError("maximum"), TypeError("x\ny"),
     OSError(errno.ENOSPC, "No space left on device"), MemoryError(), AssertionError()],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_broken_device_loses_no_result_of_another(tiny_bundle, error):
    class Good:
        kind, spec, label = "good", "good", ""
        runs_in_parallel = False

        def run(self, *_):
            return [make_run()]

    class Broken:
        kind = spec = "broken"

        def __init__(self, runs_in_parallel):
            self.runs_in_parallel = runs_in_parallel

        def run(self, *_):
            raise error

    for runs_in_parallel in (False, True):
        both = [Broken(runs_in_parallel), Good()]
        runs, (failure,) = run_devices(both, tiny_bundle, quick())
        assert len(runs) == 1
        assert failure.startswith("broken: ")
        assert type(error).__name__ in failure
    assert type(error).__name__ in one_line(lambda: run_devices([Broken(False)], tiny_bundle, quick()))
