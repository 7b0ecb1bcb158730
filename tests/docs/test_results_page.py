"""Results pages are written from one clean commit."""

import argparse
import json
import subprocess

import pytest
import results_page

from msdc.files import sha256_file


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository of two files with one commit; `git(...)` runs in it."""

    def git(*words):
        author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *author, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "docs/results").mkdir(parents=True)
    (tmp_path / "code.py").write_text("1\n")
    (tmp_path / "docs/results/page.md").write_text("# Page\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    monkeypatch.setattr(results_page, "ROOT", tmp_path)
    return tmp_path, git


def test_a_page_is_written_from_a_clean_commit_only(checkout, capsys):
    root, git = checkout
    parser = results_page.options_for("text", "page")
    assert parser.parse_args(["--write", "docs/results/page.md"]).write.name == "page.md"
    # Pages that were written one after another do not stop the next.
    (root / "docs/results/page.md").write_text("# Other\n")
    assert results_page.page_to_write("x.md").name == "x.md"
    assert "local changes" not in results_page.code_version()
    (root / "code.py").write_text("2\n")
    with pytest.raises(SystemExit):
        parser.parse_args(["--write", "docs/results/page.md"])
    assert "commit first" in capsys.readouterr().err
    assert results_page.code_version().endswith("with local changes")
    git("commit", "-qam", "two")
    results_page.page_to_write("x.md")
    # A file that is measured but not committed.
    (root / "weights.bin").write_text("1\n")
    with pytest.raises(argparse.ArgumentTypeError, match="commit first"):
        results_page.page_to_write("x.md")


def test_a_shipped_model_is_measured_as_it_is_committed(checkout):
    root, git = checkout
    (root / "model").mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (root / "model" / name).write_text(name)
    with pytest.raises(SystemExit, match="commit it, then measure"):
        results_page.measured_files(root / "model")
    git("add", ".")
    git("commit", "-qm", "model")
    assert [file.name for file in results_page.measured_files(root / "model")] == [
        "model.safetensors",
        "tokenizer.json",
    ]
    (root / "model/tokenizer.json").write_text("other")
    with pytest.raises(SystemExit, match=r"tokenizer\.json of model is not the one of the commit"):
        results_page.measured_files(root / "model")


def test_outside_a_checkout_no_page_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(results_page, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(argparse.ArgumentTypeError, match="this is no git checkout"):
        results_page.page_to_write("x.md")


def test_rows_of_a_page_are_of_one_commit(checkout, tmp_path_factory):
    _, git = checkout
    file = tmp_path_factory.mktemp("work") / "rows.jsonl"
    results_page.KeptRows(file).add({"name": "first"})
    rows = results_page.KeptRows(file)
    assert rows.has(name="first")
    assert rows[0]["code"] == results_page.code_version()
    git("commit", "-q", "--allow-empty", "-m", "two")
    with pytest.raises(SystemExit, match="move it away to measure them with"):
        results_page.KeptRows(file)
    file.write_text(json.dumps({"name": "of no commit"}) + "\n")
    with pytest.raises(SystemExit, match="unknown code"):
        results_page.KeptRows(file)


def test_a_model_is_named_with_its_weights_and_vocabulary():
    from msdc.encoders.folder import locate_model

    folder = results_page.Path(locate_model("msdc-mini"))
    line = results_page.model_version("msdc-mini")
    assert all(sha256_file(folder / name) in line for name in ("model.safetensors", "tokenizer.model"))
