"""Encoders and bundles as a SentenceTransformer: the same vectors, its own evaluators, mining, training and saving."""

import json

import numpy as np
import pytest
import tiny_models
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import paraphrase_mining, semantic_search
from stock_models import write_stock

import msdc
from msdc.errors import InputError
from msdc.export import export
from msdc.integrations.sentence_transformers import as_sentence_transformer

TEXTS = ["Where is the station?", "Wo ist der Bahnhof?", "", "I like cheese and wine with bread.", "a"]


@pytest.fixture(scope="module")
def student():
    return tiny_models.student_folder()


@pytest.fixture(scope="module", params=["student", "executorch", "onnx"])
def encoder(request, student):
    return (
        msdc.load_encoder(student)
        if request.param == "student"
        else msdc.load_bundle(tiny_models.bundle(), request.param)
    )


def test_the_vectors_are_those_of_the_encoder(encoder):
    model = as_sentence_transformer(encoder)
    expected_ND = encoder.encode(TEXTS)
    assert np.allclose(model.encode(TEXTS), expected_ND, atol=1e-6)
    one_D = model.encode(TEXTS[0], convert_to_tensor=True)
    assert isinstance(one_D, torch.Tensor)
    assert np.allclose(one_D.cpu(), expected_ND[0], atol=1e-6)
    assert model.encode([]).shape[0] == 0
    assert model.get_sentence_embedding_dimension() == encoder.width
    assert np.allclose(
        model.similarity(expected_ND, expected_ND), encoder.similarity(expected_ND, expected_ND), atol=1e-6
    )
    bits = model.encode(TEXTS, precision="ubinary")
    assert np.array_equal(bits, np.packbits(expected_ND > 0, axis=1))
    with pytest.raises(InputError):
        model.encode(["fine", 3])


def test_settings_of_either_side(encoder, student):
    """Prompts, length and width that the encoder has, and those that are set on the SentenceTransformer."""
    model = as_sentence_transformer(encoder, truncate_dim=8, prompts={"query": "find: "}, default_prompt_name="query")
    wanted_ND = encoder.encode(TEXTS, prompt="find: ", truncate_dim=8)
    assert np.allclose(model.encode(TEXTS), wanted_ND, atol=1e-6)
    long = " ".join(["station"] * 60)
    before = encoder.max_length
    model.max_seq_length = 6
    try:
        assert model.max_seq_length == 6
        assert np.allclose(model.encode(long, prompt=""), model.encode(long + " x", prompt=""))
    finally:
        encoder.max_length = before


def test_evaluators_mining_and_search(encoder):
    model = as_sentence_transformer(encoder)
    scores = EmbeddingSimilarityEvaluator(TEXTS[:2] * 2, TEXTS[3:] * 2, [0.1, 0.2, 0.3, 0.4], show_progress_bar=False)(
        model
    )
    assert all(np.isfinite(value) for value in scores.values())
    assert paraphrase_mining(model, [*TEXTS, TEXTS[0]], show_progress_bar=False)[0][1:] == [0, 5]
    hits = semantic_search(model.encode(TEXTS[:1]), model.encode(TEXTS), top_k=1)
    assert hits[0][0]["corpus_id"] == 0


def test_a_student_has_token_vectors_and_its_dropout_is_that_of_its_modules(student):
    model = as_sentence_transformer(student, device="cpu")
    states = model.encode(TEXTS, output_value="token_embeddings")
    lengths = [len(row) for row in msdc.load_encoder(student).tokenize(TEXTS)]
    assert [tuple(one_TH.shape) for one_TH in states] == [
        (length, model[0].student.config.hidden) for length in lengths
    ]
    head_1D = model[0].student.head(states[0][None], torch.ones(1, lengths[0]))
    assert np.allclose(head_1D[0].detach(), model.encode(TEXTS[0]), atol=1e-6)

    features = model.preprocess(TEXTS[:2])
    model.train()
    assert not torch.equal(*(model(dict(features))["sentence_embedding"] for _ in range(2)))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert torch.equal(*(model(dict(features))["sentence_embedding"] for _ in range(2)))


def test_a_student_is_trained_saved_opened_and_exported(student, tmp_path):
    from datasets import Dataset

    model = as_sentence_transformer(student, device="cpu")
    before_ND = model.encode(TEXTS)
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "runs"), max_steps=2, per_device_train_batch_size=2, learning_rate=1e-2, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    rows = Dataset.from_dict({"anchor": TEXTS[:2] * 2, "positive": TEXTS[3:] * 2})
    SentenceTransformerTrainer(model, arguments, rows, loss=MultipleNegativesRankingLoss(model)).train()
    model.eval()
    after_ND = model.encode(TEXTS)
    assert np.abs(after_ND - before_ND).max() > 1e-3
    model.save_pretrained(str(tmp_path / "saved"))
    assert np.allclose(msdc.load_encoder(tmp_path / "saved").encode(TEXTS), after_ND, atol=1e-6)
    opened = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    assert np.allclose(opened.encode(TEXTS), after_ND, atol=1e-6)
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    export(str(tmp_path / "saved"), output=tmp_path / "bundle", target="linux", runtime="onnx", precision="fp32")
    assert np.allclose(msdc.load_bundle(tmp_path / "bundle").encode(TEXTS), after_ND, atol=1e-4)


def test_a_bundle_is_saved_whole(tmp_path):
    bundle = msdc.load_bundle(tiny_models.bundle(), "onnx")
    as_sentence_transformer(bundle).save_pretrained(str(tmp_path / "saved"))
    opened = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    assert np.allclose(opened.encode(TEXTS), bundle.encode(TEXTS), atol=1e-6)
    (module_path,) = (
        module["path"] for module in json.loads((tmp_path / "saved/modules.json").read_text(encoding="utf-8"))
    )
    assert msdc.load_bundle(tmp_path / "saved" / module_path, "onnx").fingerprint() == bundle.fingerprint()


def test_the_shipped_student_and_stock_models_open_too(tmp_path):
    from msdc.encoders.folder import locate_model

    shipped = SentenceTransformer(str(locate_model("msdc-mini")), trust_remote_code=True, device="cpu")
    assert np.allclose(
        shipped.encode(TEXTS), msdc.load_encoder("msdc-mini", precision="float").encode(TEXTS), atol=1e-6
    )
    stock = write_stock(tmp_path / "stock", "bert")
    assert np.allclose(
        as_sentence_transformer(stock, device="cpu").encode(TEXTS), msdc.load_encoder(stock).encode(TEXTS), atol=1e-5
    )
    with pytest.raises(InputError, match="takes an encoder, a bundle or a folder, not list"):
        as_sentence_transformer([])
