"""The blocks of docs/guides/machines.md: two tasks of an array, two processes of torchrun; Ray and Spark where they are
installed (benchmarks/machines.py runs them too)."""

import importlib.util
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models as tiny
from markdown import blocks
from page_code import environment
from places import ROOT

import msdc

RAY, SPARK, ARRAY, FILL, TORCHRUN = blocks(ROOT / "docs/guides/machines.md")
TEXTS = [f"Zug {number} hat Verspätung." for number in range(40)]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shards").mkdir()
    for shard in range(4):
        rows = range(shard * 10, shard * 10 + 10)
        table = pa.table({"id": rows, "text": [TEXTS[row] for row in rows]})
        pq.write_table(table, tmp_path / f"shards/part-{shard}.parquet")
    return tmp_path


def run(folder: Path, *words: str, **variables: str) -> str:
    variables = environment(folder) | variables
    for _ in range(3):
        done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=600)
        if "Text file busy" not in done.stderr:  # a child of another thread still has the new script open
            break
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def require_vectors(folder: Path, atol: float) -> None:
    table = pq.read_table(folder).sort_by("id")
    assert table["id"].to_pylist() == list(range(len(TEXTS)))
    expected = msdc.load_encoder("msdc-nano").encode(TEXTS)
    np.testing.assert_allclose(np.array(table["vector"].to_pylist(), np.float32), expected, atol=atol)


def test_tasks_of_an_array(folder):
    def task(number: str) -> None:
        run(folder, "bash", "-eu", "-c", ARRAY.text, SLURM_ARRAY_TASK_ID=number, SLURM_ARRAY_TASK_COUNT="2")

    with ThreadPoolExecutor(2) as pool:
        [*pool.map(task, "01")]
    require_vectors(folder / "slurm", 1e-3)
    before = {path: path.stat().st_mtime_ns for path in (folder / "slurm").glob("*.parquet")}
    task("1")  # requeued
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_processes_of_torchrun(folder):
    program = shutil.which("torchrun", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("torchrun is not installed")
    shutil.copytree(tiny.student_folder(), folder / "path/to/model")
    (folder / "fill.py").write_text(FILL.text.replace("/shared/cache", str(folder / "cache")), encoding="utf-8")
    _, *words = TORCHRUN.text.split()
    # 20 and 20, then 0 and 0, as digits: one process may write between the other's number and its end of line.
    digits = ["".join(sorted("".join(run(folder, program, *words).split()))) for _ in range(2)]
    assert digits == ["0022", "00"]


@pytest.mark.parametrize(("package", "block"), [("ray", RAY), ("pyspark", SPARK)])
def test_cluster_libraries(folder, package, block):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    run(folder, sys.executable, "-c", block.text)
    require_vectors(folder / package.removeprefix("py"), 1e-5)
