"""The command line in real processes: exit codes, and one line per error."""

import os
import shutil
import subprocess
import sys

import pytest
import yaml

from msdc.cli import VERBS


def msdc(*arguments, **settings):
    return subprocess.run(
        [sys.executable, "-m", "msdc.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **settings,
    )


def one_error_line(done, code):
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    return lines[0]


def test_help_of_every_verb_imports_no_torch():
    code = f"""
import sys, msdc.cli
for words in [[], *([verb] for verb in {list(VERBS)!r})]:
    try:
        msdc.cli.main([*words, "--help"])
    except SystemExit as ended:
        assert ended.code == 0, words
    assert "torch" not in sys.modules, words
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: msdc") == 1 + len(VERBS) and all(verb in done.stdout for verb in VERBS)


def test_a_folder_that_is_no_model_and_a_name_nobody_knows(tmp_path):
    assert "not a model folder" in one_error_line(msdc("encode", tmp_path, "x"), 2)
    assert "no such model folder" in one_error_line(msdc("encode", tmp_path / "none", "x"), 2)


def test_usage_errors_exit_2():
    done = msdc("distill")
    assert done.returncode == 2 and "RECIPE" in done.stderr
    assert msdc("nonsense").returncode == 2


def test_empty_and_one_column_corpora_and_unknown_keys(tmp_path, tiny_recipe_tree):
    corpus = tmp_path / "set.en-de.tsv"
    recipe = tmp_path / "r.yaml"

    def run(tree):
        recipe.write_text(yaml.safe_dump(tree))
        return one_error_line(msdc("distill", recipe, "-o", tmp_path / "run"), 2)

    tree = tiny_recipe_tree | {"corpora": [{"path": str(corpus)}]}
    corpus.write_text("")
    assert "no usable sentence" in run(tree)
    assert not (tmp_path / "run").exists()  # checked before any work
    corpus.write_text("one column\nand no more\n")
    assert "line 1: 1 columns, expected 2" in run(tree)
    assert "unknown key 'colour'" in run(tree | {"colour": "red"})


def test_a_truncated_safetensors_file(tmp_path, tiny_recipe_tree):
    folder = tmp_path / "model"
    shutil.copytree(tiny_recipe_tree["teacher"], folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-64])
    assert "damaged or not a safetensors file" in one_error_line(msdc("encode", folder, "x"), 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_leaves_one_line_and_nothing_half_written(tmp_path, tiny_recipe_tree):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=320k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("this system does not let tests mount a tmpfs")
    try:
        recipe = tmp_path / "r.yaml"
        recipe.write_text(yaml.safe_dump(tiny_recipe_tree))
        line = one_error_line(msdc("distill", recipe, "-o", small / "run"), 1)
        assert "disk full" in line
        assert not list(small.rglob("*.partial")) and not (small / "run" / "student").exists()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
