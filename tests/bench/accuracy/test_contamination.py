"""What stands in a training corpus is found, by rules that the test writes down again."""

import gzip
import re
import string

import numpy as np
import pytest

from msdc.bench.accuracy.contamination import check, corpus_streams
from msdc.errors import InputError
from msdc.text.duplicates import NearIndex, normalise, shingles

NOVEMBER = "The committee will meet again on the last Thursday {} November."
TESTS = {
    "one": [
        "A man is riding a brown horse along the beach.",
        "Zwei Hunde spielen im Schnee!",
        "A man is riding a brown horse along the beach.",
    ],
    "two": [NOVEMBER.format("of"), "El niño come una manzana."],
}


def corpus(tmp_path, lines, name="corpus.en-xx.tsv"):
    file = tmp_path / name
    text = "".join(line + "\n" for line in lines)
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return file


def test_normal_form():
    assert normalise("  «ZWEI Hunde», spielen… im SCHNEE!! ") == "zwei hunde spielen im schnee"
    assert normalise("Straße") == normalise("STRASSE")
    assert normalise("don't") == "dont"
    assert normalise("ｆｕｌｌ　ｗｉｄｔｈ") == "full width"
    assert normalise("?!…") == ""


@pytest.mark.parametrize("name", ["corpus.en-xx.tsv", "corpus.en-xx.tsv.gz"])
def test_exact_after_case_and_punctuation(tmp_path, name):
    file = corpus(tmp_path, ["Something else\tzwei hunde spielen im schnee", "EL NIÑO COME UNA MANZANA\tx"], name)
    contamination = check(TESTS, [file])
    assert contamination.by_set["one"]["exact"] == 1
    assert contamination.by_set["one"]["sentences"] == 2
    assert contamination.by_set["two"]["exact"] == 1
    assert contamination.by_set["two"]["near"] == 0
    assert contamination.by_set["one"]["examples"] == [
        {"kind": "exact", "similarity": 1.0, "test_text": 2, "corpus": f"{tmp_path.name}/{name}", "line": 1}
    ]
    assert contamination.corpora[0]["exact"] == 2
    assert contamination.corpora[0]["sentences"] == 4


def test_near_duplicates(tmp_path):
    file = corpus(tmp_path, [NOVEMBER.format("in") + "\ta", "A man is walking a small dog along the river.\tb"])
    by_set = check(TESTS, [file]).by_set
    assert (by_set["two"]["exact"], by_set["two"]["near"]) == (0, 1)
    assert (by_set["one"]["exact"], by_set["one"]["near"]) == (0, 0)
    first, second = (shingles(normalise(text.format(word))) for text, word in ((NOVEMBER, "of"), (NOVEMBER, "in")))
    similarity = by_set["two"]["examples"][0]["similarity"]
    assert similarity == pytest.approx(len(first & second) / len(first | second), abs=1e-3)
    exact_only = check(TESTS, [file], near=None).by_set["two"]
    assert exact_only["near"] is None
    assert exact_only["exact"] == 0


def test_a_sentence_that_is_there_exactly_is_not_also_near(tmp_path):
    """Of two corpora one has it exactly, the other nearly: together it is exact, and each counts its own."""
    exact, near = NOVEMBER.format("of"), NOVEMBER.format("in")
    both = corpus(tmp_path, [exact, near], "both.txt")
    nearly = corpus(tmp_path, [near], "nearly.txt")
    findings = check(TESTS, [both, nearly])
    assert [(row["exact"], row["near"]) for row in findings.corpora] == [(1, 0), (0, 1)]
    assert (findings.by_set["two"]["exact"], findings.by_set["two"]["near"]) == (1, 0)
    alone = check(TESTS, [nearly]).by_set["two"]
    assert (alone["exact"], alone["near"]) == (0, 1)


def test_minhash_finds_what_all_pairs_find(tmp_path):
    """200 test sentences, each with a damaged copy: compared with every pair's exact Jaccard similarity."""
    generator = np.random.default_rng(0)
    words = ["".join(generator.choice(list(string.ascii_lowercase), size=generator.integers(3, 9))) for _ in range(400)]
    sentences = [" ".join(generator.choice(words, size=14)) for _ in range(200)]
    damaged = []
    for sentence in sentences:
        parts = sentence.split()
        for position in generator.choice(14, size=generator.integers(0, 4), replace=False):
            parts[position] = str(generator.choice(words))
        damaged.append(" ".join(parts))
    exact = set(sentences) & set(damaged)
    shingles_of = {text: shingles(text) for text in {*sentences, *damaged}}
    pairs = ((test, shingles_of[test], shingles_of[line]) for test in set(sentences) - exact for line in damaged)
    near = {test for test, a, b in pairs if len(a & b) / len(a | b) >= 0.7}
    counts = check({"set": sentences}, [corpus(tmp_path, damaged, "damaged.txt")]).by_set["set"]
    assert counts["exact"] == len(exact) > 20
    assert len(near) > 20
    # an index that estimates may miss a borderline one; it may never invent one
    assert 0.98 * len(near) <= counts["near"] <= len(near)


def test_texts_of_every_length_and_script_match_themselves():
    texts = ["a", "ab", "abcd", "abcde", "abcdef", "\U0001f600", "\ud800 half", "一二三四五六七", "x" * 5000, "y" * 500]
    all_matches = NearIndex(texts, 0.7).matches(texts)
    assert [[text for text, _ in matches] for matches in all_matches] == [[text] for text in texts]
    assert all(similarity == 1.0 for matches in all_matches for _, similarity in matches)
    assert NearIndex([], 0.7).matches(["a"]) == [[]]
    assert NearIndex(["a"], 0.7).matches([]) == []


def test_repeats_count_once_per_set_and_in_every_corpus(tmp_path):
    first = corpus(tmp_path, ["Zwei Hunde spielen im Schnee"] * 5, "a.txt")
    second = corpus(tmp_path, ["zwei hunde spielen im schnee"], "b.txt")
    contamination = check(TESTS, [first, second])
    assert contamination.by_set["one"]["exact"] == 1
    assert [entry["exact"] for entry in contamination.corpora] == [1, 1]
    assert [entry["sentences"] for entry in contamination.corpora] == [5, 1]


def test_folders_and_bad_corpora(tmp_path, capsys):
    inner = tmp_path / "deep"
    inner.mkdir()
    file = corpus(inner, ["x\ty"], "c.en-de.tsv.gz")
    assert [stream.name for stream in corpus_streams([tmp_path, file])] == ["deep/c.en-de.tsv.gz"]
    with pytest.raises(InputError, match="no such training corpus"):
        corpus_streams([tmp_path / "none.tsv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no file of a training corpus"):
        corpus_streams([tmp_path / "empty"])
    (inner / "more.jsonl").write_text('{"en": "x"}\n')
    (inner / "picture.png").write_bytes(b"\x89PNG")
    capsys.readouterr()
    assert [stream.name for stream in corpus_streams([inner])] == ["deep/c.en-de.tsv.gz", "deep/more.jsonl"]
    assert "1 files are not searched, they are no text by their names: picture.png" in capsys.readouterr().err
    (tmp_path / "bad.tsv").write_bytes(b"fine\n\xff\xfe\n")
    with pytest.raises(InputError, match="line 2: not valid UTF-8"):
        check(TESTS, [tmp_path / "bad.tsv"])
    with pytest.raises(InputError, match="between 0 and 1"):
        check(TESTS, [file], near=1.5)


def test_the_corpora_of_a_recipe_as_it_reads_them(tmp_path):
    rows = ["zwei hunde spielen im schnee\teins", "EL NIÑO COME UNA MANZANA\tzwei", "x\t" + "y" * 300]
    corpus(tmp_path, rows, "c.en-de.tsv")
    corpus(tmp_path, ["the committee\tzwei hunde spielen im schnee"], "c.en-fr.tsv")
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"teacher: all-MiniLM-L6-v2\ncorpora:\n  - {{path: '{tmp_path}/c.*.tsv', languages: [de], limit: 1}}\n"
        "stages:\n  - {name: train, train: student, teacher: teacher, objective: multilingual_mse}\n",
        encoding="utf-8",
    )
    contamination = check(TESTS, [recipe])
    # only the first row, and only German: what the recipe teaches with
    assert contamination.by_set["one"]["exact"] == 1
    assert contamination.by_set["two"]["exact"] == 0
    assert [entry["sentences"] for entry in contamination.corpora] == [2]
    assert str(tmp_path) not in contamination.corpora[0]["file"]
    # Also the negatives of its triples.
    corpus(tmp_path, ["a question\tan answer\tZwei Hunde spielen im Schnee"], "triples.tsv")
    words = f"{{path: '{tmp_path}/triples.tsv', kind: triples}}"
    recipe.write_text(re.sub(r"\{path: .*\}", words, recipe.read_text("utf-8")), encoding="utf-8")
    assert check(TESTS, [recipe]).by_set["one"]["exact"] == 1
    with pytest.raises(InputError, match="no shipped recipe"):
        corpus_streams(["msdc-nothing"])
