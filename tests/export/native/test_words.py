"""The words of the search index in the native core, which Android and iOS use: those of the Python package."""

import ctypes

from native_core import build_core
from words import expected, texts

RECEIVER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)


def words_of(library: ctypes.CDLL, raw: bytes, is_query: int) -> bytes:
    found, error = [], ctypes.create_string_buffer(200)
    keep = RECEIVER(lambda _, data, size: found.append(ctypes.string_at(data, size)))
    size = ctypes.c_size_t(len(raw))
    assert library.msdc_search_words(raw, size, is_query, keep, None, error, ctypes.c_size_t(200)) == 0, error.value
    return found[0]


def test_words_are_those_of_the_python_package():
    library = ctypes.CDLL(str(build_core()))
    for text, both in zip(texts(), expected(), strict=True):
        raw = text.encode()
        assert [words_of(library, raw, query).decode() for query in (0, 1)] == both, ascii(text)
    # What is no UTF-8 ends nothing: bytes are read as some character, and none gets out that is not UTF-8.
    for raw in (b"\xff\xfe a", b"a\xf0\x9f", b"\xed\xa0\x80 b", b"\xc3", b""):
        words_of(library, raw, 0).decode()
