"""Files that are no files, files that unpack without bound, and text that is none: one line, soon, with the name."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import one_line

import msdc
from msdc.distill.catalog import apply_overrides, read_tree
from msdc.errors import MsdcError
from msdc.files import read_json, user_cache
from msdc.text.text_files import iterate_lines, read_lines
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer


def odd(folder, kind):
    path = folder / "odd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to("odd")
    else:
        path.symlink_to(kind)
    return path


@pytest.mark.parametrize("kind", ["/dev/zero", "/dev/stdin", "fifo", "folder", "loop", "nothing"])
@pytest.mark.parametrize(
    "read",
    [read_json, read_tree, PieceTokenizer, FastTokenizer, read_lines, lambda path: list(iterate_lines(path))],
    ids=["json", "yaml", "model", "tokenizer.json", "lines", "stream"],
)
def test_only_regular_files_are_read(tmp_path, kind, read):
    assert "odd" in one_line(lambda: read(odd(tmp_path, kind)))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.model", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("kind", ["/dev/zero", "fifo"])
def test_model_folder_with_an_endless_file(tiny_student, tmp_path, name, kind):
    import shutil

    model = tmp_path / "model"
    shutil.copytree(tiny_student, model)
    if name == "tokenizer.json":
        (model / "tokenizer.model").unlink()
    (model / name).unlink()
    os.rename(odd(tmp_path, kind), model / name)
    assert name in one_line(lambda: msdc.load_encoder(model))


def test_damaged_gzip_names_its_file(tmp_path):
    raw = bytearray(gzip.compress(b"one\teins\n" * 5000))
    raw[len(raw) // 2] ^= 255
    (tmp_path / "c.de.tsv.gz").write_bytes(raw)
    text = one_line(lambda: list(iterate_lines(tmp_path / "c.de.tsv.gz")))
    assert "c.de.tsv.gz: damaged gzip" in text


@pytest.mark.parametrize("scalar", ["2026-99-99", "2026-01-01 99:99:99", "0x", "1:99:" + "9" * 400, "9" * 5000])
def test_yaml_scalars(tmp_path, scalar):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"teacher: {scalar}\n")
    try:
        read_tree(path)
    except MsdcError as error:
        assert "recipe.yaml: not valid YAML" in str(error)
    try:
        apply_overrides({"teacher": "x"}, (f"teacher={scalar}",))
    except MsdcError as error:
        assert "not valid YAML" in str(error)


@pytest.mark.parametrize("verb", [("encode",), ("compare",), ("search", "lines.txt")])
def test_arguments_that_are_not_utf8(tmp_path, tiny_student, verb):
    (tmp_path / "lines.txt").write_text("one\n")
    words = [*verb, *([b"a\xff", b"b"] if verb[0] == "search" else [str(tiny_student), b"a\xff", b"b"])]
    command = [sys.executable, "-m", "msdc.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert done.returncode == 2 and "1: not valid UTF-8" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_standard_input_that_is_not_utf8(tmp_path, tiny_student):
    command = [sys.executable, "-m", "msdc.cli", "encode", str(tiny_student)]
    done = subprocess.run(command, input=b"good\nb\xffd\n", capture_output=True, timeout=120, cwd=tmp_path, check=False)
    assert done.returncode == 2 and b"standard input line 2: not valid UTF-8" in done.stderr


def test_user_without_a_home(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def none():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", none)
    assert "set XDG_CACHE_HOME" in one_line(user_cache)


def panicking(folder) -> dict:
    """A tokenizer.json on which the Rust library panics or fails at the first text."""
    from tokenizers import Tokenizer, models

    tree = json.loads(Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="b")).to_str())
    tree["pre_tokenizer"] = {
        "type": "Split", "pattern": {"Regex": "(a|a|aa)+$"}, "behavior": "Isolated", "invert": False,
    }  # fmt: skip
    return tree


def test_panic_of_a_tokenizer_is_one_line(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(panicking(tmp_path)))
    tokenizer = FastTokenizer(path)
    for call in (lambda: tokenizer.encode(["a" * 60 + "!"], 16), lambda: tokenizer.pieces("a" * 60 + "!")):
        assert "tokenizer.json: the tokenizer fails on a text" in one_line(call)


def test_panic_reaches_the_command_line_as_one_line(monkeypatch, capsys):
    from msdc import cli

    class PanicException(BaseException):
        """As pyo3 raises it."""

    def panic(*_, **__):
        raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(cli.msdc, "main", panic)
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor"])
    shown = capsys.readouterr().err
    assert caught.value.code == 1 and shown.startswith("error: PanicException: called") and shown.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
def test_disk_full_while_a_checkpoint_or_a_tokenizer_is_written(tmp_path, monkeypatch):
    import contextlib

    import tiny_models as tiny
    import torch

    from msdc.distill.training import checkpoint
    from msdc.files import disk_errors
    from msdc.text.tokenizer import write_fast_copy

    @contextlib.contextmanager
    def full(target):
        with disk_errors(target):
            yield Path("/dev/full")

    monkeypatch.setattr(checkpoint, "atomic_path", full)
    said = one_line(lambda: checkpoint.save_checkpoint(tmp_path, 3, {"a": torch.zeros(100_000)}))
    assert "disk full while writing" in said and "step-00000003.pt" in said
    assert "disk full while writing /dev/full" in one_line(
        lambda: write_fast_copy(tiny.tokenizer().path, Path("/dev/full"))
    )
