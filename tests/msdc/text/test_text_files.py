"""The one reader of text lines: what is normalized, what is refused, and where it says the fault is."""

import gzip

import pytest

from msdc.errors import InputError
from msdc.text.text_files import iterate_lines, read_lines


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


def test_an_overlong_line_is_cut_and_the_numbers_stay_right(tmp_path):
    giant = "é" * 3_000_000
    path = write(tmp_path, f"{giant}\nshort\n{giant}".encode())
    assert [(n, len(line)) for n, line in iterate_lines(path, max_line_bytes=1001)] == [(1, 500), (2, 5), (3, 500)]
    exact = write(tmp_path, b"x" * 10 + b"\n" + b"y" * 10)
    assert [line for _, line in iterate_lines(exact, max_line_bytes=10)] == ["x" * 10, "y" * 10]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_bound_on_the_size_counts_unpacked_bytes(tmp_path, pack):
    path = write(tmp_path, pack(b"0123456789\n" * 10))
    assert len(list(iterate_lines(path, max_bytes=110))) == 10
    with pytest.raises(InputError, match="line 10: more than"):
        list(iterate_lines(path, max_bytes=109))


def test_a_giant_line_is_not_held_before_it_is_refused(tmp_path):
    path = write(tmp_path, gzip.compress(b"x" * 5_000_000))
    with pytest.raises(InputError, match="line 1: more than 0 MiB"):
        list(iterate_lines(path, max_bytes=1000))


def test_damage_and_absence(tmp_path):
    packed = gzip.compress(b"line\n" * 5000)
    with pytest.raises(InputError, match=r"damaged gzip file after line \d+"):
        list(iterate_lines(write(tmp_path, packed[:-12])))
    for path, said in [(tmp_path / "none", "no such file"), (tmp_path, "a folder, a file was expected")]:
        with pytest.raises(InputError, match=said):
            list(iterate_lines(path))
    assert list(iterate_lines(write(tmp_path, b""))) == []
    with pytest.raises(InputError, match="empty file"):
        read_lines(write(tmp_path, gzip.compress(b"\xef\xbb\xbf")))
    with pytest.raises(InputError, match="line 2: a NUL character"):
        read_lines(write(tmp_path, b"a\nb\0\n"))
