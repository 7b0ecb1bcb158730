"""msdc with the parts taken away that only Linux, or only POSIX, has: the real verbs, in a process of their own.

See `tests/helpers/other_platform/sitecustomize.py` for what is taken away. This is not a run on macOS or Windows.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import tiny_models as tiny
import yaml
from other_platform.sitecustomize import GONE, POSIX_ONLY, SIGNALS
from places import ROOT

import msdc

SYSTEM = ("os", "signal", "fcntl", "resource", "pwd", "grp", "pty", "termios")
HIDE = Path(__file__).parents[1] / "helpers" / "other_platform"
# Runs each line of a JSON list through the command line, as one after another in a shell, and prints how each ended.
DRIVER = """
import contextlib, importlib, io, json, pkgutil, sys, traceback
import msdc, msdc.cli

found = {}
def attempt(name, call):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            call()
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = "traceback"
    found[name] = [code, out.getvalue()]

def import_all():
    for module in pkgutil.walk_packages(msdc.__path__, "msdc."):
        importlib.import_module(module.name)

attempt("import", import_all)
for name, words in json.load(open(sys.argv[1], encoding="utf-8")).items():
    attempt(name, lambda: msdc.cli.main(["--debug", *words]))
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(found, file)
"""
TEXTS = "Das Haus ist rot.\nThe car is blue.\nשלום עולם\n"


# Every use of a name that macOS or Windows lacks, which asks first whether it is there.
GUARDED = {
    ("msdc/files.py", "fcntl"), ("msdc/cli.py", "SIGHUP"), ("msdc/machine.py", "resource"),
    ("msdc/machine.py", "getloadavg"), ("msdc/machine.py", "sched_getaffinity"),
    ("msdc/processes.py", "killpg"), ("msdc/processes.py", "SIGKILL"),
    ("msdc/processes.py", "geteuid"),
    ("export/origin.py", "resource"), ("distill/teacher/store.py", "posix_fadvise"),
    ("msdc/files.py", "pwd"), ("msdc/files.py", "getuid"),
}  # fmt: skip
LACKING = {"fcntl", "resource", "pwd", "grp", "pty", "termios", "renameat2", *GONE, *POSIX_ONLY, *SIGNALS}


def test_every_name_that_a_system_lacks_is_guarded():
    lacking_names = set()
    for folder in ("msdc", "compress", "distill", "export", "bench"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = []
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    names = [node.attr] if node.value.id in ("os", "signal") else []
                elif isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [node.module, *(alias.name for alias in node.names)] if node.module in SYSTEM else []
                lacking_names |= {(path.relative_to(ROOT).as_posix(), name) for name in names if name in LACKING}
    assert lacking_names <= GUARDED


def run(platform: str, folder: Path, verbs: dict[str, list[str]]) -> dict[str, list]:
    """[exit code, standard output] of each verb; everything happens in `folder`."""
    (folder / "texts.txt").write_text(TEXTS, encoding="utf-8")
    (folder / "verbs.json").write_text(json.dumps(verbs), encoding="utf-8")
    environment = {
        **os.environ, "MSDC_TEST_PLATFORM": platform, "PYTHONPATH": f"{HIDE}{os.pathsep}{ROOT}",
        "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-P", "-c", DRIVER, "verbs.json", "found.json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=900, check=False)
    errors = done.stderr.decode("utf-8", "replace")
    assert done.returncode == 0 and "Error in sitecustomize" not in errors, errors
    outcomes = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    assert {name: code for name, (code, _) in outcomes.items()} == dict.fromkeys(["import", *verbs], 0), errors
    return outcomes


def usual_verbs() -> dict[str, list[str]]:
    measure = ["--runtime", "onnx", "--device", "python", "--runs", "2", "--warmup", "1", "--lengths", "8"]
    return {
        "encode": ["encode", "-i", "texts.txt", "-o", "texts.npy"],
        "search": ["search", "texts.txt", "La voiture est bleue.", "--json"],
        "again": ["search", "texts.txt", "La voiture est bleue.", "--json"],
        "bench": ["bench", str(tiny.bundle("fp32", "onnx")), *measure, "--tasks", "none", "--json", "runs.json"],
    }


def check_usual(outcomes: dict[str, list], folder: Path) -> dict:
    """The answers are those of this system; returns the result of bench."""
    expected_ND = msdc.load_encoder("msdc-mini").encode(TEXTS.splitlines())
    np.testing.assert_allclose(np.load(folder / "texts.npy"), expected_ND, atol=1e-5)
    first, again = json.loads(outcomes["search"][1]), json.loads(outcomes["again"][1])
    assert first["queries"][0]["hits"][0]["text"] == "The car is blue."
    assert (first["encoded"], again["encoded"]) == (3, 0)  # the index was kept and opened
    assert any(path.suffix == ".sqlite" for path in (folder / "cache").rglob("*"))
    (result,) = json.loads((folder / "runs.json").read_text(encoding="utf-8"))["runs"]
    warm = result["memory"]["warm"]
    assert warm["pss_mib"] is None
    assert 0 < warm["anon_mib"] < warm["vmhwm_mib"]
    assert any("memory by psutil" in note for note in result["notes"])
    assert result["device"]["cores"] >= 1
    assert result["device"]["memory_mib"] > 500
    assert result["parity"]["mean_cosine"] > 0.9999
    assert result["parity"]["ids_equal"]
    return result


def test_without_what_macos_lacks(tmp_path, tiny_tree):
    tree = tiny_tree | {"stages": tiny_tree["stages"][3:]}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    words = {"distill": ["distill", "tiny.yaml", "-o", "run"], "doctor": ["doctor", "--json"]}
    run("macos", tmp_path, words | {"bench": usual_verbs()["bench"]})
    (result,) = json.loads((tmp_path / "runs.json").read_text(encoding="utf-8"))["runs"]
    assert result["device"]["os"].startswith("macOS")
    assert (tmp_path / "run" / "result.json").is_file()
    assert (tmp_path / "run" / "student" / "config.json").is_file()


def test_without_what_windows_lacks(tmp_path, tiny_student):
    export = ["export", str(tiny_student), "--target", "android", "--runtime", "onnx", "--no-gates", "-o", "b"]
    verbs = usual_verbs() | {
        "export": export,
        "export again": [*export, "--force"],
        "encode with it": ["encode", "./b", "--json", "Hallo"],
    }
    outcomes = run("windows", tmp_path, verbs)
    result = check_usual(outcomes, tmp_path)
    assert result["device"]["os"].startswith("Windows")
    kinds = (".json", ".md", ".txt", ".yaml", ".h", ".kt", ".jsonl", ".html")
    texts = [path for path in (tmp_path / "b").rglob("*") if path.suffix in kinds and path.is_file()]
    assert len(texts) > 5
    # A bundle is checked by the hashes of its files: they must not depend on where it was written.
    assert not [path for path in texts if b"\r" in path.read_bytes()]
