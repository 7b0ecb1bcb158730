"""Apps of `examples/`, copied and built by npm."""

import shutil
import subprocess
from pathlib import Path

import pytest
from places import ROOT

BUILT = ("node_modules", "model", "dist", "android", "ios")  # what a developer's own builds left there
UNREACHED = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "SOCKET_TIMEOUT", "ENOTCACHED")


def copy_example(name: str, folder: Path) -> Path:
    return shutil.copytree(ROOT / "examples" / name, folder, ignore=shutil.ignore_patterns(*BUILT), dirs_exist_ok=True)


def npm_run(app: Path, *words: str) -> None:
    """Run npm in the app; skips the test where there is no npm, or no registry."""
    if shutil.which("npm") is None:
        pytest.skip("npm not found: apt-get install npm")
    done = subprocess.run(["npm", *words], cwd=app, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    if any(code in output for code in UNREACHED):
        pytest.skip(f"npm {words[0]}: the registry is not reached")
    assert done.returncode == 0, output
