"""Corpora as researchers have them: each format is read into the same pairs, bad lines are counted, or one error says
what was seen; `msdc corpus` shows what training would read."""

import csv
import gzip
import io
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from refusals import one_line

from msdc.compress.vocabulary.train import train_vocabulary
from msdc.distill.corpus import command
from msdc.distill.data.corpora import BY_KIND, ONE_LANGUAGE, open_corpora, open_corpus
from msdc.distill.recipe import KINDS, Corpus
from msdc.errors import InputError

PAIRS = [("A cat, asleep.", 'Eine Katze, "schlafend".'), ("Two\tdogs.", "Zwei Hunde."), ("It is late.", "Es ist spät.")]
READ = [(english.replace("\t", " "), german, "de") for english, german in PAIRS]


def rows(**settings):
    return [(r.source, r.target, r.language) for s in open_corpus(Corpus(**settings)) for r in s.read()]


def write_file(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def as_csv(table, delimiter=",", quoting=csv.QUOTE_MINIMAL):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quoting=quoting).writerows(table)
    return out.getvalue().encode()


# --- tables


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize(
    "table",
    [
        [("en", "de"), *PAIRS],
        [("id", "en", "de", "score"), *((n, *pair, 0.5 + n) for n, pair in enumerate(PAIRS))],
        [("source", "target"), *PAIRS],
        [(n, *pair, 0.5) for n, pair in enumerate(PAIRS)],
        [("url", "de", "en"), *(("http://a.b", german, english) for english, german in PAIRS)],
        [("No", "English", "German"), *((str(n), *pair) for n, pair in enumerate(PAIRS))],
    ],
    ids=["languages", "id-and-score", "names", "no-header", "other-order", "in-words"],
)
def test_csv_whatever_its_columns(tmp_path, table, delimiter):
    content = as_csv(table, delimiter)
    assert rows(path=write_file(tmp_path / "mine.csv", content), languages=["de"]) == READ
    assert rows(path=write_file(tmp_path / "mine.csv.gz", gzip.compress(content)), languages=["de"]) == READ


def test_cells_of_several_lines_with_another_delimiter_in_them(tmp_path):
    path = write_file(tmp_path / "mine.en-de.csv", '"x\n\ty","v\n\tw"\n"a\n\tb","c\n\td"\n')
    assert rows(path=path) == [("x y", "v w", "de"), ("a b", "c d", "de")]


def test_quotes_of_tab_separated_text_are_text(tmp_path):
    path = write_file(tmp_path / "mine.en-de.tsv", '"Yes."\t"Ja."\n"No," she said.\tNein.\n')
    assert rows(path=path) == [('"Yes."', '"Ja."', "de"), ('"No," she said.', "Nein.", "de")]


def test_a_quote_that_is_never_closed_is_one_bad_line(tmp_path):
    path = write_file(tmp_path / "mine.csv", 'en,de\nA.,B.\n"C.,D.\n' + "x,y\n" * 50_000 + 'E.,F.\n"G.","H."\n')
    (source,) = open_corpus(Corpus(path=path))
    sources = [r.source for r in source.read()]
    assert sources[0] == "A."
    assert sources[-2:] == ["E.", "G."]
    ((why, drop),) = source.dropped.items()
    assert why.startswith("not valid CSV")
    assert drop == (1, [3])


@pytest.mark.parametrize(
    "make",
    [
        lambda english, german: {"en": english, "de": german, "id": 7},
        lambda english, german: {"id": 3, "translation": {"de": german, "en": english}},
        lambda english, german: {"english": english, "non_english": german, "score": 0.3},
        lambda english, german: [english, german],
    ],
    ids=["languages", "translation", "names", "lists"],
)
def test_json_lines(tmp_path, make):
    lines = [json.dumps(make(*pair), ensure_ascii=False) for pair in PAIRS]
    path = write_file(tmp_path / "mine.jsonl", "\n".join([*lines, "{broken", "3"]) + "\n")
    (source,) = open_corpus(Corpus(path=path, languages=["de"]))
    assert [tuple(row[:3]) for row in source.read()] == READ
    assert source.dropped == {"not JSON": (1, [4]), "neither a JSON object nor a list": (1, [5])}


def test_parquet(tmp_path):
    path = tmp_path / "part.en-nl.parquet"
    pq.write_table(pa.table({"english": ["A cat.", "", "Yes."], "non_english": ["Een kat.", "x", "Ja."]}), path)
    assert rows(path=str(path)) == [("A cat.", "Een kat.", "nl"), ("Yes.", "Ja.", "nl")]
    path = tmp_path / "part.parquet"
    column = pa.array([None, *(english for english, _ in PAIRS)]).dictionary_encode()
    pq.write_table(
        pa.table({"en": column, "id": range(4), "de": ["x", *(two for _, two in PAIRS)]}), path, row_group_size=2
    )
    (source,) = open_corpus(Corpus(path=str(path), languages=["de"]))
    assert [tuple(row[:3]) for row in source.read()] == READ
    assert source.dropped == {"an empty side": (1, [1])}
    pq.write_table(
        pa.table({"translation": [{"de": german, "en": english} for english, german in PAIRS], "id": [1, 2, 3]}), path
    )
    assert rows(path=str(path), languages=["de"]) == READ
    for content, message in ((b"PAR1 no", "not a parquet file"), (pa.table({"id": [1]}), "without a column of text")):
        pq.write_table(content, path) if isinstance(content, pa.Table) else path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            rows(path=str(path))


def test_damaged_parquet_names_the_row(tmp_path):
    path = tmp_path / "c.de.parquet"
    texts = [f"text number {i}" for i in range(5000)]
    pq.write_table(pa.table({"en": texts, "de": texts}), path, use_dictionary=False, compression="gzip")
    raw = bytearray(path.read_bytes())
    raw[400:4000] = bytes([0xFF] * 3600)
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"c\.de\.parquet: damaged parquet after row 0 \("):
        rows(path=str(path))


def test_several_languages_of_one_table_are_several_sources(tmp_path):
    both = [("Yes.", "Ja.", "de"), ("Yes.", "Oui.", "fr")]
    for path in (
        write_file(
            tmp_path / "mine.jsonl", json.dumps({"translation": {"en": "Yes.", "de": "Ja.", "fr": "Oui."}}) + "\n"
        ),
        write_file(tmp_path / "many.tsv", "en\tde\tfr\nYes.\tJa.\tOui.\n"),
    ):
        assert rows(path=path) == both
        assert rows(path=path, languages=["fr"]) == both[1:]
    assert rows(path=path, source="de", languages=["en"]) == [("Ja.", "Yes.", "en")]


def test_columns_name_the_pair_the_text_and_the_triple(tmp_path):
    path = write_file(
        tmp_path / "m.csv", as_csv([("frase uno", "note", "frase dos"), *((a, "x y", b) for a, b in PAIRS)])
    )
    named = {"path": path, "languages": ["de"], "columns": ["frase uno", "frase dos"]}
    assert rows(**named) == READ
    with pytest.raises(InputError, match="no column 'frase tres'"):
        rows(**{**named, "columns": ["frase uno", "frase tres"]})
    with pytest.raises(InputError, match=r"pairs \(source, target\) need 2 columns, `columns` has 1"):
        rows(**{**named, "columns": ["frase uno"]})
    assert rows(path=path, kind="text", columns=["frase dos"])[0] == (PAIRS[0][1], "", "en")
    numbered = write_file(tmp_path / "ids.tsv", "17\tA.\t18\tB.\n")  # Tatoeba's export: a number beside each sentence
    assert rows(path=numbered, languages=["de"], columns=[4, 2]) == [("B.", "A.", "de")]
    assert rows(path=numbered, languages=["de"]) == [("A.", "B.", "de")]
    several = {"negative_2": "D.", "query": "A.", "positive": "B.", "negative_1": "C."}
    for path, columns, negatives in (
        (
            write_file(tmp_path / "one.jsonl", json.dumps({"negative": "C.", "anchor": "A.", "positive": "B."}) + "\n"),
            (),
            ("C.",),
        ),
        (write_file(tmp_path / "nli.tsv", "A.\tB.\tC.\n"), (), ("C.",)),
        (write_file(tmp_path / "many.jsonl", json.dumps(several) + "\n"), (), ("C.", "D.")),
        (write_file(tmp_path / "mine.tsv", "A.\tB.\tC.\tD.\tE.\n"), (1, 2, 4, 5, 3), ("D.", "E.", "C.")),
    ):
        (source,) = open_corpus(Corpus(path=path, kind="triples", columns=columns))
        assert [tuple(r) for r in source.read()] == [("A.", "B.", "en", negatives, 0, None)]


def test_a_saved_data_set_and_its_training_part(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict(
        {"translation": [{"en": english, "de": german} for english, german in PAIRS], "n": [1, 2, 3]}
    )
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
        lines = [{"translation": {"en": english, code: translation}} for english, translation in PAIRS]
        (folder / f"{code}-en" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
        entries.append(f"- config_name: {code}-en\n  data_files:\n  - split: train\n    path: {code}-en/rows.jsonl\n")
    (folder / "README.md").write_text("---\nconfigs:\n" + "".join(entries) + "---\n")
    assert rows(hub=str(folder), languages=["de"]) == READ
    assert rows(hub=str(folder), subset="fr-en")[0][2] == "fr"
    with pytest.raises(
        InputError, match=r"which configuration for tr is meant \(`subset: NAME`\)\? It has de-en, fr-en"
    ):
        rows(hub=str(folder), languages=["tr"])


# --- other formats

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>Press <bpt i="1">&lt;b&gt;</bpt><hi>OK</hi><ept i="1">&lt;/b&gt;</ept>.</seg></tuv>
<tuv xml:lang="de-DE"><seg>OK drücken.</seg></tuv><tuv xml:lang="fr"><seg>Appuyez.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Only English.</seg></tuv></tu>
</body></tmx>
"""


def test_translation_memory(tmp_path):
    path = write_file(tmp_path / "memory.tmx", TMX)
    assert rows(path=path) == [("Press OK.", "OK drücken.", "de"), ("Press OK.", "Appuyez.", "fr")]
    packed = write_file(tmp_path / "memory.tmx.gz", gzip.compress(TMX.encode()))
    (source,) = open_corpus(Corpus(path=packed, languages=["de"]))
    assert [r.target for r in source.read()] == ["OK drücken."]
    assert source.dropped == {"an empty side": (1, [2])}
    for broken in (
        '<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><tmx><body>&b;</body></tmx>',
        "<tmx><body>",
        gzip.compress(TMX.encode())[:-12],
    ):
        with pytest.raises(InputError, match=r"memory.tmx: damaged TMX after unit 0 \("):
            rows(path=write_file(tmp_path / "memory.tmx", broken), languages=["de"])


def test_gettext_catalogue(tmp_path):
    path = write_file(
        tmp_path / "app.po",
        'msgid ""\nmsgstr ""\n"Language: tr\\n"\n\nmsgid "Open "\n"file"\nmsgstr "Datei \\"öffnen\\""\n\n'
        '#, fuzzy\nmsgid "Close"\nmsgstr "Schluss"\n\nmsgid "Save"\nmsgstr ""\n',
    )
    (source,) = open_corpus(Corpus(path=path))
    assert [tuple(r[:3]) for r in source.read()] == [("Open file", 'Datei "öffnen"', "tr")]
    assert source.dropped == {"an empty side": (2, [9, 13])}


def test_two_aligned_files(tmp_path):
    files = [write_file(tmp_path / "a.en", "Yes.\nNo.\n"), write_file(tmp_path / "a.tr", "Evet.\nHayır.\n")]
    assert rows(files=files) == rows(files=files, languages=["tr"])
    assert rows(files=files) == [("Yes.", "Evet.", "tr"), ("No.", "Hayır.", "tr")]
    write_file(tmp_path / "a.tr", "Evet.\n")
    with pytest.raises(InputError, match="not line-aligned, one ends at line 1"):
        rows(files=files)


def test_dictionary_and_plain_text(tmp_path):
    path = write_file(tmp_path / "en-es.txt", "cat gato\nhouse\tcasa\nlonely\n")
    assert rows(path=path, kind="dictionary", languages=["es"]) == [("cat", "gato", "es"), ("house", "casa", "es")]
    assert rows(path=write_file(tmp_path / "lines.txt", "One.\n\nTwo.\n")) == [("One.", "", "en"), ("Two.", "", "en")]


def test_labelled_pairs_become_triples(tmp_path):
    path = write_file(
        tmp_path / "nli.tsv",
        "gold_label\tpremise\thypothesis\nneutral\tP1\tn\nentailment\tP1\te1\nentailment\tP1\te2\n"
        "contradiction\tP1\tc\ncontradiction\tP2\tonly\n-\tP2\tno label\nentailment\tP3\te\ncontradiction\tP3\tc\n",
    )
    (source,) = open_corpus(Corpus(path=path, kind="nli"))
    triples = [(r.source, r.target, *r.negatives) for r in source.read()]
    assert triples == [("P1", "e1", "c"), ("P1", "e2", "c"), ("P3", "e", "c")]
    assert source.dropped == {
        "no label of NLI, premise and hypothesis": (1, [7]),
        "the premise has no entailment or no contradiction": (1, [7]),
    }


def test_scored_files_of_two_languages_are_translations(tmp_path):
    english = write_file(tmp_path / "sts.en.tsv", "g\tf\ty\t1\t5.0\tA.\tB.\ng\tf\ty\t2\t1.5\tC.\tD.\n")
    korean = write_file(tmp_path / "sts.ko.tsv", "score\tsentence1\tsentence2\n5.000\ta.\tb.\n1.5\tc.\td.\n")
    corpus = {"files": (str(english), str(korean)), "kind": "scored", "languages": ["ko"]}
    assert rows(**corpus) == [("A.", "a.", "ko"), ("C.", "c.", "ko"), ("B.", "b.", "ko"), ("D.", "d.", "ko")]
    for text, row in (("score\tsentence1\tsentence2\n5\ta.\tb.\n1\tc.\td.\n", 2),
                      ("score\tsentence1\tsentence2\n5\ta.\tb.\n", 2)):  # fmt: skip
        write_file(tmp_path / "sts.ko.tsv", text)
        with pytest.raises(InputError, match=f"not the same pairs, row {row} has another score or is missing"):
            rows(**corpus)
    with pytest.raises(InputError, match="must not be trained on"):
        rows(**corpus | {"files": (str(english), str(write_file(tmp_path / "sts-test.tsv", text)))})


def test_the_kinds_of_the_schema_are_those_of_the_readers():
    assert set(KINDS) == {"auto", "pairs", *ONE_LANGUAGE, *BY_KIND}


# --- names, limits, and what is broken


@pytest.mark.parametrize("name", ["osm-id.en-de.tsv", "nlvr2-dev-mt.de-en.tsv", "set.en-de.tsv"])
def test_the_language_is_in_the_name_of_the_file(tmp_path, name):
    path = write_file(tmp_path / name, "A cat.\tEine Katze.\n  A   dog.\tEin Hund.\n")
    expected = [("A cat.", "Eine Katze.", "de"), ("A dog.", "Ein Hund.", "de")]
    assert rows(path=path) == rows(path=path, languages=["de"]) == expected


def test_limit_and_longest_sentence(tmp_path):
    path = write_file(tmp_path / "set.en-de.tsv", "A.\tB.\n" + "x" * 300 + "\ty\nC.\tD.\nE.\tF.\n")
    assert [r[0] for r in rows(path=path, limit=2)] == ["A.", "C."]


def test_bad_lines_are_counted_and_the_first_named(tmp_path):
    (source,) = open_corpus(
        Corpus(path=write_file(tmp_path / "set.en-de.tsv", "A.\tB.\nonly one\nC.\tD.\tE.\n\tempty\nF.\tG.\n"))
    )
    for _ in range(2):
        assert [r.source for r in source.read()] == ["A.", "F."]
        assert sum(count for count, _ in source.dropped.values()) == 3
        assert source.dropped["1 columns, expected 2"][1][0] == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("set.en-de.tsv", "", r"set\.en-de\.tsv: no usable sentence \(empty"),
        ("set.en-de.tsv", "one\ntwo\n", "no usable sentence; line 1: 1 columns, expected 2"),
        (
            "set.en-de.tsv",
            "\ta\n\nb\n",
            r"line 1: an empty side; line 2: an empty line; line 3: 1 columns, expected 2",
        ),
        ("set.en-de.tsv", "\tx\n", "no usable sentence; line 1: an empty side"),
        (
            "set.en-de.tsv.gz",
            gzip.compress(b"A.\tB.\n" * 5000, mtime=0)[:-12],
            r"damaged compressed file after line \d",
        ),
        ("latin.en-de.tsv", "A.\tä".encode("latin-1"), r"no usable sentence.*line 1: not valid UTF-8"),
        ("a.xlsx", b"PK\x03\x04\xff...", "a zip archive or a spreadsheet, not text"),
        ("a.json", b"[\n1\n]\n", "no usable sentence; line 1: neither a JSON object nor a list"),
        ("a.json", b'{\n"a": 1\n}\n', "one JSON object; expected one object per line"),
        ("a.po", "hello world\n", "not a gettext catalog"),
        (
            "a.csv",
            b"alpha beta,gamma,delta eps\nx y,zeta,k l\n",
            r"csv with commas, no header of 3 columns.*`columns: \[A, B\]`.*TMX, gettext",
        ),
        ("a.jsonl", b'{"p": "x y", "q": "z", "r": "v"}\n', r"JSON lines of 3 columns \(p, q, r\), first row \['x y'"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, name, content, message):
    path = write_file(tmp_path / name, content)
    # What is before the damage would be read.
    options = {"on_bad": "stop"} if name.endswith(".gz") else {}
    assert re.search(message, one_line(lambda: rows(path=path, languages=["de"], **options), InputError))


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [("mine.tsv", "A.\tB.\n", "auto"), ("mine.txt", "cat Katze\n", "dictionary"), ("mine.po", 'msgid "a"\n', "auto")],
)
def test_a_language_that_is_not_given_is_asked_for(tmp_path, name, content, kind):
    with pytest.raises(
        InputError, match=r"the language of its translations is unknown; .*`languages: \[de\]`.*NAME.en-de.tsv"
    ):
        rows(path=write_file(tmp_path / name, content), kind=kind)


def test_a_folder_is_read_with_all_its_formats(tmp_path):
    write_file(tmp_path / "a.en-de.csv", "A.,B.\n")
    write_file(tmp_path / "b.jsonl", '{"en": "C.", "de": "D."}\n')
    write_file(tmp_path / "notes.md", "no corpus")
    assert rows(path=str(tmp_path)) == [("A.", "B.", "de"), ("C.", "D.", "de")]


def test_rows_know_which_corpus_they_are_from(tmp_path):
    corpora = [Corpus(path=write_file(tmp_path / f"{name}.en-de.tsv", f"{name}\tx\n")) for name in ("b", "a")]
    assert [(r.source, r.domain) for s in open_corpora(corpora) for r in s.read()] == [("b", 0), ("a", 1)]
    with pytest.raises(InputError, match="no such corpus file"):
        open_corpora([Corpus(path=str(tmp_path / "none.tsv"))])


CSV = "en,de,score\n" + "A cat.,Eine Katze.,1\n,Ein Hund.,1\nYes.,Ja.,1\nx,y\n" + "z" * 300 + ",Z.,1\n"


def test_the_command_shows_what_training_reads(tmp_path):
    path = write_file(tmp_path / "mine.csv", CSV)
    answer = CliRunner().invoke(command, [path])
    assert answer.exit_code == 0
    assert answer.output.splitlines() == [
        f"{path}: csv with commas, header, columns en + de; language de (by the column); 2 rows",
        "  dropped 1: an empty side (line 3)",
        "  dropped 1: 2 columns, expected 3 (line 5)",
        "  dropped 1: longer than 250 characters (max_characters) (line 6)",
        "  A cat.  |  Eine Katze.",
        "  Yes.  |  Ja.",
    ]

    (description,) = json.loads(CliRunner().invoke(command, [path, "--json"]).output)
    (source,) = open_corpus(Corpus(path=path))
    assert description["rows"] == len(list(source.read())) == 2
    assert sum(drop["rows"] for drop in description["dropped"]) == sum(drop["rows"] for drop in source.drops()) == 3
    (description,) = json.loads(CliRunner().invoke(command, [path, "--json", "--rows", "1", "--examples", "0"]).output)
    assert (description["rows"], description["all_rows"], description["examples"]) == (1, False, [])


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    good, bad = (write_file(tmp_path / name, "A.\tB.\n") for name in ("a.en-de.tsv", "b.tsv"))
    answer = CliRunner().invoke(command, [bad, good, str(tmp_path / "none.csv")])
    assert answer.exit_code == 2
    lines = answer.output.splitlines()
    assert lines[0].startswith(f"{bad}: the language of its translations is unknown")
    assert lines[1].endswith("language de (by its name); 1 rows")
    assert lines[-1].endswith("none.csv: no such corpus file")


def test_the_corpora_of_a_recipe_and_the_options_as_keys(tmp_path):
    (tmp_path / "x.tsv").write_text("7\tA.\tB.\t0.3\n")
    (tmp_path / "r.yaml").write_text(
        "corpora: [{path: x.tsv, columns: [3, 2], languages: [fr]}]\nstages: [{name: a, objective: kd}]\n"
    )
    for arguments in (["r.yaml"], ["x.tsv", "--columns", "3,2", "--languages", "fr"]):
        answer = CliRunner().invoke(command, [str(tmp_path / arguments[0]), *arguments[1:]])
        assert answer.output.splitlines()[0].endswith("columns 3 + 2; language fr (as given); 1 rows")
        assert answer.output.splitlines()[1] == "  B.  |  A."


def test_a_vocabulary_that_was_cut_says_so(tmp_path, capsys):
    texts = [f"the {a} {b} of house {n}" for n, (a, b) in enumerate([("red", "door"), ("old", "roof")] * 40)]
    train_vocabulary(texts, tmp_path / "t.model", 2000)
    messages = capsys.readouterr().err
    assert " of 2,000 tokens: the 80 sentences are too few" in messages


@pytest.mark.parametrize(("scores", "scale"), [((4.5, 0.2), "0 to 5"), ((0.9, 0.2), "0 to 1"), ((87, -3), "-3 to 87")])
def test_a_table_of_scored_pairs_is_described_with_the_range_of_its_scores(tmp_path, scores, scale):
    from msdc.distill.corpus import describe_corpus

    rows = [f"A cat {number}.,A dog.,{score}" for number, score in enumerate(scores)]
    (tmp_path / "scores.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]))
    (part,) = describe_corpus(str(tmp_path / "scores.csv"), {})
    assert not part.error
    assert part.rows == 2
    assert "`kind: scored`" in part.form
    assert f"scores {min(scores):g} to {max(scores):g}, of {scale}" in part.form
    (tmp_path / "other.csv").write_text("a,b\nx,y\n")
    (part,) = describe_corpus(str(tmp_path / "other.csv"), {})
    assert "language of its translations is unknown" in part.error


# --- passages


def lines_of(count):
    return "".join(f"Line {number} is here.\tZeile {number} ist da.\n" for number in range(count))


def test_consecutive_rows_become_passages_on_both_sides(tmp_path):
    """Every row is in one passage at most, in order; the limit of characters holds; a passage has two rows or more."""
    path = write_file(tmp_path / "mine.en-de.tsv", lines_of(200))
    passages = rows(path=path, join=5, max_characters=90)
    numbers = [[int(word) for word in re.findall(r"\d+", source)] for source, _, _ in passages]
    assert set(map(len, numbers)) == {2, 3, 4, 5}
    flat = [number for passage in numbers for number in passage]
    assert flat == sorted(set(flat))
    assert len(flat) > 150
    for lines, (source, target, _) in zip(numbers, passages, strict=True):
        assert source == " ".join(f"Line {number} is here." for number in lines)
        assert target == " ".join(f"Zeile {number} ist da." for number in lines)
        assert max(len(source), len(target)) <= 90
    assert rows(path=path, join=5, max_characters=90) == passages
    assert rows(path=path, join=5, max_characters=30) == []


def test_passages_of_languages_without_spaces_have_none(tmp_path):
    path = write_file(tmp_path / "mine.en-ja.tsv", "One.\t一つ。\nTwo.\t二つ。\n")
    assert rows(path=path, join=2) == [("One. Two.", "一つ。二つ。", "ja")]
    text = write_file(tmp_path / "mine.txt", "一つ。\n二つ。\n")
    assert rows(path=text, kind="text", source="ja", join=2) == [("一つ。二つ。", "", "ja")]


@pytest.mark.parametrize("kind", ["triples", "scored", "nli"])
def test_only_text_and_pairs_are_joined(kind):
    with pytest.raises(ValueError, match="join is for text and pairs"):
        Corpus(path="x", kind=kind, join=2)
