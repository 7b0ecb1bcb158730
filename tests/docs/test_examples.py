"""The examples run as their first lines say, and print what they promise."""

import json
import os
import re
import sys

import programs
import pytest
import yaml
from places import ROOT

EXAMPLES = ROOT / "examples"


def run(name: str, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return programs.run(sys.executable, EXAMPLES / name, *arguments, env=environment)


def test_search():
    lines = run("search.py").splitlines()
    assert len(lines) == 6
    assert lines[1].endswith("The car is in the second row of the parking garage.")


def test_export_bundle(tmp_path):
    # ONNX alone takes a fraction of the time; README's commands, which test_readme runs, export for ExecuTorch.
    out = run("export_bundle.py", str(tmp_path / "bundle"), "--runtime", "onnx")
    cosines = dict(re.findall(r"^(\w+): lowest cosine with the float model (\S+)$", out, re.MULTILINE))
    assert set(cosines) == {"onnx"}
    assert all(float(value) > 0.99 for value in cosines.values())
    assert (tmp_path / "bundle" / "bundle.json").is_file()


def test_distill_own_text(tmp_path):
    out = run("distill_own_text.py", str(tmp_path / "run"), "--steps", "4")
    assert re.search(r"width 384, cosine of a translation -?\d\.\d+", out)
    assert (tmp_path / "run" / "student" / "model.safetensors").is_file()


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_says_how_it_is_run(name):
    assert f"python examples/{name}" in (EXAMPLES / name).read_text(encoding="utf-8")


def test_the_action_names_options_that_exist_and_pins_its_actions(tmp_path):
    steps = yaml.safe_load((EXAMPLES / "model-release.yml").read_text(encoding="utf-8"))["jobs"]["release"]["steps"]
    assert all(re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in steps if "uses" in step)
    scripts = [step["run"] for step in steps if "run" in step]
    frozen = json.loads((ROOT / "tests/msdc/command_line.json").read_text(encoding="utf-8"))
    options_of = {verb: set(re.findall(r"(?<!\S)--?[a-z-]+", " ".join(options))) for verb, options in frozen.items()}
    commands = re.findall(r"^ *(msdc [a-z]+) (.*)$", "\n".join(scripts), re.MULTILINE)
    assert [verb for verb, _ in commands] == ["msdc export", "msdc bench"]
    for verb, words in [*commands, ("msdc bench", "--compare last.json --gate 1")]:
        assert set(re.findall(r"(?<!\S)--?[a-z-]+", words)) <= options_of[verb], words
    # The gate of accuracy, with a program that prints its arguments in place of msdc.
    (gate,) = (step["run"] for step in steps if step.get("shell") == "python")
    run = {"accuracy": [{"task": "sts", "name": "graded-pairs", "spearman": 80.5, "pairs": 3}]}
    (tmp_path / "last.json").write_text(json.dumps({"runs": [run]}))
    program = tmp_path / "msdc"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    output = programs.run(sys.executable, "-c", gate, env=environment, cwd=tmp_path)
    assert output.strip() == "report result.json -o gate.html --target-accuracy=80.0@graded-pairs --fail"
    assert {"--target-accuracy", "--fail", "-o"} <= options_of["msdc report"]
