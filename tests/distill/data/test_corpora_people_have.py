"""Corpora as researchers have them: each form is read into the same pairs, or one error says what was seen."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msdc.distill.data.sources import open_corpus
from msdc.distill.recipe import Corpus
from msdc.errors import InputError

PAIRS = [("A cat, asleep.", 'Eine Katze, "schlafend".'), ("Two\tdogs.", "Zwei Hunde."), ("It is late.", "Es ist spät.")]
READ = [(one.replace("\t", " "), two, "de") for one, two in PAIRS]


def rows(**settings):
    return [(r.source, r.target, r.language) for s in open_corpus(Corpus(**settings)) for r in s.read()]


def written_csv(table, delimiter=",", quoting=csv.QUOTE_MINIMAL):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quoting=quoting).writerows(table)
    return out.getvalue().encode()


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize(
    "table",
    [
        [("en", "de"), *PAIRS],
        [("id", "en", "de", "score"), *((n, *pair, 0.5 + n) for n, pair in enumerate(PAIRS))],
        [("source", "target"), *PAIRS],
        [(n, *pair, 0.5) for n, pair in enumerate(PAIRS)],
        [("url", "de", "en"), *(("http://a.b", two, one) for one, two in PAIRS)],
    ],
    ids=["languages", "id-and-score", "names", "no-header", "other-order"],
)
def test_csv_whatever_its_columns(tmp_path, table, delimiter):
    path = tmp_path / "mine.csv"
    path.write_bytes(written_csv(table, delimiter))
    assert rows(path=str(path), languages=["de"]) == READ
    packed = tmp_path / "mine.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert rows(path=str(packed), languages=["de"]) == READ


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_quotes_of_tab_separated_text_are_taken_off_where_they_are_quotes(tmp_path, quoting):
    path = tmp_path / "mine.en-de.tsv"
    path.write_bytes(written_csv(PAIRS, "\t", quoting))
    assert rows(path=str(path)) == READ


def test_a_quoted_sentence_of_plain_tab_separated_text_keeps_its_quotes(tmp_path):
    path = tmp_path / "mine.en-de.tsv"
    path.write_text('"Yes."\t"Ja."\n"No," she said.\tNein.\n', encoding="utf-8")
    assert rows(path=str(path)) == [('"Yes."', '"Ja."', "de"), ('"No," she said.', "Nein.", "de")]


def test_a_quote_that_is_never_closed_is_one_bad_line(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text('en,de\nA.,B.\n"C.,D.\n' + "x,y\n" * 50_000 + 'E.,F.\n"G.","H."\n', encoding="utf-8")
    (source,) = open_corpus(Corpus(path=str(path)))
    found = [r.source for r in source.read()]
    assert found[0] == "A." and found[-2:] == ["E.", "G."]
    assert source.bad == 1 and source.first_bad.startswith("line 3: not valid csv")


@pytest.mark.parametrize(
    "make",
    [
        lambda one, two: {"en": one, "de": two, "id": 7},
        lambda one, two: {"id": 3, "translation": {"de": two, "en": one}},
        lambda one, two: {"english": one, "non_english": two, "score": 0.3},
        lambda one, two: [one, two],
    ],
    ids=["languages", "translation", "names", "lists"],
)
def test_json_lines(tmp_path, make):
    path = tmp_path / "mine.jsonl"
    lines = [json.dumps(make(*pair), ensure_ascii=False) for pair in PAIRS]
    path.write_text("\n".join([*lines, "{broken", "3"]) + "\n", encoding="utf-8")
    assert rows(path=str(path), languages=["de"]) == READ
    (source,) = open_corpus(Corpus(path=str(path), languages=["de"]))
    list(source.read())
    assert source.reasons == {"not JSON": (1, 4), "neither a JSON object nor a list": (1, 5)}


def test_columns_named_by_languages_in_words(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(written_csv([("No", "English", "German"), *((str(n), *pair) for n, pair in enumerate(PAIRS))]))
    assert rows(path=str(path)) == READ
    assert rows(path=str(path), source="de", languages=["en"])[0] == (PAIRS[0][1], PAIRS[0][0], "en")


def test_several_languages_of_one_table_are_several_sources(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"translation": {"en": "Yes.", "de": "Ja.", "fr": "Oui."}}) + "\n")
    assert rows(path=str(path)) == [("Yes.", "Ja.", "de"), ("Yes.", "Oui.", "fr")]
    assert rows(path=str(path), languages=["fr"]) == [("Yes.", "Oui.", "fr")]


def test_columns_name_the_pair_and_the_text(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_bytes(written_csv([("frase uno", "note", "frase dos"), *((a, "x y", b) for a, b in PAIRS)]))
    named = {"path": str(path), "languages": ["de"], "columns": ["frase uno", "frase dos"]}
    assert rows(**named) == READ
    with pytest.raises(InputError, match="no column 'frase tres'"):
        rows(**{**named, "columns": ["frase uno", "frase tres"]})
    with pytest.raises(InputError, match="pairs need two columns"):
        rows(**{**named, "columns": ["frase uno"]})
    assert rows(path=str(path), kind="text", columns=["frase dos"])[0] == (PAIRS[0][1], "", "en")
    numbered = tmp_path / "ids.tsv"
    numbered.write_text("17\tA.\t18\tB.\n", encoding="utf-8")
    assert rows(path=str(numbered), languages=["de"], columns=[4, 2]) == [("B.", "A.", "de")]
    # Tatoeba's export: a number beside each sentence.
    assert rows(path=str(numbered), languages=["de"]) == [("A.", "B.", "de")]


def test_columns_of_triples(tmp_path):
    path = tmp_path / "triples.jsonl"
    path.write_text(json.dumps({"negative": "C.", "anchor": "A.", "positive": "B."}) + "\n")
    (source,) = open_corpus(Corpus(path=str(path), kind="triples"))
    assert [(r.source, r.target, r.third) for r in source.read()] == [("A.", "B.", "C.")]


def test_parquet_with_a_translation_struct(tmp_path):
    path = tmp_path / "train-00000-of-00001.parquet"
    pq.write_table(pa.table({"translation": [{"de": two, "en": one} for one, two in PAIRS], "id": [1, 2, 3]}), path)
    assert rows(path=str(path), languages=["de"]) == READ


def test_a_saved_data_set_and_its_training_part(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"translation": [{"en": one, "de": two} for one, two in PAIRS], "n": [1, 2, 3]})
    data.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"test": data.select([0]), "train": data.select([2, 1])}).save_to_disk(str(tmp_path / "two"))
    assert rows(path=str(tmp_path / "one")) == READ
    assert rows(path=str(tmp_path / "two")) == [READ[2], READ[1]]
    datasets.DatasetDict({"a": data, "b": data}).save_to_disk(str(tmp_path / "three"))
    with pytest.raises(InputError, match="no part `train` \\(has a, b\\)"):
        rows(path=str(tmp_path / "three"))
    (tmp_path / "one" / "state.json").write_text("{}")
    with pytest.raises(InputError, match=r"not a folder that datasets.load_from_disk opens"):
        rows(path=str(tmp_path / "one"))


def test_any_data_set_that_the_library_opens(tmp_path, monkeypatch):
    """A folder laid out like a data set of the hub, with a configuration per language pair in OPUS-100's order."""
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "opus"
    entries = []
    for code in ("de", "fr"):
        (folder / f"{code}-en").mkdir(parents=True)
        made = [{"translation": {"en": one, code: two}} for one, two in PAIRS]
        (folder / f"{code}-en" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
        entries.append(f"- config_name: {code}-en\n  data_files:\n  - split: train\n    path: {code}-en/rows.jsonl\n")
    (folder / "README.md").write_text("---\nconfigs:\n" + "".join(entries) + "---\n")
    assert rows(hub=str(folder), languages=["de"]) == READ
    assert rows(hub=str(folder), subset="fr-en")[0][2] == "fr"
    with pytest.raises(
        InputError, match=r"which configuration for tr is meant \(`subset: NAME`\)\? It has de-en, fr-en"
    ):
        rows(hub=str(folder), languages=["tr"])


TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>Press <bpt i="1">&lt;b&gt;</bpt><hi>OK</hi><ept i="1">&lt;/b&gt;</ept>.</seg></tuv>
<tuv xml:lang="de-DE"><seg>OK drücken.</seg></tuv><tuv xml:lang="fr"><seg>Appuyez.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Only English.</seg></tuv></tu>
</body></tmx>
"""


def test_translation_memory(tmp_path):
    path = tmp_path / "memory.tmx"
    path.write_text(TMX, encoding="utf-8")
    assert rows(path=str(path)) == [("Press OK.", "OK drücken.", "de"), ("Press OK.", "Appuyez.", "fr")]
    packed = tmp_path / "memory.tmx.gz"
    packed.write_bytes(gzip.compress(TMX.encode()))
    (source,) = open_corpus(Corpus(path=str(packed), languages=["de"]))
    assert [r.target for r in source.read()] == ["OK drücken."]
    assert source.reasons == {"no de in the unit": (1, 2)}


def test_xliff_of_both_versions(tmp_path):
    one = tmp_path / "app.xlf"
    one.write_text(
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" '
        'target-language="de-DE"><body><trans-unit id="1"><source>Open <g id="1">file</g><ph id="2">{0}</ph></source>'
        '<target state="translated">Datei öffnen</target></trans-unit><trans-unit id="2"><source>New</source>'
        '<target state="needs-translation">New</target></trans-unit></body></file></xliff>',
        encoding="utf-8",
    )
    assert rows(path=str(one)) == [("Open file", "Datei öffnen", "de")]
    two = tmp_path / "app2.xliff"
    two.write_text(
        '<xliff version="2.0" srcLang="en" trgLang="fr" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">'
        '<unit id="1"><segment><source>Open</source><target>Ouvrir</target></segment></unit></file></xliff>',
        encoding="utf-8",
    )
    assert rows(path=str(two), languages=["fr"]) == [("Open", "Ouvrir", "fr")]
    with pytest.raises(InputError, match="translates from 'en', the corpus is from 'de'"):
        rows(path=str(two), source="de", languages=["fr"])


def test_xml_entities_and_endless_units_are_refused(tmp_path):
    path = tmp_path / "bomb.tmx"
    path.write_text('<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><tmx><body>&b;</body></tmx>')
    with pytest.raises(InputError, match="XML entities are not read"):
        rows(path=str(path), languages=["de"])
    path.write_text("<tmx><body><tu><tuv><seg>" + "x" * 9_000_000)
    with pytest.raises(InputError, match="one unit is longer than 8 MiB"):
        rows(path=str(path), languages=["de"])
    path.write_text("<tmx><body>")
    with pytest.raises(InputError, match="not well-formed XML"):
        rows(path=str(path), languages=["de"])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.xlsx", b"PK\x03\x04....", "a zip archive or an Office document. Known: csv, tab-separated"),
        ("a.json", b"[\n{}\n]\n", "one JSON list; write one object per line"),
        ("a.csv", b"alpha beta,gamma,delta eps\nx y,zeta,k l\n", r"csv of 3 columns.*`columns: \[A, B\]`"),
        ("a.jsonl", b'{"p": "x y", "q": "z", "r": "v"}\n', r"JSON lines of 3 columns \(p, q, r\), first row \['x y'"),
    ],
)
def test_one_error_lists_the_known_forms_and_what_was_seen(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        rows(path=str(path), languages=["de"])
    assert "TMX, XLIFF, gettext" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [("mine.tsv", "A.\tB.\n", "auto"), ("mine.txt", "cat Katze\n", "dictionary"), ("mine.po", 'msgid "a"\n', "auto")],
)
def test_a_language_that_nothing_tells_is_asked_for(tmp_path, name, content, kind):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError, match=r"nothing says which language .*`languages: \[de\]`.*NAME.en-de.tsv"):
        rows(path=str(path), kind=kind)


def test_languages_of_aligned_files_and_catalogues_are_in_their_names_or_headers(tmp_path):
    for code, text in (("en", "Yes.\n"), ("de", "Ja.\n")):
        (tmp_path / f"text.{code}").write_text(text)
    files = [str(tmp_path / "text.en"), str(tmp_path / "text.de")]
    assert rows(files=files) == [("Yes.", "Ja.", "de")]
    path = tmp_path / "app.po"
    path.write_text('msgid ""\nmsgstr ""\n"Language: tr\\n"\n\nmsgid "Yes"\nmsgstr "Evet"\n')
    assert rows(path=str(path)) == [("Yes", "Evet", "tr")]


def test_a_folder_is_read_with_all_its_forms(tmp_path):
    (tmp_path / "a.en-de.csv").write_text("A.,B.\n")
    (tmp_path / "b.jsonl").write_text('{"en": "C.", "de": "D."}\n')
    (tmp_path / "notes.md").write_text("no corpus")
    assert rows(path=str(tmp_path)) == [("A.", "B.", "de"), ("C.", "D.", "de")]
