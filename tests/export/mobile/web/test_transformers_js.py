"""transformers.js, run in Node: files of stock bundles and of students' folders, left out with a word elsewhere."""

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

import msdc
from msdc.cli import main
from msdc.errors import GateError, InputError, MsdcError
from msdc.export import export
from msdc.export.golden import golden_texts, read_golden, write_golden
from msdc.export.manifest import check_files, read_manifest
from msdc.export.mobile.web import transformers_js
from msdc.export.mobile.web.npm import SCRIPT, WASM, runtime_folder
from msdc.export.mobile.web.transformers_js import (
    PACKAGE,
    TITLE,
    about_bundle,
    about_folder,
    add_transformers_js,
    ids_of,
    spelled,
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
    out, _ = export(write_stock(folder / "bert", "bert"), target="web", transformers_js=True, out=folder / "bundle")
    return out


@pytest.fixture(scope="module")
def mini(library, tmp_path_factory) -> Path:
    """The shipped student: a SentencePiece model without a tokenizer.json, 8 and 4 bits."""
    return export(target="web", transformers_js=True, out=tmp_path_factory.mktemp("mini") / "bundle").folder


@pytest.fixture(scope="module")
def prompted(library, tmp_path_factory) -> Path:
    """Prompts that are not pooled, by the generic exporter."""
    model, made = kind_bundle(UNPOOLED, "onnx")
    folder = shutil.copytree(made, tmp_path_factory.mktemp("prompted") / "bundle")
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
    assert (
        f'from "{PACKAGE}"' in readme and 'model_file_name: "model"' in readme and "{{" not in readme.replace("{{ ", "")
    )


@pytest.mark.parametrize("kind", ["bundle", pytest.param("mini", marks=pytest.mark.slow), "prompted"])
def test_transformers_js_itself_gives_the_golden_vectors(kind, request, tmp_path):
    bundle = request.getfixturevalue(kind)
    manifest, golden = read_manifest(bundle), read_golden(bundle)
    whole = [i for i, row in enumerate(golden["ids"]) if len(row) < manifest.max_length][:20]
    made = run_script(
        HERE / "transformers_encode.mjs", bundle, tmp_path,
        data=manifest.program_files("onnx")[1:], texts=[golden["texts"][i] for i in whole],
        more=re.findall(r"prompt_tokens: new Tensor\(.*\[(\d)n\]", (bundle / "web/README.md").read_text()),
    )  # fmt: skip
    found = np.asarray(made, dtype=np.float32)
    assert len(found) >= 10
    # WebAssembly rounds 8-bit activations in its own way.
    assert cosine_rows(golden["vectors"]["onnx"][whole], found).min() > 0.999


@pytest.fixture
def stage(tmp_path) -> Path:
    folder = tmp_path / "stage"
    shutil.copytree(tiny.bundle("fp32", ("onnx",)), folder)
    texts, rows = ["a cat", "a dog"], [[2, 6, 7, 3], [2, 6, 7, 3]]
    write_golden(folder, texts, rows, {"float": np.zeros((2, 4), dtype=np.float32)})
    return folder


def test_other_ids_and_no_node_are_one_line(library, stage, tmp_path, monkeypatch):
    manifest = read_manifest(tiny.bundle("fp32", ("onnx",)))
    with pytest.raises(GateError, match=r"transformers.js: .*gives other ids"):
        write_transformers_js(stage, manifest, tmp_path)
    loaded, texts = msdc.load_bundle(tiny.bundle("fp32", ("onnx",))), ["a cat", "a dog"]
    write_golden(stage, texts, loaded.tokenize(texts), {"float": np.zeros((2, 4), dtype=np.float32)})
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    with pytest.raises(MsdcError, match="apt-get install nodejs"):
        write_transformers_js(stage, manifest, tmp_path)


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


@pytest.fixture(scope="module")
def student(library, tmp_path_factory) -> Path:
    """A trained tokenizer's folder; SentencePiece's rules are in its map."""
    folder = tmp_path_factory.mktemp("student") / "tiny"
    shutil.copytree(tiny.student_folder(), folder)
    (folder / "tokenizer.json").unlink()  # made again from the `.model`
    add_transformers_js(folder)
    return folder


def run_pipeline(folder: Path, batches: list[list[str]], work: Path) -> dict[str, np.ndarray]:
    options = {"pooling": "mean", "normalize": True}
    found = run_script(HERE / "transformers_pipeline.mjs", folder, work, batches=batches, options=options)
    return {name: np.asarray(rows, dtype=np.float32) for name, rows in found.items()}


def test_its_pipeline_gives_the_students_vectors(student, tmp_path):
    encoder = msdc.load_encoder(student)
    texts = [text for text in golden_texts() if text.strip()]
    texts = [text for text, row in zip(texts, encoder.tokenize(texts), strict=True) if len(row) < encoder.max_length]
    batches = [texts[start : start + 8] for start in range(0, len(texts), 8)]  # padded
    found = run_pipeline(student, batches, tmp_path)
    wanted = encoder.encode(texts)
    assert len(wanted) > 60
    np.testing.assert_allclose(found["fp32"], wanted, atol=2e-5)
    assert cosine_rows(wanted, found["q8"]).min() > 0.98


def test_the_folder_stays_what_it_was(student):
    before = tiny.student_folder()
    texts = golden_texts()
    assert np.array_equal(msdc.load_encoder(student).encode(texts), msdc.load_encoder(before).encode(texts))
    own = FastTokenizer(before / "tokenizer.json").encode(texts, 32)
    assert FastTokenizer(student / "tokenizer.json").encode(texts, 32) == own
    card = (student / "README.md").read_text()
    assert card.count(TITLE) == 1 and '"feature-extraction"' in card and 'pooling: "mean", normalize: true' in card


def test_again_it_changes_nothing_and_keeps_later_sections(student):
    card = student / "README.md"
    card.write_text(card.read_text() + "\n## Data\n\n* mine\n")
    files = {path: path.read_bytes() for path in student.rglob("*") if path.is_file()}
    add_transformers_js(student)
    assert {path: path.read_bytes() for path in student.rglob("*") if path.is_file()} == files


def test_a_tokenizer_with_other_ids_changes_nothing(library, tmp_path, monkeypatch):
    folder = tmp_path / "tiny"
    shutil.copytree(tiny.student_folder(), folder)
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(transformers_js, "spelled", lambda tokenizer: None)
    with pytest.raises(GateError, match=r"other ids on \d+ of \d+ golden texts"):
        add_transformers_js(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files


def test_what_it_does_not_take_is_one_line(tmp_path, capsys):
    folder = tmp_path / "tiny"
    shutil.copytree(tiny.student_folder(), folder)
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=r"it lacks tokenizer_config.json"):
        add_transformers_js(folder)
    with pytest.raises(SystemExit) as ended:
        main(["push", str(folder), "me/tiny", "--transformers-js", "--dry-run"])
    assert ended.value.code == 2 and "choose one" in capsys.readouterr().err


def test_the_card_of_a_student_that_no_pipeline_pools():
    config = tiny.student(dense=8).config
    assert "AutoModel" in about_folder(config, "", "me/x") and "pipeline(" not in about_folder(config, "", "me/x")
    assert "begins with the prompt `query: `" in about_folder(tiny.student().config, "query: ", "me/x")


@pytest.mark.parametrize("normalizer", [
    {"type": "Lowercase"}, {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                            "strip_accents": None, "lowercase": True},
])  # fmt: skip
def test_a_sigma_that_ends_a_word_is_made_small_as_in_tokenizers(library, tmp_path, normalizer):
    folder = write_stock(tmp_path / "bert", "bert")
    value = json.loads((folder / "tokenizer.json").read_text())
    value["normalizer"], vocabulary = normalizer, value["model"]["vocab"]
    vocabulary |= {"σας": len(vocabulary), "σασ": len(vocabulary) + 1}
    found = {}
    for name, content in (("plain", value), ("spelled", spelled(value))):
        (made := tmp_path / f"{name}.json").write_text(json.dumps(content))
        found[name] = ids_of(folder, ["ΣΑΣ"], made), FastTokenizer(made).encode(["ΣΑΣ"], 9)
    assert found["plain"][0] != found["plain"][1] == found["spelled"][0] == found["spelled"][1]


def test_only_what_it_reads_otherwise_is_spelled_out():
    for normalizer in (None, {"type": "NFC"}, {"type": "Precompiled", "precompiled_charsmap": ""}):
        assert spelled({"normalizer": normalizer, "model": {}}) is None
