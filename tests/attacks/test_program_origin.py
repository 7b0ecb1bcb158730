"""Programs of unknown origin: one that crashes ExecuTorch ends a child process, never the one that loads a bundle."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from refusals import one_line, reseal

from msdc.export import origin
from msdc.export.bundle import load_bundle
from msdc.export.manifest import read_manifest
from msdc.files import user_cache


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache, and a process that knows no program."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(origin, "_known", set())
    return tmp_path / "cache/msdc/programs"


def resealed(bundle: Path, folder: Path, program: bytes) -> Path:
    """A copy of `bundle` with another program, its hashes and seal made right: anybody can do that."""
    shutil.copytree(bundle, folder)
    (folder / "model.pte").write_bytes(program)
    reseal(folder)
    return folder


def test_programs_that_crash_or_are_refused(tiny_bundle, tmp_path, cache):
    """An operator whose name is not UTF-8: ExecuTorch's message about it ends the process with an abort."""
    program = (tiny_bundle / "model.pte").read_bytes()
    at = program.index(b"aten::") + len(b"aten::")
    folder = resealed(tiny_bundle, tmp_path / "crash", program[:at] + b"\xff" + program[at + 1 :])
    assert "crashes ExecuTorch (SIGABRT" in one_line(lambda: load_bundle(folder, "executorch"))
    folder = resealed(tiny_bundle, tmp_path / "refused", b"\0" * 64 + b"ET12" + b"\0" * 4096)
    assert "refuses the program" in one_line(lambda: load_bundle(folder, "executorch"))
    folder = resealed(tiny_bundle, tmp_path / "foreign", program.replace(b"XnnpackBackend", b"UnknownBackend"))
    assert "refuses the program" in one_line(lambda: load_bundle(folder, "executorch"))
    assert not list(cache.glob("*"))


def test_a_program_that_is_unknown_but_sound(tiny_bundle, tmp_path, cache, monkeypatch):
    program = bytearray((tiny_bundle / "model.pte").read_bytes())
    program[-64] ^= 1  # a weight
    folder = resealed(tiny_bundle, tmp_path / "bundle", bytes(program))
    sha256 = read_manifest(folder).files["model.pte"].sha256
    with monkeypatch.context() as changed:
        changed.setattr(origin, "TIMEOUT_S", 0.01)
        assert "did not end within 0.01 s" in one_line(lambda: load_bundle(folder, "executorch"))
    assert not origin.is_known(sha256)
    expected = load_bundle(folder, "executorch").encode(["hello"])
    assert [path.name.split("-")[0] for path in cache.glob("*.json")] == [sha256]

    def no_child(*args, **options):
        raise AssertionError("a child for a known program")

    monkeypatch.setattr(origin, "_known", set())
    monkeypatch.setattr(origin, "run_program", no_child)
    assert np.array_equal(load_bundle(folder, "executorch").encode(["hello"]), expected)


def test_exported_programs_are_known(tiny_bundle, monkeypatch):
    home = user_cache()
    home.mkdir(parents=True, exist_ok=True)
    if not os.access(home, os.W_OK):
        pytest.skip("the user's cache cannot be written here")
    monkeypatch.setattr(origin, "_known", set())
    assert origin.is_known(read_manifest(tiny_bundle).files["model.pte"].sha256)


def test_records_are_bounded(cache, monkeypatch):
    monkeypatch.setattr(origin, "MAX_RECORDS", 3)
    for i in range(6):
        origin.remember(f"{i:064d}", "exported")
        for age, path in enumerate(sorted(cache.glob("*.json"))):
            os.utime(path, (age, age))
    assert sorted(int(path.name[:64]) for path in cache.glob("*.json")) == [3, 4, 5]


def test_without_a_cache(tmp_path, monkeypatch):
    """A cache that cannot be made: programs are tried once per process."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(origin, "_known", set())
    origin.remember("0" * 64, "exported")
    assert origin.is_known("0" * 64) and not origin.is_known("1" * 64)
