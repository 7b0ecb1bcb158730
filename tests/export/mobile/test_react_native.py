"""`--target react-native`: the calls of packages that run any sentence encoder, through ExecuTorch's runtime."""

import json

import numpy as np
import pytest
import tiny_models as tiny
import torch
from stock_models import write_stock
from tokenizers import Tokenizer

from msdc.errors import InputError
from msdc.export import export
from msdc.export.bundle import load_bundle
from msdc.export.executorch.program import read_pte
from msdc.export.exporters import write_bundle
from msdc.export.golden import read_golden
from msdc.export.mobile.react_native.write import equal_ids
from msdc.export.options import ExportSettings

OWN_KERNELS = ("aten::", "dim_order_ops::", "executorch_prim::", "quantized_decomposed::")


@pytest.fixture(scope="module")
def student_bundle(tmp_path_factory):
    out = tmp_path_factory.mktemp("react") / "tiny"
    options = ExportSettings(target="react-native", precision="int8", thresholds=tiny.LOOSE)
    write_bundle(tiny.student(), tiny.tokenizer(), out, options=options)
    return out


@pytest.fixture(scope="module")
def stock_bundle(tmp_path_factory):
    """A BERT with WordPiece, by the generic exporter."""
    folder = tmp_path_factory.mktemp("react-stock")
    write_stock(folder / "stock", "bert")
    out = folder / "bert"
    export(folder / "stock", target="react-native", exporter="generic", precision="fp32", output=out)
    return out


@pytest.fixture(params=["student_bundle", "stock_bundle"])
def bundle(request):
    return request.getfixturevalue(request.param)


def open_program(bundle):
    from executorch.runtime import Runtime

    return Runtime.get().load_program(bundle / "model.pte")


def embed(method, ids, padding=0):
    """As the packages call it: ids at their exact length, a mask of ones."""
    row = [*ids, *[0] * padding]
    mask = [1] * len(ids) + [0] * padding
    inputs = [torch.tensor([numbers], dtype=torch.int64) for numbers in (row, mask)]
    return method.execute(inputs)[0].numpy()[0]


def test_the_packages_calls_give_the_golden_vectors(bundle):
    golden = read_golden(bundle)
    tokenizer = Tokenizer.from_file(str(bundle / "react-native/tokenizer.json"))
    method = open_program(bundle).load_method("forward")
    max_length = json.loads((bundle / "bundle.json").read_text())["max_length"]
    compared = 0
    for text, row, vector in zip(golden["texts"], golden["ids"], golden["vectors"]["executorch"], strict=True):
        ids = tokenizer.encode(text).ids
        if len(ids) > max_length:
            continue
        assert ids == list(row), text
        np.testing.assert_allclose(embed(method, ids), vector, atol=1e-5)
        compared += 1
    assert compared > 60


def test_padding_changes_nothing(bundle):
    method = open_program(bundle).load_method("forward")
    max_length = json.loads((bundle / "bundle.json").read_text())["max_length"]
    for row in read_golden(bundle)["ids"][:12]:
        room = max_length - len(row)
        if room > 0:
            np.testing.assert_allclose(embed(method, row, room), embed(method, row), atol=2e-5)


def test_the_signature_is_what_the_packages_check(bundle):
    """int64 [1, L] twice, whose declared L is the longest input; float32 [1, D]; kernels of ExecuTorch alone."""
    (method,) = [method for method in read_pte(bundle / "model.pte").methods if method["name"] == "forward"]
    manifest = json.loads((bundle / "bundle.json").read_text())
    assert method["inputs"] == [f"int64 at most [1, {manifest['max_length']}]"] * 2
    assert method["outputs"] == [f"float32 [1, {manifest['width']}]"]
    assert method["outside"]
    assert all(kernel.startswith(OWN_KERNELS) for kernel in method["outside"])
    assert manifest["programs"]["executorch"]["style"] == "masked"


def test_a_bundle_in_python_runs_it(bundle):
    loaded = load_bundle(bundle, "executorch")
    golden = read_golden(bundle)
    texts = golden["texts"][:8]
    np.testing.assert_allclose(loaded.encode(texts, prompt=""), golden["vectors"]["executorch"][:8], atol=1e-5)


def test_the_readme_says_what_executorchs_tokenizer_makes_of_it(student_bundle, stock_bundle):
    library = pytest.importorskip("pytorch_tokenizers")
    pieces = (student_bundle / "react-native/README.md").read_text(encoding="utf-8")
    words = (stock_bundle / "react-native/README.md").read_text(encoding="utf-8")
    assert "HFTokenizer, `tokenizer.json`: refuses it" in pieces
    golden = read_golden(student_bundle)
    uncut = [i for i, row in enumerate(golden["ids"]) if len(row) < tiny.MAX_LENGTH]
    opened = library.CppSPTokenizer()
    opened.load(str(student_bundle / "sentencepiece.model"))
    texts, rows = ([golden[name][i] for i in uncut] for name in ("texts", "ids"))
    equal = equal_ids(opened, texts, rows, (1, 1))
    assert equal > 0.9 * len(uncut)
    line = f"SPTokenizer, `../sentencepiece.model`: gives the ids of the export for {equal} of {len(uncut)}"
    assert line in " ".join(pieces.split())
    assert "HFTokenizer, `tokenizer.json`: " in words
    assert "SPTokenizer" not in words
    assert "{{" not in pieces + words
    assert "{%" not in pieces + words


def test_other_styles_and_prompts_are_refused(tmp_path):
    with pytest.raises(InputError, match="target react-native takes masked programs"):
        ExportSettings(target="react-native", style="forward").check()
    with pytest.raises(InputError, match="is for web pages"):
        ExportSettings(target="react-native", with_runtime=True).check()
