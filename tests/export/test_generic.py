"""The generic exporter: programs of many architectures give the vectors of the untouched transformers model."""

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, architecture_modules, rows, save_bert_like
from stock_models import TEXTS, write_stock

from msdc import load_bundle
from msdc.errors import InputError
from msdc.export import export
from msdc.export.executorch.program import read_pte
from msdc.export.generic.model import generic_model, reference_vectors, smooth_generic
from msdc.export.generic.programs import write_generic_executorch, write_generic_onnx
from msdc.scores import cosine_rows


def _models(name, precision):
    modules = architecture_modules(name)
    model = generic_model(modules, name)
    return smooth_generic(model, rows()) if precision == "int8" else model, reference_vectors(modules, rows())


def _close(reference, found, precision):
    if precision == "fp32":
        size = np.linalg.norm(reference, axis=1, keepdims=True).clip(1.0)
        assert np.abs((reference - found) / size).max() < 1e-4
    else:
        assert cosine_rows(reference, found).min() > 0.99


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_eager_model_equals_the_untouched_one(name):
    for precision in ("fp32", "int8"):
        model, reference = _models(name, precision)
        with torch.inference_mode():
            found = np.stack([model(torch.tensor([row]))[0].numpy() for row in rows()])
        np.testing.assert_allclose(found, reference, atol=2e-5, rtol=1e-3)


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
        found = program.module()(torch.tensor([row]))
        np.testing.assert_allclose(found.numpy(), model(torch.tensor([row])).numpy(), atol=1e-5)


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


def test_exporters_are_chosen_or_refused(tmp_path):
    model, bert = save_bert_like(tmp_path / "mpnet", "mpnet"), write_stock(tmp_path / "bert", "bert")
    folder, manifest = export(model, target="web", out=tmp_path / "out")
    assert manifest.model.config == {"exporter": "generic", "architecture": "mpnet"} and manifest.precision == "int8"
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(model), device="cpu").encode(TEXTS)
    assert cosine_rows(reference, load_bundle(folder).encode(TEXTS)).min() > 0.99
    with pytest.raises(InputError, match=r"canonical exporter does not take it.*mpnet"):
        export(model, target="web", out=tmp_path / "other", exporter="canonical")
    with pytest.raises(InputError, match=r"int8-embed4.*canonical"):
        export(bert, target="web", out=tmp_path / "other", exporter="generic", precision="int8-embed4")
