"""The words of the search index in the native core, which Android and iOS use: those of the Python package."""

import ctypes
import json
from collections.abc import Callable
from typing import Any

import pytest
from native_core import build_core
from words import expected, shown_cases, texts

RECEIVER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)
SPANS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(build_core()))


def text_of(function: Callable[..., int], raw: bytes, *arguments: int) -> str:
    received, error = [], ctypes.create_string_buffer(200)
    receiver = RECEIVER(lambda _, data, size: received.append(ctypes.string_at(data, size)))
    size = ctypes.c_size_t(len(raw))
    assert function(raw, size, *arguments, receiver, None, error, ctypes.c_size_t(200)) == 0, error.value
    return received[0].decode()


def show(library: ctypes.CDLL, case: dict[str, Any], by_cosine: int = 0) -> tuple[list[list[int]], int]:
    """The merged spans of a case, and the passage to show."""
    spans: list[list[int]] = []
    best, error, count = ctypes.c_size_t(), ctypes.create_string_buffer(200), len(case["passages"])
    receiver = SPANS(lambda _, start, end: spans.append([start, end]))
    text, terms = case["text"].encode(), case["terms"].encode()
    starts, ends = ((ctypes.c_int64 * count)(*(span[side] for span in case["passages"])) for side in (0, 1))
    status = library.msdc_search_show(
        text, ctypes.c_size_t(len(text)), terms, ctypes.c_size_t(len(terms)), starts, ends,
        (ctypes.c_float * count)(*case["cosines"]), ctypes.c_size_t(count), by_cosine, ctypes.byref(best), receiver,
        None, error, ctypes.c_size_t(200),
    )  # fmt: skip
    assert status == 0, error.value
    return spans, best.value


def test_words_and_plans_are_those_of_the_python_package(library):
    for text, (words, *plans) in zip(texts(), expected(), strict=True):
        raw = text.encode()
        assert text_of(library.msdc_search_words, raw) == words, ascii(text[:200])
        for operators, plan in zip((1, 0), plans, strict=False):
            assert json.loads(text_of(library.msdc_search_plan, raw, operators)) == plan, ascii(text)
    # What is no UTF-8 ends nothing: bytes are read as some character, and none gets out that is not UTF-8.
    for raw in (b"\xff\xfe a", b"a\xf0\x9f", b"\xed\xa0\x80 b", b"\xc3", b""):
        text_of(library.msdc_search_words, raw)
        json.loads(text_of(library.msdc_search_plan, raw, 1))


def test_places_to_highlight_and_passage_to_show_are_those_of_the_python_package(library):
    cases = shown_cases()
    assert len(cases) > 1000
    for case in cases:
        assert show(library, case) == (case["spans"], case["best"]), ascii(case)
    several = [case for case in cases if len(case["passages"]) > 1]
    for case in several[:100]:
        assert show(library, case | {"terms": ""}, 1) == ([], case["cosines"].index(max(case["cosines"])))
    with pytest.raises(AssertionError, match="no passages"):
        show(library, cases[0] | {"passages": [], "cosines": []})
