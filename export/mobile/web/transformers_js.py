"""Files with which transformers.js reads a web bundle, for models that have a `tokenizer.json` of their own.

`onnx/model.onnx` is the bundle's program for its pipelines, which pool states of tokens: every token has the sentence
vector, so that each pooling gives it, and the number of the prompt's tokens is fixed. It has the program's data file.

The gate runs transformers.js itself in Node: its tokenizer must give the bundle's ids on all golden texts. Its native
dependencies (an ONNX runtime and an image library) are replaced by empty ones: a tokenizer needs neither.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from msdc.errors import GateError, MsdcError
from msdc.export.golden import read_golden
from msdc.export.manifest import Manifest
from msdc.export.mobile.web.npm import PackageFile, runtime_folder
from msdc.export.readme import render
from msdc.files import read_json, write_text
from msdc.progress import say
from msdc.text.tokenizer import (
    JSON_FILE,
    MAX_TOKENIZER_BYTES,
    FastTokenizer,
    Tokenizer,
    load_tokenizer,
    prompt_tokens,
)

HERE = Path(__file__).resolve().parent
PACKAGE, VERSION, LIBRARY = "@huggingface/transformers", "4.3.1", "transformers.node.min.mjs"
FILES = {LIBRARY: PackageFile("8cc8e9ddc428fa0e59fe31116bd70bc5b58db6bc260f5f38ef2c7b0f9523f52e", 573_031, 0)}
# Copied from the model's folder where it has them.
SETTINGS = {
    "config.json": {"model_type": "bert"},
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
}
STUBS = {
    "onnxruntime-node": "module.exports = { InferenceSession: {}, Tensor: class {}, env: {} };\n",
    "onnxruntime-common": "exports.Tensor = class Tensor {};\n",
    "sharp": "module.exports = () => {};\n",
}


def library(folder: Path) -> Path:
    """Write transformers.js into `folder`, next to its empty dependencies; returns the file to import."""
    shutil.copyfile(runtime_folder(PACKAGE, VERSION, FILES) / LIBRARY, folder / LIBRARY)
    for name, source in STUBS.items():
        package = folder / "node_modules" / name
        package.mkdir(parents=True)
        (package / "index.js").write_text(source, encoding="utf-8")
    return folder / LIBRARY


def ids_of(folder: Path, texts: list[str]) -> list[list[int]]:
    """The ids that transformers.js gives `texts` with the tokenizer of a folder."""
    if (node := shutil.which("node")) is None:
        raise MsdcError("node, which runs transformers.js, is not installed (apt-get install nodejs npm)")
    with tempfile.TemporaryDirectory(prefix="msdc-transformers-") as temporary:
        (model := Path(temporary) / "model").mkdir()
        for name in (*SETTINGS, JSON_FILE):
            shutil.copyfile(folder / name, model / name)
        request = {"library": str(library(model.parent)), "parent": f"{temporary}/", "name": "model", "texts": texts}
        command = [node, str(HERE / "transformers_gate.cjs")]
        done = subprocess.run(command, input=json.dumps(request), capture_output=True, encoding="utf-8", timeout=600)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or ["no message"]
        raise MsdcError(f"transformers.js cannot read this tokenizer: {lines[0].strip()[:200]}")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def differing(golden: dict[str, Any], computed_ids: list[list[int]], max_length: int, eos_id: int | None) -> list[str]:
    """The texts whose ids differ. transformers.js truncates the last special id of a long text, msdc does not."""
    other = []
    for text, golden_ids, library_ids in zip(golden["texts"], golden["ids"], computed_ids, strict=True):
        cut = len(golden_ids) == max_length and len(library_ids) > len(golden_ids) and golden_ids[-1:] == [eos_id]
        comparable_ids = golden_ids[:-1] if cut else golden_ids
        if (library_ids if len(library_ids) <= max_length else library_ids[: len(comparable_ids)]) != comparable_ids:
            other.append(text)
    return other


def keep_sigma(file: Path) -> None:
    """Lower-case the capital sigma in a step of its own: JavaScript makes another letter of one that ends a word."""
    value = read_json(file, MAX_TOKENIZER_BYTES)
    steps = (value.get("normalizer") or {}).get("normalizers", [value.get("normalizer") or {}])
    if any(step.get("type") == "Lowercase" or step.get("lowercase") for step in steps):
        sigma = {"type": "Replace", "pattern": {"String": "\u03a3"}, "content": "\u03c3"}
        value["normalizer"] = {"type": "Sequence", "normalizers": [sigma, *steps]}
        write_text(file, json.dumps(value, ensure_ascii=False))


def pipeline_program(file: Path, prompt_tokens: int) -> bytes:
    """The graph of a program with an output `token_embeddings`, and no input `prompt_tokens`."""
    import onnx
    from onnx import TensorProto, helper

    model = onnx.load(file, load_external_data=False)
    graph, (vector,) = model.graph, model.graph.output
    width = vector.type.tensor_type.shape.dim[1].dim_value
    for name, values in (("count", [prompt_tokens]), ("width", [width]), ("axis", [1])):
        graph.initializer.append(helper.make_tensor(f"pipeline/{name}", TensorProto.INT64, [1], values))
    prompt_inputs = [prompt_input for prompt_input in graph.input if prompt_input.name == "prompt_tokens"]
    for prompt_input in prompt_inputs:
        graph.input.remove(prompt_input)
    first = [
        helper.make_node("Shape", ["input_ids"], ["pipeline/batch"], end=1),
        helper.make_node("Expand", ["pipeline/count", "pipeline/batch"], ["prompt_tokens"]),
    ]
    for number, node in enumerate(first if prompt_inputs else ()):
        graph.node.insert(number, node)
    graph.node.extend([
        helper.make_node("Shape", ["input_ids"], ["pipeline/tokens"]),
        helper.make_node("Concat", ["pipeline/tokens", "pipeline/width"], ["pipeline/shape"], axis=0),
        helper.make_node("Unsqueeze", [vector.name, "pipeline/axis"], ["pipeline/vector"]),
        helper.make_node("Expand", ["pipeline/vector", "pipeline/shape"], ["token_embeddings"]),
    ])  # fmt: skip
    sizes = ["batch", "length", width]
    graph.output.append(helper.make_tensor_value_info("token_embeddings", TensorProto.FLOAT, sizes))
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


def write_transformers_js(stage: Path, manifest: Manifest, model: Path | None) -> None:
    """Write the files into the bundle's folder `stage`; `model` is the model's own folder.

    Raises:
        GateError: transformers.js gives other ids.
        MsdcError: no Node, or transformers.js cannot be fetched.
    """
    golden, length = read_golden(stage), manifest.max_length
    texts = golden["texts"]
    for name, value in SETTINGS.items():
        source_file = model / name if model is not None else None
        write_text(
            stage / name,
            source_file.read_text("utf-8") if source_file is not None and source_file.is_file() else json.dumps(value),
        )
    keep_sigma(stage / JSON_FILE)
    tokenizer = load_tokenizer(stage, manifest.tokenizer.pad_id)
    count = prompt_tokens(tokenizer, manifest.prompts.get(manifest.default_prompt or "", ""), length)
    (stage / "onnx").mkdir(exist_ok=True)
    (stage / "onnx" / "model.onnx").write_bytes(pipeline_program(stage / manifest.part("onnx").file, count))
    say(f"transformers.js: compare its tokenizer on {len(texts)} golden texts")
    other = [] if FastTokenizer(stage / JSON_FILE).encode(texts, length) == golden["ids"] else texts
    if other := other or differing(golden, ids_of(stage, texts), length, manifest.tokenizer.eos_id):
        differ = f"{len(other)} of {len(texts)} golden texts"
        raise GateError(f"transformers.js gives other ids on {differ}: {other[0][:40]!r}")


def about_bundle(manifest: Manifest, tokenizer: Tokenizer) -> str:
    """The section of the module's README on these files."""
    part, prompt = manifest.part("onnx"), manifest.prompts.get(manifest.default_prompt or "", "")
    count = f"[{prompt_tokens(tokenizer, prompt, manifest.max_length)}n], [1]"
    external = [{"path": name, "data": name} for name in part.files() if name != part.file]
    values = {
        "program": part.file.removesuffix(".onnx"), "external": json.dumps(external), "version": VERSION,
        "text": json.dumps(f"{prompt}a text", ensure_ascii=False), "length": str(manifest.max_length),
        "more": "" if manifest.include_prompt else f', prompt_tokens: new Tensor("int64", {count})',
    }  # fmt: skip
    return render((HERE / "transformers.md").read_text(encoding="utf-8"), values).strip()
