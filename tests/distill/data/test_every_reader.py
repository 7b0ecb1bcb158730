"""A rehearsal of what people bring: known rows are written in every format, quoting, header, encoding, line end and
compression, and read by every verb; what comes out is what went in, or is counted."""

import bz2
import csv
import gzip
import io
import json
import lzma
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from msdc.bench.accuracy.contamination import check
from msdc.compress.texts import read_texts
from msdc.distill.corpus import describe_corpus
from msdc.distill.data.corpora import open_corpus
from msdc.distill.data.exclusion import sentences_of
from msdc.distill.recipe import Corpus
from msdc.text.duplicates import normalise
from msdc.text.scored_pairs import read_pairs
from msdc.text.tabular import delimited_rows, iterate_texts
from msdc.text.text_files import csv_rows, iterate_lines
from msdc.text.tokenizer import clean

PACK = {
    "": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
    ".zst": lambda raw: pa.compress(raw, codec="zstd", asbytes=True),
}  # fmt: skip
CHARACTERS = "aBzéß中ا😀019 \u00a0\u2028\x85\"',;|.-_#\\/&<"
MORE = "\t\n"  # in cells of the formats that have a place for them


def texts(extra_characters: str = "") -> st.SearchStrategy[str]:
    """Texts with a letter, so that no reader takes them for numbers or nothing."""
    return st.text(CHARACTERS + extra_characters, max_size=12).map(lambda text: f"x{text}y")


@dataclass(frozen=True)
class Written:
    """A file: its format, its rows, and how it was written; an empty target makes a row that must be counted."""

    form: str
    rows: list[tuple[str, str]]
    header: bool = True
    encoding: str = "utf-8"
    end: str = "\n"
    packed: str = ""
    delimiter: str = ","

    @property
    def full(self) -> list[tuple[str, str]]:
        return [row for row in self.rows if row[1]]

    def write(self, folder: Path) -> Path:
        suffix = {"array": ".json", "lists": ".jsonl"}.get(self.form, f".{self.form}")
        path = folder / f"mine{suffix}{self.packed}"
        if self.form == "parquet":
            pq.write_table(pa.table({"en": [a for a, _ in self.rows], "de": [b for _, b in self.rows]}), path)
        else:
            path.write_bytes(PACK[self.packed](self.text().encode(self.encoding)))
        return path

    def text(self) -> str:
        table = [("en", "de"), *self.rows] if self.header else self.rows
        if self.form == "csv":
            out = io.StringIO()
            quoting = csv.QUOTE_MINIMAL if self.header else csv.QUOTE_ALL
            csv.writer(out, delimiter=self.delimiter, quoting=quoting, lineterminator=self.end).writerows(table)
            return out.getvalue()
        if self.form == "tsv":
            return "".join("\t".join(row) + self.end for row in table)
        objects = [dict(zip(("en", "de"), row, strict=True)) for row in self.rows]
        if self.form == "array":
            return json.dumps(objects, indent=1 if self.header else None, ensure_ascii=self.header)
        if self.form in ("jsonl", "lists"):
            lines = objects if self.form == "jsonl" else self.rows
            return "".join(json.dumps(entry, ensure_ascii=self.header) + self.end for entry in lines)
        if self.form == "tmx":
            segments = ("".join(
                f'<tuv xml:lang="{code}"><seg>{escape(text)}</seg></tuv>'
                for code, text in zip(("en-US" if self.header else "en", "de"), row, strict=True)
            ) for row in self.rows)  # fmt: skip
            return "<tmx><body>" + "\n".join(f"<tu>{unit}</tu>" for unit in segments) + "</body></tmx>"
        blank = "\n" if self.header else "#\n"
        quoted = [[json.dumps(text, ensure_ascii=False) for text in row] for row in self.rows]
        return f'msgid ""\nmsgstr ""\n"Language: de\\n"\n{blank}' + blank.join(
            f"msgid {source}\nmsgstr {target}\n" for source, target in quoted
        )


@st.composite
def files(draw) -> Written:
    form = draw(st.sampled_from(["csv", "csv", "tsv", "jsonl", "lists", "array", "parquet", "tmx", "po"]))
    text_file = form in ("csv", "tsv")
    end = draw(st.sampled_from(["\n", "\r\n", "\r"])) if text_file else "\n"
    extra_characters = MORE if form not in ("tsv",) and end != "\r" else "\t" if form == "csv" else ""
    text_strategy = texts(extra_characters)
    rows = draw(
        st.lists(
            st.tuples(text_strategy, st.one_of(text_strategy, text_strategy, text_strategy, st.just(""))),
            min_size=1,
            max_size=8,
        )
    )
    rows = [(draw(text_strategy), draw(text_strategy)), *rows]  # the columns are chosen by the first rows
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])) if text_file else "utf-8"
    packed = "" if form == "parquet" else draw(st.sampled_from([*PACK, ""]))
    return Written(form, rows, draw(st.booleans()), encoding, end, packed, draw(st.sampled_from(",;\t|")))


def every_reader(file: Written) -> None:
    """The rows of a file through training, `msdc corpus`, `exclude`, contamination, vocabularies and encoding."""
    with tempfile.TemporaryDirectory() as folder:
        path = file.write(Path(folder))
        named = file.form != "lists" and (file.form not in ("csv", "tsv") or file.header)
        header = None if named else False
        expected = [(clean(first), clean(second)) for first, second in file.full]
        (source,) = open_corpus(Corpus(path=str(path), languages=("de",), header=header))
        assert [(row.source, row.target) for row in source.read()] == expected
        assert source.taken + sum(drop["rows"] for drop in source.drops()) == len(file.rows)

        (part,) = describe_corpus(str(path), {"languages": ("de",), "header": header})
        assert (part.rows, part.duplicates) == (len(expected), len(expected) - len(set(expected)))
        assert part.error == ""
        assert part.all_rows

        # Every text of a file may be a test sentence: also those of rows that training does not read.
        normalised_texts = {normalise(text) for row in file.rows for text in row if text}
        assert normalised_texts <= sentences_of(path)
        assert check({"set": sorted(normalised_texts)}, [path], near=None).by_set["set"]["exact"] == len(
            normalised_texts
        )
        assert normalised_texts <= {normalise(text) for text in read_texts(path)}

        column = {"po": "msgid", "tmx": "en-US" if file.header else "en"}.get(file.form, "en" if named else "1")
        read = [text for _, text in iterate_texts(path, column, header)]
        assert [text.strip("\n") for text in read] == [first.strip("\n") for first, _ in file.rows]


EXAMPLES = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@EXAMPLES
@given(files())
@example(Written("csv", [("xay", "xby")], header=False, encoding="utf-16", end="\r", packed=".zst"))
def test_what_comes_out_is_what_went_in(file):
    every_reader(file)


@pytest.mark.slow
@settings(EXAMPLES, max_examples=2000)
@given(files())
def test_what_comes_out_is_what_went_in_many_times(file):
    every_reader(file)


@EXAMPLES
@given(st.lists(st.text('ab",\n', max_size=8).map(lambda text: text.replace("\n", "")), max_size=30))
def test_every_line_of_a_csv_is_in_a_row_or_has_a_reason(lines):
    records = list(csv_rows(lines))
    numbers = [number for number, _ in records]
    ends = [*numbers[1:], len(lines) + 1][: len(records)]
    assert numbers[:1] == [1] * bool(lines)
    assert numbers == sorted(set(numbers))
    for (number, cells), end in zip(records, ends, strict=True):
        if isinstance(cells, str):
            assert end == number + 1
        else:  # the lines of the row, read alone, are that row
            record = "\n".join(lines[number - 1 : end - 1]) + "\n"
            (alone,) = csv.reader(io.StringIO(record, newline=""), strict=True)
            assert cells == [cell.strip("\n") for cell in alone]


@EXAMPLES
@given(
    st.lists(st.tuples(texts(), texts()), min_size=30, max_size=60),
    st.integers(0, 29), st.integers(6, 25), st.booleans(), st.sampled_from([",", ";", "\t", "|"]),
)  # fmt: skip
def test_a_stray_quote_costs_its_own_rows_alone(rows, opening, further, closed, delimiter):
    """A cell that opens a quote, and perhaps one that closes it many lines below: the rows between them are kept."""
    plain = [tuple("".join(c for c in text if c not in '",;|') for text in row) for row in rows]
    lines = [delimiter.join(row) for row in plain]
    lines[opening] = f'"{lines[opening]}'
    closing = opening + further if closed and opening + further < len(lines) else None
    if closing is not None:
        first, second = plain[closing]
        lines[closing] = f'{first}"{delimiter}{second}'
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        corpus = Corpus(path=str(path), languages=("de",), header=False)
        (source,) = open_corpus(corpus)
        pairs = [(row.source, row.target) for row in source.read()]
        assert [tuple(map(clean, row)) for n, row in enumerate(plain) if n not in (opening, closing)] == [
            row for row in pairs if closing is None or row[0] != clean(plain[closing][0] + '"')
        ]
        assert len(pairs) + sum(drop["rows"] for drop in source.drops()) == len(rows)
        assert source.dropped
        assert opening + 1 in next(iter(source.dropped.values()))[1]


@EXAMPLES
@given(
    st.lists(st.tuples(st.integers(0, 50), texts(), texts()), min_size=2, max_size=8),
    st.sampled_from(["csv", "tsv", "jsonl", "parquet"]), st.booleans(), st.sampled_from(",;\t|"),
)  # fmt: skip
def test_scored_pairs_of_every_format(rows, form, blank, delimiter):
    names = ("score", "sentence1", "sentence2")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"scored.{form}"
        if form == "parquet":
            pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path)
        elif form == "jsonl":
            objects = (dict(zip(names, row, strict=True)) for row in rows)
            path.write_text("".join(json.dumps(record) + "\n" for record in objects) + "\n" * blank)
        elif form == "tsv":
            path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows) + "\n" * blank, encoding="utf-8")
        else:
            out = io.StringIO()
            csv.writer(out, delimiter=delimiter).writerows([names, *rows])
            path.write_text(out.getvalue() + "\n" * blank, encoding="utf-8")
        pairs = read_pairs(path, limits=(0, 50))
        assert list(zip(pairs.gold_N, pairs.first, pairs.second, strict=True)) == [
            (score, first.strip(), second.strip()) for score, first, second in rows
        ]


def test_rows_of_an_ordinary_poem_stay_one_cell(tmp_path):
    """A document of many lines with a comma in some of them is no row of a table."""
    poem = (
        "Roses are red,\nviolets are blue,\nthe sea\nis wide, and deep, and old\nand so\nare you.\nIt rains.\nNo more."
    )
    path = tmp_path / "poems.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "text"), (1, poem), (2, "A short one.")])
    assert [text for _, text in iterate_texts(path, "text")] == [poem, "A short one."]
    assert delimited_rows(path)[0] == "csv with commas"
    assert sum(1 for _ in iterate_lines(path)) == 10
