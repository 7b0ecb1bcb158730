"""Gates, golden texts, and the two tokenizers that must agree."""

import numpy as np
import pytest
import tiny_models as tiny
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msdc.errors import GateError, InputError
from msdc.export.golden import (
    FP32,
    INT4,
    INT8,
    decode_vectors,
    encode_vectors,
    golden_texts,
    measure,
    shortfalls,
    thresholds_for,
    tokenizers_agree,
)
from msdc.export.manifest import Parity
from msdc.text.tokenizer import JSON_FILE, FastTokenizer, PieceTokenizer, write_fast_copy


def test_measure_by_hand():
    reference = np.array([[3.0, 4.0], [0.6, 0.8]], np.float32)
    found = np.array([[4.0, 3.0], [0.6, 0.8]], np.float32)
    parity = measure(reference, found, 0.96)
    assert parity.mean_cosine == pytest.approx((24 / 25 + 1) / 2, abs=1e-6) and parity.texts == 2
    assert parity.min_cosine == pytest.approx(24 / 25, abs=1e-6)
    # the first row has length 5, so its error of 1 counts as 0.2
    assert parity.max_abs == pytest.approx(0.2)


GOOD = {"mean_cosine": 0.9985, "min_cosine": 0.991, "max_abs": 0.02, "texts": 9, "low_bit_share": 0.97}
EXACT = {"mean_cosine": 1.0, "min_cosine": 1.0, "max_abs": 9e-5, "texts": 1}


@pytest.mark.parametrize(
    ("wanted", "values", "word"),
    [
        (INT8, GOOD, None), (INT8, GOOD | {"mean_cosine": 0.997}, "mean"), (INT8, GOOD | {"min_cosine": 0.98}, "min"),
        (INT8, GOOD | {"low_bit_share": 0.94}, "8-bit"), (FP32, EXACT, None), (FP32, EXACT | {"max_abs": 2e-4}, "max"),
    ],
)  # fmt: skip
def test_gates(wanted, values, word):
    found = shortfalls(Parity(**values), wanted)
    assert (word is None and not found) or (len(found) == 1 and word in found[0])
    never = Parity(**EXACT).model_copy(update={"mean_cosine": float("nan")})
    assert shortfalls(never, wanted), "NaN must never pass"
    assert thresholds_for({"fp32"}) is FP32 and thresholds_for({"fp32", "int8"}) is INT8
    assert thresholds_for({"int8", "int4"}) is INT4


def test_vectors_survive_base64():
    made = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    assert (decode_vectors(encode_vectors(made), 3, 5) == made).all()
    for bad in ("***", encode_vectors(made)[:-8]):
        with pytest.raises(InputError):
            decode_vectors(bad, 3, 5)


def test_golden_texts_hold_the_corners():
    texts = golden_texts()
    assert {"", " "} <= set(texts) and len(texts) == len(set(texts)) > 100
    assert any(len(text) > 3000 for text in texts) and any("<s>" in text for text in texts)


def test_agreement_gate_names_the_text(tmp_path):
    model = tmp_path / "tokenizer.model"
    model.write_bytes(tiny.tokenizer().path.read_bytes())
    tokenizer = PieceTokenizer(model)
    (tmp_path / "scratch").mkdir()
    tokenizers_agree(tokenizer, golden_texts(), 64, tmp_path / "scratch")
    # a twin that folds case is not a twin
    from tokenizers import Tokenizer, normalizers

    backend = Tokenizer.from_file(str(tmp_path / "scratch" / JSON_FILE))
    backend.normalizer = normalizers.Lowercase()
    backend.save(str(tmp_path / JSON_FILE))
    with pytest.raises(GateError, match="differ on"):
        tokenizers_agree(tokenizer, golden_texts(), 64, tmp_path / "scratch")


@pytest.fixture(scope="module")
def twins(tmp_path_factory) -> tuple[PieceTokenizer, FastTokenizer]:
    path = tmp_path_factory.mktemp("twin") / JSON_FILE
    write_fast_copy(tiny.tokenizer().path, path)
    return tiny.tokenizer(), FastTokenizer(path)


# Surrogates are no text; U+0000 ends a C string inside some tools and is not text either.
TEXTS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=60)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        TEXTS,
        st.lists(st.sampled_from([*"abe .,\u00fc\u3000\u2581\u200b", "<s>", "</s>", "<unk>", "<pad>", "  "])).map(
            "".join
        ),
    )
)
@example("<s")
@example("<s><s></s>")
@example("<<s>>")
@example("\u2581\u2581")
@example("\x85")
@example(" \n a \n ")
def test_twin_segments_any_text_alike(twins, text):
    pieces, fast = twins
    assert pieces.encode([text], 500) == fast.encode([text], 500)
