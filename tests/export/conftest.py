"""The native core, compiled once per session."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from native_core import CORE, STRICT, compile_cpp, core_sources


@pytest.fixture(scope="session")
def tiny_bundle():
    from native_bundle import tiny_bundle as make

    return make()


@pytest.fixture(scope="session")
def core_library(tmp_path_factory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: apt-get install g++")
    target = tmp_path_factory.mktemp("core") / "libmsdc_core.so"
    # As strict as it gets: these sources go into other people's builds.
    compile_cpp(target, *STRICT, "-O1", "-shared", "-fPIC", f"-I{CORE / 'include'}", *core_sources())
    return target
