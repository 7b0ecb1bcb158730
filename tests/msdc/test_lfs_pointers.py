"""A clone without Git LFS holds pointers in place of large files: every reader names them as such, with the remedy."""

import hashlib
import shutil
from pathlib import Path

import pytest
import tiny_models as tiny
from refusals import one_line, reseal

from msdc.bench.toolchain.build import own_runner
from msdc.cli import main
from msdc.distill.training.checkpoint import newest
from msdc.errors import InputError
from msdc.export.bundle import load_bundle
from msdc.export.inspect import inspect_path
from msdc.files import MAX_POINTER_BYTES, regular_size
from msdc.loading import load_encoder
from msdc.text.tabular import iterate_texts


def point(path: Path) -> None:
    """What git puts in the place of a file that LFS keeps elsewhere."""
    raw = path.read_bytes() if path.exists() else b""
    oid = hashlib.sha256(raw).hexdigest()
    path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(raw)}\n")


def named(attempt, path: Path) -> None:
    line = one_line(attempt, InputError)
    assert line.startswith(f"{path}: a pointer of Git LFS, not the file itself: run `git lfs pull`"), line


BUNDLE = ["bundle.json", "model.pte", "model.onnx", "model.onnx.data", "sentencepiece.model", "golden.json"]


@pytest.mark.parametrize("name", BUNDLE)
def test_in_a_bundle(name, tmp_path):
    folder = tmp_path / "bundle"
    shutil.copytree(tiny.bundle(), folder)
    point(folder / name)
    named(lambda: load_bundle(folder, "onnx"), folder / name)
    named(lambda: inspect_path(folder), folder / name)


@pytest.mark.parametrize("name", ["model.pte", "model.onnx", "model.onnx.data"])
def test_a_program_by_itself(name, tmp_path):
    folder = tmp_path / "bundle"
    shutil.copytree(tiny.bundle(), folder)
    point(folder / name)
    program = "model.onnx" if name == "model.onnx.data" else name
    named(lambda: inspect_path(folder / program), folder / name)


def test_a_pointer_that_was_sealed(tmp_path):
    """A bundle that was exported from such a clone: its hashes are those of the pointer."""
    folder = tmp_path / "bundle"
    shutil.copytree(tiny.bundle(), folder)
    point(folder / "model.onnx.data")
    reseal(folder)
    named(lambda: load_bundle(folder, "onnx"), folder / "model.onnx.data")


@pytest.mark.parametrize("name", ["model.safetensors", "sentencepiece.model", "config.json"])
def test_in_a_student(name, tmp_path):
    folder = tmp_path / "student"
    shutil.copytree(tiny.student_folder(), folder)
    point(folder / name)
    named(lambda: load_encoder(folder), folder / name)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "modules.json"])
def test_in_a_stock_model(name, tiny_teacher, tmp_path):
    folder = tmp_path / "teacher"
    shutil.copytree(tiny_teacher, folder)
    file = next(path for path in folder.rglob(name))
    point(file)
    named(lambda: load_encoder(folder), file)


@pytest.mark.parametrize(
    "name", ["a.txt", "a.tsv", "a.csv", "a.jsonl", "a.json", "a.txt.gz", "a.parquet", "a.po", "a.tmx"]
)
def test_texts_and_tables(name, tmp_path):
    file = tmp_path / name
    point(file)
    named(lambda: list(iterate_texts(file)), file)


COMMANDS = [
    ["corpus", "a.en-de.tsv"], ["corpus", "a.tmx"], ["corpus", "a.parquet"], ["corpus", "a.csv"],
    ["distill", "a.yaml", "-o", "out"], ["report", "a.json"], ["evaluate", "msdc-mini", "--tasks", "sts=a.tsv"],
    ["encode", "msdc-mini", "-i", "a.txt"], ["search", "a.txt", "word"],
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=[" ".join(words) for words in COMMANDS])
def test_a_command(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = next(word.rpartition("=")[2] for word in words if "a." in word)
    point(tmp_path / file)
    with pytest.raises(SystemExit) as exit_info:
        main(words)
    assert exit_info.value.code == 2
    told = capsys.readouterr()
    assert f"{file}: a pointer of Git LFS" in (told.out if words[0] == "corpus" else told.err)


def test_a_checkpoint_and_a_runner(tmp_path):
    (tmp_path / "step-1.json").write_text("{}")
    for name, attempt in (("step-1.pt", lambda path: newest(path.parent)), ("msdc-runner", own_runner)):
        point(tmp_path / name)
        named(lambda attempt=attempt, name=name: attempt(tmp_path / name), tmp_path / name)


def test_what_only_begins_so_is_a_file(tmp_path):
    line = "version https://git-lfs.github.com/spec/v1 is how a pointer begins\n"
    large, other = tmp_path / "large.txt", tmp_path / "other.txt"
    large.write_text(line + "x" * MAX_POINTER_BYTES)
    other.write_text("version https://git-lfs.github.com/spec/v2\n")
    assert regular_size(large) > MAX_POINTER_BYTES
    assert regular_size(other) == 43
