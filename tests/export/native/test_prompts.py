"""Prompts in the native core: what the C interface passes to a program, and texts without tokens."""

import ctypes

import numpy as np
import pytest
from folder_kinds import UNPOOLED, kind_bundle

import msdc
from msdc.export.bundle import Bundle

PROGRAM = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t, ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_float), ctypes.c_size_t,
)  # fmt: skip
TEXTS = ["a dog", "The BIG cat sleeps", "", "  ", "the dog"]


class Core:
    """The core's encoder over a bundle whose program Python runs."""

    def __init__(self, library, bundle: Bundle) -> None:
        self.library, self.bundle, self.error = ctypes.CDLL(str(library)), bundle, ctypes.create_string_buffer(500)
        self.skipped: list[int] = []

        def program(context, ids, count, prompt_tokens, vector, width) -> int:
            del context
            self.skipped.append(prompt_tokens)
            numbers = bundle.runner.run([list(ids[:count])], prompt_tokens)[0]
            ctypes.memmove(vector, np.ascontiguousarray(numbers).ctypes.data, 4 * width)
            return 0

        self.program, self.handle = PROGRAM(program), ctypes.c_void_p()
        self.check(
            self.library.msdc_open_with(
                str(bundle.folder).encode(), None, bundle.runtime.encode(), self.program, None,
                ctypes.byref(self.handle), self.error, 500,
            )
        )  # fmt: skip
        self.library.msdc_close.argtypes = [ctypes.c_void_p]

    def check(self, status: int) -> None:
        assert status == 0, self.error.value.decode()

    def encode(self, text: str, prompt: str | None) -> np.ndarray:
        raw, vector = text.encode(), np.full(self.bundle.width, 7, np.float32)
        self.check(
            self.library.msdc_encode(
                self.handle, None if prompt is None else prompt.encode(), raw, ctypes.c_size_t(len(raw)),
                vector.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), ctypes.c_size_t(len(vector)), self.error, 500,
            )
        )  # fmt: skip
        return vector

    def batch(self, texts: list[str], prompt: str | None) -> np.ndarray:
        raws = [text.encode() for text in texts]
        starts, sizes = (ctypes.c_char_p * len(raws))(*raws), (ctypes.c_size_t * len(raws))(*map(len, raws))
        vectors = np.full((len(raws), self.bundle.width), 7, np.float32)
        self.check(
            self.library.msdc_encode_batch(
                self.handle, None if prompt is None else prompt.encode(), starts, sizes, ctypes.c_size_t(len(raws)),
                vectors.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), ctypes.c_size_t(self.bundle.width), None, None,
                self.error, 500,
            )
        )  # fmt: skip
        return vectors

    def count_truncated(self, texts: list[str], prompt: str | None) -> int:
        raws, count = [text.encode() for text in texts], ctypes.c_size_t(7)
        starts, sizes = (ctypes.c_char_p * len(raws))(*raws), (ctypes.c_size_t * len(raws))(*map(len, raws))
        first = None if prompt is None else prompt.encode()
        self.check(
            self.library.msdc_count_truncated(
                self.handle, first, starts, sizes, ctypes.c_size_t(len(raws)), ctypes.byref(count), self.error, 500
            )
        )
        return count.value

    def self_test(self) -> int:
        result = (ctypes.c_int32 * 4)()
        return int(self.library.msdc_self_test(self.handle, ctypes.c_float(0.999), result, self.error, 500))

    def __del__(self) -> None:
        self.library.msdc_close(self.handle)


@pytest.fixture(scope="module")
def core(request, core_library):
    _, bundle = kind_bundle(request.param, "onnx")
    return Core(core_library, msdc.load_bundle(bundle, "onnx"))


@pytest.mark.parametrize("core", [UNPOOLED], indirect=True)
@pytest.mark.parametrize("prompt", [None, "the cat: ", "", "house, "])
def test_a_program_is_told_how_many_tokens_are_the_prompts(core, prompt):
    expected = core.bundle.encode(TEXTS, prompt=prompt)
    core.skipped.clear()
    vectors = np.stack([core.encode(text, prompt) for text in TEXTS])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(core.batch(TEXTS, prompt), expected, atol=1e-5)
    prompt_text = core.bundle.defaults.prompt(prompt)
    # Word pieces of the prompt and the first special id.
    assert set(core.skipped) == ({0} if not prompt_text else {len(core.bundle.tokenize([prompt_text])[0]) - 1})
    assert core.self_test() == 0


@pytest.mark.parametrize("core", [UNPOOLED, "static"], indirect=True)
@pytest.mark.parametrize("prompt", [None, "", "the cat: "])
def test_texts_that_are_cut_are_counted(core, prompt):
    longest = core.bundle.max_length
    texts = [*TEXTS, *(" ".join(["dog"] * count) for count in range(longest - 12, longest + 4))]
    prompted = [core.bundle.defaults.prompt(prompt) + text for text in texts]
    cut = [len(row) > longest for row in core.bundle.tokenizer.encode(prompted, 10**6)]
    assert 0 < sum(cut) < len(texts)
    assert core.count_truncated(texts, prompt) == sum(cut)
    assert core.count_truncated([], prompt) == 0


@pytest.mark.parametrize("core", ["static"], indirect=True)
def test_a_text_without_tokens_has_the_vector_zero(core):
    expected = core.bundle.encode(TEXTS)
    assert not expected[2].any()
    assert not expected[3].any()
    assert expected[0].any()
    np.testing.assert_allclose(core.batch(TEXTS, None), expected, atol=1e-5)
    assert not core.encode("", None).any()
    assert core.self_test() == 0
    # With a prompt it has tokens.
    np.testing.assert_allclose(core.encode("", "dog "), core.bundle.encode([""], prompt="dog ")[0], atol=1e-5)
