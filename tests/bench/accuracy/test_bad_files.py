"""Bad files: one clear line with the line number, never a score."""

import gzip

import numpy as np
import pytest
from accuracy_models import Constant, Table, WordBag, write_pairs

from msdc.bench.accuracy import evaluate
from msdc.bench.accuracy.readers.parallel import read_parallel
from msdc.errors import InputError, MsdcError
from msdc.text.scored_pairs import read_pairs

GOOD = "2.5\ta b\tc d\n4.0\ta b c\ta b d\n0.5\tx\ty z\n"


def pairs_error(tmp_path, content: bytes, name: str = "bad.tsv") -> str:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_pairs(file)
    text = str(caught.value)
    assert "\n" not in text and str(file) in text
    return text


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("2.5\ta\tb\n3.0\tonly one\n", 2, "2 tab-separated columns, expected 3"),
        ("2.5\ta\tb\n3.0\ta\tb\tc\n", 2, "4 tab-separated columns, expected 3"),
        ("2.5\ta\tb\n\n3.0\ta\tb\n", 2, "1 tab-separated columns, expected 3"),
        ("2.5\ta\tb\n5.01\ta\tb\n", 2, "outside 0..5"),
        ("2.5\ta\tb\n-0.1\ta\tb\n", 2, "outside 0..5"),
        ("2.5\ta\tb\nnan\ta\tb\n", 2, "outside 0..5"),
        ("2.5\ta\tb\ninf\ta\tb\n", 2, "outside 0..5"),
        ("2.5\ta\tb\nhigh\ta\tb\n", 2, "is not a number"),
        ("2.5\ta\tb\n3.0\t\tb\n", 2, "sentence 1 is empty"),
        ("2.5\ta\tb\n3.0\ta\t  \n", 2, "sentence 2 is empty"),
        ("2.5\ta\tb\n3.0\ta\tb\0\n", 2, "NUL"),
        ("a\tb\tc\n", 1, "without a known layout"),
        ("just text\n", 1, "without a known layout"),
        ("score\tsentence1\tsentence2\n2\ta\tb\n9\ta\tb\n", 3, "outside 0..5"),
    ],
)
def test_bad_pairs_name_the_line(tmp_path, content, line, words):
    message = pairs_error(tmp_path, content.encode())
    assert f"line {line}: " in message and words in message


def test_not_utf8_names_the_line(tmp_path):
    assert "line 2: not valid UTF-8" in pairs_error(tmp_path, b"2.5\ta\tb\n3.0\ta\t\xff\xfe\n")
    assert "UTF-16" in pairs_error(tmp_path, GOOD.encode("utf-16"))


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_empty_file(tmp_path, content):
    assert "empty file" in pairs_error(tmp_path, content)


def test_header_alone(tmp_path):
    assert "no pairs" in pairs_error(tmp_path, b"score\tsentence1\tsentence2\n")


def test_damaged_gzip(tmp_path):
    whole = gzip.compress(GOOD.encode() * 50)
    assert "damaged gzip" in pairs_error(tmp_path, whole[: len(whole) // 2], "bad.tsv.gz")


def test_missing_and_folder(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_pairs(tmp_path / "none.tsv")
    with pytest.raises(InputError, match="a folder"):
        read_pairs(tmp_path)


def test_byte_order_mark_and_windows_line_ends_do_not_change_the_score(tmp_path, graded_rows, bag):
    plain = write_pairs(tmp_path / "plain.tsv", graded_rows)
    dirty = tmp_path / "dirty.tsv"
    dirty.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes().replace(b"\n", b"\r\n"))
    one, two = (evaluate(bag, task="sts", path=file) for file in (plain, dirty))
    assert one["spearman"] == two["spearman"] and "notes" not in one
    assert two["notes"] == [
        "line 1: byte order mark removed",
        f"line 1: Windows line end removed ({len(graded_rows)} lines)",
    ]


def test_one_windows_line_end_is_named(tmp_path):
    file = tmp_path / "mixed.tsv"
    file.write_bytes(b"2.5\ta\tb\n3.0\ta\tb\r\n1\tx\ty\n")
    assert read_pairs(file).notes == ["line 2: Windows line end removed (1 lines)"]
    assert read_pairs(file).second == ["b", "b", "y"]


def test_unicode_line_separators_stay_in_the_sentence(tmp_path):
    file = tmp_path / "odd.tsv"
    file.write_text("2.5\ta\u2028b\tc\u0085d\n1\tx\ty\n", encoding="utf-8")
    assert len(read_pairs(file)) == 2 and read_pairs(file).first[0] == "a\u2028b"


def test_unequal_line_counts(tmp_path):
    (tmp_path / "tatoeba.deu-eng.deu").write_text("eins\nzwei\ndrei\n", encoding="utf-8")
    (tmp_path / "tatoeba.deu-eng.eng").write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"deu has 3 lines and tatoeba.deu-eng.eng 2: line 3 has no counterpart"):
        read_parallel(tmp_path / "tatoeba.deu-eng.deu")
    with pytest.raises(InputError, match="line 3 has no counterpart"):
        read_parallel(tmp_path / "tatoeba.deu-eng.eng")


def test_official_files_of_unequal_length(tmp_path):
    (tmp_path / "STS.input.headlines.txt").write_text("a\tb\nc\td\n", encoding="utf-8")
    (tmp_path / "STS.gs.headlines.txt").write_text("1\n2\n3\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 3 has no counterpart"):
        read_pairs(tmp_path / "STS.input.headlines.txt")


def test_empty_side_of_parallel_text(tmp_path):
    (tmp_path / "x.deu-eng.deu").write_text("eins\n \ndrei\n", encoding="utf-8")
    (tmp_path / "x.deu-eng.eng").write_text("one\ntwo\nthree\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.deu-eng\.deu line 2: this side is empty"):
        read_parallel(tmp_path / "x.deu-eng.eng")
    (tmp_path / "x.en-de.tsv").write_text("one\teins\ntwo\t\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2: the de side is empty"):
        read_parallel(tmp_path / "x.en-de.tsv")


def test_missing_other_side(tmp_path):
    (tmp_path / "x.deu-eng.deu").write_text("eins\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.deu-eng\.eng: no such file"):
        read_parallel(tmp_path / "x.deu-eng.deu")


def test_nan_vectors_name_the_line(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(GOOD, encoding="utf-8")
    texts = ["a b", "c d", "a b c", "a b d", "x", "y z"]
    vectors = {text: np.eye(6)[i] + 0.1 for i, text in enumerate(texts)}
    vectors["a b d"] = np.full(6, np.nan)
    with pytest.raises(
        MsdcError, match=r"pairs line 2 \(sentence 2\): table gave a vector with NaN or infinity \(1 such"
    ):
        evaluate(Table(vectors), task="sts", path=file)
    vectors["a b d"] = np.full(6, np.inf)
    with pytest.raises(MsdcError, match="NaN or infinity"):
        evaluate(Table(vectors), task="sts", path=file)


def test_constant_model_has_no_spearman(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(GOOD, encoding="utf-8")
    with pytest.raises(MsdcError, match=r"pairs lines 1..3: constant gives every pair the same cosine .* undefined"):
        evaluate(Constant(), task="sts", path=file)


def test_nearly_constant_model_is_not_scored_by_its_rounding(tmp_path, graded_rows):
    file = write_pairs(tmp_path / "pairs.tsv", graded_rows)
    texts = sorted({text for _, one, two in graded_rows for text in (one, two)})
    noise = np.random.default_rng(0).standard_normal((len(texts), 16)) * 1e-5
    vectors = {text: np.ones(16) + noise[i] for i, text in enumerate(texts)}
    with pytest.raises(MsdcError, match="undefined"):
        evaluate(Table(vectors), task="sts", path=file)


def test_constant_gold_and_a_single_pair(tmp_path, bag):
    for content in ("3\ta b\tc d\n3\te f\tg h\n", "3\ta b\tc d\n"):
        file = tmp_path / "flat.tsv"
        file.write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match="no correlation"):
            evaluate(bag, task="sts", path=file)


def test_a_model_of_changing_width_is_named(tmp_path):
    class Odd(WordBag):
        def encode(self, texts):
            return super().encode(texts)[:, : 10 + len(texts) % 2]

    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{i % 5}\tleft {i}\tright {i}\n" for i in range(800)), encoding="utf-8")
    with pytest.raises(MsdcError, match="gave an array of shape"):
        from msdc.bench.accuracy.vectors import VectorStore

        store = VectorStore(Odd())
        store.encode(["one"])
        store.encode(["two", "three"])


def test_unknown_task_lists_the_known_ones(tmp_path, bag):
    with pytest.raises(InputError, match=r"unknown task 'stss'; known tasks: sts, mining, tatoeba"):
        evaluate(bag, task="stss", path=tmp_path)


def test_layouts_of_the_published_files(tmp_path):
    cases = {
        "score_first.tsv": "2.4\tone\ttwo\n1\tthree\tfour\n",
        "score_last.txt": "one\ttwo\t2.4\nthree\tfour\t1\n",
        "stsb.tsv": "main\tfile\t2012\t0\t2.4\tone\ttwo\nmain\tfile\t2012\t1\t1\tthree\tfour\tsource\tsource\n",
        "korsts.tsv": "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2\n"
        "m\tf\ty\t0\t2.4\tone\ttwo\nm\tf\ty\t1\t1\tthree\tfour\n",
        "sick.txt": "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        "1\tone\ttwo\t2.4\tNEUTRAL\n2\tthree\tfour\t1\tNEUTRAL\n",
        "stsb-de.csv": '"one",two,2.4\n"three","four",1\n',
    }
    for name, content in cases.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        pairs = read_pairs(tmp_path / name)
        assert (pairs.first, pairs.second, pairs.gold_N.tolist()) == (["one", "three"], ["two", "four"], [2.4, 1.0]), (
            name
        )


def test_csv_with_quotes_and_commas(tmp_path):
    file = tmp_path / "multi.csv"
    file.write_text('"He said, ""no"".",short,1\n"two\nlines",b,2\nc,d,9\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 4: the gold score 9 is outside"):
        read_pairs(file)
    file.write_text('"never closed,b,1\nc,d,2\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 1: not valid CSV"):
        read_pairs(file)


def test_quotes_in_tab_separated_files_are_text(tmp_path):
    file = tmp_path / "q.tsv"
    file.write_text('2.5\t"an open quote\tb\n1\tc\t"d"\n', encoding="utf-8")
    assert read_pairs(file).first == ['"an open quote', "c"] and read_pairs(file).second[1] == '"d"'


def test_official_files_leave_out_unjudged_pairs(tmp_path):
    (tmp_path / "STS.input.track5.en-en.txt").write_text("a\tb\nc\td\ne\tf\n", encoding="utf-8")
    (tmp_path / "STS.gs.track5.en-en.txt").write_text("1\n\n4.5\n", encoding="utf-8")
    pairs = read_pairs(tmp_path / "STS.input.track5.en-en.txt")
    assert pairs.first == ["a", "e"] and pairs.lines == [1, 3] and "1 pairs without" in pairs.notes[0]
