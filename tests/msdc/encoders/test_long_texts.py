"""Texts longer than a model reads: passages and their pooled vector, for a float model and a bundle."""

import numpy as np
import pytest
import tiny_models

import msdc
from msdc.errors import InputError
from msdc.text.passages import passages

SENTENCES = ["The bus to the old station leaves at seven in the morning and comes back at night.",
             "Cheese and bread are sold on the market next to the church every day of the week.",
             "A small boat crosses the lake when the weather is good and the wind is not too strong."]  # fmt: skip


@pytest.fixture(params=["student", "onnx"])
def model(request):
    folder = tiny_models.student_folder()
    return msdc.load_encoder(folder) if request.param == "student" else msdc.load_bundle(tiny_models.bundle(), "onnx")


def test_the_whole_text_decides(model):
    """The mean of the passages' vectors by tokens, of unit length; the end of the text changes it."""
    text = " ".join(SENTENCES)
    assert len(model.tokenizer.encode([text], 10_000)[0]) > model.max_length
    parts_PD = model.encode_long(text, pool=False)
    count, most = model.token_counter("")
    (spans,) = passages([text], count, most)
    parts = [text[start:end] for start, end in spans]
    assert len(parts) >= 3
    assert all(number <= most for number in count(parts))
    assert np.allclose(parts_PD, model.encode(parts), atol=1e-6)
    mean_D = sum(n * row for n, row in zip(count(parts), parts_PD, strict=True)) / sum(count(parts))
    found_D = model.encode_long(text)
    assert np.allclose(found_D, mean_D / np.linalg.norm(mean_D), atol=1e-6)
    assert found_D.shape == (model.width,)
    assert found_D.dtype == np.float32
    assert not np.allclose(found_D, model.encode_long(text + " The end is another one."), atol=1e-3)
    assert np.allclose(model.encode(text), model.encode(text + " The end is another one."), atol=1e-6)


def test_short_empty_and_prompted_texts(model):
    assert np.allclose(model.encode_long("A bus."), model.encode("A bus."), atol=1e-6)
    assert np.allclose(model.encode_long(""), model.encode(""), atol=1e-6)
    assert np.allclose(
        model.encode_long("A bus.", prompt="Where? "), model.encode("A bus.", prompt="Where? "), atol=1e-6
    )
    assert model.encode_long(SENTENCES[0], truncate_dim=8, pool=False).shape[1] == 8
    with pytest.raises(InputError, match="the prompt has as many tokens"):
        model.encode_long("A bus.", prompt=" ".join(SENTENCES))
    with pytest.raises(InputError, match="not a string"):
        model.encode_long(["A bus."])


def test_vectors_that_are_not_of_unit_length_keep_theirs(tmp_path):
    from msdc.compress.student.io import save_student

    student = tiny_models.student(normalize=False)
    model = msdc.load_encoder(save_student(student, tiny_models.tokenizer().path, tmp_path / "raw"))
    found_D, parts_PD = model.encode_long(" ".join(SENTENCES)), model.encode_long(" ".join(SENTENCES), pool=False)
    lengths = np.linalg.norm(parts_PD, axis=1)
    assert abs(np.linalg.norm(found_D) - 1) > 0.1
    assert np.linalg.norm(found_D) <= lengths.max() + 1e-6
