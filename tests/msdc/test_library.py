"""The package inside another program's process: streams, logging, warnings, random numbers stay that program's."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

USE = """
import msdc, os, sys
encoder = msdc.load_encoder("msdc-nano")
encoder.encode(["a text"] * 3)
with msdc.open_index(os.path.join(FOLDER, "notes.sqlite"), encoder) as index:
    index.add([{"id": n, "text": f"note {n}"} for n in range(40)])
    assert index.search("note 7").hits[0].id == "7"
    index.search("\\U0001F44D")
"""


def run(code: str, folder: Path, *options: str, **streams: int) -> subprocess.CompletedProcess[str]:
    """A program of its own, whose messages are not the command line's."""
    words = [sys.executable, *options, "-c", f"FOLDER = {str(folder)!r}\n{code}"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(words, text=True, timeout=120, check=False, **streams)


def test_messages_go_to_the_log_alone(tmp_path):
    done = run(USE, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    lines = "import logging; logging.basicConfig(format='%(name)s %(levelname)s %(message)s', level='INFO')" + USE
    done = run(lines, tmp_path / "..")
    assert "msdc WARNING the query '\U0001f44d' is mostly characters that msdc-nano does not know" in done.stderr


@pytest.mark.parametrize(
    "streams",
    ["sys.stdout = sys.stderr = None", "sys.stdout = sys.stderr = type('S', (), {'write': lambda *_: 0})()",
     "os.close(2); sys.stderr.close()"],
)  # fmt: skip
def test_a_program_without_a_console(tmp_path, streams):
    """As pythonw, PyInstaller's --noconsole and some supervisors start programs."""
    asked = USE.replace('["a text"] * 3', '["a text"] * 3, show_progress_bar=True')
    code = f"import os, sys\n{streams}\n{asked}\nopen(os.path.join(FOLDER, 'done'), 'w').close()"
    run(code, tmp_path)
    assert (tmp_path / "done").is_file()


def test_other_threads_log_while_a_model_loads(tmp_path):
    code = """
import logging, threading, time
logging.basicConfig(filename=os.path.join(FOLDER, "log"), level="INFO") if (os := __import__("os")) else None
done, count = threading.Event(), 0
def work():
    global count
    while not done.is_set():
        count += 1; logging.getLogger("service").warning("line %d", count); os.write(2, b"x"); time.sleep(0.001)
thread = threading.Thread(target=work); thread.start()
import msdc
try:
    for name in ("msdc-nano", "msdc-mini"): msdc.load_encoder(name).encode(["x"])
finally:
    done.set(); thread.join()
print(count)
"""
    done = run(code, tmp_path)
    count = int(done.stdout)
    assert (tmp_path / "log").read_text().count("service:line") == count
    assert done.stderr.count("x") == count


def test_the_state_of_the_process_is_as_before(tmp_path):
    code = f"""
import locale, logging, os, random, signal, sys, threading, warnings
import numpy
def state():
    return (logging.root.level, logging.root.manager.disable, list(logging.root.handlers), list(warnings.filters),
            [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], random.getstate(), os.getcwd(),
            numpy.random.get_state()[1].tobytes(), numpy.geterr(), sys.stdout, sys.stderr,
            locale.setlocale(locale.LC_ALL),
            {{key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}})
before = state()
{USE}
assert state() == before
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_warnings_are_errors(tmp_path):
    """Python 3.12 warns of what 3.14 refuses, such as numbered parameters of SQL with a sequence."""
    done = run(USE, tmp_path, "-W", "error")
    assert done.returncode == 0, done.stderr


def test_the_package_is_a_command(tmp_path):
    words = ["compare", "msdc-nano", "a cat", "a dog"]
    module, command = (
        subprocess.run([sys.executable, "-m", name, *words], capture_output=True, text=True, check=True)
        for name in ("msdc", "msdc.cli")
    )
    assert module.stdout == command.stdout != ""


def test_a_package_in_a_zip_file_says_so(tmp_path):
    """As Spark's --py-files and zipapp pack it: data files have no path there."""
    import msdc

    package = Path(msdc.__file__).parent
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        for path in package.rglob("*.py"):
            archive.write(path, f"msdc/{path.relative_to(package)}")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'packed.zip')!r}); import msdc; msdc.load_encoder('msdc-nano')"
    )
    done = run(code, tmp_path)
    assert done.returncode == 1
    assert "packed.zip, which is no folder: unpack or install it" in done.stderr.splitlines()[-1]
