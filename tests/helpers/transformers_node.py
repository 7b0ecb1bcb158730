"""transformers.js itself, run in Node on the programs of a folder."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from web_pages import node

from msdc.errors import MsdcError
from msdc.export.mobile.web import transformers_js
from msdc.export.mobile.web.npm import SCRIPT, WASM, runtime_folder


def run_script(script: Path, folder: Path, work: Path, **request: object) -> Any:
    """What `script` prints for the models' folder `folder`; skips the test where the runtime cannot be fetched."""
    try:
        runtime = runtime_folder()
    except MsdcError as error:
        pytest.skip(str(error))
    request |= {
        "library": str(transformers_js.library(work)), "runtime": str(runtime / SCRIPT), "wasm": str(runtime / WASM),
        "parent": f"{folder.parent}/", "name": folder.name,
    }  # fmt: skip
    common = work / "node_modules/onnxruntime-common/index.js"
    common.write_text('exports.Tensor = globalThis[Symbol.for("onnxruntime")].Tensor;')
    (work / "request.json").write_text(json.dumps(request))
    command = [node(), script, work / "request.json"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
