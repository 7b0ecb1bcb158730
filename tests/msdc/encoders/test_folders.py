"""What a model folder says counts: our vectors are those of `SentenceTransformer(path).encode(texts)`."""

import json
import shutil

import numpy as np
import pytest
import tiny_models as tiny
import torch
from folder_kinds import KINDS, MODES, PROMPTS, write_folder
from refusals import one_line
from safetensors.torch import load_file, save_file
from stock_models import TEXTS, stock_model, write_stock, write_wordpiece

import msdc
from msdc.distill import distill
from msdc.errors import InputError
from msdc.export import export

SAMPLE = [*TEXTS, "", "  spaces  and\ttabs ", "The BIG Dog", "der Hund " * 9]


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("folder"), request.param)


def oracle(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def difference(ours, theirs) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max())


@pytest.mark.parametrize("folder", KINDS, indirect=True)
def test_vectors_equal_sentence_transformers(folder):
    ours, theirs = msdc.load_encoder(folder), oracle(folder)
    expected = theirs.encode(SAMPLE)
    # Not a model that gives everything the same vector.
    assert np.abs(expected - expected[0]).max() > 1e-3
    assert difference(ours.encode(SAMPLE), expected) < 1e-5
    assert ours.width == expected.shape[1]
    passed = {"batch_size": 2, "normalize_embeddings": True, "show_progress_bar": False, "convert_to_numpy": True}
    for settings in ({"prompt": "the cat: "}, {"prompt": ""}, {"truncate_dim": 7}, passed | {"truncate_dim": 5}):
        assert difference(ours.encode(SAMPLE, **settings), theirs.encode(SAMPLE, **settings)) < 1e-5, settings
    for verb in ("encode", "encode_query", "encode_document"):
        for texts in (SAMPLE[0], SAMPLE):
            assert difference(getattr(ours, verb)(texts), getattr(theirs, verb)(texts)) < 1e-5, verb
    for vectors in (expected[2], expected[2:4]):
        assert difference(ours.similarity(vectors, expected), theirs.similarity(vectors, expected).numpy()) < 1e-4
    for name in theirs.prompts if "plain" in theirs.prompts else ():
        assert difference(ours.encode(SAMPLE, prompt_name=name), theirs.encode(SAMPLE, prompt_name=name)) < 1e-5, name


@pytest.mark.parametrize("folder", ["default prompt"], indirect=True)
def test_what_callers_of_sentence_transformers_pass(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    for kind, problem in (("dot", ""), ("euclidean", ""), ("manhattan", ""), ("angle", "'angle' is not one of")):
        text = json.dumps(settings | {"similarity_fn_name": kind, "prompts": PROMPTS | {"document": "d: "}})
        (tmp_path / "copy" / "config_sentence_transformers.json").write_text(text)
        if problem:
            with pytest.raises(InputError, match=problem):
                msdc.load_encoder(tmp_path / "copy").similarity([1.0], [1.0])
            continue
        ours, theirs = msdc.load_encoder(tmp_path / "copy"), oracle(tmp_path / "copy")
        vectors = ours.encode_document(inputs=SAMPLE)
        assert difference(vectors, theirs.encode_document(SAMPLE)) < 1e-5 < difference(vectors, ours.encode(SAMPLE))
        assert difference(ours.similarity(3 * vectors, vectors), theirs.similarity(3 * vectors, vectors).numpy()) < 1e-4
        for passed in ({"convert_to_tensor": True}, {"device": "cuda"}, {"batch_size": 0}, {"precision": "ubinary"}):
            with pytest.raises(InputError, match=next(iter(passed))):
                ours.encode(SAMPLE, **passed)
        for texts in (3, None, ["a", 3]):
            with pytest.raises(InputError, match="encode takes texts"):
                ours.encode(texts)
        with pytest.raises(InputError, match="are not"):
            ours.similarity(vectors, vectors[:, 1:])


@pytest.mark.parametrize("folder", ["default prompt", "prompt not pooled, mean"], indirect=True)
def test_prompts_change_the_vector(folder):
    encoder = msdc.load_encoder(folder)
    assert encoder.defaults.prompts == {**encoder.defaults.prompts, **PROMPTS}
    default, named = encoder.encode(SAMPLE), encoder.encode(SAMPLE, prompt_name="query")
    assert np.array_equal(default, named)
    assert difference(default, encoder.encode(SAMPLE, prompt="")) > 1e-3
    with pytest.raises(InputError, match=r"no prompt 'qery'; its prompts: .*passage"):
        encoder.encode(SAMPLE, prompt_name="qery")
    with pytest.raises(InputError, match="not both"):
        encoder.encode(SAMPLE, prompt_name="query", prompt="a")
    with pytest.raises(InputError, match="`truncate_dim` 64"):
        encoder.encode(SAMPLE, truncate_dim=64)


ASSIGNED = {
    "max_seq_length": 5,
    "truncate_dim": 9,
    "prompts": {"query": "big dog: ", "document": "a "},
    "default_prompt_name": "passage",
    "similarity_fn_name": "euclidean",
}


@pytest.mark.parametrize("folder", ["default prompt", "truncate_dim"], indirect=True)
@pytest.mark.parametrize("name", ASSIGNED)
def test_an_assigned_setting_works_as_that_of_sentence_transformers(folder, name):
    ours, theirs = msdc.load_encoder(folder), oracle(folder)
    fingerprint = ours.fingerprint()
    for model in (ours, theirs):
        setattr(model, name, ASSIGNED[name])
    assert getattr(ours, name) == ASSIGNED[name]
    # Only the similarity leaves the vectors: caches and indexes must not take those of one setting for another's.
    assert (ours.fingerprint() == fingerprint) == (name == "similarity_fn_name")
    for verb in ("encode", "encode_query", "encode_document"):
        assert difference(getattr(ours, verb)(SAMPLE), getattr(theirs, verb)(SAMPLE)) < 1e-5, verb
    vectors = ours.encode(SAMPLE)
    assert difference(ours.similarity(vectors, vectors), theirs.similarity(vectors, vectors).numpy()) < 1e-4
    for model in (ours, theirs):
        model.truncate_dim = None
    assert difference(ours.encode(SAMPLE), theirs.encode(SAMPLE)) < 1e-5


@pytest.mark.parametrize("folder", ["default prompt"], indirect=True)
def test_what_cannot_be_assigned_is_refused_by_name(folder):
    for model in (msdc.load_encoder(folder), msdc.load_bundle(tiny.bundle(), "onnx")):
        fingerprint, vectors = model.fingerprint(), model.encode(SAMPLE)
        for name, value, message in (
            ("max_seq_length", 10**4, "takes 3 to"), ("max_seq_length", 2, "takes 3 to"), ("max_length", "9", "takes"),
            ("truncate_dim", 10**4, "dimensions"), ("truncate_dim", 0, "truncate_dim"), ("prompts", ["a"], "mapping"),
            ("prompts", {"a": None}, "mapping"), ("default_prompt_name", "x", "'x' is not among the prompts"),
            ("similarity_fn_name", "angle", "'angle' is not one of cosine"),
        ):  # fmt: skip
            with pytest.raises(InputError, match=message):
                setattr(model, name, value)
        for name, message in (
            ("normalize_embeddings", r"an argument: encode\(normalize_embeddings="), ("prompt_name", "an argument"),
            ("max_seq_lenght", "did you mean 'max_seq_length'"), ("device", "known: max_seq_length, prompts"),
            ("width", "no setter"), ("source", "no setter"),
        ):  # fmt: skip
            with pytest.raises(AttributeError, match=message):
                setattr(model, name, 3)
        with pytest.raises(TypeError):
            model.prompts["query"] = "other: "
        assert model.fingerprint() == fingerprint
        assert np.array_equal(model.encode(SAMPLE), vectors)


def test_assigned_settings_of_a_bundle():
    bundle, plain = msdc.load_bundle(tiny.bundle(), "onnx"), msdc.load_bundle(tiny.bundle(), "onnx")
    bundle.prompts, bundle.truncate_dim, bundle.max_seq_length = {"query": "a dog: "}, 9, 6
    assert difference(bundle.encode_query(SAMPLE), bundle.encode(SAMPLE, prompt="a dog: ")) == 0
    bundle.default_prompt_name = "query"
    first = bundle.encode(SAMPLE)
    assert difference(first, bundle.encode_query(SAMPLE)) == 0
    assert first.shape == (len(SAMPLE), 9)
    cut = [row[:5] + row[-1:] if len(row) > 6 else row for row in plain.tokenize(["a dog: " + text for text in SAMPLE])]
    assert difference(first, plain.encode_ids(cut)[:, :9]) < 1e-6
    with pytest.raises(AttributeError, match="no setter"):
        bundle.runtime = "executorch"
    bundle.similarity_fn_name = "manhattan"
    assert bundle.similarity(first[0], first[1])[0, 0] == pytest.approx(-np.abs(first[0] - first[1]).sum(), rel=1e-5)


def test_every_pooling_mode_is_covered():
    from sentence_transformers.sentence_transformer.modules import Pooling

    assert set(MODES) == set(Pooling.POOLING_MODES)


def _damage(folder, tmp_path, change):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    change(copy)
    return one_line(lambda: msdc.load_encoder(copy), InputError)


@pytest.mark.parametrize("folder", ["two dense"], indirect=True)
def test_what_is_not_supported_is_refused_in_one_line(folder, tmp_path):
    def edit(name, **changes):
        def work(copy):
            value = json.loads((copy / name).read_text())
            (copy / name).write_text(json.dumps({**value, **changes}))

        return work

    def module(position, kind):
        def work(copy):
            value = json.loads((copy / "modules.json").read_text())
            value[position]["type"] = kind
            (copy / "modules.json").write_text(json.dumps(value))

        return work

    cases = {
        "not supported": module(1, "sentence_transformers.models.LSTM"),
        "module 'evil.Pooling'": module(1, "evil.Pooling"),
        "does not take text": module(0, "sentence_transformers.models.Normalize"),
        "os.system": edit("2_Dense/config.json", activation_function="os.system"),
        "no model.safetensors": lambda copy: (copy / "2_Dense/model.safetensors").unlink(),
        "damaged": lambda copy: (copy / "2_Dense/model.safetensors").write_bytes(b"\x80\x04"),
        "tokenizer_name_or_path": edit("sentence_bert_config.json", tokenizer_name_or_path="/elsewhere"),
        "Invalid pooling mode": edit("1_Pooling/config.json", pooling_mode="median"),
        "default_prompt_name 'absent'": edit("config_sentence_transformers.json", default_prompt_name="absent"),
    }
    for number, (expected, change) in enumerate(cases.items()):
        assert expected in _damage(folder, tmp_path / str(number), change)


def write_bare(folder, family="roberta", names=("pooler.dense",)):
    """A folder as SimCSE publishes it: config, safetensors, tokenizer; no modules.json."""
    folder.mkdir(parents=True)
    model = stock_model(family)
    model.save_pretrained(folder)
    write_wordpiece(folder, roberta=family == "roberta")
    state = {k: v for k, v in load_file(folder / "model.safetensors").items() if not k.startswith("pooler.")}
    generator = torch.Generator().manual_seed(4)
    for name in names:
        state |= {f"{name}.weight": torch.randn(32, 32, generator=generator) * 0.2,
                  f"{name}.bias": torch.randn(32, generator=generator)}  # fmt: skip
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("names", [("pooler.dense",), ("mlp.dense",), ("pooler.dense", "mlp.dense")])
def test_cls_and_mlp_equal_simcse(tmp_path, names):
    from transformers import AutoModel

    folder = write_bare(tmp_path / "simcse", names=names)
    encoder = msdc.load_encoder(folder, pooling="cls", head="mlp")
    model = AutoModel.from_pretrained(folder).eval()
    state = load_file(folder / "model.safetensors")
    name = names[-1]  # the training name goes first
    expected = []
    for ids in encoder.tokenize(TEXTS):
        with torch.no_grad():
            first = model(torch.tensor([ids])).last_hidden_state[0, 0]
            expected.append(torch.tanh(state[f"{name}.weight"] @ first + state[f"{name}.bias"]).numpy())
    np.testing.assert_allclose(encoder.encode(TEXTS), np.stack(expected), atol=1e-5)
    plain = msdc.load_encoder(folder)
    assert plain.fingerprint() != encoder.fingerprint()
    assert np.abs(plain.encode(TEXTS) - encoder.encode(TEXTS)).max() > 0.1


def test_a_folder_that_defines_pooling_keeps_it(tiny_teacher, tiny_student, tmp_path):
    for folder in (tiny_teacher, tiny_student):
        with pytest.raises(InputError, match=r"modules\.json already defines pooling"):
            msdc.load_encoder(folder, pooling="cls")
    with pytest.raises(InputError, match="its weights have no"):
        msdc.load_encoder(write_bare(tmp_path / "none", names=()), pooling="cls", head="mlp")


def test_a_recipe_trains_a_cls_and_mlp_student_from_such_a_teacher(tiny_tree, tmp_path):
    teacher, student = write_bare(tmp_path / "teacher"), write_bare(tmp_path / "student", "bert", names=())
    stage = {"name": "distil", "objective": "contrastive_distillation", "steps": 3, "batch": 8, "max_length": 20}
    named = {"pooling": "cls", "head": "mlp"}
    tree = tiny_tree | {"teacher": {"model": str(teacher)} | named, "assistant": None, "stages": [stage],
                               "student": {"model": str(student)} | named}  # fmt: skip
    done = distill(tree, tmp_path / "run")
    trained = msdc.load_encoder(done.student)
    config = trained.module.config
    assert (config.pooling, config.dense, config.dense_activation, config.normalize) == ("cls", 32, "tanh", False)
    start = msdc.load_encoder(tmp_path / "run" / "student-start")
    assert not np.allclose(start.encode(TEXTS), trained.encode(TEXTS))
    # The random head follows from the seed.
    distill(tree, tmp_path / "again")
    same = msdc.load_encoder(tmp_path / "again" / "student-start")
    np.testing.assert_array_equal(start.encode(TEXTS), same.encode(TEXTS))


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    """Queries by a static model, documents by a transformer."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    folder = tmp_path_factory.mktemp("routed")
    document = SentenceTransformer(str(write_stock(folder / "document", "bert", normalize=False)), device="cpu")
    query = StaticEmbedding(document.tokenizer, embedding_dim=document.get_embedding_dimension())
    torch.nn.init.normal_(query.embedding.weight)
    modules = [Router({"query": [query], "document": list(document)}), Normalize()]
    prompts = {"query": "the cat: ", "document": ""}
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(str(folder / "m"), create_model_card=False)
    return folder / "m"


@pytest.mark.parametrize("route", ["query", "document"])
def test_a_route_of_a_router_is_a_model(routed, route, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library = oracle(routed)
    encode = library.encode_query if route == "query" else library.encode_document
    texts = [text for text in SAMPLE if text.strip()]
    expected = encode(texts)
    encoder = msdc.load_encoder(f"{routed}#{route}")
    assert np.allclose(encoder.encode(texts), expected, atol=1e-5)
    assert msdc.load_encoder(f"{routed}#{route}").fingerprint() == encoder.fingerprint()
    export(f"{routed}#{route}", target="linux", out=tmp_path / "bundle", runtime="onnx", precision="fp32", module=False)
    bundle = msdc.load_bundle(tmp_path / "bundle")
    assert np.allclose(bundle.encode(texts), expected, atol=1e-4)
    assert (bundle.width, encoder.name) == (expected.shape[1], f"m#{route}")


def test_a_router_is_refused_with_the_names_of_its_routes(routed, tmp_path):
    line = one_line(lambda: msdc.load_encoder(routed), InputError)
    assert line.endswith("a Router, with an encoder for each task: name one of m#query, m#document")
    assert "no route 'queri'" in one_line(lambda: msdc.load_encoder(f"{routed}#queri"), InputError)
    plain = write_stock(tmp_path / "plain", "bert")
    assert "no model with routes" in one_line(lambda: msdc.load_encoder(f"{plain}#query"), InputError)
    (tmp_path / "a#b").mkdir()
    shutil.copytree(plain, tmp_path / "a#b/c#d")
    assert msdc.load_encoder(str(tmp_path / "a#b/c#d")).width
    copy = tmp_path / "hostile"
    shutil.copytree(routed, copy)
    settings = json.loads((copy / "router_config.json").read_text())
    settings["structure"]["query"] = ["../plain"]
    settings["types"]["../plain"] = "sentence_transformers.models.Transformer"
    (copy / "router_config.json").write_text(json.dumps(settings))
    assert "no routes of modules next to it" in one_line(lambda: msdc.load_encoder(f"{copy}#query"), InputError)
