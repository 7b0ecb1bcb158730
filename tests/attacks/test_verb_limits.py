"""SIGTERM, few file descriptors and little memory in each command: one line, nothing half-written, the next run works.

The slow tests run every command; the others those in which something was once wrong.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_models as tiny

if sys.platform == "win32":
    pytest.skip("limits and signals of POSIX", allow_module_level=True)
import resource

# Raises the signal at the n-th import or opened file: a clock that does not depend on the machine.
CLOCK = """
import signal, sys
import msdc.cli
number, *words = sys.argv[1:]
events = 0
def hook(event, args):
    global events
    if event in ("import", "open"):
        events += 1
        if events == int(number):
            signal.raise_signal(signal.SIGTERM)
sys.addaudithook(hook)
try:
    msdc.cli.main(words)
finally:
    print("events", events, file=sys.stderr)
"""
MIB = 2**20


def _fill(folder: Path) -> None:
    (folder / "lines.txt").write_text("".join(f"line {number} of the station\n" for number in range(500)))
    (folder / "pairs.tsv").write_text("".join(f"the house {n}\tdas Haus {n}\n" for n in range(300)))
    stage = {"name": "one", "train": "student", "teacher": "teacher", "objective": "multilingual_mse", "batch": 8,
             "max_length": 20, "learning_rate": 1e-3, "evaluate_every": 2, "steps": 2}  # fmt: skip
    tree = tiny.recipe(tiny.student_folder(), folder / "outputs", [stage], limit=16)
    (folder / "recipe.yaml").write_text(json.dumps(tree))


def commands() -> dict[str, tuple[list[object], str]]:
    """Of each command the words, and what it writes."""
    student, bundle = tiny.student_folder(), tiny.bundle("fp32", "onnx")
    bench = ["--device", "python", "--runs", "2", "--warmup", "1", "--lengths", "8", "--tasks", "none"]
    return {
        "encode": (["encode", student, "-i", "lines.txt", "-o", "out.npy", "--force"], "out.npy"),
        "encode-files": (["encode", student, "lines.txt", "-o", "vectors", "--skip-existing"], "vectors"),
        "compare": (["compare", student, "one text", "another"], ""),
        "search": (["search", "lines.txt", "a query", "-m", student, "--index", "out.sqlite", "--force"], "out.sqlite"),
        "corpus": (["corpus", "pairs.tsv", "--languages", "de", "--write", "rows"], "rows"),
        "distill": (["distill", "recipe.yaml", "-o", "out", "--resume"], ""),
        "compress": (["compress", "quantize", student, "-o", "out", "--force"], "out"),
        "export": (["export", student, "--target", "linux", "--runtime", "onnx", "--no-gates", "-o", "out", "--force"],
                   "out"),
        "inspect": (["inspect", bundle], ""),
        "bench": (["bench", bundle, *bench, "--json", "out.json", "--force"], ""),
        "evaluate": (["evaluate", student, "--tasks", "graded-pairs", "-o", "out.json", "--force"], ""),
        "models": (["models"], ""), "doctor": (["doctor"], ""),
    }  # fmt: skip


def run(folder: Path, words: list[object], event: int = 0, limit: Callable[[], None] | None = None):
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp"),
                   "XDG_CACHE_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", CLOCK, str(event), *map(str, words)], cwd=folder, env=environment, preexec_fn=limit,
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def sizes(path: Path) -> dict[str, int]:
    """What is there under its final name."""
    files = path.rglob("*") if path.is_dir() else filter(Path.exists, [path])
    return {str(file.relative_to(path)): file.stat().st_size for file in files
            if file.is_file() and not file.name.startswith(".")}  # fmt: skip


def interrupted(name: str, kind: str, value: float, folder: Path) -> None:
    """Run a command under a limit, or with a signal after a share of its events, and then once more without."""
    words, output = commands()[name]
    _fill(folder)
    complete = folder / "complete"
    complete.mkdir()
    _fill(complete)
    undisturbed = run(complete, words)
    assert undisturbed.returncode in (0, 1 if name == "doctor" else 0), undisturbed.stderr
    events = int(undisturbed.stderr.rpartition("events ")[2])
    event, limit = 0, None
    if kind == "signal":
        event = max(1, int(events * value))
    else:
        which = resource.RLIMIT_NOFILE if kind == "descriptors" else resource.RLIMIT_AS

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(which, (int(value), int(value)))

    done = run(folder, words, event, limit)
    assert "Traceback" not in done.stderr, done.stderr
    if kind == "signal":
        assert done.returncode == 128 + signal.SIGTERM, done.stderr
        assert "error:" not in done.stderr
        assert [path.name for path in (folder / "tmp").iterdir()] == []
    elif done.returncode > 0 and not (name == "doctor" and done.returncode == 1):
        # The code of runtimes may end the process where an allocation fails (a negative code).
        cause = {"descriptors": "too many open files", "memory": "out of memory|^OpenBLAS error: Memory alloc"}[kind]
        assert done.returncode == 1
        assert re.search(cause, done.stderr, re.MULTILINE), done.stderr
        assert done.stderr.count("error: ") == 1
    if output:
        expected = sizes(complete / output)
        assert done.returncode or sizes(folder / output) == expected
        present = sizes(folder / output)
        assert present.items() <= expected.items(), done.stderr
        if Path(output).suffix == "" and name != "encode-files":  # a folder is complete or absent
            assert present in ({}, expected)
    if done.returncode:
        again = run(folder, words)
        assert again.returncode == undisturbed.returncode, again.stderr
        assert not output or sizes(folder / output) == sizes(complete / output)


NAMES = ["encode", "encode-files", "compare", "search", "corpus", "distill", "compress", "export", "inspect", "bench",
         "evaluate", "models", "doctor"]  # fmt: skip
# A signal inside the import of a compiled library; a row's file that cannot be opened; a part of vectors.
CASES = [("encode", "signal", 0.3), ("encode-files", "signal", 0.97), ("corpus", "descriptors", 9),
         ("encode", "descriptors", 7)]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "value"), CASES)
def test_a_command_under_a_limit(name, kind, value, tmp_path):
    interrupted(name, kind, value, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "values"),
    [("signal", [0.02, 0.3, 0.6, 0.9, 0.99]), ("descriptors", [5, 6, 7, 8, 9, 10, 12]),
     ("memory", [250 * MIB, 500 * MIB, 900 * MIB, 1400 * MIB])],
)  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
def test_every_command_under_every_limit(name, kind, values, tmp_path):
    for number, value in enumerate(values):
        (tmp_path / str(number)).mkdir()
        interrupted(name, kind, value, tmp_path / str(number))
