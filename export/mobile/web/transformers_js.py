"""Files that transformers.js reads, for a web bundle of a stock model: written only where its tokenizer gives our ids.

The gate runs transformers.js itself in Node, on the golden texts. Its two native dependencies (an ONNX runtime and an
image library) are replaced by empty ones: a tokenizer needs neither.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msdc.errors import InputError, MsdcError
from msdc.export.manifest import Manifest
from msdc.export.mobile.web.npm import PackageFile, Release
from msdc.export.reference.golden import read_golden
from msdc.files import read_json
from msdc.text.tokenizer import JSON_FILE

HERE = Path(__file__).resolve().parent
PACKAGE, VERSION, LIBRARY = "@huggingface/transformers", "4.3.1", "transformers.node.min.mjs"
RELEASE = Release(
    PACKAGE,
    VERSION,
    {LIBRARY: PackageFile("8cc8e9ddc428fa0e59fe31116bd70bc5b58db6bc260f5f38ef2c7b0f9523f52e", 573_031, 0)},
)
CONFIG_FILE, SETTINGS_FILE = "config.json", "tokenizer_config.json"
READ = (CONFIG_FILE, SETTINGS_FILE, JSON_FILE)  # of a folder beside its programs
OWN_KIND = "msdc-student"
STUBS = {
    "onnxruntime-node": "module.exports = { InferenceSession: {}, Tensor: class {}, env: {} };\n",
    "onnxruntime-common": "exports.Tensor = class Tensor {};\n",
    "sharp": "module.exports = () => {};\n",
}
TIMEOUT_S = 600.0
SHOWN = 40  # letters of a text in a message


def stock_folder(folder: Path | None) -> Path | None:
    """`folder` where it is a stock model that transformers.js could read, None for our own layouts."""
    if folder is None or not all((folder / name).is_file() for name in READ):
        return None
    try:
        config = read_json(folder / CONFIG_FILE)
    except InputError:
        return None
    kind = config.get("model_type") if isinstance(config, dict) else None
    return folder if isinstance(kind, str) and kind != OWN_KIND else None


def library(folder: Path) -> Path:
    """transformers.js in `folder` beside its empty dependencies; returns the file to import.

    Raises:
        MsdcError: it cannot be fetched.
    """
    target = folder / LIBRARY
    shutil.copyfile(RELEASE.folder() / LIBRARY, target)
    for name, source in STUBS.items():
        package = folder / "node_modules" / name
        package.mkdir(parents=True)
        (package / "package.json").write_text(json.dumps({"name": name, "main": "index.js"}), encoding="utf-8")
        (package / "index.js").write_text(source, encoding="utf-8")
    return target


def ids_of(model: Path, texts: list[str]) -> list[list[int]]:
    """Ids that transformers.js gives `texts` with the tokenizer in the folder `model`.

    Raises:
        MsdcError: no Node, no transformers.js, or it does not read the tokenizer.
    """
    node = shutil.which("node")
    if node is None:
        raise MsdcError("node, which runs transformers.js, is not installed (apt-get install nodejs npm)")
    with tempfile.TemporaryDirectory(prefix="msdc-transformers-") as temporary:
        work = Path(temporary)
        request = {"library": str(library(work)), "parent": f"{model.parent}/", "name": model.name, "texts": texts}
        (work / "request.json").write_text(json.dumps(request), encoding="utf-8")
        command = [node, str(HERE / "transformers_gate.cjs"), str(work / "request.json")]
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise MsdcError(f"transformers.js gave no ids in {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or ["no message"]
        raise MsdcError(f"transformers.js does not read its tokenizer: {lines[0].strip()[:200]}")
    found: list[list[int]] = json.loads(done.stdout)
    return found


def differing(
    texts: Sequence[str], ids: Sequence[list[int]], found: Sequence[list[int]], max_length: int, eos_id: int | None
) -> list[str]:
    """The texts whose ids differ. transformers.js cuts a long text's last special id off, and we do not: of a text that
    was cut, what stands before that id is compared.
    """
    other = []
    for text, own, theirs in zip(texts, ids, found, strict=True):
        kept = own
        if len(own) == max_length and len(theirs) > len(own) and own[-1:] == [eos_id]:
            kept = own[:-1]
        if (theirs if len(theirs) <= max_length else theirs[: len(kept)]) != kept:
            other.append(text)
    return other


def told(other: Sequence[str], count: int) -> str:
    """That ids differ on the texts `other` of `count`."""
    shown = other[0][:SHOWN] + ("..." if len(other[0]) > SHOWN else "")
    return f"its tokenizer gives other ids on {len(other)} of {count} golden texts, the first: {shown!r}"


def _obstacle(stage: Path, manifest: Manifest, stock: Path) -> str | None:
    """Why transformers.js would not give our vectors; None where it would."""
    if not manifest.include_prompt:
        return "the program takes the number of the prompt's tokens, which transformers.js does not give"
    golden = read_golden(stage)
    with tempfile.TemporaryDirectory(prefix="msdc-transformers-") as temporary:
        model = Path(temporary) / "model"
        model.mkdir()
        for name in READ:
            shutil.copyfile(stock / name, model / name)
        try:
            found = ids_of(model, golden["texts"])
        except MsdcError as error:
            return str(error)
    other = differing(golden["texts"], golden["ids"], found, manifest.max_length, manifest.tokenizer.eos_id)
    return told(other, len(found)) if other else None


def write_transformers_js(stage: Path, manifest: Manifest, stock: Path) -> str | None:
    """Write the files into the bundle's folder `stage`; returns why not, None where they were written."""
    reason = _obstacle(stage, manifest, stock)
    if reason is None:
        for name in READ:
            if not (stage / name).exists():
                shutil.copyfile(stock / name, stage / name)
    return reason


def about(manifest: Manifest, reason: str | None) -> str:
    """What the module's README says: how to use the files, or why there are none."""
    if reason is not None:
        return f"This bundle holds no files for transformers.js: {reason}."
    part = manifest.part("onnx")
    data = next((name for name in part.files() if name != part.file), None)
    external = f'\n  session_options: {{ externalData: [{{ path: "{data}", data: "{data}" }}] }},' if data else ""
    program = part.file.removesuffix(".onnx")
    return f"""\
The bundle folder is also a model folder of {PACKAGE} (compared with {VERSION}): its tokenizer gave the export's
ids on all golden texts.

```js
import {{ AutoModel, AutoTokenizer, env }} from "{PACKAGE}";
env.localModelPath = "/"; // the folder that holds this bundle
const tokenizer = await AutoTokenizer.from_pretrained("BUNDLE");
const model = await AutoModel.from_pretrained("BUNDLE", {{
  subfolder: "",
  model_file_name: "{program}",
  dtype: "fp32",{external}
}});
const {{ sentence_embedding }} = await model(await tokenizer("a text"));
```

One text per call, of at most {manifest.max_length} tokens: transformers.js cuts a longer one without its closing
token. It does not compare files with the manifest; `msdc.js` does."""
