"""Files that are no files, files that unpack without bound, and text that is none: one line, soon, with the name."""

import gzip
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import one_line

import msdc
from msdc.distill.catalog import apply_overrides, read_tree
from msdc.distill.data.sources import open_corpora
from msdc.distill.recipe import Corpus
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


def peak_mib(code, *arguments):
    """Peak memory of a fresh process above what importing takes, and its output."""
    program = (
        "import resource, sys\nfrom msdc.distill.data.sources import open_corpora\n"
        "from msdc.distill.recipe import Corpus\nimport pyarrow.parquet\nfrom msdc.errors import MsdcError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n" + code +
        "\nprint('peak', (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )  # fmt: skip
    limit = 6 * 2**30  # the machine is not put at risk by a failure
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=240,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    return int(done.stdout.split("peak ")[1]), done.stdout


READ = """
kind = 'gettext' if '.po' in sys.argv[1] else 'auto'
for source in open_corpora([Corpus(path=sys.argv[1], languages=('de',), kind=kind)]):
    for number, row in enumerate(source.rows()):
        if number == 20000: break
    print(number, len(row.source))
"""


def test_parquet_whose_rows_share_one_huge_text(tmp_path):
    def column():
        return pa.DictionaryArray.from_arrays(pa.array([0] * 30_000, pa.int32()), pa.array(["x" * 1_000_000]))

    table = pa.table({"en": column(), "de": column()})
    path = tmp_path / "bomb.de.parquet"
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 20_000
    peak, _ = peak_mib(READ, path)
    assert peak < 400, peak


def lying_parquet(path, compression, value_bytes, as_dictionary=False):
    """One text of `value_bytes` in a page of the first column, while the footer states a few bytes."""
    texts = ["x" * value_bytes] + ["x"] * 99
    table = pa.table({"en": texts, "de": ["y"] * 100})
    pq.write_table(table, path, compression=compression, use_dictionary=as_dictionary, write_statistics=False,
                   data_page_size=1 << 40, dictionary_pagesize_limit=1 << 40)  # fmt: skip
    raw = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)

    def varint(number):
        number *= 2  # zigzag
        out = b""
        while number > 127:
            out, number = out + bytes([number & 127 | 128]), number >> 7
        return out + bytes([number])

    claimed = varint(column.total_uncompressed_size)
    # As many bytes, so that no offset changes: 40, with empty digits above.
    lie = bytes([1 << 7 | 0x50, *[0x80] * (len(claimed) - 2), 0])
    footer = raw.rindex(claimed)
    path.write_bytes(raw[:footer] + lie + raw[footer + len(claimed) :])
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size < 100
    return path


@pytest.mark.parametrize(("compression", "as_dictionary"), [("zstd", False), ("zstd", True), ("brotli", False)])
def test_parquet_page_that_lies_about_its_size(tmp_path, compression, as_dictionary):
    """The footer states a few bytes, the page unpacks to 200 MB: refused before anything is unpacked."""
    path = lying_parquet(tmp_path / "lie.de.parquet", compression, 200_000_000, as_dictionary)
    assert path.stat().st_size < 200_000
    peak, shown = peak_mib(
        "try:\n    [list(s.rows()) for s in open_corpora([Corpus(path=sys.argv[1], languages=('de',))])]\n"
        "except MsdcError as error:\n    print(error)\n", path,
    )  # fmt: skip
    assert "lie.de.parquet: row group 0 has a page of 200" in shown and peak < 50, (peak, shown)


def test_parquet_page_as_large_as_is_allowed(tmp_path):
    path = lying_parquet(tmp_path / "large.de.parquet", "zstd", 120_000_000)
    peak, shown = peak_mib(READ, path)
    assert shown.startswith("99 1") and peak < 1200, (peak, shown)


@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_parquet_page_headers_add_up_to_what_an_honest_footer_states(tmp_path, version, pages, compression):
    """Against the library's own count, for both kinds of pages, with and without dictionaries, statistics and nulls."""
    import mmap

    from msdc.text.parquet import page_sizes

    path = tmp_path / "honest.parquet"
    texts = [None if n % 7 == 0 else f"text {n % 50} {'long ' * (n % 90)}" for n in range(20_000)]
    pq.write_table(
        pa.table({"en": texts, "de": texts}), path, version=version, data_page_version=pages, compression=compression,
        use_dictionary=["en"], data_page_size=4096, row_group_size=7000, write_page_index=True,
    )  # fmt: skip
    with open(path, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        metadata = pq.ParquetFile(path).metadata
        for column in (metadata.row_group(g).column(c) for g in range(3) for c in range(2)):
            start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
            sizes = list(page_sizes(raw, start, start + column.total_compressed_size))
            assert sum(is_dictionary for _, is_dictionary in sizes) == column.has_dictionary_page
            headers = column.total_uncompressed_size - sum(size for size, _ in sizes)
            assert 8 * len(sizes) < headers < 600 * len(sizes)  # the footer's number counts the headers too


def test_parquet_reads_as_before(tmp_path):
    rows = [("one", "eins"), ("two", "zwei"), (None, "x"), ("one", "eins"), ("", "y"), ("three", "drei")]
    path = tmp_path / "c.de.parquet"
    pq.write_table(
        pa.table({"english": [a for a, _ in rows], "non_english": [b for _, b in rows]}), path, row_group_size=2
    )
    (source,) = open_corpora([Corpus(path=str(path), languages=("de",))])
    found = [(row.source, row.target) for row in source.rows()]
    assert found == [row for row in rows if row[0]]


@pytest.mark.parametrize(("place", "where"), [(40, "in row group 0 (a damaged page header)"), (400, "after row 0 (")])
def test_damaged_parquet_names_its_file(tmp_path, place, where):
    path = tmp_path / "c.de.parquet"
    texts = [f"text number {i}" for i in range(5000)]
    pq.write_table(pa.table({"en": texts, "de": texts}), path, use_dictionary=False, compression="gzip")
    raw = bytearray(path.read_bytes())
    raw[place:4000] = bytes([0xFF] * (4000 - place))
    path.write_bytes(raw)
    assert f"c.de.parquet: damaged parquet file {where}" in one_line(
        lambda: [list(source.rows()) for source in open_corpora([Corpus(path=str(path), languages=("de",))])]
    )


def test_damaged_gzip_names_its_file(tmp_path):
    raw = bytearray(gzip.compress(b"one\teins\n" * 5000))
    raw[len(raw) // 2] ^= 255
    (tmp_path / "c.de.tsv.gz").write_bytes(raw)
    text = one_line(lambda: list(iterate_lines(tmp_path / "c.de.tsv.gz")))
    assert "c.de.tsv.gz: damaged gzip" in text


def test_gettext_message_without_end(tmp_path):
    path = tmp_path / "c.de.po.gz"
    with gzip.open(path, "wb", compresslevel=1) as handle:
        handle.write(b'msgid "good"\nmsgstr "gut"\n\nmsgid ""\n')
        for _ in range(60):
            handle.write(b'"' + b"x" * 500_000 + b'"\n')
        handle.write(b'msgstr "y"\n\nmsgid "last"\nmsgstr "letzt"\n')
    began = time.monotonic()
    peak, shown = peak_mib(READ, path)
    assert peak < 100 and time.monotonic() - began < 60
    (source,) = open_corpora([Corpus(path=str(path), languages=("de",), kind="gettext")])
    assert [(row.source, row.target) for row in source.rows()] == [("good", "gut"), ("last", "letzt")], shown


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
