"""The command line: exit codes, and one line per error."""

import shutil
import subprocess
import sys

import pytest
import yaml

from msdc.cli import VERBS, main


@pytest.fixture
def fails(capsys):
    """What a command says on standard error; it ends with code 2 and without a traceback."""

    def call(*words: object) -> str:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        shown = capsys.readouterr().err
        assert ended.value.code == 2 and "Traceback" not in shown, shown
        return shown

    return call


def one_error_line(shown: str) -> str:
    (line,) = [line for line in shown.splitlines() if line.startswith("error:")]
    return line


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


def test_a_process_ends_with_one_line_and_its_code(tmp_path):
    command = [sys.executable, "-m", "msdc.cli", "encode", str(tmp_path), "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "not a model folder" in one_error_line(done.stderr), done.stderr


def test_names_and_files_that_are_no_model(fails, tiny_teacher, tmp_path):
    assert "no such model folder" in one_error_line(fails("encode", tmp_path / "none", "x"))
    folder = tmp_path / "model"
    shutil.copytree(tiny_teacher, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-64])
    assert "damaged or not a safetensors file" in one_error_line(fails("encode", folder, "x"))


def test_usage_errors(fails):
    assert "RECIPE" in fails("distill") and "nonsense" in fails("nonsense")


def test_empty_and_one_column_corpora_and_unknown_keys(fails, tmp_path, tiny_recipe_tree):
    corpus, recipe = tmp_path / "set.en-de.tsv", tmp_path / "r.yaml"
    tree = tiny_recipe_tree | {"corpora": [{"path": str(corpus)}]}
    for text, more, said in (
        ("", {}, "no usable sentence"),
        ("one column\nand no more\n", {}, "line 1: 1 columns, expected 2"),
        ("", {"colour": "red"}, "unknown key 'colour'"),
    ):
        corpus.write_text(text)
        recipe.write_text(yaml.safe_dump(tree | more))
        assert said in one_error_line(fails("distill", recipe, "-o", tmp_path / "run"))
        assert not (tmp_path / "run").exists()  # checked before any work
