"""Programs that tests start: compilers, Node, Python in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def run(*words: object, timeout: float = 900, **options: Any) -> str:
    """What a program prints that must end with code 0; skips the test where it is not installed."""
    command = [str(word) for word in words]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    # The command line sets this for its children; a test that called it in this process leaves it here.
    environment = dict(options.pop("env", None) or os.environ)
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, env=environment, **options
    )
    assert done.returncode == 0, f"code {done.returncode}: {done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def python(code: str, *words: object, **options: Any) -> str:
    return run(sys.executable, "-c", code, *words, **options)


def node() -> str:
    """The command of Node; skips the test where there is none."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed: apt-get install nodejs")
    return program


def ask_node(script: Path, folder: Path, request: object, **options: Any) -> Any:
    """The JSON that `script` prints for a request, which it reads from a file in `folder`."""
    (folder / "request.json").write_text(json.dumps(request))
    return json.loads(run(node(), script, folder / "request.json", **options))
