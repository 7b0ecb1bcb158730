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


def exact(model, prompt: str = "") -> str:
    """A text that has, after `prompt`, as many tokens as the model reads."""
    text = "a"
    while len(model.tokenizer.encode([prompt + text], 10_000)[0]) < model.max_length:
        text += " a"
    assert len(model.tokenizer.encode([prompt + text], 10_000)[0]) == model.max_length
    return text


def test_truncated_texts_are_counted(model):
    """Special ids and the prompt count; a text that just fits is whole."""
    fits, long = exact(model), " ".join(SENTENCES)
    assert model.count_truncated([fits, "", long, "A bus.", long]) == 2
    assert model.count_truncated(fits) == 0
    assert model.count_truncated(f"{fits} a") == 1
    assert model.count_truncated([]) == 0
    assert model.count_truncated([fits, "A bus."], prompt="the dog: ") == 1
    assert model.count_truncated([exact(model, "the dog: ")], prompt="the dog: ") == 0
    assert model.count_truncated(fits, prompt="") == 0
    with pytest.raises(InputError, match="has no prompt 'nothing'"):
        model.count_truncated([fits], "nothing")
    with pytest.raises(InputError, match="either `prompt` or `prompt_name`"):
        model.count_truncated([fits], prompt_name="query", prompt="x")
    for wrong in (3, None, [3], ["\ud800"]):
        with pytest.raises(InputError):
            model.count_truncated(wrong)
    # What is counted is what `encode` does not read.
    end = "The end is another one."
    for text in (fits, f"{fits} a", long, "A bus."):
        same = np.allclose(model.encode(text), model.encode(f"{text} {end}"), atol=1e-6)
        assert same == (
            model.count_truncated(f"{text} {end}") == 1 and len(model.tokenize([text])[0]) == model.max_length
        )
    if isinstance(model, msdc.Encoder):
        model.max_seq_length = 8
        assert model.count_truncated([fits, "A bus."]) == 1


def test_truncated_texts_of_prompts_and_stock_models(tiny_teacher):
    model = msdc.load_encoder(tiny_teacher)
    fits = exact(model)
    model.prompts = {"query": "the dog: "}
    assert model.count_truncated([fits, "short"]) == 0
    assert model.count_truncated([fits, "short"], "query") == 1
    model.default_prompt_name = "query"
    assert model.count_truncated([fits, "short"]) == 1
    assert model.count_truncated([fits, "short"], prompt="") == 0


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
