"""transformers.js, run in Node, gives the golden ids and vectors of bundles; other tokenizers are refused."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models as tiny
from folder_kinds import UNPOOLED, kind_bundle
from programs import ask_node, node
from stock_models import write_stock

from msdc.errors import GateError, InputError, MsdcError
from msdc.export import export
from msdc.export.golden import read_golden, write_golden
from msdc.export.manifest import check_files, read_manifest
from msdc.export.mobile.web import transformers_js
from msdc.export.mobile.web.npm import SCRIPT, WASM, runtime_folder
from msdc.export.mobile.web.transformers_js import (
    PACKAGE,
    about_bundle,
    ids_of,
    keep_sigma,
    write_transformers_js,
)
from msdc.scores import cosine_rows
from msdc.text.tokenizer import FastTokenizer, load_tokenizer


@pytest.fixture(scope="module")
def library() -> None:
    """transformers.js can be run."""
    node()
    try:
        transformers_js.runtime_folder(transformers_js.PACKAGE, transformers_js.VERSION, transformers_js.FILES)
    except MsdcError as error:
        pytest.skip(str(error))


def run_script(script: Path, folder: Path, work: Path, **request: object) -> Any:
    """What `script` prints for the models' folder `folder`; skips the test where the runtime cannot be fetched."""
    try:
        runtime = runtime_folder()
    except MsdcError as error:
        pytest.skip(str(error))
    request |= {
        "library": str(transformers_js.library(work)), "runtime": str(runtime / SCRIPT), "wasm": str(runtime / WASM),
        "parent": f"{folder.parent}/", "name": folder.name,
    }  # fmt: skip
    common = work / "node_modules/onnxruntime-common/index.js"
    common.write_text('exports.Tensor = globalThis[Symbol.for("onnxruntime")].Tensor;')
    return ask_node(script, work, request, cwd=work)


HERE = Path(__file__).parent
WRITTEN = {"config.json", "tokenizer_config.json", "tokenizer.json"}


@pytest.fixture(scope="module")
def bundle(library, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    out, _ = export(write_stock(folder / "bert", "bert"), target="web", transformers_js=True, output=folder / "bundle")
    return out


@pytest.fixture(scope="module")
def prompted(library, tmp_path_factory) -> Path:
    """Prompts that are not pooled, by the generic exporter."""
    model, exported = kind_bundle(UNPOOLED, "onnx")
    folder = shutil.copytree(exported, tmp_path_factory.mktemp("prompted") / "bundle")
    manifest = read_manifest(folder)
    write_transformers_js(folder, manifest, model)
    (folder / "web").mkdir()
    (folder / "web/README.md").write_text(about_bundle(manifest, load_tokenizer(folder, manifest.tokenizer.pad_id)))
    return folder


def test_a_stock_model_gets_files_that_the_manifest_lists(bundle):
    manifest = read_manifest(bundle)
    check_files(bundle, manifest)
    assert manifest.files.keys() >= WRITTEN
    readme = (bundle / "web/README.md").read_text()
    assert f'from "{PACKAGE}"' in readme
    assert 'model_file_name: "model"' in readme
    assert "{{" not in readme.replace("{{ ", "")


@pytest.mark.parametrize("kind", ["bundle", "prompted"])
def test_transformers_js_itself_gives_the_golden_vectors(kind, request, tmp_path):
    bundle = request.getfixturevalue(kind)
    manifest, golden = read_manifest(bundle), read_golden(bundle)
    uncut = [i for i, row in enumerate(golden["ids"]) if len(row) < manifest.max_length][:20]
    raw_vectors = run_script(
        HERE / "transformers_encode.mjs", bundle, tmp_path,
        data=manifest.program_files("onnx")[1:], texts=[golden["texts"][i] for i in uncut],
        more=re.findall(r"prompt_tokens: new Tensor\(.*\[(\d)n\]", (bundle / "web/README.md").read_text()),
    )  # fmt: skip
    vectors = np.asarray(raw_vectors, dtype=np.float32)
    assert len(vectors) >= 10
    # WebAssembly rounds 8-bit activations in its own way.
    assert cosine_rows(golden["vectors"]["onnx"][uncut], vectors).min() > 0.999


def test_a_sentencepiece_model_is_refused_before_any_work(tmp_path):
    with pytest.raises(InputError, match="`transformers_js`: the model's tokenizer is a SentencePiece model"):
        export(tiny.student_folder(), target="web", transformers_js=True, output=tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


def test_other_ids_and_no_node_are_one_line(bundle, tmp_path, monkeypatch):
    stage, manifest = shutil.copytree(bundle, tmp_path / "stage"), read_manifest(bundle)
    golden = read_golden(bundle)
    write_golden(stage, golden["texts"], [[1, *row] for row in golden["ids"]], {"float": golden["vectors"]["float"]})
    with pytest.raises(GateError, match=r"transformers.js gives other ids"):
        write_transformers_js(stage, manifest, None)
    write_golden(stage, golden["texts"], golden["ids"], {"float": golden["vectors"]["float"]})
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    with pytest.raises(MsdcError, match="apt-get install nodejs"):
        write_transformers_js(stage, manifest, None)


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
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
def test_ids_are_compared_up_to_where_transformers_js_cuts(ours, theirs, same):
    differing_texts = transformers_js.differing({"texts": ["t"], "ids": [ours]}, [theirs], 4, 3)
    assert differing_texts == ([] if same else ["t"])


@pytest.mark.parametrize("normalizer", [
    {"type": "Lowercase"}, {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                            "strip_accents": None, "lowercase": True},
])  # fmt: skip
def test_a_sigma_that_ends_a_word_is_made_small_as_in_tokenizers(library, tmp_path, normalizer):
    folder = write_stock(tmp_path / "bert", "bert")
    value = json.loads((folder / "tokenizer.json").read_text())
    value["normalizer"], vocabulary = normalizer, value["model"]["vocab"]
    vocabulary |= {"σας": len(vocabulary), "σασ": len(vocabulary) + 1}
    file = folder / "tokenizer.json"
    id_pairs = []
    for keep in (False, True):
        file.write_text(json.dumps(value, ensure_ascii=False))
        if keep:
            keep_sigma(file)
        id_pairs.append((ids_of(folder, ["ΣΑΣ"])[0], FastTokenizer(file).encode(["ΣΑΣ"], 9)[0]))
    (theirs, ours), (kept_theirs, kept_ours) = id_pairs
    assert theirs != ours == kept_theirs == kept_ours
