"""Text lines, scored pairs, and texts that a tokenizer has no pieces for."""

import bz2
import gzip
import lzma
import math

import pytest
from stock_models import write_wordpiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import msdc
from msdc.errors import InputError
from msdc.text.quickstart import GRADED_PAIRS
from msdc.text.scored_pairs import read_pairs
from msdc.text.text_files import iterate_lines, read_lines
from msdc.text.tokenizer import FastTokenizer, Reader, is_data


def write(tmp_path, data: bytes, name="text.txt"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_both_readers_give_the_same_lines(tmp_path, pack):
    data = b"\xef\xbb\xbffirst\r\nsecond \xe2\x80\xa8 half\n\nlast without an end"
    path = write(tmp_path, pack(data), "name.does.not.matter")
    lines = ["first", "second \u2028 half", "", "last without an end"]
    assert list(iterate_lines(path)) == list(enumerate(lines, start=1))
    read = read_lines(path)
    assert read.lines == lines
    assert read.notes == ["line 1: byte order mark removed", "line 1: Windows line end removed (1 lines)"]
    assert read.source.bytes == path.stat().st_size


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_wrong_byte_is_named_with_line_and_offset(tmp_path, pack):
    path = write(tmp_path, pack(b"good\nalso good\nbad \xff\n"))
    rows = iterate_lines(path)
    assert [next(rows), next(rows)] == [(1, "good"), (2, "also good")]
    with pytest.raises(InputError, match=r"text\.txt line 3: not valid UTF-8 \(invalid start byte at byte 19\)$"):
        next(rows)


def test_damage_and_absence(tmp_path):
    packed = gzip.compress(b"line\n" * 5000)
    with pytest.raises(InputError, match=r"damaged compressed file after line \d+"):
        list(iterate_lines(write(tmp_path, packed[:-12])))
    for path, message in [(tmp_path / "none", "no such file"), (tmp_path, "a folder; expected a file")]:
        with pytest.raises(InputError, match=message):
            list(iterate_lines(path))
    assert list(iterate_lines(write(tmp_path, b""))) == []
    with pytest.raises(InputError, match="empty file"):
        read_lines(write(tmp_path, gzip.compress(b"\xef\xbb\xbf")))
    with pytest.raises(InputError, match="line 2: a NUL character"):
        read_lines(write(tmp_path, b"a\nb\0\n"))


ANY = (-math.inf, math.inf)


def test_rows_that_do_not_fit_are_counted_and_the_first_is_named(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("a title\n9\ta\tb\nno score\tc\td\n-3\te\tf\n1\tg\t\n", encoding="utf-8")
    pairs = read_pairs(path, limits=ANY, skip_bad=True)
    assert (pairs.first, pairs.second, pairs.gold_N.tolist(), pairs.lines) == (["a", "e"], ["b", "f"], [9, -3], [2, 4])
    assert pairs.notes == ["2 rows skipped; the first: line 3: the score 'no score' is not a number"]
    with pytest.raises(InputError, match="line 1: 1 tab-separated columns without a known layout"):
        read_pairs(path)


def test_graded_pairs_with_and_without_their_header(tmp_path):
    pairs = read_pairs(GRADED_PAIRS)
    path = tmp_path / "bare.tsv"
    path.write_text("".join(GRADED_PAIRS.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    bare = read_pairs(path)
    assert (bare.first, bare.second, bare.subsets) == (pairs.first, pairs.second, pairs.subsets)
    assert len(set(pairs.subsets)) > 1


@pytest.mark.parametrize("limit", [1, 7, 50, 500])
def test_spread_takes_at_most_the_limit(limit):
    pairs = read_pairs(GRADED_PAIRS)
    sample = pairs.spread(limit)
    assert 0 < len(sample) <= limit
    assert len(sample.subsets) == len(sample.lines) == len(sample.gold_N) == len(sample)
    assert sample.first[0] == pairs.first[0]


HEBREW = "אני גר בירושלים"
BASE64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PROSE = [
    "Donaudampfschifffahrtselektrizitaetenhauptbetriebswerkbauunterbeamtengesellschaft",
    "See https://example.com/a/very/long/path?with=parameters&session=" + "a1b2-" * 40 + " for the flat we liked.",
    "test_that_a_user_with_a_wrong_password_is_told_so_in_2_languages", "=" * 80, "我住在北京" * 50, "",
]  # fmt: skip
DATA = [BASE64, f"![meter](data:image/png;base64,{BASE64})", "sha256 " + "0a1b2c3d" * 8, "a(b);c[d]={e:f};" * 20]


def test_data_is_no_prose():
    assert [text for text in PROSE if is_data(text)] == []
    assert [text for text in DATA if not is_data(text)] == []
    assert not is_data(
        "The picture of the meter, which showed 4,211 cubic metres in April, is below this line. " + BASE64[:48]
    )
    reader = Reader(msdc.load_encoder("msdc-nano").tokenizer, 128)
    assert reader.unread([*PROSE[:2], *DATA]).tolist() == [False] * 2 + [True] * 4


def test_sentencepiece_without_bytes():
    mini = msdc.load_encoder("msdc-mini")
    reader = Reader(mini.tokenizer, mini.max_length)
    texts = ["A car.", "Das Auto", "سيارة", "Été à Zürich", "?!", "a", HEBREW, "ბებო ყოველ დილით", "08:15 " + HEBREW]
    assert reader.unread(texts).tolist() == [False] * 6 + [True] * 3


def test_wordpiece(tmp_path):
    write_wordpiece(tmp_path)
    reader = Reader(FastTokenizer(tmp_path / "tokenizer.json"), 32)
    assert reader.unread(["a cat", f"a cat {HEBREW[:3]}", HEBREW, ""]).tolist() == [False, False, True, False]


@pytest.mark.parametrize("bytes_", ["level", "fallback"])
def test_pieces_for_bytes_read_everything(tmp_path, bytes_):
    if bytes_ == "level":
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        backend.train_from_iterator(["a car"], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    else:
        pieces = [("<unk>", 0.0), ("▁", -1.0), ("a", -2.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
        backend = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.save(str(tmp_path / "tokenizer.json"))
    reader = Reader(FastTokenizer(tmp_path / "tokenizer.json"), 64)
    assert not reader.unread([HEBREW, "a", "👍", "\U00012000\U00012001", "ⵣ"]).any()


def test_what_is_written_otherwise_is_read_or_named(tmp_path):
    """Compressions, encodings and line ends; what is no text is named, not decoded."""
    text = "first\nsecond ä\n"
    packs = [gzip.compress, bz2.compress, lzma.compress]
    written = [pack(text.encode()) for pack in packs] + [
        text.encode("utf-16"), text.encode("utf-32"), text.encode("utf-8-sig"), text.replace("\n", "\r").encode(),
        text.replace("\n", "\r").encode("utf-16"), gzip.compress(text.encode("utf-16")),
        gzip.compress(b"first\n") + gzip.compress("second ä".encode()),
    ]  # fmt: skip
    for content in written:
        assert [line for _, line in iterate_lines(write(tmp_path, content))] == ["first", "second ä"]
    for content, message in (
        (text.encode("utf-16-le"), "line 1: a NUL character; it looks like UTF-16 without a byte order mark"),
        (b"first\nse\0cond\n", "line 2: a NUL character; this is not a text file"),
        (b"PK\x03\x04rest", "a zip archive or a spreadsheet, not text"), (b"%PDF-1.7", "a PDF, not text"),
        (gzip.compress(b"PAR1..."), "parquet, not text"),
        (text.encode("utf-16")[:-1], "damaged text after line"),
        (bz2.compress(text.encode() * 9000)[:-9], "damaged compressed file after line"),
        (lzma.compress(text.encode() * 9000)[:-9], "damaged compressed file after line"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            list(iterate_lines(write(tmp_path, content)))
    assert read_lines(write(tmp_path, text.encode() + b"\n\r\n")).lines == ["first", "second ä"]


def test_values_that_are_no_strings_are_named_and_arrays_of_arrow_are_texts():
    mini = msdc.load_encoder("msdc-mini")
    with pytest.raises(ValueError, match=r"the value at index 1 is not a string \(float: nan\)") as caught:
        mini.encode(["a", float("nan"), 3])
    assert isinstance(caught.value, InputError)
    pa = pytest.importorskip("pyarrow")
    expected = mini.encode(["one text", "two texts"])
    for array in (pa.array(["one text", "two texts"]), pa.chunked_array([["one text"], ["two texts"]])):
        assert (mini.encode(array) == expected).all()
    with pytest.raises(InputError, match="index 0 is not a string"):
        mini.encode(pa.array([None, "x"]))
