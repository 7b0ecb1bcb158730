"""Corpora of every form, and what is said about the damaged ones."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msdc.distill.data.sources import open_corpora, open_corpus
from msdc.distill.recipe import Corpus
from msdc.errors import InputError


def rows(**settings):
    return [(r.source, r.target, r.language) for s in open_corpus(Corpus(**settings)) for r in s.read()]


def test_two_columns_language_from_the_name(tmp_path):
    path = tmp_path / "set.en-de.tsv"
    path.write_text("A cat.\tEine Katze.\n  A   dog.\tEin Hund.\n", encoding="utf-8")
    assert rows(path=str(path)) == [("A cat.", "Eine Katze.", "de"), ("A dog.", "Ein Hund.", "de")]


@pytest.mark.parametrize("name", ["osm-id.en-de.tsv", "nlvr2-dev-mt.de-en.tsv", "set.en-de.tsv"])
def test_a_set_named_like_a_pair_of_languages(tmp_path, name):
    (tmp_path / name).write_text("A cat.\tEine Katze.\n", encoding="utf-8")
    assert rows(path=str(tmp_path / name), languages=["de"]) == [("A cat.", "Eine Katze.", "de")]


def test_gzip_bom_and_windows_line_ends(tmp_path):
    path = tmp_path / "set.en-fr.tsv.gz"
    path.write_bytes(gzip.compress("\ufeffA cat.\tUn chat.\r\nYes.\tOui.\r\n".encode()))
    assert rows(path=str(path)) == [("A cat.", "Un chat.", "fr"), ("Yes.", "Oui.", "fr")]


def test_header_of_languages_and_selection(tmp_path):
    path = tmp_path / "many.tsv"
    path.write_text("en\tde\tes\nA cat.\tEine Katze.\tUn gato.\n", encoding="utf-8")
    assert rows(path=str(path)) == [("A cat.", "Eine Katze.", "de"), ("A cat.", "Un gato.", "es")]
    assert rows(path=str(path), languages=["es"]) == [("A cat.", "Un gato.", "es")]


def test_limit_and_longest_sentence(tmp_path):
    path = tmp_path / "set.en-de.tsv"
    path.write_text("A.\tB.\n" + "x" * 300 + "\ty\nC.\tD.\nE.\tF.\n", encoding="utf-8")
    assert [r[0] for r in rows(path=str(path), limit=2)] == ["A.", "C."]


def test_bad_lines_are_counted_and_the_first_named(tmp_path):
    path = tmp_path / "set.en-de.tsv"
    path.write_text("A.\tB.\nonly one\nC.\tD.\tE.\n\tempty\nF.\tG.\n", encoding="utf-8")
    (source,) = open_corpus(Corpus(path=str(path)))
    assert [r.source for r in source.read()] == ["A.", "F."]
    assert source.bad == 3
    assert source.first_bad == "line 2: 1 columns, expected 2"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no usable sentence (empty"),
        ("one\ntwo\n", "line 1: 1 columns, expected 2"),
        ("\tx\n", "line 1: an empty side"),
    ],
)
def test_nothing_usable_is_an_error(tmp_path, content, said):
    path = tmp_path / "set.en-de.tsv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match="no usable sentence") as caught:
        rows(path=str(path))
    assert said in str(caught.value) and str(path) in str(caught.value)


def test_truncated_gzip_and_wrong_encoding(tmp_path):
    path = tmp_path / "set.en-de.tsv.gz"
    path.write_bytes(gzip.compress(b"A.\tB.\n" * 5000)[:-12])
    with pytest.raises(InputError, match=r"damaged gzip file after line \d"):
        rows(path=str(path))
    latin = tmp_path / "latin.en-de.tsv"
    latin.write_bytes("A.\tä".encode("latin-1"))
    with pytest.raises(InputError, match=r"line 1: not valid UTF-8 .* at byte 3"):
        rows(path=str(latin))


def test_parquet(tmp_path):
    path = tmp_path / "part.en-nl.parquet"
    pq.write_table(pa.table({"english": ["A cat.", "", "Yes."], "non_english": ["Een kat.", "x", "Ja."]}), path)
    assert rows(path=str(path)) == [("A cat.", "Een kat.", "nl"), ("Yes.", "Ja.", "nl")]
    path.write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="not a parquet file"):
        rows(path=str(path))


def test_two_aligned_files(tmp_path):
    one, two = tmp_path / "a.en", tmp_path / "a.tr"
    one.write_text("Yes.\nNo.\n", encoding="utf-8")
    two.write_text("Evet.\nHayır.\n", encoding="utf-8")
    assert rows(files=[str(one), str(two)], languages=["tr"]) == [("Yes.", "Evet.", "tr"), ("No.", "Hayır.", "tr")]
    two.write_text("Evet.\n", encoding="utf-8")
    with pytest.raises(InputError, match="not line-aligned, one ends at line 1"):
        rows(files=[str(one), str(two)], languages=["tr"])


def test_gettext_catalogue(tmp_path):
    path = tmp_path / "app.en-de.po"
    path.write_text(
        'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "Open "\n"file"\nmsgstr "Datei öffnen"\n\n'
        '#, fuzzy\nmsgid "Close"\nmsgstr "Schluss"\n\nmsgid "Save"\nmsgstr ""\n',
        encoding="utf-8",
    )
    assert rows(path=str(path)) == [("Open file", "Datei öffnen", "de")]


def test_dictionary(tmp_path):
    path = tmp_path / "en-es.txt"
    path.write_text("cat gato\nhouse\tcasa\nlonely\n", encoding="utf-8")
    found = rows(path=str(path), kind="dictionary", languages=["es"])
    assert found == [("cat", "gato", "es"), ("house", "casa", "es")]


def test_plain_text_and_triples(tmp_path):
    text = tmp_path / "lines.txt"
    text.write_text("One.\n\nTwo.\n", encoding="utf-8")
    assert rows(path=str(text)) == [("One.", "", "en"), ("Two.", "", "en")]
    triples = tmp_path / "nli.tsv"
    triples.write_text("A.\tB.\tC.\n", encoding="utf-8")
    (source,) = open_corpus(Corpus(path=str(triples), kind="triples"))
    assert [tuple(r) for r in source.read()] == [("A.", "B.", "en", "C.", 0, None)]


def test_labelled_pairs_become_triples(tmp_path):
    path = tmp_path / "nli.tsv"
    path.write_text(
        "gold_label\tpremise\thypothesis\nneutral\tP1\tn\nentailment\tP1\te1\nentailment\tP1\te2\n"
        "contradiction\tP1\tc\ncontradiction\tP2\tonly\n-\tP2\tno label\nentailment\tP3\te\tx\n"
        "contradiction\tP3\tc\tx\n",
        encoding="utf-8",
    )
    (source,) = open_corpus(Corpus(path=str(path), kind="nli"))
    assert [(r.source, r.target, r.third) for r in source.read()] == [
        ("P1", "e1", "c"),
        ("P1", "e2", "c"),
        ("P3", "e", "c"),
    ]
    assert source.bad == 1 and "no entailment or no contradiction" in source.first_bad


def test_rows_know_which_corpus_they_are_from(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.en-de.tsv").write_text(f"{name}\tx\n", encoding="utf-8")
    corpora = tuple(Corpus(path=str(tmp_path / f"{name}.en-de.tsv")) for name in ("b", "a"))
    assert [(r.source, r.domain) for s in open_corpora(corpora) for r in s.read()] == [("b", 0), ("a", 1)]


def test_missing_files_and_languages(tmp_path):
    with pytest.raises(InputError, match="no such corpus file"):
        open_corpora((Corpus(path=str(tmp_path / "none.tsv")),))
    path = tmp_path / "set.en-de.tsv"
    path.write_text("A.\tB.\n", encoding="utf-8")
    with pytest.raises(InputError, match="nothing in the wanted languages"):
        open_corpora((Corpus(path=str(path), languages=["fr"]),))


def test_an_embedded_line_break_free_giant_does_not_fill_memory(tmp_path):
    path = tmp_path / "set.en-de.tsv"
    path.write_text("x" * 3_000_000 + "\nA.\tB.\n", encoding="utf-8")
    (source,) = open_corpus(Corpus(path=str(path)))
    assert [r.source for r in source.read()] == ["A."]
