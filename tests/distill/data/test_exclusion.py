"""Test sentences stay out of the training text: equal or near, on either side, in every way that text is read."""

import gzip
import json

import numpy as np
import pytest
import yaml

from msdc.bench.accuracy.contamination import check
from msdc.distill import distill
from msdc.distill.catalog import load_recipe, parse_recipe
from msdc.distill.data import Row
from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.exclusion import Exclusion, excluded_files, read_exclusion, sentences_of
from msdc.distill.data.tables import open_source_table
from msdc.distill.data.text import StageText
from msdc.distill.recipe import Corpus, HeldOut
from msdc.distill.run import Run
from msdc.distill.word_translation import PendingDictionary, learn_dictionary, translate_sources
from msdc.errors import InputError
from msdc.text.duplicates import normalise, shingles

TEST = ["A man is riding a brown horse.", "Zwei Hunde spielen im Schnee!", "The committee will meet again on Thursday."]
PAIRS = [
    ("a man is riding a brown horse", "Ein Mann reitet."),  # equal but for case and punctuation
    ("Two dogs play.", "ZWEI HUNDE, SPIELEN IM SCHNEE"),  # on the other side
    ("The committee will meet again on Thursdays.", "Der Ausschuss tagt."),  # near
    ("A man is walking a dog.", "Ein Mann führt einen Hund."),
    ("The committee met.", "Der Ausschuss tagte."),
]


def likeness(first: str, second: str) -> float:
    """Jaccard similarity of 5-grams of two texts without marks, written down again."""
    first_shingles, second_shingles = (
        shingles("".join(c for c in text.lower() if c.isalnum() or c == " ")) for text in (first, second)
    )
    return len(first_shingles & second_shingles) / len(first_shingles | second_shingles)


@pytest.fixture
def excluded(tmp_path):
    path = tmp_path / "test.txt"
    path.write_text("\n".join(TEST), encoding="utf-8")
    return path


def pairs_file(tmp_path, pairs, name="set.en-de.tsv"):
    path = tmp_path / name
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return Corpus(path=str(path))


def test_equal_and_near_rows_stay_out_on_both_sides(tmp_path, excluded):
    assert likeness(PAIRS[2][0], TEST[2]) >= 0.7 > likeness(PAIRS[4][0], TEST[2])
    without = Exclusion([excluded])
    (source,) = open_corpora((pairs_file(tmp_path, PAIRS),), without)
    for _ in range(2):  # the second reading takes the verdicts of the first
        assert [row.source for row in source.read()] == [PAIRS[3][0], PAIRS[4][0]]
        assert sum(count for count, _ in source.dropped.values()) == 3


def test_a_hard_negative_is_text_too(excluded):
    rows = [
        Row("A query.", "An answer.", "en", negatives) for negatives in ((), ("Other.", TEST[0].upper()), ("Other.",))
    ]
    judged = list(Exclusion([excluded]).judge("key", iter([(4, "bad"), *enumerate(rows, 5)])))
    assert judged == [(4, "bad"), (5, rows[0]), (6, "equal to a sentence of `exclude`"), (7, rows[2])]


def test_many_rows_are_judged_as_each_alone(tmp_path, excluded, monkeypatch):
    pairs = [(f"Sentence number {i} of many.", f"Satz {i}.") for i in range(10_000)]
    for position in range(0, 10_000, 137):
        pairs[position] = (TEST[position % 3].upper(), "x")
    without, compared = Exclusion([excluded]), []
    verdicts_of = without._verdicts_of
    monkeypatch.setattr(without, "_verdicts_of", lambda rows: compared.extend(rows) or verdicts_of(rows))
    (source,) = open_corpora((pairs_file(tmp_path, pairs),), without)
    next(partly := source.read())  # a reading that stops early leaves its verdicts to the next one
    partly.close()
    for _ in range(2):
        assert [row.source for row in source.read()] == [source for source, target in pairs if target != "x"]
        assert sum(count for count, _ in source.dropped.values()) == len(range(0, 10_000, 137))
        assert len(compared) == 10_000  # each row once, whatever the number of readings


def test_files_of_every_kind(tmp_path):
    scored = tmp_path / "sts-test.tsv.gz"
    scored.write_bytes(gzip.compress(b"main\tMSRvid\t0001\t5.000\tA plane takes off.\tAn air plane.\n"))
    quoted = tmp_path / "sts-de-test.csv"
    quoted.write_text('"Ein Hund, der bellt.",Eine Katze.,2.5\n', encoding="utf-8")
    assert sentences_of(scored) == {"main", "msrvid", "a plane takes off", "an air plane"}
    assert sentences_of(quoted) == {"ein hund der bellt", "eine katze"}
    assert excluded_files([str(tmp_path / "*.csv"), str(quoted)]) == [quoted]
    assert read_exclusion(()) is None
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("1\t2.5\n")
    for pattern, message in ((str(tmp_path / "none-*.txt"), "no such file"), (str(numbers), "contains no text")):
        with pytest.raises(InputError, match=message):
            read_exclusion([pattern])


@pytest.mark.parametrize("form", ["jsonl", "json", "parquet", "csv", "tsv", "tmx", "po"])
def test_sentences_in_lists_and_in_every_format_are_found(tmp_path, form):
    """By `exclude` and by the check of contamination: also several texts of one cell, as sets of candidates have."""
    path = tmp_path / f"held.{form}"
    row = {"id": 7, "query": TEST[0], "positive": [TEST[1]], "more": {"negative": [{"text": TEST[2]}]}}
    if form == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pytest.importorskip("pyarrow").Table.from_pylist([row]), path)
    elif form.startswith("json"):
        path.write_text(json.dumps([row] if form == "json" else row, indent=2 if form == "json" else None))
    elif form == "tmx":
        unit = "".join(
            f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in zip("abc", TEST, strict=True)
        )
        path.write_text(f"<tmx><body><tu>{unit}</tu></body></tmx>")
    elif form == "po":
        path.write_text(f'msgid "{TEST[0]}"\nmsgstr "{TEST[1]}"\nmsgid "{TEST[2]}"\nmsgstr ""\n')
    else:
        path.write_text({"csv": ";", "tsv": "\t"}[form].join(["4,5", *TEST]) + "\n", encoding="utf-8")
    assert set(map(normalise, TEST)) <= sentences_of(path)
    assert check({"set": TEST}, [path], near=None).by_set["set"]["exact"] == 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", '"open,b\nc,d\n', "line 1: not valid CSV"), ("a.jsonl", '{"a": "b"}\n{cut\n', "line 2: not JSON"),
        ("a.parquet", "no", "not a parquet file"), ("a.txt", "PK\x03\x04", "a zip archive or a spreadsheet"),
        ("a.jsonl", '"a text"\n', "neither a JSON object nor a list"),
    ],
)  # fmt: skip
def test_what_may_hide_a_test_sentence_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_exclusion([str(tmp_path / name)])


def test_a_corpus_of_nothing_else_is_an_error(tmp_path, excluded):
    (source,) = open_corpora((pairs_file(tmp_path, PAIRS[:3]),), Exclusion([excluded]))
    with pytest.raises(
        InputError, match="line 1: equal to a sentence of `exclude`; line 3: near a sentence of `exclude`"
    ):
        list(source.read())


def test_words_are_exchanged_in_kept_sentences_only(tmp_path, excluded):
    toy = [("a man rides", "ein Mann reitet"), ("a man walks", "ein Mann geht"), ("a horse walks", "ein Pferd geht")]
    parallel = pairs_file(tmp_path, toy * 8)
    english = tmp_path / "english.txt"
    english.write_text(f"{TEST[0]}\nA man walks.\n", encoding="utf-8")
    text = Corpus(path=str(english), kind="text", word_by_word=("de",), recombine=1.0)
    sources = open_corpora((parallel, text), Exclusion([excluded]))
    text_of_stage = StageText(list(map(open_source_table, sources)), 1, HeldOut(share=0.01))
    dictionary = learn_dictionary(text_of_stage.sample_rows(100))
    pending = PendingDictionary(lambda: dictionary, ())
    synthetic = [source for source in translate_sources(sources, pending) if source.synthetic]
    assert [len(list(source.read())) for source in synthetic] == [1]


def test_a_run_reads_none_of_them(tiny_tree, tmp_path, excluded):
    """Vocabulary, dictionary, held-out rows and training text: all sources of a run are without them."""
    corpus = pairs_file(tmp_path, PAIRS * 3)
    tree = tiny_tree | {"corpora": [{"path": corpus.path}], "exclude": [str(excluded)]}
    recipe = parse_recipe(tree, "tiny")
    for plan in (None, recipe.plans[0]):
        text = Run(recipe, tmp_path / "run").text(plan)
        trained_sources = {row.source for table in text.tables for row in table.read(np.arange(table.rows))}
        assert trained_sources == {PAIRS[3][0], PAIRS[4][0]}
    with pytest.raises(InputError, match=r"exclude: nowhere\.txt: no such file"):
        distill(tree | {"exclude": ["nowhere.txt"]}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_contamination_of_a_recipe_counts_what_it_trains_on(tiny_tree, tmp_path, excluded):
    corpus = pairs_file(tmp_path, PAIRS)
    for exclude, expected_counts in (([], (2, 1)), ([str(excluded)], (0, 0))):
        file = tmp_path / "recipe.yaml"
        file.write_text(yaml.safe_dump(tiny_tree | {"corpora": [{"path": corpus.path}], "exclude": exclude}))
        assert load_recipe(str(file)).exclude == tuple(exclude)
        counts = check({"set": TEST}, [file]).by_set["set"]
        assert (counts["exact"], counts["near"]) == expected_counts
