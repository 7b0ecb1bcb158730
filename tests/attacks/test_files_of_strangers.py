"""Files that are no files, files that unpack without bound, and text that is none: one line, soon, with the name."""

import gzip
import json
import os
import shutil

import pytest
from refusals import one_line
from tokenizers import Tokenizer, models

import msdc
from msdc import cli
from msdc.distill.catalog import apply_overrides, read_tree
from msdc.errors import MsdcError
from msdc.export.readme import CardFacts, read_card
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


def test_user_without_a_home(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def none():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", none)
    assert "set XDG_CACHE_HOME" in one_line(user_cache)


def test_panic_of_a_tokenizer_is_one_line(tmp_path):
    """A tokenizer.json on which the Rust library panics or fails at the first text."""
    tree = json.loads(Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="b")).to_str())
    regex = {"Regex": "(a|a|aa)+$"}
    tree["pre_tokenizer"] = {"type": "Split", "pattern": regex, "behavior": "Isolated", "invert": False}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tree))
    tokenizer = FastTokenizer(path)
    for call in (lambda: tokenizer.encode(["a" * 60 + "!"], 16), lambda: tokenizer.pieces("a" * 60 + "!")):
        assert "tokenizer.json: the tokenizer fails on a text" in one_line(call)


def test_panic_reaches_the_command_line_as_one_line(monkeypatch, capsys):
    class PanicException(BaseException):
        """As pyo3 raises it."""

    def panic(*_, **__):
        raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(cli.msdc, "main", panic)
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor"])
    shown = capsys.readouterr().err
    assert caught.value.code == 1 and shown.startswith("error: PanicException: called") and shown.count("\n") == 1


# Ten times ten times ten ...: a kilobyte that expands to 10^9 strings.
LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
CODE = "name: !!python/object/apply:os.system ['touch owned']\n"


@pytest.mark.parametrize("text", [LAUGHS, CODE, "a: [" * 5000, "\udcff"])
def test_model_card(tmp_path, text, monkeypatch):
    """An export reads the card of any model folder: a bad block gives no facts and runs no code."""
    monkeypatch.chdir(tmp_path)
    card = f"---\n{text}---\n# x\n".encode("utf-8", "surrogateescape")
    (tmp_path / "README.md").write_bytes(card)
    assert read_card(tmp_path) == CardFacts()
    assert not (tmp_path / "owned").exists()
