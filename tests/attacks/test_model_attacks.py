"""Damaged model folders and tokenizer files: each gives a one-line error; no C++ loader crashes."""

import json
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
import tiny_models as tiny
from refusals import one_line

from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.weights import read_arrays
from msdc.encoders.encoder import load_encoder
from msdc.errors import MsdcError
from msdc.export import export


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
        one_line(lambda: export(str(model), target="web", out=tmp_path / "out"))
        assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


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


def test_weights_of_another_shape(model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "hidden": 64}))
    one_line(lambda: load_student(model))


def test_damaged_tokenizers_in_a_child_process(model, tmp_path):
    """SentencePiece and tokenizers are C++ and Rust: the process must survive whatever damage they are given."""
    source = (model / "tokenizer.model").read_bytes()
    fast = (model / "tokenizer.json").read_bytes()
    generator = np.random.default_rng(0)
    folder = tmp_path / "damaged"
    folder.mkdir()
    for number in range(60):
        data = bytearray(source)
        at = int(generator.integers(len(data)))
        if number % 3 == 0:
            data = data[:at]
        elif number % 3 == 1:
            data[at] ^= 1 << int(generator.integers(8))
        else:
            data[at : at + 8] = generator.bytes(8)
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
    assert len(done.stdout.split()) == 120 and "refused" in done.stdout


def test_oversized_tokenizer(model):
    for name in ("tokenizer.model", "tokenizer.json"):
        with open(model / name, "r+b") as handle:
            handle.truncate(200 * 1024 * 1024)
    one_line(lambda: load_encoder(model))


def test_tokenizer_larger_than_the_table(model, tmp_path):
    small = save_student(tiny.student(vocabulary=300), tiny.tokenizer().path, tmp_path / "small")
    assert "rows" in one_line(lambda: export(str(small), target="web", out=tmp_path / "out"))


def test_no_model_at_all(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in (tmp_path / "folder", tmp_path / "absent"):
        one_line(lambda name=name: export(str(name), target="web", out=tmp_path / "out"))


def test_a_bundle_is_no_model(tmp_path):
    shutil.copytree(tiny.bundle(), tmp_path / "bundle")
    with pytest.raises(MsdcError, match="bundle"):
        export(str(tmp_path / "bundle"), target="web", out=tmp_path / "out")
