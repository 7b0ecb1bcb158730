"""Files for transformers.js: written where the library itself gives our ids, left out with a word elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from stock_models import write_stock, write_wordpiece
from transformers_node import run_script

from msdc.export import export
from msdc.export.golden import read_golden, write_golden
from msdc.export.manifest import check_files, read_manifest
from msdc.export.mobile.web import transformers_js
from msdc.export.mobile.web.transformers_js import PACKAGE, about_bundle, stock_folder, write_transformers_js

HERE = Path(__file__).parent
WRITTEN = {"config.json", "tokenizer_config.json", "tokenizer.json"}


@pytest.fixture(scope="module")
def bundle(library, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    out, _ = export(write_stock(folder / "bert", "bert"), target="web", out=folder / "bundle")
    return out


def test_a_stock_model_gets_files_that_the_manifest_lists(bundle):
    manifest = read_manifest(bundle)
    check_files(bundle, manifest)
    assert manifest.files.keys() >= WRITTEN
    readme = (bundle / "web/README.md").read_text()
    assert (
        f'from "{PACKAGE}"' in readme and 'model_file_name: "model"' in readme and "{{" not in readme.replace("{{ ", "")
    )


def test_transformers_js_itself_gives_the_golden_vectors(bundle, tmp_path):
    manifest, golden = read_manifest(bundle), read_golden(bundle)
    whole = [i for i, row in enumerate(golden["ids"]) if len(row) < manifest.max_length][:20]
    made = run_script(
        HERE / "transformers_encode.mjs", bundle, tmp_path,
        data=manifest.program_files("onnx")[1:], texts=[golden["texts"][i] for i in whole],
    )  # fmt: skip
    found = np.asarray(made, dtype=np.float32)
    assert len(found) >= 10
    np.testing.assert_allclose(found, golden["vectors"]["onnx"][whole], atol=1e-5)


def golden_of(stage: Path, texts: list[str], rows: list[list[int]]) -> None:
    write_golden(stage, texts, rows, {"float": np.zeros((len(rows), 4), dtype=np.float32)})


@pytest.fixture
def stage(tmp_path) -> Path:
    (tmp_path / "stage").mkdir()
    return tmp_path / "stage"


def test_other_ids_leave_the_files_out_with_a_word(library, stage, tmp_path):
    stock = write_stock(tmp_path / "bert", "bert")
    manifest = read_manifest(tiny.bundle("fp32", ("onnx",)))
    golden_of(stage, ["a cat", "a dog"], [[2, 6, 7, 3], [2, 6, 7, 3]])
    reason = write_transformers_js(stage, manifest, stock)
    assert reason is not None and "other ids on 1 of 2 golden texts, the first: 'a dog'" in reason
    assert {path.name for path in stage.iterdir()} == {"golden.json"}
    assert reason in about_bundle(manifest, reason)


@pytest.mark.parametrize(
    ("own", "theirs", "same"),
    [
        ([2, 5, 3], [2, 5, 3], True),
        ([2, 5, 3], [2, 6, 3], False),
        ([2, 5, 3], [2, 5], False),
        # Cut: the closing id is ours only.
        ([2, 5, 6, 3], [2, 5, 6, 7, 8, 3], True),
        ([2, 5, 6, 3], [2, 5, 7, 7, 8, 3], False),
        ([2, 5, 3], [2, 5, 7, 7, 8, 3], False),
    ],
)
def test_ids_are_compared_up_to_where_transformers_js_cuts(own, theirs, same):
    found = transformers_js.differing(["t"], [own], [theirs], 4, 3)
    assert found == ([] if same else ["t"])


def test_a_tokenizer_that_it_does_not_read_is_left_out(library, stage, tmp_path):
    stock = write_stock(tmp_path / "bert", "bert")
    (stock / "tokenizer.json").write_text('{"model": {"type": "Unheard"}}')
    golden_of(stage, ["a cat"], [[2, 6, 7, 3]])
    reason = write_transformers_js(stage, read_manifest(tiny.bundle("fp32", ("onnx",))), stock)
    assert reason is not None and "\n" not in reason and list(stage.iterdir()) == [stage / "golden.json"]


def test_without_node_and_for_prompts_not_pooled_the_reason_is_named(stage, tmp_path, monkeypatch):
    stock = write_stock(tmp_path / "bert", "bert")
    golden_of(stage, ["a cat"], [[2, 6, 7, 3]])
    manifest = read_manifest(tiny.bundle("fp32", ("onnx",)))
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    assert "apt-get install nodejs" in (write_transformers_js(stage, manifest, stock) or "")
    prompted = manifest.model_copy(update={"include_prompt": False})
    assert "prompt's tokens" in (write_transformers_js(stage, prompted, stock) or "")


def test_only_stock_folders_count(tmp_path):
    stock = tmp_path / "stock"
    stock.mkdir()
    assert stock_folder(None) is None and stock_folder(stock) is None
    write_wordpiece(stock)
    for config, counts in (('{"model_type": "bert"}', True), ('{"model_type": "msdc-student"}', False), ("{}", False),
                           ("[]", False), ("not JSON", False)):  # fmt: skip
        (stock / "config.json").write_text(config)
        assert (stock_folder(stock) == stock) == counts, config
