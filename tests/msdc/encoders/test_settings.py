"""A folder's settings: applied, harmless, or refused by name; and folders that are no sentence encoder."""

import json
import shutil

import numpy as np
import pytest
import torch
from folder_kinds import write_folder
from refusals import one_line
from safetensors.torch import load_file, save_file
from stock_models import TEXTS, stock_model, write_stock, write_wordpiece

import msdc
from msdc.errors import InputError


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_stock(tmp_path_factory.mktemp("settings") / "model", "bert", dense=(24, True, "activation.Tanh"))


@pytest.fixture
def copy(source, tmp_path):
    return shutil.copytree(source, tmp_path / "copy")


def edit(file, **changes) -> None:
    value = json.loads(file.read_text()) if file.is_file() else {}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**value, **changes}))


# (file, changes, what the refusal names)
REFUSED = [
    ("tokenizer_config.json", {"truncation_side": "left"}, "truncation_side"),
    ("tokenizer_config.json", {"split_special_tokens": True}, "split_special_tokens"),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["code.Mine", None]}}, "auto_map: .*code.py"),
    ("tokenizer.json", {"truncation": {"direction": "Left", "max_length": 9, "strategy": "LongestFirst", "stride": 0}},
     "truncation in tokenizer.json"),
    ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 4}}}, "processing_kwargs"),
    ("sentence_bert_config.json", {"query_length": 8}, "query_length"),
    ("sentence_bert_config.json", {"document_length": 8}, "document_length"),
    ("sentence_bert_config.json", {"query_expansion": {"length": 8}}, "query_expansion"),
    ("sentence_bert_config.json", {"max_length": 8}, "'max_length': unknown"),
    ("sentence_bert_config.json", {"max_seq_length": "24"}, "max_seq_length '24'"),
    ("sentence_bert_config.json", {"max_seq_length": -1}, "max_seq_length -1"),
    ("sentence_bert_config.json", {"transformer_task": "sequence-classification"}, "transformer_task"),
    ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "SPLADE"),
    ("config_sentence_transformers.json", {"model_type": "CrossEncoder"}, "reranker"),
    ("config_sentence_transformers.json", {"model_type": "MultiVectorEncoder"}, "ColBERT"),
    ("config.json", {"auto_map": {"AutoModel": "owner/code--modeling_x.XModel"}}, "auto_map.*modeling_x.py.*trust_rem"),
    ("config.json", {"position_embedding_type": "alibi"}, "position_embedding_type 'alibi'"),
    ("config.json", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantized by gptq"),
    ("1_Pooling/config.json", {"weights": "softmax"}, "'weights': not settings of Pooling"),
    ("2_Dense/config.json", {"scale": 2.0}, "'scale': not settings of Dense"),
    ("3_Normalize/config.json", {"p": 1}, "'p': not settings of Normalize"),
    ("adapter_config.json", {"base_model_name_or_path": "owner/base"}, "adapter .LoRA. of owner/base.*merge_and"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "named"), REFUSED)
def test_settings_that_are_not_applied_are_refused_by_name(copy, name, changes, named):
    edit(copy / name, **changes)
    with pytest.raises(InputError, match=named):
        msdc.load_encoder(copy)


def test_harmless_settings_change_no_vector(source, copy):
    edit(copy / "sentence_bert_config.json", unpad_inputs=False, query_length=None, processing_kwargs={})
    edit(copy / "tokenizer_config.json", padding_side="left", name_or_path="somewhere", use_fast=False)
    edit(copy / "config_sentence_transformers.json", model_type="SentenceTransformer", __version__={"pytorch": "2"})
    assert np.array_equal(msdc.load_encoder(copy).encode(TEXTS), msdc.load_encoder(source).encode(TEXTS))


def test_truncation_on_the_left_of_a_static_model_is_refused(tmp_path):
    folder = write_folder(tmp_path, "static with truncation")
    value = json.loads((folder / "tokenizer.json").read_text())
    edit(folder / "tokenizer.json", truncation=value["truncation"] | {"direction": "Left"})
    assert "truncation on the left" in one_line(lambda: msdc.load_encoder(folder))


def test_token_types_are_refused(copy):
    value = json.loads((copy / "tokenizer.json").read_text())
    for part in value["post_processor"]["single"]:
        part[next(iter(part))]["type_id"] = 1
    edit(copy / "tokenizer.json", **value)
    edit(copy / "tokenizer_config.json", model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    assert "token types" in one_line(lambda: msdc.load_encoder(copy))


def test_a_chat_template_of_a_bare_model_is_refused(tmp_path, capsys):
    folder = tmp_path / "bare"
    folder.mkdir()
    stock_model("bert").save_pretrained(folder)
    write_wordpiece(folder)
    msdc.load_encoder(folder)
    assert "no modules.json: BertModel" in capsys.readouterr().err
    msdc.load_encoder(folder, pooling="cls")
    assert capsys.readouterr().err == ""
    edit(folder / "tokenizer_config.json", chat_template="{% for m in messages %}a dog {{ m.content }}{% endfor %}")
    assert "chat template" in one_line(lambda: msdc.load_encoder(folder))
    edit(folder / "config.json", architectures=["BertForSequenceClassification"])
    assert "a BertForSequenceClassification (a reranker" in one_line(lambda: msdc.load_encoder(folder))


def test_a_class_that_transformers_does_not_have_is_named(copy, capsys):
    edit(copy / "config.json", architectures=["JinaBertModel"])
    msdc.load_encoder(copy)
    assert "the class JinaBertModel" in (messages := capsys.readouterr().err)
    assert "computed as BertModel" in messages


def test_modules_of_other_kinds_of_model(copy):
    rows = json.loads((copy / "modules.json").read_text())
    rows[1]["type"] = "sentence_transformers.sparse_encoder.models.SpladePooling"
    (copy / "modules.json").write_text(json.dumps(rows))
    assert "SPLADE" in one_line(lambda: msdc.load_encoder(copy))


def test_an_adapter_has_no_config(copy):
    (copy / "config.json").unlink()
    edit(copy / "adapter_config.json", peft_type="LORA", base_model_name_or_path="owner/base")
    assert "an adapter (LoRA) of owner/base" in one_line(lambda: msdc.load_encoder(copy))


def test_code_of_the_model_runs_where_the_caller_allows_it(source, copy):
    """A Bert under a name of its own, whose code is in the folder."""
    (copy / "code_x.py").write_text(
        "from transformers import BertConfig, BertModel\n\n\n"
        "class XConfig(BertConfig):\n    model_type = 'x-bert'\n\n\n"
        "class XModel(BertModel):\n    config_class = XConfig\n"
    )
    edit(
        copy / "config.json",
        model_type="x-bert",
        auto_map={"AutoConfig": "code_x.XConfig", "AutoModel": "code_x.XModel"},
    )
    assert "code_x.py" in one_line(lambda: msdc.load_encoder(copy))
    trusted = msdc.load_encoder(copy, trust_remote_code=True)
    assert np.array_equal(trusted.encode(TEXTS), msdc.load_encoder(source).encode(TEXTS))


@pytest.mark.parametrize(("dtype", "accepted"), [(torch.int8, False), (torch.float64, True), (torch.bfloat16, True)])
def test_one_tensor_of_another_dtype(source, copy, dtype, accepted):
    tensors = load_file(copy / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    tensors[name] = (tensors[name] * (1 if dtype.is_floating_point else 100)).to(dtype)
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    if not accepted:
        assert f"tensor {name} is int8, not float" in one_line(lambda: msdc.load_encoder(copy))
        return
    cosines = (msdc.load_encoder(copy).encode(TEXTS) * msdc.load_encoder(source).encode(TEXTS)).sum(1)
    assert cosines.min() > 0.9999


def test_a_tokenizer_without_a_json_form(copy):
    tokens = [name for name, _ in sorted(json.loads((copy / "tokenizer.json").read_text())["model"]["vocab"].items(),
                                         key=lambda pair: pair[1])]  # fmt: skip
    (copy / "tokenizer.json").unlink()
    (copy / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    settings = {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "basic",
                "subword_tokenizer_type": "character"}  # fmt: skip
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    assert "a BertJapaneseTokenizer are not supported" in one_line(lambda: msdc.load_encoder(copy))
