"""`msdc export` of every kind of folder: the choice of the exporter, prompts, cards, refusals before any work."""

import itertools
import json
import re

import numpy as np
import pytest
import tiny_models as tiny
import torch
from click.testing import CliRunner
from folder_kinds import MODES, PROMPTS, kind_bundle, write_folder
from programs import python
from stock_models import TEXTS, write_stock

import msdc
from msdc import load_bundle, load_encoder
from msdc.compress.student.io import save_student
from msdc.compress.student.plan import plan_for
from msdc.compress.student.stock import to_student
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.export import export, origin
from msdc.export.cli import command
from msdc.export.exporters import canonical_obstacle
from msdc.export.manifest import read_manifest
from msdc.export.options import load_precision
from msdc.export.readme import read_card

REASONS = {
    "prompt not pooled, mean": "pooling leaves the prompt's tokens out",
    "static": "a static embedding has no layers",
    "mpnet": "mpnet models are not of a family",
    "two dense": "its modules Pooling, Dense, Dense, Normalize",
    "layer norm": "its modules Pooling, LayerNorm",
    "dense with residual": "a Dense with identity or a residual connection",
    "pooling lasttoken": "pooling lasttoken; known: mean, cls, max",
    "pooling cls and mean and max": "pooling cls, mean, max; known",
}


def load(folder, kind: str) -> Encoder:
    return msdc.load_encoder(write_folder(folder, kind))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The folder of a model that the canonical exporter takes; load it again to change it."""
    return write_folder(tmp_path_factory.mktemp("bert"), "no normalisation")


@pytest.mark.parametrize("kind", REASONS)
def test_reasons_of_modules(kind, tmp_path):
    encoder = load(tmp_path, kind)
    assert REASONS[kind] in str(canonical_obstacle(encoder))
    if kind != "prompt not pooled, mean":
        with pytest.raises(InputError):
            to_student(encoder)


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("hidden_act", "silu", "activation 'silu' is not supported"),
        ("position_embedding_type", "relative_key", "relative_key positions are not supported"),
        ("is_decoder", True, r"causal attention \(is_decoder\)"),
    ],
)
def test_reasons_of_the_body(bert, setting, value, reason):
    encoder = msdc.load_encoder(bert)
    assert canonical_obstacle(encoder) is None
    setattr(encoder.module.body.config, setting, value)
    assert re.search(reason, str(canonical_obstacle(encoder)))
    with pytest.raises(InputError, match=reason):
        to_student(encoder)


@pytest.mark.parametrize("activation", [torch.nn.SiLU(), torch.nn.GELU(approximate="tanh")])
def test_reasons_of_a_dense_layer(bert, activation):
    from sentence_transformers.sentence_transformer.modules import Dense

    encoder = msdc.load_encoder(bert)
    encoder.module.after.append(Dense(32, 16, activation_function=activation))
    assert "a Dense with" in str(canonical_obstacle(encoder))
    with pytest.raises(InputError, match="a Dense with"):
        to_student(encoder)


@pytest.mark.parametrize("kind", ["pooling max", "roberta", "distilbert", "albert", "truncate_dim", "do_lower_case"])
def test_models_without_a_reason_become_equal_students(kind, tmp_path):
    encoder = load(tmp_path, kind)
    assert canonical_obstacle(encoder) is None
    expected = encoder.encode(TEXTS)
    encoder.module = to_student(encoder)
    assert np.abs(encoder.encode(TEXTS) - expected).max() < 1e-5


SAMPLE = [*TEXTS, "  spaces ", "The BIG Dog"]


@pytest.mark.parametrize("kind", ["default prompt", "truncate_dim"])
def test_bundle_applies_what_the_folder_says(kind, tmp_path):
    from sentence_transformers import SentenceTransformer

    folder = write_folder(tmp_path / "folder", kind)
    theirs = SentenceTransformer(str(folder), device="cpu")
    out, manifest = export(str(folder), target="web", precision="fp32", output=tmp_path / "out")
    bundle = msdc.load_bundle(out)
    assert bundle.width == msdc.load_encoder(folder).width == theirs.encode(["x"]).shape[1]
    assert {**manifest.prompts, **PROMPTS} == manifest.prompts
    for settings in ({}, {"prompt_name": "passage"}, {"prompt": "a "}, {"truncate_dim": 5}):
        np.testing.assert_allclose(bundle.encode(SAMPLE, **settings), theirs.encode(SAMPLE, **settings), atol=1e-5)
    with pytest.raises(InputError, match="no prompt 'qery'"):
        bundle.encode(SAMPLE, prompt_name="qery")
    code = (
        "import sys, msdc\nsys.modules['sentence_transformers'] = sys.modules['transformers'] = None\n"
        f"print(msdc.load_bundle({str(out)!r}).encode(['a dog'], prompt_name='query').shape)"
    )
    assert python(code).strip() == str((1, bundle.width))


NOT_POOLED = tuple(f"prompt not pooled, {mode}" for mode in MODES)


@pytest.mark.parametrize(
    ("kind", "runtimes"),
    [
        (NOT_POOLED[MODES.index("mean")], ("onnx",)),
        *(pytest.param(k, ("executorch", "onnx"), marks=pytest.mark.slow) for k in (*NOT_POOLED, "instructor")),
    ],
)
def test_pooling_without_the_prompt(kind, runtimes, monkeypatch):
    """Programs of `include_prompt: false` take the number of the prompt's tokens."""
    from sentence_transformers import SentenceTransformer

    folder, out = kind_bundle(kind, "both" if len(runtimes) == 2 else runtimes[0])
    manifest = read_manifest(out)
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert not manifest.include_prompt
    assert manifest.model.config["exporter"] == "generic"
    for runtime in runtimes:
        bundle = msdc.load_bundle(out, runtime=runtime)
        for settings in ({}, {"prompt_name": "passage"}, {"prompt": "the cat: "}, {"prompt": ""}):
            expected = theirs.encode(SAMPLE, **settings)
            np.testing.assert_allclose(bundle.encode(SAMPLE, **settings), expected, atol=2e-5, err_msg=str(settings))
        # Of one text alone: a batch of one is another path in ONNX.
        np.testing.assert_allclose(bundle.encode(["a dog"]), theirs.encode(["a dog"]), atol=2e-5)
    if "executorch" in runtimes:
        # Loaded as a stranger's would be: first in a child process.
        monkeypatch.setattr(origin, "is_known", lambda *_: False)
        assert msdc.load_bundle(out, runtime="executorch").encode(["a dog"]).shape == (1, manifest.width)
    # The prompt is read all the same: it is only not pooled.
    assert np.abs(theirs.encode(SAMPLE) - theirs.encode(SAMPLE, prompt="")).max() > 1e-3


@pytest.mark.parametrize(
    ("kind", "runtimes"),
    [("static", ("executorch", "onnx")), ("static with truncation", ("onnx",)), ("model2vec", ("onnx",))],
)
def test_static_folders(kind, runtimes):
    from sentence_transformers import SentenceTransformer

    folder, out = kind_bundle(kind, "both" if len(runtimes) == 2 else runtimes[0])
    manifest = read_manifest(out)
    theirs = SentenceTransformer(str(folder), device="cpu")
    texts = [*SAMPLE, "", "  \t ", "the dog " * 30]
    expected = theirs.encode(texts)
    assert not expected[len(SAMPLE)].any()
    assert expected[0].any()
    for runtime in runtimes:
        bundle = msdc.load_bundle(out, runtime=runtime)
        np.testing.assert_allclose(bundle.encode(texts), expected, atol=2e-5)
        assert bundle.encode(["", " "]).shape == (2, manifest.width)
        assert not bundle.encode([" "]).any()


def test_a_module_that_cannot_be_written_fails_the_export(tmp_path):
    folder = write_folder(tmp_path / "folder", "no normalisation")
    with pytest.raises(InputError, match=r"no ios module: .*module=False"):
        export(folder, target="ios", runtime="onnx", precision="fp32", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    words = [folder, "--target", "ios", "--runtime", "onnx", "--precision", "fp32", "-o", tmp_path / "out"]
    done = CliRunner().invoke(command, [*map(str, words), "--no-module"], catch_exceptions=False)
    assert done.exit_code == 0 and (tmp_path / "out/bundle.json").is_file(), done.output[-500:]
    assert not (tmp_path / "out/ios").exists()


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_stock_encoder_goes_through_as_it_is(family, tmp_path):
    model = write_stock(tmp_path / family, family)
    words = [model, "--target", "web", "--precision", "fp32", "--no-module", "-o", tmp_path / "out", "--json"]
    done = CliRunner().invoke(command, list(map(str, words)), catch_exceptions=False)
    manifest = json.loads(done.output[done.output.index("{") :])
    assert manifest["tokenizer"]["kind"] == "tokenizer-json"
    assert manifest["name"] == family
    bundle, encoder = load_bundle(tmp_path / "out"), load_encoder(model)
    assert bundle.tokenize(TEXTS) == encoder.tokenize(TEXTS)
    np.testing.assert_allclose(bundle.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)


def test_student_folder_carries_its_card(tmp_path):
    card = "---\nlanguage:\n- en\n- de\nlicense: mit\n---\n# x\n\n## Data\n\n* Tatoeba, CC BY\n* own sentences\n"
    save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "small", card=card)
    folder, manifest = export(tmp_path / "small", target="web", output=tmp_path / "out", gates=False)
    assert folder == tmp_path / "out"
    assert manifest.languages == ["en", "de"]
    assert manifest.licenses == ["mit"]
    assert manifest.data_sources == ["Tatoeba, CC BY", "own sentences"]
    assert manifest.precision == "int8"
    assert manifest.tokenizer.kind == "sentencepiece"
    assert manifest.model.source_sha256 == load_encoder(tmp_path / "small").fingerprint()


def test_the_shipped_student_keeps_its_promises_on_onnx(tmp_path):
    """An int8 folder, whose numbers are rounded already: the gates hold as they do for a float one."""
    words = ["msdc-mini", "--target", "web", "--no-module", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert str(tmp_path / "out") in done.output
    assert "mean cosine" in done.output
    parity = load_bundle(tmp_path / "out").manifest.parity["onnx"]
    assert parity.passed
    assert parity.mean_cosine > 0.999
    assert parity.min_cosine > 0.99


def test_card_with_a_bomb_gives_no_facts(tmp_path):
    names = [chr(97 + i) for i in range(21)]
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in itertools.pairwise(names))
    (tmp_path / "README.md").write_text(f"---\n{bomb}language: en\n---\n")
    assert read_card(tmp_path).languages == ()
    assert read_card(None).licenses == ()
    assert read_card(tmp_path / "absent").licenses == ()


def test_precision_may_be_a_plan_file(tmp_path):
    plan = plan_for(tiny.student(), "int8")
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    assert load_precision(str(tmp_path / "plan.json")) == plan
    assert load_precision("int8-embed4") == "int8-embed4"
    (tmp_path / "bad.json").write_text('{"precision": "x", "weights": {"a": "int3"}}')
    for bad in (str(tmp_path / "bad.json"), "int3", str(tmp_path / "absent.json")):
        with pytest.raises(InputError):
            load_precision(bad)


def test_help_and_the_function_import_no_torch():
    code = (
        "import sys\nfrom msdc.cli import main\nfrom msdc.export import export\n"
        "try: main(['export', '--help'])\nexcept SystemExit: print('torch' in sys.modules)"
    )
    assert python(code).strip().endswith("False")


def test_out_is_another_name_of_output(tiny_student, tmp_path):
    folder = export(tiny_student, target="linux", runtime="onnx", out=tmp_path / "b").folder
    assert folder == tmp_path / "b"
    assert (folder / "bundle.json").is_file()
    with pytest.raises(InputError, match="`out` and `output` are one argument"):
        export(tiny_student, target="linux", out=tmp_path / "c", output=tmp_path / "d")
