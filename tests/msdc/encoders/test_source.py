"""A model is what was read: whole weights, files of one name, and the hash of these bytes, whatever comes later."""

import json
import shutil

import numpy as np
import pytest
import tiny_models as tiny
import torch
from folder_kinds import write_folder
from refusals import one_line
from safetensors.torch import load_file, save_file
from stock_models import TEXTS, write_stock

import msdc
from msdc.bench.accuracy.evaluation import Settings, open_evaluated
from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.stock import to_student
from msdc.distill.assistant import load_named
from msdc.distill.recipe import NamedModel
from msdc.distill.teacher import CachedTeacher
from msdc.encoders.source import ModelSource
from msdc.errors import InputError
from msdc.export import export
from msdc.export.exporters import write_bundle
from msdc.export.options import ExportSettings

LAYER = "encoder.layer.1.attention.output."


def stock(folder, **changes):
    return write_stock(folder, "bert", dense=(24, True, "activation.Tanh"), **changes)


def bare(folder):
    write_stock(folder, "bert")
    (folder / "modules.json").unlink()
    return folder


def change(file, work) -> None:
    """`work` on the tensors of a file."""
    tensors = load_file(file)
    work(tensors)
    save_file({name: value.contiguous() for name, value in tensors.items()}, file, metadata={"format": "pt"})


def shard(folder):
    """The weights in two parts with an index, as large models are published."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(sorted(tensors))}
    for part in set(parts.values()):
        mine = {name: value for name, value in tensors.items() if parts[name] == part}
        save_file(mine, folder / part, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": parts}))
    return parts


def replace(folder, other) -> None:
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


# --- whole weights --------------------------------------------------------------------------------------------------

WAYS = {
    "teacher": msdc.load_encoder,
    "student": load_student,
    "generic": lambda folder: export(str(folder), target="linux", exporter="generic", output=folder.parent / "out"),
    "canonical": lambda folder: export(str(folder), target="linux", output=folder.parent / "out"),
    "recipe": lambda folder: load_named(NamedModel(model=str(folder), pooling="cls")),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_missing_tensor_is_refused_not_drawn_at_random(tmp_path, way):
    folder = (bare if way == "recipe" else stock)(tmp_path / "model")
    change(folder / "model.safetensors", lambda t: [t.pop(name) for name in list(t) if name.startswith(LAYER)])
    message = one_line(lambda: WAYS[way](folder))
    names = f"{LAYER}LayerNorm.bias, {LAYER}LayerNorm.weight, {LAYER}dense.bias, ..."
    assert f"missing tensors: 4 ({names})" in message
    assert "model:" in message


def test_tensors_that_do_not_fit_are_refused_by_name(tmp_path):
    source = stock(tmp_path / "model")
    config = json.loads((source / "config.json").read_text())
    cases = {
        "missing tensors: 16 (encoder.layer.3.": ("config.json", {**config, "num_hidden_layers": 4}),
        "unexpected tensors: 16 (encoder.layer.2.": ("config.json", {**config, "num_hidden_layers": 2}),
        "another shape: 1 (embeddings.word_embeddings.weight [120, 32], expected [130, 32])": (
            "config.json", {**config, "vocab_size": 130}),
        "unexpected tensors: 1 (stranger)": ("", lambda t: t.update(stranger=torch.zeros(3))),
        "unexpected tensors: 1 (embeddings.stranger)": ("", lambda t: t.update({"embeddings.stranger": torch.ones(3)})),
        "missing tensors: 1 (linear.bias)": ("2_Dense", lambda t: t.pop("linear.bias")),
        "unexpected tensors: 2 (linear.a, linear.b)": (
            "2_Dense", lambda t: t.update({"linear.a": torch.zeros(1), "linear.b": torch.zeros(1)})),
        "another shape: 1 (linear.bias [23], expected [24])": (
            "2_Dense", lambda t: t.update({"linear.bias": torch.zeros(23)})),
    }  # fmt: skip
    for number, (expected, (part, work)) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        shutil.copytree(source, folder)
        if part == "config.json":
            (folder / part).write_text(json.dumps(work))
        else:
            change(folder / part / "model.safetensors", work)
        assert expected in one_line(lambda folder=folder: msdc.load_encoder(folder))


@pytest.mark.parametrize(
    ("kind", "module_folder"), [("static", "."), ("model2vec", "."), ("layer norm", "2_LayerNorm")]
)
def test_other_modules_take_their_tensors_and_no_others(tmp_path, kind, module_folder):
    folder = write_folder(tmp_path, kind)
    change(folder / module_folder / "model.safetensors", lambda t: t.update(stranger=torch.zeros(3)))
    assert "unexpected tensors: 1 (stranger)" in one_line(lambda: msdc.load_encoder(folder))
    change(
        folder / module_folder / "model.safetensors", lambda t: [t.pop(name) for name in list(t) if name != "stranger"]
    )
    assert "missing tensors: " in one_line(lambda: msdc.load_encoder(folder))


def test_parts_are_read_by_their_index(tmp_path):
    folder = stock(tmp_path / "whole")
    expected = msdc.load_encoder(folder)
    parts = shard(folder)
    encoder = msdc.load_encoder(folder)
    assert np.array_equal(encoder.encode(TEXTS), expected.encode(TEXTS))
    assert encoder.fingerprint() != expected.fingerprint()
    first = min(parts)
    change(folder / parts[first], lambda t: t.pop(first))
    assert f"missing tensors: 1 ({first})" in one_line(lambda: msdc.load_encoder(folder))
    index = folder / "model.safetensors.index.json"
    for name in ("../other/model.safetensors", "/etc/passwd", "pytorch_model.bin", 7):
        index.write_text(json.dumps({"weight_map": {**parts, first: name}}))
        assert "file next to it" in one_line(lambda: msdc.load_encoder(folder))
    index.write_text("[]")
    assert "no weight_map" in one_line(lambda: msdc.load_encoder(folder))
    (folder / parts[first]).unlink()
    index.write_text(json.dumps({"weight_map": parts}))
    assert "no such file" in one_line(lambda: msdc.load_encoder(folder))


def test_a_transformer_in_a_folder_of_its_own(tmp_path):
    """As old releases of sentence-transformers saved it."""
    folder = stock(tmp_path / "model")
    expected = msdc.load_encoder(folder).encode(TEXTS)
    inner = folder / "0_Transformer"
    inner.mkdir()
    for file in [path for path in folder.iterdir() if path.is_file() and path.name != "modules.json"]:
        file.rename(inner / file.name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = inner.name
    (folder / "modules.json").write_text(json.dumps(modules))
    encoder = msdc.load_encoder(folder)
    assert np.array_equal(encoder.encode(TEXTS), expected)
    change(inner / "model.safetensors", lambda t: t.update({"embeddings.LayerNorm.bias": torch.ones(32)}))
    assert msdc.load_encoder(folder).fingerprint() != encoder.fingerprint()
    change(inner / "model.safetensors", lambda t: t.pop("embeddings.LayerNorm.bias"))
    assert "0_Transformer: weights do not fit" in one_line(lambda: msdc.load_encoder(folder))


def test_a_pooler_is_missed_where_the_vector_is_made_of_it(tmp_path):
    folder = stock(tmp_path / "model")
    change(folder / "model.safetensors", lambda t: [t.pop(f"pooler.dense.{part}") for part in ("weight", "bias")])
    msdc.load_encoder(folder)
    file = folder / "sentence_bert_config.json"
    text = {"method": "forward", "method_output_name": "pooler_output"}
    told = {"modality_config": {"text": text}, "module_output_name": "sentence_embedding"}
    file.write_text(json.dumps({**json.loads(file.read_text()), **told}))
    (folder / "modules.json").write_text(json.dumps(json.loads((folder / "modules.json").read_text())[:1]))
    message = one_line(lambda: msdc.load_encoder(folder))
    assert "missing tensors: 2 (pooler.dense.bias, pooler.dense.weight)" in message


def test_heads_that_no_vector_needs_are_left_out(tmp_path):
    """As published: a masked language model without a pooler, its table tied to its head, buffers of old releases."""
    import transformers as T

    settings = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
                "intermediate_size": 48, "max_position_embeddings": 40, "pad_token_id": 0,
                "num_key_value_heads": 2, "head_dim": 8}  # fmt: skip
    kinds = [("bert", T.BertForPreTraining, T.BertConfig), ("roberta", T.RobertaForMaskedLM, T.RobertaConfig),
             ("albert", T.AlbertForMaskedLM, T.AlbertConfig), ("electra", T.ElectraForPreTraining, T.ElectraConfig),
             ("qwen3", T.Qwen3ForCausalLM, T.Qwen3Config)]  # fmt: skip
    for name, make, config in kinds:
        folder = stock(tmp_path / name)
        make(config(**settings, tie_word_embeddings=True)).save_pretrained(folder)
        change(folder / "model.safetensors", lambda t: t.update({"x.embeddings.position_ids": torch.arange(40)}))
        first, second = msdc.load_encoder(folder), msdc.load_encoder(folder)
        assert np.array_equal(first.encode(TEXTS), second.encode(TEXTS)), name


# --- which files ----------------------------------------------------------------------------------------------------


def test_weights_have_one_name(tmp_path):
    folder = stock(tmp_path / "model")
    expected = msdc.load_encoder(folder).encode(TEXTS)
    tensors = load_file(folder / "model.safetensors")
    other = {name: value + 1 for name, value in tensors.items()}
    torch.save(other, folder / "pytorch_model.bin")
    save_file(other, folder / "x.safetensors")
    save_file(other, folder / "a.safetensors")
    assert np.array_equal(msdc.load_encoder(folder).encode(TEXTS), expected)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "transformers_weights": "x.safetensors"}))
    assert np.array_equal(msdc.load_encoder(folder).encode(TEXTS), expected)
    (folder / "pytorch_model.bin").unlink()
    (folder / "model.safetensors").rename(folder / "y.safetensors")
    assert "no model.safetensors" in one_line(lambda: msdc.load_encoder(folder))
    dense = stock(tmp_path / "dense") / "2_Dense"
    (dense / "model.safetensors").rename(dense / "x.safetensors")
    assert "no model.safetensors" in one_line(lambda: msdc.load_encoder(dense.parent))


def test_settings_name_no_code_of_the_hub(tmp_path):
    source = stock(tmp_path / "model")
    config = json.loads((source / "config.json").read_text())
    settings = json.loads((source / "sentence_bert_config.json").read_text())
    expected = msdc.load_encoder(source).encode(TEXTS)
    refused = [
        ("config.json", {**config, key: "someone/kernel"})
        for key in (
            "attn_implementation",
            "_attn_implementation",
            "_attn_implementation_internal",
            "experts_implementation",
        )
    ]
    refused += [("config.json", {**config, "text_config": {"attn_implementation": "someone/kernel@main:f"}}),
                ("config.json", {**config, "attn_implementation": {"": "eager", "text_config": "someone/kernel"}}),
                ("sentence_bert_config.json", {**settings, "model_args": {"attn_implementation": "someone/kernel"}}),
                ("sentence_bert_config.json", {**settings, "config_kwargs": {"gguf_file": "x.gguf"}}),
                ("sentence_bert_config.json", {**settings, "processor_kwargs": {"tokenizer_file": "/elsewhere"}}),
                ("sentence_bert_config.json", {**settings, "transformer_task": "fill-mask"}),
                ("adapter_config.json", {"base_model_name_or_path": "someone/model"})]  # fmt: skip
    for number, (name, value) in enumerate(refused):
        folder = tmp_path / str(number)
        shutil.copytree(source, folder)
        (folder / name).write_text(json.dumps(value))
        assert name.split(".")[0] in one_line(lambda folder=folder: msdc.load_encoder(folder)), value
    # Published folders say this, which sentence-transformers ignores.
    told = {**settings, "model_args": {"trust_remote_code": True}}
    (source / "sentence_bert_config.json").write_text(json.dumps(told))
    # An implementation of the library's own: it is not asked for either (flash attention may be fetched from the hub).
    (source / "config.json").write_text(json.dumps({**config, "attn_implementation": "flash_attention_2"}))
    assert np.array_equal(msdc.load_encoder(source).encode(TEXTS), expected)


# --- identity -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["student", "stock"])
def pair(request, tmp_path):
    """Two models whose folders have the same files, and that differ in their weights."""
    if request.param == "stock":
        return tuple(stock(tmp_path / name, seed=seed) for seed, name in enumerate("ab"))
    return tuple(save_student(tiny.student(seed), tiny.tokenizer().path, tmp_path / name)
                 for seed, name in enumerate("ab"))  # fmt: skip


def test_caches_keep_the_vectors_of_the_model_that_made_them(pair, tmp_path, monkeypatch):
    """Loaded, then replaced on disk, then used: the other model must not find these vectors under its name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    here, other = pair
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    sentences = [text.strip() for text in TEXTS]
    first = msdc.load_encoder(here)
    expected = first.encode(sentences)
    replace(here, other)
    msdc.open_index(texts, first)
    teacher = CachedTeacher(first, tmp_path / "outputs", 48)
    teacher.vectors(sentences)

    def evaluated(model):
        return open_evaluated(model, taken=set(), settings=Settings(), cache=tmp_path / "vectors").store

    scored = evaluated(first)
    scored.encode(sentences)
    scored.save()
    assert np.abs(first.encode(sentences) - expected).max() < 1e-5
    second = msdc.load_encoder(here)
    assert second.fingerprint() == msdc.load_encoder(other).fingerprint() != first.fingerprint()
    truth = second.encode(sentences)
    assert (truth * expected).sum(1).min() < 0.99
    fresh = msdc.open_index(texts, second)
    assert fresh.encoded == len(sentences)
    plain = msdc.open_index(sentences, second)  # in memory: no cache
    for query in sentences:
        assert [hit.cosine for hit in fresh.search(query).hits] == [hit.cosine for hit in plain.search(query).hits]
    assert np.abs(evaluated(second).encode(sentences) - truth).max() < 1e-5
    again = CachedTeacher(second, tmp_path / "outputs", 48)
    assert np.abs(again.vectors(sentences) - truth).max() < 2e-3


def test_weights_in_memory_are_not_the_file_s(pair):
    """A file that is written in place, not replaced: nothing of a loaded model is mapped from it."""
    encoder = msdc.load_encoder(pair[0])
    expected = encoder.encode(TEXTS)
    for file in pair[0].rglob("*.safetensors"):
        size = file.stat().st_size
        with open(file, "r+b") as handle:
            handle.write(b"\x7f" * size)
    assert np.array_equal(encoder.encode(TEXTS), expected)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "added.json"])
def test_a_folder_that_changes_while_it_is_loaded_is_refused(pair, monkeypatch, name):
    here, other = pair
    mend = here / name
    original = mend.read_bytes() if mend.exists() else None

    def meddle(source):
        if name == "model.safetensors":
            source.read(other / name)
            shutil.copyfile(other / name, mend)
            source.read(mend)
        else:
            mend.write_bytes((original or b"{}") + b" ")

    source = ModelSource(here)
    source.read(here / "model.safetensors")
    with pytest.raises(msdc.InputError, match="changed while it was loaded") as caught:
        meddle(source)
        source.identity()
    assert "\n" not in str(caught.value)
    # The same through the loader: its own check is at its end.
    identity = ModelSource.identity
    monkeypatch.setattr(ModelSource, "identity", lambda self: (meddle_file(mend), identity(self))[1])
    assert "changed while it was loaded" in one_line(lambda: msdc.load_encoder(here))


def meddle_file(path) -> None:
    path.write_bytes((path.read_bytes() if path.exists() else b"{}") + b" ")


def test_a_bundle_is_of_one_model(tmp_path):
    """Loaded, replaced on disk, exported: weights, tokenizer and hash are of what was loaded."""
    from msdc.compress.texts import quickstart_texts
    from msdc.compress.vocabulary.train import train_vocabulary

    other_pieces = train_vocabulary(quickstart_texts(), tmp_path / "other.model", size=300, threads=1)
    here = save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "a")
    other = save_student(tiny.student(4, vocabulary=400), other_pieces, tmp_path / "b")
    for folder in (here, other):
        (folder / "tokenizer.json").unlink()
    encoder = msdc.load_encoder(here)
    pieces, expected, identity = (here / "tokenizer.model").read_bytes(), encoder.encode(TEXTS), encoder.fingerprint()
    replace(here, other)
    options = ExportSettings(runtime="onnx", precision="fp32", module=False)
    manifest = write_bundle(
        to_student(encoder), encoder.tokenizer, tmp_path / "bundle", options=options, source_sha256=identity
    )
    assert (tmp_path / "bundle" / "sentencepiece.model").read_bytes() == pieces
    assert manifest.model.source_sha256 == identity == encoder.fingerprint()
    vectors = msdc.load_bundle(tmp_path / "bundle").encode(TEXTS)
    assert (vectors * expected).sum(1).min() > 0.999


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model.bin", "save_pretrained"),
        ("pytorch_model-00001-of-00002.bin", "download pytorch_model.bin.index.json too"),
        ("onnx/model_quantized.onnx", "use the checkpoint"),
        ("model-q8_0.gguf", "use the checkpoint"),
        ("tf_model.h5", "from_tf=True"),
        ("flax_model.msgpack", "from_flax=True"),
        ("model.fp16.safetensors", "rename or copy it to model.safetensors"),
        ("consolidated.pth", "save_pretrained"),
        ("model-00001-of-00002.safetensors", "download model.safetensors.index.json too"),
        ("notes.txt", "has no weights"),
    ],
)
def test_weights_of_another_format_are_named_with_the_remedy(tmp_path, name, words):
    folder = write_stock(tmp_path / "model", "bert", dense=(24, True, "activation.Tanh"))
    target = folder / name
    target.parent.mkdir(exist_ok=True)
    (folder / "model.safetensors").rename(target)
    message = one_line(lambda: msdc.load_encoder(folder), InputError)
    assert words in message
    assert "of-00002" in name or name == "notes.txt" or f"{name} is not read" in message
