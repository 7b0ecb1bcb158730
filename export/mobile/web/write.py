"""Write a bundle's `web/`: one ES module, its types, package.json, README, a search page, and the runtime if asked for.

The module's sources are ES modules of their own. They are joined into one file, which a page fetches at once and which
is also the worker's script; it holds the core's tokenizers as WebAssembly.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from pathlib import Path

from msdc import __version__
from msdc.export.manifest import Manifest
from msdc.export.mobile.sizes import size_table
from msdc.export.mobile.web.npm import FILES, PACKAGE, SCRIPT, VERSION, runtime_folder
from msdc.export.mobile.web.transformers_js import about_bundle, write_transformers_js
from msdc.export.mobile.web.wasm import SEARCH, TOKENIZER, core_wasm
from msdc.export.options import ExportSettings
from msdc.export.readme import render
from msdc.files import plain_name, write_text
from msdc.text.tokenizer import load_tokenizer

HERE = Path(__file__).resolve().parent
SOURCES, TEMPLATE = HERE / "src", HERE / "template"
MODULE_FILE, RUNTIME_FOLDER = "msdc.js", "runtime"
PARTS = ("bytes", "core", "tokenizer", "download", "bundle", "engine", "index_host", "link", "encoder")
WASM_LINE = 'const TOKENIZERS = "";'
# The line of engine.js that imports the runtime's package, and what bundles with a runtime have in its place.
PACKAGE_IMPORT = f'return await import("{PACKAGE}/wasm");'
NO_IMPORT = 'throw new Error("this msdc.js takes it from its bundle");'
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./\w+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|class|function|async function) )", re.MULTILINE)
_COMMENT = re.compile(r"^ *// .*\n| // [^\"'`\n]*$|^ +", re.MULTILINE)  # and indentation: bytes that a page downloads


def with_tokenizers(source: str) -> str:
    """tokenizer.js with the WebAssembly that it reads."""
    wasm = zlib.compress(core_wasm(TOKENIZER).read_bytes(), 9)
    return source.replace(WASM_LINE, f'const TOKENIZERS = "{base64.b64encode(wasm).decode("ascii")}";')


def module_source(with_runtime: bool = False) -> str:
    """The module. `with_runtime`: the bundle has the runtime, so that no bundler needs to find its package."""
    parts = [f"// msdc {__version__}, Apache-2.0. The sources with comments are in msdc/export/mobile/web/src.\n"]
    for name in PARTS:
        text = _IMPORT.sub("", (SOURCES / f"{name}.js").read_text(encoding="utf-8"))
        # The last source is the module's interface; all others become private to it.
        parts.append(_COMMENT.sub("", text if name == PARTS[-1] else _EXPORT.sub("", text)).strip() + "\n")
    source = with_tokenizers("\n".join(parts))
    return source.replace(PACKAGE_IMPORT, NO_IMPORT) if with_runtime else source


def write_web_module(stage: Path, manifest: Manifest, options: ExportSettings, model: Path | None) -> None:
    """Write `stage`/web for the bundle in `stage`, whose tokenizer, programs and golden vectors are written already.

    `model` is the model's own folder, whose settings transformers.js reads.
    """
    out = stage / "web"
    out.mkdir()
    write_text(out / MODULE_FILE, module_source(options.with_runtime))
    if options.with_runtime:
        (out / RUNTIME_FOLDER).mkdir()
        for name in FILES:
            shutil.copyfile(runtime_folder() / name, out / RUNTIME_FOLDER / name)
    shutil.copyfile(core_wasm(SEARCH), out / SEARCH)
    transformers = "transformers.js does not read a SentencePiece model, which is this bundle's tokenizer."
    if manifest.tokenizer.kind != "sentencepiece":
        transformers = "`msdc export --target web --transformers-js` adds the files that transformers.js reads."
    if options.transformers_js:
        write_transformers_js(stage, manifest, model)
        transformers = about_bundle(manifest, load_tokenizer(stage, manifest.tokenizer.pad_id))
    tokenizer = manifest.tokenizer.native_file or manifest.tokenizer.file
    parts = {"program": manifest.program_files("onnx"), "tokenizer": [tokenizer], "module": [f"web/{MODULE_FILE}"]}
    runtime = (sum(file.bytes for file in FILES.values()), sum(file.compressed for file in FILES.values()))
    values = {
        "name": manifest.name,
        "package": plain_name(manifest.name.lower(), r"[^a-z0-9-]+"),
        "version": __version__,
        "width": str(manifest.truncate_dim or manifest.width),
        "runtime": VERSION,
        "optional": json.dumps(options.with_runtime),
        "script": SCRIPT,
        "transformers": transformers,
        "sizes": size_table(stage, parts, {f"runtime: {PACKAGE} {VERSION}": runtime}),
    }
    for path in sorted(TEMPLATE.iterdir()):
        text = path.read_text(encoding="utf-8")
        write_text(out / path.name, render(text, values) if path.suffix in (".md", ".json") else text)
