"""`msdc encode FILE... -o FOLDER`: one complete file for each file, of any type of vector, continued after a kill."""

import datetime
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import msdc
from msdc.cli import msdc as cli
from msdc.commands import vectors as module
from msdc.commands.vectors import MANIFEST, Texts, describe, encode_to_file, of_texts, stored_vectors
from msdc.files import unfinished

TEXTS = [f"sentence {number} about a station" for number in range(7)]


@pytest.fixture(scope="module")
def model():
    return msdc.load_encoder("msdc-nano")


@pytest.fixture
def shards(tmp_path):
    """Two parquet files with ids of several types in row groups of three rows."""
    folder = tmp_path / "data"
    folder.mkdir()
    for shard in range(2):
        when = [datetime.datetime(2026, 1, 1 + n) for n in range(7)]
        table = pa.table(
            {"id": [f"{shard}-{n}" for n in range(7)], "text": TEXTS, "when": pa.array(when, pa.timestamp("ns"))}
        )
        pq.write_table(table, folder / f"part-{shard}.parquet", row_group_size=3)
    return folder


def run(*words, code=0):
    done = CliRunner().invoke(cli, [str(word) for word in words])
    exit_code = getattr(done.exception, "exit_code", done.exit_code) if code else done.exit_code
    assert exit_code == code, done.output + repr(done.exception)
    return str(done.exception) if code else done.stderr


def table_of(path: Path):
    table = pq.read_table(path)
    return table, np.array(table["vector"].to_pylist())


def encode(shards, out, *words, code=0):
    return run("encode", "msdc-nano", f"{shards}/*.parquet", "--column", "text", "-o", out, *words, code=code)


def test_a_glob_becomes_a_file_for_each_and_columns_keep_their_types(model, shards, tmp_path):
    out = tmp_path / "vectors"
    encode(shards, out, "--keep", "id", "--keep", "when")
    assert sorted(path.name for path in out.iterdir()) == [".lock", MANIFEST, "part-0.parquet", "part-1.parquet"]
    for shard in range(2):
        table, vectors_ND = table_of(out / f"part-{shard}.parquet")
        source = pq.read_table(shards / f"part-{shard}.parquet")
        assert table.column_names == ["id", "when", "vector"]
        assert table.select(["id", "when"]).equals(source.select(["id", "when"]))
        np.testing.assert_allclose(vectors_ND, model.encode(TEXTS), atol=1e-6)
    manifest = json.loads((out / MANIFEST).read_text())
    assert (manifest["model"], manifest["dtype"], manifest["dimensions"]) == ("msdc-nano", "float32", model.width)
    assert (manifest["fingerprint"], manifest["precision"]) == (model.fingerprint(), "int8")
    assert len(pq.read_table(out)) == 14  # the manifest is no part of the data set


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "binary"])
def test_types_of_vectors(model, tmp_path, dtype):
    from sentence_transformers.util.quantization import quantize_embeddings

    exact_ND = model.encode(TEXTS)
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    for suffix in (".npy", ".parquet", ".jsonl"):
        run("encode", "msdc-nano", "-i", texts, "-o", tmp_path / f"out{suffix}", "--dtype", dtype)
    stored_NW = np.load(tmp_path / "out.npy")
    table, vectors_NW = table_of(tmp_path / "out.parquet")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    np.testing.assert_array_equal(stored_NW, vectors_NW)
    np.testing.assert_allclose([line["vector"] for line in lines], vectors_NW, atol=1e-6)
    assert stored_NW.dtype == {"float32": "f4", "float16": "f2", "int8": "i1", "binary": "i1"}[dtype]
    if dtype == "binary":
        np.testing.assert_array_equal(stored_NW, quantize_embeddings(exact_ND, precision="binary"))
    elif dtype == "int8":
        scales_N = np.array(table["scale"].to_pylist())
        np.testing.assert_allclose([line["scale"] for line in lines], scales_N, rtol=1e-6)
        assert np.all(np.abs(vectors_NW * scales_N[:, None] - exact_ND) < scales_N[:, None] / 2 + 1e-6)
    else:
        np.testing.assert_allclose(stored_NW, exact_ND, atol=5e-4 if dtype == "float16" else 1e-6)
    zeros, _ = stored_vectors(np.zeros((1, 16), np.float32), dtype)
    assert np.all(zeros == (-128 if dtype == "binary" else 0))


def test_existing_files_are_skipped_only_if_they_are_of_the_same_texts_and_model(shards, tmp_path):
    out = tmp_path / "vectors"
    encode(shards, out)
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert "exists already" in encode(shards, out, code=2)
    pq.write_table(pa.table({"text": TEXTS}), shards / "part-2.parquet")
    assert "in 1 files; 2 existed" in encode(shards, out, "--skip-existing")
    assert before.items() <= {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}.items()
    for words, name in (
        (["--dtype", "int8"], "dtype"), (["--prompt", "query: "], "fingerprint, prompt"), (["--keep", "id"], "keep"),
        (["--truncate-dim", "8"], "fingerprint, dimensions"),
    ):  # fmt: skip
        for force in ([], ["--force"]):
            message = encode(shards, out, "--skip-existing", *force, *words, code=2)
            assert f"has vectors of another kind ({name}, see {MANIFEST})" in message
    pq.write_table(pa.table({"text": TEXTS * 2}), shards / "part-0.parquet")
    assert "of other texts" in encode(shards, out, "--skip-existing", code=2)
    (out / "part-0.parquet").write_bytes(b"PAR1 no parquet")
    assert "not a file of vectors" in encode(shards, out, "--skip-existing", code=2)
    encode(shards, out, "--force")
    assert len(pq.read_table(out / "part-0.parquet")) == 14


def test_folders_inside_and_files_without_rows(tmp_path):
    for language in ("de", "en"):
        (tmp_path / "data" / f"lang={language}").mkdir(parents=True)
        (tmp_path / "data" / f"lang={language}" / "part.csv").write_text("id,text\n1,a cat\n")
    (tmp_path / "data" / "_SUCCESS").touch()
    (tmp_path / "data" / "notes.pdf").touch()
    pq.write_table(
        pa.table({"id": pa.array([], pa.int64()), "text": pa.array([], pa.string())}),
        tmp_path / "data" / "empty.parquet",
    )
    out = tmp_path / "data" / "vectors"
    for words in ([], ["--skip-existing"]):  # the output is no input of the second run
        shown = run("encode", "msdc-nano", tmp_path / "data", "--column", "text", "--keep", "id", "-o", out, *words)
        assert "1 files are no texts by their names" in shown
    names = {str(path.relative_to(out)): len(pq.read_table(path, partitioning=None)) for path in out.rglob("*.parquet")}
    assert names == {"lang=de/part.parquet": 1, "lang=en/part.parquet": 1, "empty.parquet": 0}
    assert pq.read_schema(out / "empty.parquet").names == ["id", "vector"]


def test_two_files_never_have_one_file_of_vectors(tmp_path):
    for name in ("a/x.csv", "b/x.csv", "a/y.csv", "a/y.tsv", "a/Z.csv", "a/z.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text\na cat\n")
    pairs = [("a/x.csv", "b/x.csv"), ("a/y.csv", "a/y.tsv"), ("a/Z.csv", "a/z.csv")]
    for pair in pairs:
        words = [tmp_path / name for name in pair]
        message = run("encode", "msdc-nano", *words, "--column", "text", "-o", tmp_path / "out", code=2)
        assert "would both be written to" in message
        assert not (tmp_path / "out").exists()
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "b" / "own.parquet")
    words = ["encode", "msdc-nano", tmp_path / "b" / "own.parquet", "--column", "text", "-o", tmp_path / "b", "--force"]
    assert "would replace it" in run(*words, code=2)
    assert pq.read_table(tmp_path / "b" / "own.parquet")["text"].to_pylist() == TEXTS


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing/*.csv", "-o", "out/"], "missing/*.csv: no file of texts"),
        (["x.csv", "-o", "out/", "--keep", "nine", "--column", "text"], "no column 'nine'"),
        (["x.csv", "-o", "out/", "--keep", "id"], "`keep` takes columns of a table"),
        (["-i", "x.csv", "-o", "out.npy", "--keep", "id", "--column", "text"], "has no columns"),
        (["-i", "x.csv", "-o", "out.parquet", "--keep", "vector", "--column", "text"], "name of a written column"),
        (["-o", "out/"], "pass the files of texts"),
        (["a text", "--dtype", "int8"], "need an output"),
        (["-i", "x.csv", "-o", "out.npy", "--skip-existing", "--column", "text"], "needs a folder"),
    ],
)
def test_wrong_words_are_one_line_and_write_nothing(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("id,text\n1,a cat\n")
    done = CliRunner().invoke(cli, ["encode", "msdc-nano", *words])
    assert message in done.output + str(done.exception)
    assert getattr(done.exception, "exit_code", done.exit_code) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


class Interrupted:
    """A model that a signal interrupts at a call of `encode`."""

    def __init__(self, model, calls: int) -> None:
        self.model, self.calls_left = model, calls

    def __getattr__(self, name):
        return getattr(self.model, name)

    def encode(self, texts):
        self.calls_left -= 1
        if self.calls_left < 0:
            raise KeyboardInterrupt
        return self.model.encode(texts)


def test_what_is_done_is_not_done_again(model, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 5)
    texts = [f"sentence {number} of the text" for number in range(23)]
    description = describe(model, "float32")

    def write(name: str, calls: int, texts=texts, description=description) -> int:
        """How many calls of the model were left."""
        interrupted = Interrupted(model, calls)
        encode_to_file(interrupted, Texts(of_texts(iter(texts))), tmp_path / name, description)
        return interrupted.calls_left

    write("whole.npy", 5)
    with pytest.raises(KeyboardInterrupt):
        write("out.npy", 3)
    assert [path.suffix for path in tmp_path.iterdir() if path.name.startswith(".")] == [".partial"]
    # Other texts from the second block on: only the first is taken.
    with pytest.raises(KeyboardInterrupt):
        write("out.npy", 2, [*texts[:5], "another", *texts[6:]])
    assert write("out.npy", 5) == 5 - 4
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    # A damaged or torn record is computed again.
    for cut, flip in ((-3, None), (None, 700)):
        with pytest.raises(KeyboardInterrupt):
            write("damaged.npy", 3)
        (partial,) = tmp_path.glob(".damaged.npy.*")
        content = bytearray(partial.read_bytes()[:cut])
        if flip:
            content[flip] ^= 1
        partial.write_bytes(content)
        write("damaged.npy", 5)
        assert (tmp_path / "damaged.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
        (tmp_path / "damaged.npy").unlink()


@pytest.mark.skipif(sys.platform != "linux", reason="locks of unfinished files are those of Linux")
def test_files_in_work_are_left_to_the_other_process(model, shards, tmp_path):
    out = tmp_path / "vectors"
    with unfinished(out / "part-0.parquet", model.fingerprint()):
        assert "in work by another process" in encode(shards, out, code=2)
        assert not (out / "part-0.parquet").exists()
        shown = encode(shards, out, "--skip-existing")
        assert "1 files are in work by other processes and were left to them" in shown
        assert (out / "part-1.parquet").exists()
    assert "in 1 files; 1 existed" in encode(shards, out, "--skip-existing")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_that_are_killed_leave_whole_files(tmp_path, number):
    data, out = tmp_path / "data", tmp_path / "vectors"
    data.mkdir()
    for shard in range(6):
        (data / f"{shard}.txt").write_text("".join(f"line {n} of shard {shard}\n" for n in range(3000)))
    words = [sys.executable, "-m", "msdc", "encode", "msdc-nano", str(data), "-o", str(out), "--skip-existing"]
    workers = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    while not list(out.glob("*.parquet")):
        assert any(worker.poll() is None for worker in workers)
    workers[0].send_signal(number)
    errors = [worker.communicate()[1] for worker in workers]
    assert workers[1].returncode == 0, errors[1]
    assert workers[0].returncode in (0, -number, 128 + number), errors[0]
    assert "Traceback" not in "".join(errors)
    for path in out.glob("*.parquet"):
        assert len(pq.read_table(path)) == 3000
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(pq.read_table(out)) == 18_000
