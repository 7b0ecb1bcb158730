"""Files of pairs and of vectors: every published layout; bad files and bad models are one clear line, never a score."""

import numpy as np
import pytest
from accuracy_models import Constant, LookupEncoder, WordBag, write_pairs
from refusals import one_line

from msdc.bench.accuracy import evaluate
from msdc.bench.accuracy.parallel import read_parallel
from msdc.bench.accuracy.sets import SETS, DataFolder
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.errors import InputError, MsdcError
from msdc.text.scored_pairs import read_pairs

GOOD = "2.5\ta b\tc d\n4.0\ta b c\ta b d\n0.5\tx\ty z\n"


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("2.5\ta\tb\n3.0\tonly one\n", 2, "2 tab-separated columns, expected 3"),
        ("2.5\ta\tb\n3.0\ta\tb\tc\n", 2, "4 tab-separated columns, expected 3"),
        ("2.5\ta\tb\n\n3.0\ta\tb\n", 2, "an empty line"),
        ("2.5\ta\tb\n5.01\ta\tb\n", 2, "outside 0..5"),
        ("2.5\ta\tb\nnan\ta\tb\n", 2, "outside 0..5"),
        ("2.5\ta\tb\nhigh\ta\tb\n", 2, "is not a number"),
        ("2.5\ta\tb\n3.0\t\tb\n", 2, "sentence 1 is empty"),
        ("2.5\ta\tb\n3.0\ta\t  \n", 2, "sentence 2 is empty"),
        ("a\tb\tc\n", 1, "without a known layout"),
        ("score\tsentence1\tsentence2\n2\ta\tb\n9\ta\tb\n", 3, "outside 0..5"),
        ("score\tsentence1\tsentence2\n", None, "no pairs"),
    ],
)
def test_bad_pairs_name_the_line(tmp_path, content, line, words):
    file = tmp_path / "bad.tsv"
    file.write_text(content)
    text = one_line(lambda: read_pairs(file), InputError)
    assert str(file) in text
    assert words in text
    assert line is None or f"line {line}: " in text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"t.deu-eng.deu": "eins\nzwei\ndrei\n", "t.deu-eng.eng": "one\ntwo\n"},
         r"deu has 3 lines and t.deu-eng.eng 2: line 3 has no counterpart"),
        ({"t.deu-eng.eng": "one\ntwo\nthree\n", "t.deu-eng.deu": "eins\n \ndrei\n"},
         r"t\.deu-eng\.deu line 2: this side is empty"),
        ({"t.en-de.tsv": "one\teins\ntwo\t\n"}, "line 2: the de side is empty"),
        ({"t.en-de.tsv": "one\teins\ntwo\n"}, "line 2: 1 columns, expected 2"),
        ({"t.tsv": "en\tde\n"}, "a header and no rows"),
        ({"t.deu-eng.deu": "eins\n"}, r"t\.deu-eng\.eng: (no such file|cannot be read)"),
    ],
)  # fmt: skip
def test_bad_parallel_text(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_parallel(tmp_path / next(iter(files)))


def test_byte_order_mark_and_windows_line_ends_do_not_change_the_score(tmp_path, graded_rows, bag):
    plain = write_pairs(tmp_path / "plain.tsv", graded_rows)
    dirty = tmp_path / "dirty.tsv"
    dirty.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes().replace(b"\n", b"\r\n"))
    plain_scores, dirty_scores = (evaluate(bag, task="sts", path=file, resamples=0) for file in (plain, dirty))
    assert plain_scores["spearman"] == dirty_scores["spearman"]
    assert "notes" not in plain_scores
    assert dirty_scores["notes"][1] == f"line 1: Windows line end removed ({len(graded_rows)} lines)"


def test_vectors_that_are_not_finite_name_the_line(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(GOOD, encoding="utf-8")
    texts = ["a b", "c d", "a b c", "a b d", "x", "y z"]
    vectors = {text: np.eye(6)[i] + 0.1 for i, text in enumerate(texts)}
    for value in (np.nan, np.inf):
        vectors["a b d"] = np.full(6, value)
        words = r"pairs line 2 \(sentence 2\): table gave a vector with NaN or infinity \(1 such"
        with pytest.raises(MsdcError, match=words):
            evaluate(LookupEncoder(vectors), task="sts", path=file)


def test_constant_and_nearly_constant_models_have_no_spearman(tmp_path, graded_rows):
    file = tmp_path / "pairs.tsv"
    file.write_text(GOOD, encoding="utf-8")
    with pytest.raises(MsdcError, match=r"pairs lines 1..3: constant gives every pair the same cosine .* undefined"):
        evaluate(Constant(), task="sts", path=file)
    texts = sorted({text for _, first, second in graded_rows for text in (first, second)})
    noise = np.random.default_rng(0).standard_normal((len(texts), 16)) * 1e-5
    vectors = {text: np.ones(16) + noise[i] for i, text in enumerate(texts)}
    with pytest.raises(MsdcError, match="undefined"):
        evaluate(LookupEncoder(vectors), task="sts", path=write_pairs(file, graded_rows))


@pytest.mark.parametrize("content", ["3\ta b\tc d\n3\te f\tg h\n", "3\ta b\tc d\n"])
def test_constant_gold_and_a_single_pair(tmp_path, bag, content):
    (tmp_path / "flat.tsv").write_text(content)
    with pytest.raises(InputError, match="no correlation"):
        evaluate(bag, task="sts", path=tmp_path / "flat.tsv")


def test_a_model_of_changing_width_is_named():
    class Odd(WordBag):
        def encode(self, texts):
            return super().encode(texts)[:, : 10 + len(texts) % 2]

    store = CachedEncoder(Odd())
    store.encode(["one"])
    with pytest.raises(MsdcError, match="gave an array of shape"):
        store.encode(["two", "three"])


def test_an_unknown_task_gets_what_it_resembles(tmp_path, bag):
    with pytest.raises(InputError, match=r"unknown task 'stss'; did you mean 'sts'"):
        evaluate(bag, task="stss", path=tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("score_first.tsv", "2.4\tone\ttwo\n1\tthree\tfour\n"),
        ("score_last.txt", "one\ttwo\t2.4\nthree\tfour\t1\n"),
        ("stsb.tsv", "main\tfile\t2012\t0\t2.4\tone\ttwo\nmain\tfile\t2012\t1\t1\tthree\tfour\tsource\tsource\n"),
        ("korsts.tsv", "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2\n"
                       "m\tf\ty\t0\t2.4\tone\ttwo\nm\tf\ty\t1\t1\tthree\tfour\n"),
        ("sick.txt", "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
                     "1\tone\ttwo\t2.4\tNEUTRAL\n2\tthree\tfour\t1\tNEUTRAL\n"),
        ("stsb-de.csv", '"one",two,2.4\n"three","four",1\n'),
    ],
)  # fmt: skip
def test_layouts_of_the_published_files(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    pairs = read_pairs(tmp_path / name)
    assert (pairs.first, pairs.second, pairs.gold_N.tolist()) == (["one", "three"], ["two", "four"], [2.4, 1.0])


def test_quotes_are_csv_or_text(tmp_path):
    file = tmp_path / "multi.csv"
    file.write_text('"He said, ""no"".",short,1\n"two\nlines",b,2\nc,d,9\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 4: the gold score 9 is outside"):
        read_pairs(file)
    file.write_text('"never closed,b,1\nc,d,2\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 1: not valid CSV"):
        read_pairs(file)
    file = tmp_path / "q.tsv"
    file.write_text('2.5\t"an open quote\tb\n1\tc\t"d"\n', encoding="utf-8")
    assert read_pairs(file).first == ['"an open quote', "c"]
    assert read_pairs(file).second[1] == '"d"'


def test_official_files_leave_out_unjudged_pairs(tmp_path):
    sentences, gold = tmp_path / "STS.input.track5.en-en.txt", tmp_path / "STS.gs.track5.en-en.txt"
    sentences.write_text("a\tb\nc\td\ne\tf\n", encoding="utf-8")
    gold.write_text("1\n\n4.5\n", encoding="utf-8")
    pairs = read_pairs(sentences)
    assert pairs.first == ["a", "e"]
    assert pairs.lines == [1, 3]
    assert "1 pairs without" in pairs.notes[0]
    gold.write_text("1\n2\n3\n4\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 4 has no counterpart"):
        read_pairs(sentences)


@pytest.mark.parametrize(("family", "split"), [("stsb-cross-dev", "dev"), ("stsb-cross", "test")])
def test_english_against_a_translation_needs_the_same_rows(tmp_path, family, split):
    for name, rows in {
        f"stsb/sts-{split}.tsv": "g\tf\ty\t1\t5.0\tA man.\tA person.\ng\tf\ty\t2\t1.0\tA cat.\tA car.\n",
        f"korsts/sts-{split}.tsv": "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2\n"
                              "g\tf\ty\t1\t5.0\t남자.\t사람.\ng\tf\ty\t2\t1.0\t고양이.\t차.\n",
        f"stsb-multi-mt/stsb-pt-{split}.csv": "Um homem.,Uma pessoa.,5.0\nUm gato.,Um carro.,2.0\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(rows, encoding="utf-8")
    folder = DataFolder(tmp_path, ("en", "ko", "pt", "ja"))
    parts = {part.name: part.load for part in SETS[family].parts(folder)}
    korean = parts[f"{family}/en-ko"]().content
    assert (korean.first, korean.second) == (["A man.", "A cat."], ["사람.", "차."])
    assert parts[f"{family}/en-ja"] is None
    assert "not the pairs of" in one_line(parts[f"{family}/en-pt"], InputError)
