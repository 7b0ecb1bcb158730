"""The native core, compiled once per test run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from native_core import CORE, STRICT, compile_cpp, core_sources
from tiny_models import once


@pytest.fixture(scope="session")
def core_library() -> Path:
    """The native core without a runtime, as a shared library."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: apt-get install g++")
    # As strict as possible: these sources go into other people's builds.
    arguments = (*STRICT, "-O1", "-shared", "-fPIC", f"-I{CORE / 'include'}", *core_sources())
    return once("libmsdc_core.so", lambda target: compile_cpp(target, *arguments))
