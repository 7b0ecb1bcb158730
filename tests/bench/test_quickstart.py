"""The whole road: taken up, refused, replaced; and once walked end to end with few steps."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from msdc.bench.quickstart import BUNDLE, REPORT, RESULTS, prepare_folder
from msdc.bench.result import BenchFile
from msdc.errors import InputError


def run_folder(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in ("recipe.yaml", *names):
        (folder / name).write_text("x")
    return folder


def test_a_fresh_place_and_an_unfinished_run(tmp_path):
    assert prepare_folder(tmp_path / "new", force=False) is False
    (tmp_path / "empty").mkdir()
    assert prepare_folder(tmp_path / "empty", force=False) is False
    assert prepare_folder(run_folder(tmp_path / "begun"), force=False) is True


def test_a_finished_run_says_where_its_report_is(tmp_path):
    folder = run_folder(tmp_path / "done", REPORT, "environment.json")
    with pytest.raises(InputError, match=r"report\.html: pass `force`"):
        prepare_folder(folder, force=False)
    assert prepare_folder(folder, force=True) is False
    assert not folder.exists()


def test_a_folder_of_something_else_is_never_deleted(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").write_text("x")
    for force in (False, True):
        with pytest.raises(InputError, match="not a run folder"):
            prepare_folder(folder, force=force)
    # Beside a recipe of the user's own.
    (folder / "recipe.yaml").touch()
    with pytest.raises(InputError, match="not a run folder"):
        prepare_folder(folder, force=True)
    assert (folder / "cat.jpg").is_file()


@pytest.mark.slow
def test_the_whole_road_with_few_steps(tmp_path):
    """Every step is the real one; only the number of optimizer steps is small, so the artifacts are poor but true."""
    folder = tmp_path / "quick"
    stages = ("train-assistant", "align-bottleneck", "train-student", "contrast")
    few = [part for stage in stages for part in ("--set", f"stages.{stage}.steps=2")]
    command = [sys.executable, "-m", "msdc.cli", "quickstart", "-o", str(folder), "--runs", "10", *few]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    last = done.stdout.splitlines()[-1]
    assert Path(last) == folder / REPORT
    assert "A demonstration of the workflow, not a good model." in (folder / REPORT).read_text(encoding="utf-8")
    assert Path(last).is_file()
    results = BenchFile.model_validate(json.loads((folder / RESULTS).read_text()))
    bundles = [(run.artifact.bundle, run.artifact.runtime) for run in results.runs]
    assert bundles == [("quickstart", "executorch"), ("quickstart", "onnx")]
    assert [model.role for model in results.models] == ["teacher", "assistant", "student"]
    for owner in [*results.runs, *results.models]:
        assert owner.accuracy[0].name == "graded-pairs"
        assert owner.accuracy[0].pairs >= 60
    teacher, _, student = results.models
    assert student.parameters < teacher.parameters / 2
    assert results.runs[0].artifact.bytes < student.bytes / 3
    assert results.runs[0].artifact.bytes == (folder / BUNDLE / "model.pte").stat().st_size
    page = Path(last).read_text()
    for stage in stages:
        assert f"Training loss of stage {stage}" in page
    assert "Shares of the loss" in page
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 2
    assert "--force" in again.stderr
