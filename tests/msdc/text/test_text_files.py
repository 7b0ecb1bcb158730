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
