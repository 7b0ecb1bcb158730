"""Tables: read once, whole or absent, keyed by content; what is dropped is stated; held-out rows apart."""

import gzip
import json
import multiprocessing
import os

import numpy as np
import pytest
import tiny_models

from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.tables import (
    READ,
    TRUNCATED,
    open_source_table,
    reading_lines,
    source_key,
    stored_about,
    tables_folder,
)
from msdc.distill.data.text import StageText
from msdc.distill.recipe import Corpus, HeldOut
from msdc.errors import InputError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def pairs(tmp_path, count=900, name="set.en-de.tsv", start=0):
    path = tmp_path / name
    path.write_text("".join(f"Sentence number {i}.\tSatz {i}\n" for i in range(start, start + count)), encoding="utf-8")
    return path


def source_of(path, **settings):
    (source,) = open_corpora((Corpus(path=str(path), **settings),))
    return source


def all_rows(table):
    return table.read(np.arange(table.rows))


def test_a_table_has_the_rows_of_its_file_in_their_order(tmp_path):
    source = source_of(pairs(tmp_path, READ + 100))
    table = open_source_table(source)
    assert all_rows(table) == list(source.read())
    row_numbers = np.array([READ + 5, 3, READ - 1, 3])
    assert [row.source for row in table.read(row_numbers)] == [f"Sentence number {i}." for i in row_numbers]
    assert table.keys.shape == (READ + 100, 2)
    assert len(np.unique(table.keys)) == 2 * (READ + 100)
    assert table.about["rows"] == READ + 100
    assert table.about["dropped"] == []


def test_text_without_translations_has_one_side(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"Line number {i}.\n" for i in range(40)), encoding="utf-8")
    table = open_source_table(source_of(path, kind="text"))
    assert table.sides == 1
    assert table.keys.shape == (40, 1)
    assert [(row.source, row.target) for row in all_rows(table)] == [(f"Line number {i}.", "") for i in range(40)]


def test_tokens_are_those_of_every_text_in_the_order_of_rows_and_sides(tmp_path):
    """Also of rows in the second batch, whose ids start where those of the first end."""
    table, tokenizer = open_source_table(source_of(pairs(tmp_path, READ + 30))), tiny_models.tokenizer(400)
    ids, ends = table.tokens(tokenizer, 16)
    texts = [text for row in all_rows(table) for text in (row.source, row.target)]
    expected = tokenizer.encode(texts, 16)
    assert len(ends) == len(texts) + 1
    assert len(ids) == ends[-1] == sum(map(len, expected))
    assert [ids[ends[n] : ends[n + 1]].tolist() for n in range(len(texts))] == expected
    lengths = [len(row) for row in tokenizer.encode(texts, 1 << 20)]
    for longest in (8, max(lengths) - 1, max(lengths)):
        assert table.truncated(tokenizer, longest) == sum(length > longest for length in lengths)
    assert table.truncated(tokenizer, max(lengths), ("the dog: ", "the dog: ")) > 0, "with the prompt"


def test_it_is_read_once(tmp_path, monkeypatch):
    path = pairs(tmp_path)
    open_source_table(source_of(path))

    def refuse(*_):
        raise AssertionError("read again")

    monkeypatch.setattr("msdc.distill.data.corpora.TextSource.read", refuse)
    assert open_source_table(source_of(path)).rows == 900
    assert stored_about(source_of(path), tables_folder())["rows"] == 900
    # The same content under another name and with another time is the same table.
    copy = tmp_path / "other.en-de.tsv"
    copy.write_bytes(path.read_bytes())
    os.utime(copy, (1, 1))
    assert open_source_table(source_of(copy)).folder == open_source_table(source_of(path)).folder


@pytest.mark.parametrize("keep_time", [True, False])
def test_changed_content_or_settings_are_another_table(tmp_path, keep_time):
    path = pairs(tmp_path)
    before, facts = source_key(source_of(path)), path.stat()
    path.write_bytes(path.read_bytes().replace(b"Satz 7\n", b"Satz 8\n"))
    if keep_time:  # equal size and time: the time of the inode's change differs
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert source_key(source_of(path)) != before
    changed = ({}, {"limit": 5}, {"max_characters": 9}, {"source": "nl", "languages": ["de"]})
    keys = {source_key(source_of(path, **settings)) for settings in changed}
    assert len(keys) == 4
    assert open_source_table(source_of(path, limit=5)).rows == 5


def reader(path, number, ready):
    ready.wait()
    assert open_source_table(source_of(path)).rows == 900 + 0 * number


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_processes_that_want_one_table_write_it_once(tmp_path):
    context = multiprocessing.get_context("fork")
    path, ready = pairs(tmp_path), context.Event()
    processes = [context.Process(target=reader, args=(path, number, ready)) for number in range(3)]
    for process in processes:
        process.start()
    ready.set()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(list((tmp_path / "cache" / "msdc" / "text").glob("*/about.json"))) == 1


def test_what_is_dropped_is_stated_with_its_reason(tmp_path):
    path = pairs(tmp_path, 40)
    text = path.read_text(encoding="utf-8").splitlines()
    text[3], text[9], text[20] = "no translation\t", "\tno source", f"long\t{'x' * 300}"
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    table = open_source_table(source_of(path))
    assert table.rows == 37 == table.about["rows"]
    dropped = {entry["why"]: (entry["rows"], entry["lines"][0]) for entry in table.about["dropped"]}
    assert dropped == {"an empty side": (2, 4), "longer than 250 characters (max_characters)": (1, 21)}
    assert reading_lines(table.about)[1:] == [
        "  dropped 2: an empty side (line 4, 10)",
        "  dropped 1: longer than 250 characters (max_characters) (line 21)",
    ]
    with pytest.raises(InputError, match=r"set.en-de.tsv line 4: an empty side \(on_bad: stop\)"):
        open_source_table(source_of(path, on_bad="stop"))
    path.write_text("\n".join([*text, *["no translation\t"] * 98]) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"100 of 138 lines cannot be read .*more than `most_bad: 0.5`"):
        open_source_table(source_of(path))
    assert open_source_table(source_of(path, most_bad=0.8)).rows == 37
    assert not list((tmp_path / "cache").rglob(".*.partial"))


def test_a_torn_file_ends_where_it_is_torn(tmp_path):
    raw = gzip.compress(pairs(tmp_path, 5000).read_bytes())
    torn = tmp_path / "torn.en-de.tsv.gz"
    torn.write_bytes(raw[: len(raw) // 2])
    table = open_source_table(source_of(torn))
    assert 1000 < table.rows < 4500
    assert all_rows(table)[0].target == "Satz 0"
    (lost,) = table.about["dropped"]
    assert lost["why"].startswith("the rest of the file is not read: damaged compressed file")
    assert lost["lines"][0] >= table.rows
    with pytest.raises(InputError, match="damaged compressed file"):
        open_source_table(source_of(torn, on_bad="stop"))
    torn.write_bytes(raw[:20])
    with pytest.raises(InputError, match="torn"):
        open_source_table(source_of(torn))


def test_kept_rows_are_all_but_the_held_out_ones_shuffled(tmp_path):
    table = open_source_table(source_of(pairs(tmp_path, 2000)))
    training_rows, held = table.training_rows(0.05), table.heldout(0.05, 10_000)
    assert sorted([*training_rows.tolist(), *held.tolist()]) == list(range(2000))
    assert 50 < len(held) < 150
    assert abs(np.corrcoef(training_rows, np.arange(len(training_rows)))[0, 1]) < 0.1
    np.testing.assert_array_equal(open_source_table(table.source).training_rows(0.05), training_rows)
    part = set(table.training_rows(0.05, 0.4).tolist())
    assert part < set(training_rows.tolist())
    assert 0.35 < len(part) / len(training_rows) < 0.45
    np.testing.assert_array_equal(table.heldout(0.05, 7), held[:7])


def test_a_held_out_text_is_trained_on_no_side(tmp_path):
    """In the other order, in other case, as plain text, as a negative: against a scan of all texts."""
    lines = [(f"Question number {n}", f"Answer to the question {n}") for n in range(1500)]
    files = {
        "order": "".join(f"{a}\t{b}\n{b}\t{a}\n" for a, b in lines),
        "case": "".join(f"Another text {n}\t{a.upper()}\n" for n, (a, _) in enumerate(lines)),
        "plain": "".join(f"{text}\n" for text in (*(b for _, b in lines), *(f"Only here {n}" for n in range(99)))),
        "triples": "".join(f"query {n}\tpositive {n}\t{a}\n" for n, (a, _) in enumerate(lines)),
        "answers": "".join(f"Asked {n}\tAnswer to the question {n % 6}\n" for n in range(900)),
    }
    kinds = {"plain": {"kind": "text"}, "triples": {"kind": "triples"}}
    tables = []
    for name, content in files.items():
        path = tmp_path / f"{name}.tsv"
        path.write_text(content, encoding="utf-8")
        settings = kinds.get(name, {"languages": ("de",)})
        tables += [open_source_table(source) for source in open_corpora((Corpus(path=str(path), **settings),))]
    text = StageText(tables, 1, HeldOut(pairs=10_000, share=0.05))
    held = [row for rows in text.heldout_rows().values() for row in rows]
    sources, targets = ({getattr(row, side).lower() for row in held} for side in ("source", "target"))
    trained = [
        row for table, rows in zip(text.tables, text.training_rows, strict=True) for row in table.read(rows.astype(int))
    ]
    assert len(held) > 200
    for row in trained:
        assert not sources & {text.lower() for text in (row.source, row.target, *row.negatives)}
        assert row.source.lower() not in targets
    every = [row for table in tables for row in table.read(np.arange(table.rows))]
    assert len(every) - len(trained) == text.untrained_rows() + sum(
        int((table.places[:, 0] < 0.05 * 2**32).sum()) for table in tables
    )
    # An answer to many questions is trained with those that are not held out.
    assert sum(row.source.startswith("Asked") for row in trained) > 600


def test_text_of_a_stage_has_the_same_held_out_sentences_in_every_language(tmp_path):
    sources = [source_of(pairs(tmp_path, 900)), source_of(pairs(tmp_path, 900, "set.en-nl.tsv"))]
    text = StageText([open_source_table(source) for source in sources], 7, HeldOut(pairs=20, share=0.05))
    held = text.heldout_rows()
    assert [row.source for row in held["de"]] == [row.source for row in held["nl"]]
    assert len(held["de"]) == 20
    assert {row.language for row in held["nl"]} == {"nl"}
    training_sources = {
        row.source for table, rows in zip(text.tables, text.training_rows, strict=True) for row in table.read(rows)
    }
    assert not training_sources & {row.source for row in held["de"]}
    drawn = text.sample_rows(300)
    assert len(drawn) == 600
    assert {row.source for row in drawn} <= training_sources
    assert drawn == text.sample_rows(300)
    # Drawn from the whole file, which may be sorted.
    assert np.mean([int(row.source.split()[2][:-1]) for row in drawn]) == pytest.approx(450, abs=60)


def test_a_corpus_of_held_out_sentences_alone_is_an_error(tmp_path):
    path = tmp_path / "few.en-de.tsv"
    path.write_text("".join(f"Sentence number {i}.\tSatz {i}\n" for i in (62, 139)), encoding="utf-8")
    table = open_source_table(source_of(path))
    share = float((table.places[:, 0].max() + 1) / 2**32)
    if share < 0.5:
        with pytest.raises(InputError, match="no sentences for training besides the held-out ones"):
            _ = StageText([table], 1, HeldOut(share=share)).training_rows


def test_no_descriptor_stays_open(tmp_path):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("counts the descriptors in /proc")
    before = len(os.listdir("/proc/self/fd"))
    tables = [open_source_table(source_of(pairs(tmp_path, 50, f"{n}.en-de.tsv", 100 * n))) for n in range(40)]
    for table in tables:
        assert len(all_rows(table)) == 50
        assert len(table.training_rows(0.004)) > 40
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_note_of_a_file_that_is_damaged_is_ignored(tmp_path):
    path = pairs(tmp_path)
    key = source_key(source_of(path))
    (note,) = (tmp_path / "cache" / "msdc" / "text" / "files").glob("*.json")
    assert json.loads(note.read_text())["file"] == str(path)
    note.write_text("{")
    assert source_key(source_of(path)) == key


@pytest.mark.parametrize("name", ["places", "keys", "rows.arrow", "about.json", "ids", "ends", TRUNCATED])
@pytest.mark.parametrize("how", ["truncated", "gone", "zeros"])
def test_a_damaged_table_is_read_again(tmp_path, name, how, capsys, monkeypatch):
    source, tokenizer = source_of(pairs(tmp_path, 50)), tiny_models.tokenizer()
    table = open_source_table(source)
    rows, (ids, ends) = all_rows(table), [part.copy() for part in table.tokens(tokenizer, 16)]
    path = min(table.folder.rglob(name), key=lambda path: len(path.parts))
    size = path.stat().st_size
    path.unlink() if how == "gone" else path.write_bytes(bytes(size) if how == "zeros" else path.read_bytes()[:-5])
    monkeypatch.setattr("msdc.distill.data.tables._verified", set())  # as in another process
    again = open_source_table(source_of(tmp_path / "set.en-de.tsv"))
    assert all_rows(again) == rows
    tokens = again.tokens(tokenizer, 16)
    assert np.array_equal(tokens[0], ids)
    assert np.array_equal(tokens[1], ends)
    assert ("damaged" in capsys.readouterr().err) == (name not in ("ids", "ends", TRUNCATED))


FILES = {
    "x.en-de.tsv": "".join(f"one {i}\tzwei {i}\n" for i in range(300)).encode(),
    "x.csv": b"en,de\n" + "".join(f"one {i},zwei {i}\n" for i in range(300)).encode(),
    "x.jsonl": "".join(f'{{"en": "one {i}", "de": "zwei {i}"}}\n' for i in range(300)).encode(),
    "x.txt": "".join(f"zwei {i}\n" for i in range(300)).encode(),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("line", [2, 250])
def test_a_byte_that_is_not_utf8_costs_its_line(tmp_path, name, line):
    lines = FILES[name].splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b"zwei", b"zw\xe9i")
    path = tmp_path / name
    path.write_bytes(b"".join(lines))
    table = open_source_table(source_of(path, languages=["de"]))
    assert table.rows == 299
    (lost,) = table.about["dropped"]
    assert (lost["why"], lost["rows"], lost["lines"]) == ("not valid UTF-8", 1, [line])
    with pytest.raises(InputError, match=f"line {line}: not valid UTF-8"):
        open_source_table(source_of(path, languages=["de"], on_bad="stop"))
