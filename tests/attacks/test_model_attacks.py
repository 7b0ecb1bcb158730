"""Damaged model folders and tokenizer files: each gives a one-line error; no C++ loader crashes."""

import gzip
import json
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
import tiny_models as tiny
from refusals import one_line
from tokenizers import Tokenizer, models

import msdc
from msdc import cli
from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.weights import read_arrays
from msdc.distill.catalog import apply_overrides, read_tree
from msdc.errors import MsdcError
from msdc.export import export
from msdc.export.readme import CardFacts, read_card
from msdc.files import read_json
from msdc.loading import load_encoder
from msdc.text.text_files import iterate_lines, read_lines
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer


@pytest.fixture
def model(tmp_path):
    return save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "model")


def bad_headers(raw: bytes) -> dict[str, bytes]:
    """safetensors headers with false values."""
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    name = next(key for key in header if key != "__metadata__")

    def pack(changed: dict) -> bytes:
        text = json.dumps(changed).encode()
        return struct.pack("<Q", len(text)) + text + raw[8 + size :]

    return {
        "cut": raw[: len(raw) // 2],
        "empty": b"",
        "header only": raw[:8],
        "header longer than the file": struct.pack("<Q", 2**62) + raw[8:],
        "tensor beyond the end": pack({**header, name: {**header[name], "data_offsets": [0, 2**40]}}),
        "overlapping": pack({**header, name: {**header[name], "data_offsets": [4, 0]}}),
        "huge shape": pack({**header, name: {**header[name], "shape": [2**40, 2**20]}}),
        "unknown dtype": pack({**header, name: {**header[name], "dtype": "PICKLE"}}),
        "a pickle": b"\x80\x04cos\nsystem\n(S'touch owned'\ntR.",
    }


def test_damaged_safetensors(model, tmp_path):
    path = model / "model.safetensors"
    for kind, raw in bad_headers(path.read_bytes()).items():
        path.write_bytes(raw)
        assert "model.safetensors" in one_line(lambda: read_arrays(path)), kind
        one_line(lambda: load_student(model))
        one_line(lambda: export(str(model), target="web", output=tmp_path / "out"))
        assert not (tmp_path / "out").exists()
        assert not list(tmp_path.glob(".out*"))


def test_oversized_weights_are_refused_before_memory_is_taken(model):
    """A sparse 40 GB file with a valid header: half-precision numbers whose size doubles when they are read."""
    path = model / "model.safetensors"
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, body = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    huge = 40_000_000_000
    header["more"] = {"dtype": "F16", "shape": [huge // 2], "data_offsets": [len(body), len(body) + huge]}
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + body)
        out.truncate(8 + len(text) + len(body) + huge)
    assert "asks for at most" in one_line(lambda: load_student(model))


def test_damaged_tokenizers_in_a_child_process(model, tmp_path):
    """SentencePiece and tokenizers are C++ and Rust: the process must survive whatever damage they are given."""
    source = (model / "tokenizer.model").read_bytes()
    fast = (model / "tokenizer.json").read_bytes()
    generator = np.random.default_rng(0)
    folder = tmp_path / "damaged"
    folder.mkdir()
    for number in range(60):
        data = bytearray(source)
        position = int(generator.integers(len(data)))
        if number % 3 == 0:
            data = data[:position]
        elif number % 3 == 1:
            data[position] ^= 1 << int(generator.integers(8))
        else:
            data[position : position + 8] = generator.bytes(8)
        (folder / f"{number}.model").write_bytes(data)
        (folder / f"{number}.json").write_bytes(fast[: int(generator.integers(len(fast)))])
    code = (
        "import sys\nfrom pathlib import Path\nfrom msdc.text.tokenizer import FastTokenizer, PieceTokenizer\n"
        "from msdc.errors import MsdcError\n"
        "for path in sorted(Path(sys.argv[1]).iterdir()):\n"
        "    kind = PieceTokenizer if path.suffix == '.model' else FastTokenizer\n"
        "    try: kind(path).encode(['hello world', ''], 16); print('loaded')\n"
        "    except MsdcError as error: print('refused'); assert '\\n' not in str(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stdout[-300:], done.stderr[-800:])
    assert len(done.stdout.split()) == 120
    assert "refused" in done.stdout


def test_parts_that_do_not_fit(model, tmp_path):
    """A table smaller than the tokenizer, weights of another shape, tokenizers larger than any."""
    small = save_student(tiny.student(vocabulary=300), tiny.tokenizer().path, tmp_path / "small")
    assert "rows" in one_line(lambda: export(str(small), target="web", output=tmp_path / "out"))
    config = (model / "config.json").read_text()
    (model / "config.json").write_text(json.dumps(json.loads(config) | {"hidden": 64}))
    one_line(lambda: load_student(model))
    (model / "config.json").write_text(config)
    for name in ("tokenizer.model", "tokenizer.json"):
        with open(model / name, "r+b") as handle:
            handle.truncate(200 * 1024 * 1024)
    one_line(lambda: load_encoder(model))


def test_no_model_at_all(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in (tmp_path / "folder", tmp_path / "absent", tiny.bundle()):
        message = one_line(lambda name=name: export(str(name), target="web", output=tmp_path / "out"))
    assert "bundle" in message


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
    assert "c.de.tsv.gz: damaged compressed" in text


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


def test_panic_of_a_tokenizer_is_one_line(tmp_path):
    """A tokenizer.json on which the Rust library panics or fails at the first text."""
    tree = json.loads(Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="b")).to_str())
    regex = {"Regex": "(a|a|aa)+$"}
    tree["pre_tokenizer"] = {"type": "Split", "pattern": regex, "behavior": "Isolated", "invert": False}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tree))
    tokenizer = FastTokenizer(path)
    shown = one_line(lambda: tokenizer.encode(["a" * 60 + "!"], 16))
    assert "tokenizer.json: the tokenizer fails on a text" in shown


def test_panic_reaches_the_command_line_as_one_line(monkeypatch, capsys):
    class PanicException(BaseException):
        """As pyo3 raises it."""

    def panic(*_, **__):
        raise PanicException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(cli.msdc, "main", panic)
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor"])
    shown = capsys.readouterr().err
    assert caught.value.code == 1
    assert shown.startswith("error: PanicException: called")
    assert shown.count("\n") == 1


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
