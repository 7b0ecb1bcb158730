"""A runner is used only while every byte is as it was built."""

import shutil

import pytest

from msdc.bench.toolchain import build


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed: apt-get install g++")
def test_damaged_runner_is_built_again(tmp_path, monkeypatch):
    """With a compiler that only counts: what a real one makes is run in test_host.py."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = []

    def compile_nothing(stage, *_):
        built.append(stage)
        (stage / build.RUNNER).write_bytes(b"program" * 1000)

    monkeypatch.setattr(build, "_build", compile_nothing)
    program = build.build_runner("executorch").program
    build.build_runner("executorch")
    assert len(built) == 1
    program.write_bytes(b"other" + program.read_bytes()[5:])
    assert build.build_runner("executorch").program.read_bytes() == b"program" * 1000
    assert len(built) == 2
    # --build-runner builds, whatever is in the cache.
    build.build_runner("executorch", force=True)
    assert len(built) == 3
