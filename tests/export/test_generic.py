"""The generic exporter: programs of many architectures give the vectors of the untouched transformers model."""

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, architecture_modules, rows, save_bert_like
from stock_models import TEXTS, write_stock

from msdc import load_bundle
from msdc.errors import InputError
from msdc.export import export
from msdc.export.executorch.lower import not_exported
from msdc.export.executorch.program import read_pte
from msdc.export.generic.model import generic_model, reference_vectors, smooth_generic
from msdc.export.generic.programs import write_generic_executorch, write_generic_onnx
from msdc.scores import cosine_rows


def _models(name, precision):
    modules = architecture_modules(name)
    model = generic_model(modules, name)
    return smooth_generic(model, rows()) if precision == "int8" else model, reference_vectors(modules, rows())


def _close(reference, vectors, precision):
    if precision == "fp32":
        size = np.linalg.norm(reference, axis=1, keepdims=True).clip(1.0)
        assert np.abs((reference - vectors) / size).max() < 1e-4
    else:
        assert cosine_rows(reference, vectors).min() > 0.99


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_eager_model_equals_the_untouched_one(name):
    for precision in ("fp32", "int8"):
        model, reference = _models(name, precision)
        with torch.inference_mode():
            vectors = np.stack([model(torch.tensor([row]))[0].numpy() for row in rows()])
        np.testing.assert_allclose(vectors, reference, atol=2e-5, rtol=1e-3)


# One of each kind: relative positions, shared keys and RMS norms, a table alone.
QUICK_ONNX = {("mpnet", "int8"), ("qwen3", "fp32"), ("static", "fp32"), ("static", "int8")}
QUICK_EXECUTORCH = {("static", "int8")}


def _cases(quick):
    cases = [(name, precision) for name in ARCHITECTURES for precision in ("fp32", "int8")]
    return [case if case in quick else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize(("name", "precision"), _cases(QUICK_ONNX))
def test_onnx_program(name, precision, tmp_path):
    model, reference = _models(name, precision)
    path = tmp_path / "model.onnx"
    written = write_generic_onnx(model, precision, path, max_length=48, target="linux", pad_id=0)
    # All rows in one batch of each length, so that padding and mask are used.
    _close(reference, written.runner.run(rows()), precision)
    assert written.low_bit_share is None if precision == "fp32" else written.low_bit_share >= 0.95


def test_heads_that_share_a_key_export_at_every_length():
    """Strides that torch.export can only guess from the example bind the length; the whole lowering is a slow test."""
    model = generic_model(architecture_modules("qwen3"), "qwen3")
    length = torch.export.Dim("T", min=1, max=48)
    program = torch.export.export(model, (torch.full((1, 7), 3),), dynamic_shapes={"ids_BT": {1: length}}, strict=False)
    (range_,) = program.range_constraints.values()
    assert (range_.lower, range_.upper) == (1, 48)
    for row in rows():
        output = program.module()(torch.tensor([row]))
        np.testing.assert_allclose(output.numpy(), model(torch.tensor([row])).numpy(), atol=1e-5)


@pytest.mark.parametrize(("name", "precision"), _cases(QUICK_EXECUTORCH))
def test_executorch_program(name, precision, tmp_path):
    model, reference = _models(name, precision)
    written = write_generic_executorch(model, precision, tmp_path / "model.pte", max_length=48)
    _close(reference, written.runner.run(rows()), precision)
    assert 0 < written.delegated_share <= 1 or name == "static"
    assert not {"linear", "addmm", "mm"} & set(written.outside)
    (method,) = [m for m in read_pte(tmp_path / "model.pte").methods if m["constant"] is None]
    named = {operator.split("::")[-1].split(".")[0] for operator in method["outside"]}
    assert "embedding" in named & set(written.outside)
    # Of larger programs, views and constants are folded after the count at export.
    assert name != "static" or named == set(written.outside)
    assert written.low_bit_share is None if precision == "fp32" else written.low_bit_share >= 0.95


@pytest.mark.parametrize("name", ["gpt2", "deberta-v2"])
def test_every_weight_is_stored_in_8_bits(name, tmp_path):
    """GPT-2's linear maps are of a class of their own; DeBERTa reads its relative table whole."""
    import transformers as T
    from sentence_transformers.sentence_transformer.modules import Pooling

    modules = architecture_modules("gpt2") if name == "gpt2" else architecture_modules("deberta-v3")
    if name == "deberta-v2":
        shape = {"vocab_size": 120, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
                 "intermediate_size": 128, "pad_token_id": 0}  # fmt: skip
        torch.manual_seed(1)
        config = T.DebertaV2Config(**shape, relative_attention=True, pos_att_type=["p2c", "c2p"])
        modules = [type(modules[0])(T.DebertaV2Model(config).eval()), Pooling(64, "mean")]
    model, reference = smooth_generic(generic_model(modules, name), rows()), reference_vectors(modules, rows())
    sizes = {}
    for precision in ("fp32", "int8"):
        path = tmp_path / precision / "model.onnx"
        path.parent.mkdir()
        written = write_generic_onnx(model, precision, path, max_length=48, target="linux", pad_id=0)
        _close(reference, written.runner.run(rows()), precision)
        sizes[precision] = path.with_name("model.onnx.data").stat().st_size
    assert written.low_bit_share > 0.99
    assert sizes["int8"] < 0.35 * sizes["fp32"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "deberta-v3"])
def test_every_weight_of_a_pte_is_stored_in_8_bits(name, tmp_path):
    model, reference = _models(name, "int8")
    written = write_generic_executorch(model, "int8", tmp_path / "model.pte", max_length=48)
    _close(reference, written.runner.run(rows()), "int8")
    stored = read_pte(tmp_path / "model.pte").constants
    high = [c for c in stored if c.dtype == "float32" and sum(size > 1 for size in c.shape) > 1]
    assert written.low_bit_share > 0.95
    assert sum(c.bytes for c in high) < 0.05 * sum(c.bytes for c in stored)


def test_a_float_weight_that_no_rule_finds_lowers_the_share(tmp_path):
    class Projection(torch.nn.Module):
        """A product with a parameter of three dimensions."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 64, 16) / 8)

        def forward(self, features):
            parts = torch.einsum("bth,nhd->btnd", features["token_embeddings"], self.weight)
            features["token_embeddings"] = parts.flatten(2)
            return features

    first, *after = architecture_modules("bert")
    model = generic_model([first, *after], "bert")
    model.steps.insert(1, Projection().requires_grad_(False))
    path = tmp_path / "model.onnx"
    written = write_generic_onnx(model, "int8", path, max_length=48, target="linux", pad_id=0)
    assert written.low_bit_share < 0.95


def test_an_architecture_that_cannot_be_exported_is_one_plain_line():
    try:
        try:
            raise torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode(
                "u0", "\x1b[31mModify the code\x1b[0m"
            )
        except Exception as inner:
            raise RuntimeError("Failed to export the model.\n\x1b[96mThis is step 1/3\x1b[0m\nmore") from inner
    except RuntimeError as error:
        message = str(not_exported("ONNX Runtime", "longformer models", error))
    assert message.startswith("ONNX Runtime cannot run longformer models: its code branches on the length")
    assert "distill" in message
    assert "Modify" not in message
    message = str(not_exported("ExecuTorch", "x models", ValueError("\x1b[31mno kernel for y\x1b[0m\nadvice")))
    assert "no kernel for y; use" in message
    assert "advice" not in message


@pytest.mark.parametrize(("name", "reads"), [("convbert", True), ("mpnet", False)])
def test_models_that_read_padding_are_compared_and_run_text_by_text(name, reads, tmp_path):
    folder = save_bert_like(tmp_path / name, name)
    manifest = export(folder, target="linux", runtime="onnx", precision="fp32", output=tmp_path / "out").manifest
    assert bool(manifest.model.config.get("reads_padding")) is reads
    assert ("one by one" in (tmp_path / "out" / "README.md").read_text()) is reads
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(folder), device="cpu")
    alone = np.stack([theirs.encode([text], show_progress_bar=False)[0] for text in TEXTS])
    assert cosine_rows(alone, load_bundle(tmp_path / "out").encode(TEXTS)).min() > 0.9999


def test_exporters_are_chosen_or_refused(tmp_path):
    model, bert = save_bert_like(tmp_path / "mpnet", "mpnet"), write_stock(tmp_path / "bert", "bert")
    folder, manifest = export(model, target="web", output=tmp_path / "out")
    assert manifest.model.config == {"exporter": "generic", "architecture": "mpnet"}
    assert manifest.precision == "int8"
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(model), device="cpu").encode(TEXTS)
    assert cosine_rows(reference, load_bundle(folder).encode(TEXTS)).min() > 0.99
    with pytest.raises(InputError, match=r"canonical exporter does not take it.*mpnet"):
        export(model, target="web", output=tmp_path / "other", exporter="canonical")
    with pytest.raises(InputError, match=r"int8-embed4.*canonical"):
        export(bert, target="web", output=tmp_path / "other", exporter="generic", precision="int8-embed4")
