"""The app of examples/react-native: types, Metro's bundle, and the texts by which it tests the tokenizer."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from example_apps import copy_example, npm_run
from programs import run

from msdc.export import export
from msdc.export.golden import read_golden

pytestmark = pytest.mark.slow  # 500 packages


@pytest.fixture(scope="module")
def app(tmp_path_factory) -> Path:
    folder = copy_example("react-native", tmp_path_factory.mktemp("app"))
    npm_run(folder, "install", "--no-audit", "--no-fund", "--ignore-scripts")
    pytest.importorskip("executorch", reason="executorch is not installed: pip install '.[export]'")
    export("msdc-mini", target="react-native", output=folder / "model")
    return folder


def test_types_and_bundle(app):
    run("npx", "tsc", "--noEmit", cwd=app)
    environment = os.environ | {"CI": "1", "EXPO_OFFLINE": "1", "EXPO_NO_TELEMETRY": "1"}
    words = ("export", "--platform", "all", "--no-bytecode", "--output-dir", "out")
    done = subprocess.run(["npx", "expo", *words], cwd=app, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for platform in ("android", "ios"):
        (script,) = (app / f"out/_expo/static/js/{platform}").glob("*.js")
        assert "Nothing relevant" in script.read_text(encoding="utf-8")
    shutil.rmtree(app / "out")


def test_golden_vectors(app):
    run("npx", "tsc", "golden.ts", "--module", "commonjs", "--moduleResolution", "node10", "--resolveJsonModule",
        "--esModuleInterop", "--target", "es2022", "--outDir", "out", cwd=app)  # fmt: skip
    script = (
        "console.log(JSON.stringify(require('./out/golden.js').golden().map((row) => [row.text, [...row.vector]])))"
    )
    rows = json.loads(run("node", "-e", script, cwd=app))
    golden = read_golden(app / "model")
    assert [text for text, _ in rows] == golden["texts"][:8]
    np.testing.assert_array_equal([vector for _, vector in rows], golden["vectors"]["executorch"][:8])
