"""`make setup` takes the CPU build of PyTorch on Linux where its index is reached, and goes on where it is not."""

import http.server
import platform
import shutil
import subprocess
import threading
from functools import partial
from pathlib import Path

import pytest
from places import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def installs(tmp_path):
    """The first arguments of pip for the variables of make, with a pip that only prints them; and what make prints."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name, script in {"python": "exit 0", "pip": 'echo "PIP $@"'}.items():
        (tmp_path / ".venv/bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / ".venv/bin" / name).chmod(0o755)

    def call(*variables: str) -> tuple[str, str]:
        (tmp_path / ".venv/.ready").unlink(missing_ok=True)
        done = subprocess.run(["make", "setup", *variables], cwd=tmp_path, capture_output=True, text=True, check=True)
        first = next(line for line in done.stdout.splitlines() if line.startswith("PIP "))
        return first.removeprefix("PIP "), done.stdout

    return call


@pytest.fixture
def index(tmp_path):
    """The address of an index that answers."""
    (folder := tmp_path / "served/torch").mkdir(parents=True)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(Path(folder).parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(platform.system() != "Linux", reason="other systems' wheels contain no CUDA")
def test_the_cpu_build_is_the_default_where_its_index_is_reached(installs, index):
    torch = installs(f"CPU_INDEX={index}")[0].removesuffix(f" --index-url {index}")
    assert torch.startswith("install -q torch==")
    assert " " not in torch.removeprefix("install -q ")
    assert installs(f"CPU_INDEX={index}", "GPU=1")[0] == torch
    assert (
        installs(f"CPU_INDEX={index}", "TORCH_INDEX=https://other/index")[0]
        == f"{torch} --index-url https://other/index"
    )
    first, shown = installs("CPU_INDEX=http://127.0.0.1:9")  # the port of discard: nothing answers
    assert first == torch
    assert shown.count("is not reached") == 1
