"""What runs out of memory, is mutated, or is very long: one line that names the cause, or the right vectors."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from refusals import reseal

from msdc.errors import MsdcError
from msdc.export.bundle import load_bundle

# Limits the memory that a process may take in addition to what it has, once everything is imported.
LIMITED = """
import resource, sys
import msdc, msdc.cli, msdc.export.bundle, msdc.export.onnx.program, msdc.export.exporters
extra, *words = sys.argv[1:]
msdc.load_bundle(words[1], "onnx").encode("x") if words[0] == "encode" else None
held = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_DATA, (held + int(float(extra) * 2**20),) * 2)
msdc.cli.main(words)
"""
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="no /proc: not Linux")
ACCUSATIONS = ("refuses", "damaged", "inferred", "do not use", "not valid", "not an ONNX", "not a bundle")


def limited(extra: float, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(extra), *map(str, words)], capture_output=True, text=True, check=False,
        env=environment, timeout=600,
    )  # fmt: skip


@needs_proc
@pytest.mark.parametrize(
    "extra", [0, 0.5, pytest.param(1.5, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_loading_without_memory_accuses_no_file(extra):
    done = limited(extra, "encode", tiny.bundle(), "hello", "--runtime", "onnx")
    # The runtimes' own code may end the process where an allocation fails.
    assert done.returncode != 2 and "Traceback" not in done.stderr, done.stderr
    assert [word for word in ACCUSATIONS if word in done.stderr] == []
    if done.returncode == 1:
        assert "out of memory" in done.stderr and done.stderr.count("error: ") == 1, done.stderr


@needs_proc
def test_a_batch_without_memory_is_one_line(tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"text {i}\n" for i in range(200_000)))
    done = limited(
        1, "encode", tiny.bundle(), "-i", tmp_path / "texts.txt", "-o", tmp_path / "x.npy", "--runtime", "onnx"
    )
    assert done.returncode == 1 and "out of memory" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "x.npy").exists()


@needs_proc
def test_an_export_without_memory_leaves_nothing(tmp_path):
    words = (tiny.student_folder(), "--target", "linux", "--runtime", "onnx", "-o", tmp_path / "out")
    done = limited(20, "export", *words)
    assert done.returncode == 1 and "out of memory" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_hundred_thousand_texts():
    """Some of them long, many alike: each has the vector that it has alone."""
    bundle = load_bundle(tiny.bundle(), "onnx")
    texts = [f"number {i % 1000}" if i % 97 else f"{i} " * 40 for i in range(100_000)]
    vectors = bundle.encode(texts)
    assert vectors.shape == (100_000, bundle.width)
    assert np.isfinite(vectors).all()
    chosen = [0, 1, 999, 1000, 1001, 50_000, 97 * 1000, 99_999]
    np.testing.assert_allclose(vectors[chosen], [bundle.encode(texts[i]) for i in chosen], atol=2e-2)


def mutated(program: bytes, generator: np.random.Generator) -> bytes:
    """One to eight bytes or numbers changed, mostly in the flatbuffer at the front."""
    raw = bytearray(program)
    for _ in range(int(generator.integers(1, 9))):
        position = int(generator.integers(8, min(len(raw), 1 << 14 if generator.random() < 0.8 else len(raw)) - 4))
        if generator.random() < 0.5:
            raw[position] ^= 1 << int(generator.integers(8))
        else:
            number = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, len(raw))[int(generator.integers(6))]
            raw[position : position + 4] = number.to_bytes(4, "little")
    return bytes(raw)


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 43))])
def test_a_mutated_pte_is_refused_or_runs(tiny_bundle, tmp_path, seed, monkeypatch):
    """Sealed again, as anybody can; what the trial in a child process lets through is loaded and run here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    program = (folder / "model.pte").read_bytes()
    (folder / "model.pte").write_bytes(mutated(program, np.random.default_rng(seed)))
    reseal(folder)
    try:
        assert load_bundle(folder, "executorch").encode(["hello", "a longer text"]).shape == (2, 32)
    except MsdcError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 1500
