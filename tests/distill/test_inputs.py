"""What a run reads is recorded by content: it continues with the same text, files and local models only."""

import os
import shutil

import pytest
import tiny_models
import yaml

from msdc.compress.student.io import save_student
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.inputs import changes, read_inputs
from msdc.distill.run_folder import RunFolder
from msdc.distill.sweep import run_sweep
from msdc.errors import InputError


@pytest.fixture
def tree(tiny_tree, tmp_path, parallel_tsv):
    """One short stage; corpus, graded file and student are the test's own."""
    shutil.copy(parallel_tsv, tmp_path / "text.tsv")
    (tmp_path / "dev.tsv").write_text("4.0\tA cat.\tA pet.\n1.0\tA cat.\tThe sky.\n2.5\tTea.\tCoffee.\n")
    (tmp_path / "test.txt").write_text("A sentence of the test set.\n")
    shutil.copytree(tiny_models.student_folder(), tmp_path / "model")
    stage = tiny_tree["stages"][3] | {"steps": 2, "evaluate_every": 2}
    return tiny_tree | {
        "assistant": None, "student": str(tmp_path / "model"), "stages": [stage],
        "exclude": [str(tmp_path / "test.txt")],
        "corpora": [{"path": str(tmp_path / "text.tsv"), "languages": ["de"], "limit": 60}],
        "heldout": {"pairs": 5, "share": 0.1, "graded": [str(tmp_path / "dev.tsv")]},
    }  # fmt: skip


def change(tmp_path, name):
    """Change an input without changing its size or time."""
    path = tmp_path / name
    if path.is_dir():
        save_student(tiny_models.student(positions=40), tiny_models.tokenizer().path, path, force=True)
        return
    facts, raw = path.stat(), path.read_bytes()
    position = raw.index(b"cat") if b"cat" in raw else raw.index(b"test")
    path.write_bytes(raw[:position] + raw[position : position + 3].upper() + raw[position + 3 :])
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.mark.parametrize(
    ("name", "kind"), [("text.tsv", "corpus"), ("dev.tsv", "file"), ("test.txt", "file"), ("model", "model")]
)
def test_a_changed_input_is_refused_on_resume(tree, tmp_path, name, kind):
    distill(tree, tmp_path / "run")
    distill(tree, tmp_path / "run", resume=True)  # the same inputs: nothing to do
    backup = tmp_path / "kept"
    shutil.copytree(tmp_path / name, backup) if kind == "model" else shutil.copy(tmp_path / name, backup)
    change(tmp_path, name)
    message = rf"run was started with other inputs: {kind} .*{name}: changed\. Restore"
    with pytest.raises(InputError, match=message):
        distill(tree, tmp_path / "run", resume=True)
    if kind == "model":
        shutil.rmtree(tmp_path / name)
    shutil.move(backup, tmp_path / name)
    distill(tree, tmp_path / "run", resume=True)


def test_a_sweep_does_not_repeat_its_table_for_another_corpus(tree, tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text(yaml.safe_dump(tree))
    run_sweep(str(file), "seed=1,2", tmp_path / "sweep")
    run_sweep(str(file), "seed=1,2", tmp_path / "sweep")
    change(tmp_path, "text.tsv")
    with pytest.raises(InputError, match=r"started with other inputs: corpus .*text.tsv: changed"):
        run_sweep(str(file), "seed=1,2", tmp_path / "sweep")


def test_a_stage_of_a_run_with_other_text_is_not_reused(tree, tmp_path):
    recipe = parse_recipe(tree, "tiny")
    distill(tree, tmp_path / "one")
    for number, expected in ((1, ["four"]), (2, [])):
        folder = RunFolder(tmp_path / f"other-{number}")
        folder.path.mkdir()
        folder.create(recipe, read_inputs(recipe))
        assert folder.reuse(recipe, tmp_path / "one") == expected
        change(tmp_path, "text.tsv")


def test_a_run_of_an_earlier_version_continues_with_a_warning(tree, tmp_path, capsys):
    distill(tree, tmp_path / "run")
    (tmp_path / "run" / "inputs.json").unlink()
    distill(tree, tmp_path / "run", resume=True)
    assert "was started by an earlier version: rows come in another order" in capsys.readouterr().err


def test_each_change_is_named():
    before = {"corpus a": "1", "corpus b": "2", "file c": "3"}
    now = {"corpus a": "1", "corpus b": "9", "corpus d": "4"}
    assert changes(before, now) == ["corpus b: changed", "corpus d: added", "file c: removed"]
    assert changes(before, before) == []
