"""Student folders: round trips, stock classes, quantized weights, damage."""

import json
import re
import shutil

import numpy as np
import pytest
import tiny_models as tiny
import torch
from programs import python
from refusals import one_line
from safetensors.torch import load_file, save_file
from stock_models import TEXTS

import msdc
from msdc.compress.quantization.rounding import quantize_student
from msdc.compress.student.io import add_stock_twin, load_student, save_student
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.plan import (
    QuantizedWeight,
    plan_for,
    read_plan,
    unpack_int4,
    weight_bytes_by_dtype,
)
from msdc.compress.student.stock import from_stock
from msdc.compress.student.weights import integers
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import STOCK_FOLDER, EncodeDefaults
from msdc.errors import InputError
from msdc.export.golden import golden_texts
from msdc.loading import load_encoder


def student_of(**changes) -> Student:
    settings = {"vocabulary": 120, "hidden": 64, "heads": 4, "intermediate": 96, "unit": 2, "repeats": 2,
                "bottleneck": 32, "positions": 24}  # fmt: skip
    return tiny.shaken(StudentConfig(**(settings | changes)), by=0.1)


def vectors(student: Student, tokenizer) -> np.ndarray:
    return Encoder(student, tokenizer, student.config.positions, "x").encode(TEXTS)


DENSE = {"dense": 48, "dense_activation": "tanh"}


@pytest.mark.parametrize("changes", [{}, {"place": "embedding"}, {"bottleneck": None, **DENSE}])
def test_a_saved_student_comes_back_with_its_word_piece_tokenizer(tmp_path, tiny_teacher, changes):
    student = student_of(**changes)
    save_student(student, tiny_teacher / "tokenizer.json", tmp_path / "s")
    back = load_student(tmp_path / "s")
    encoder = msdc.load_encoder(tmp_path / "s")
    oracle = vectors(student, msdc.load_encoder(tiny_teacher).tokenizer)
    assert back.config == student.config
    assert np.abs(vectors(back, encoder.tokenizer) - oracle).max() == 0
    assert np.abs(encoder.encode(TEXTS) - oracle).max() < 1e-6
    with pytest.raises(InputError, match="exists already"):
        save_student(student, tiny_teacher / "tokenizer.json", tmp_path / "s")


ALBERT = {"place": "embedding"}
STOCK = [
    *(ALBERT | changes for changes in ({}, DENSE, {"pooling": "cls", "normalize": False}, {"activation": "gelu_new"})),
    *({}, {"bottleneck": None}, DENSE, {"pooling": "max", "normalize": False}),
]


@pytest.mark.parametrize("changes", STOCK)
def test_what_sentence_transformers_reads_is_the_equal_albert_or_the_materialised_bert(tmp_path, tiny_teacher, changes):
    from sentence_transformers import SentenceTransformer

    student, albert = student_of(**changes), "place" in changes
    save_student(student, tiny_teacher / "tokenizer.json", tmp_path / "s", stock=not albert)
    oracle = SentenceTransformer(str(tmp_path / "s"), device="cpu")
    body = oracle[0].auto_model
    ours = vectors(student, msdc.load_encoder(tiny_teacher).tokenizer)
    assert np.abs(ours - oracle.encode(TEXTS)).max() < 1e-5
    if albert:
        assert type(body).__name__ == "AlbertModel"
        kinds = [row["type"] for row in json.loads((tmp_path / "s/modules.json").read_text())]
        assert all(kind.startswith("sentence_transformers.models.") for kind in kinds)
    else:
        assert type(body).__name__ == "BertModel"
        assert body.config.num_hidden_layers == 4
        assert from_stock(tmp_path / "s").config.unit == 4


def test_int4_packing_is_lossless():
    values = np.tile(np.arange(-8, 8, dtype=np.int8), (3, 2))
    packed = QuantizedWeight("w", "int4", values, np.ones((3, 1), np.float32), "float16").packed()
    assert packed.dtype == np.uint8
    assert packed.shape == (3, 16)
    assert np.array_equal(unpack_int4(packed), values)


@pytest.mark.parametrize("precision", ["int8", "int8-embed4", "int4-embed4"])
@pytest.mark.parametrize("bottleneck_place", ["word", "embedding"])
def test_a_quantized_folder_holds_the_integers_and_gives_them_back(tmp_path, tiny_teacher, precision, bottleneck_place):
    student = student_of(place=bottleneck_place)
    plan = plan_for(student, precision)
    save_student(student, tiny_teacher / "tokenizer.json", tmp_path / "q", plan=plan)
    assert read_plan(tmp_path / "q") == plan
    back = load_student(tmp_path / "q")
    for name, part in integers(student, plan).items():
        again = integers(back, plan)[name]
        assert np.array_equal(again.values, part.values)
        assert np.array_equal(again.scale, part.scale)
    ids, mask = torch.randint(0, 120, (2, 9)), torch.ones(2, 9, dtype=torch.bool)
    with torch.no_grad():
        assert torch.equal(quantize_student(back, plan)(ids, mask), quantize_student(student, plan)(ids, mask))
    stored = load_file(tmp_path / "q/model.safetensors").values()
    assert sum(value.nbytes for value in stored) == sum(weight_bytes_by_dtype(student, plan).values())
    assert msdc.load_encoder(tmp_path / "q").encode(TEXTS).shape == (len(TEXTS), 64)


@pytest.fixture
def int8_folder(tmp_path, tiny_teacher):
    student = student_of()
    return save_student(student, tiny_teacher / "tokenizer.json", tmp_path / "q", plan=plan_for(student, "int8"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("layers.0.up.weight", None, r"missing tensors: 1 \(layers.0.up.weight\)"),
        ("layers.0.up.weight", torch.zeros(96, 64), r"does not match precision.json \(int8\)"),
        ("layers.0.up.weight.scale", torch.full((96, 1), float("nan")), "scales of layers.0.up.weight are damaged"),
        ("embedding.table.weight", torch.zeros(5, 32, dtype=torch.int8), r"does not match precision.json \(int8\)"),
        ("stranger", torch.zeros(1), r"unexpected tensors: 1 \(stranger\)"),
    ],
)
def test_a_damaged_quantized_folder_is_refused_in_one_line(int8_folder, name, value, message):
    tensors = load_file(int8_folder / "model.safetensors") | {name: value}
    save_file({k: v for k, v in tensors.items() if v is not None}, int8_folder / "model.safetensors")
    assert re.search(message, one_line(lambda: load_student(int8_folder), InputError))


@pytest.mark.parametrize("text", ["{}", "[]", '{"plan": 3}', '{"plan": {"precision": "x", "weights": {"a": "int2"}}}'])
def test_a_damaged_plan_is_refused(int8_folder, text):
    (int8_folder / "precision.json").write_text(text)
    with pytest.raises(InputError, match=r"precision\.json"):
        load_student(int8_folder)


def test_the_stock_twin_leaves_the_fingerprint(tmp_path):
    folder = save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "student")
    before = load_encoder(folder).fingerprint()
    add_stock_twin(folder)
    assert (folder / STOCK_FOLDER / "model.safetensors").is_file()
    assert load_encoder(folder).fingerprint() == before
    # What does decide vectors still counts.
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"q": "query: "}}', encoding="utf-8")
    assert load_encoder(folder).fingerprint() != before


def auto_ids(folder, texts: list[str], length: int) -> list[list[int]]:
    """The ids that transformers gives with the tokenizer of a folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(texts, truncation=True, max_length=length)["input_ids"]


def test_other_libraries_compute_the_same_vectors_from_a_student_and_from_its_stock_folder_alone(tmp_path):
    from sentence_transformers import SentenceTransformer

    defaults = EncodeDefaults({"query": "the dog: "}, "query")
    changes = {"pooling": "max", "dense": 24, "dense_activation": "tanh"}
    folder = save_student(tiny.student(**changes), tiny.tokenizer().path, tmp_path / "student", defaults=defaults)
    add_stock_twin(folder)
    # Names of special ids are ordinary text.
    encoder, texts = load_encoder(folder), golden_texts()
    oracle = encoder.encode(texts)
    for model_folder in (folder, folder / STOCK_FOLDER):
        assert auto_ids(model_folder, texts, encoder.max_length) == encoder.tokenize(texts)
        assert np.abs(SentenceTransformer(str(model_folder), device="cpu").encode(texts) - oracle).max() < 1e-5
        assert np.abs(load_encoder(model_folder).encode(texts) - oracle).max() < 1e-5


def test_transformers_reads_the_tokenizer_of_the_shipped_student_and_refuses_that_of_a_bundle():
    encoder, texts = load_encoder("msdc-mini"), golden_texts()
    assert auto_ids(encoder.folder, texts, encoder.max_length) == encoder.tokenize(texts)
    with pytest.raises(ValueError, match="Couldn't instantiate the backend tokenizer"):
        auto_ids(tiny.bundle(), texts, 48)


def test_transformers_reads_a_word_piece_tokenizer_of_ours(tmp_path, tiny_teacher):
    encoder = load_encoder(save_student(student_of(), tiny_teacher / "tokenizer.json", tmp_path / "s"))
    assert auto_ids(tmp_path / "s", TEXTS, encoder.max_length) == encoder.tokenize(TEXTS)


def test_a_copied_folder_keeps_its_fingerprint(tmp_path, tiny_teacher):
    """Two modules have a config.json each; a file system lists them in any order."""
    names = sorted(path.relative_to(tiny_teacher) for path in tiny_teacher.rglob("*") if path.is_file())
    for folder, order in ((tmp_path / "a", names), (tmp_path / "b", names[::-1])):
        for name in order:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tiny_teacher / name, folder / name)
    assert load_encoder(tmp_path / "a").fingerprint() == load_encoder(tmp_path / "b").fingerprint()


def test_loading_a_student_imports_no_compiler():
    """Operators on `meta` would: half of the time to the first vector (torch 2.13)."""
    code = "import sys, msdc; msdc.load_encoder('msdc-mini').encode(['a']); print('torch._dynamo' in sys.modules)"
    assert python(code).split()[-1] == "False"
