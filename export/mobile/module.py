"""The module for apps in a bundle: Kotlin for Android and Swift for iOS over one C++ core, JavaScript for browsers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc import __version__
from msdc.encoders.encoder import SentenceEncoder
from msdc.errors import InputError
from msdc.export.bundle import defaults_of, open_tokenizer
from msdc.export.golden import read_golden
from msdc.export.manifest import GOLDEN_FILE, MANIFEST_FILE, Manifest, TokenizerPart
from msdc.export.mobile.react_native.write import write_react_native
from msdc.export.mobile.sizes import app_sizes
from msdc.export.mobile.web.write import write_web_module
from msdc.export.options import ExportSettings
from msdc.export.readme import render
from msdc.export.runtimes import EVERY, RUNTIMES
from msdc.export.schema import TARGETS
from msdc.files import PACKAGE, plain_name, without_system_files, write_text
from msdc.search.index import index_of
from msdc.search.ranking import SEARCH_SQL
from msdc.text.passages import passages
from msdc.text.tokenizer import Reader

HERE = Path(__file__).resolve().parent
CORE = PACKAGE / "export" / "native"
# Only these files hold placeholders; in source code double braces mean something else.
FILLED = ("build.gradle.kts", "settings.gradle.kts", "Package.swift", "README.md")  # fmt: skip
# Runtime -> its library for Android apps on Maven.
ANDROID_LIBRARIES = {
    "executorch": "org.pytorch:executorch-android",
    "onnx": "com.microsoft.onnxruntime:onnxruntime-android",
}


# Template -> what writes a module without the core.
WRITERS = {"web": write_web_module, "react-native": write_react_native}


def _version(manifest: Manifest, runtime: str) -> str:
    """The release that wrote the program; an app's runtime should be the same."""
    return manifest.versions[RUNTIMES[runtime].runs_with[0]].split("+")[0]


def _values(stage: Path, manifest: Manifest, names: tuple[str, ...]) -> dict[str, str]:
    parts = {"program": [*manifest.program_files(names[0])], "tokenizer": [manifest.tokenizer.native_file or ""],
             "self-test": [GOLDEN_FILE]}  # fmt: skip
    shared = [MANIFEST_FILE, *parts["self-test"], *parts["tokenizer"]]
    lists = {name: [*shared, *manifest.program_files(name)] for name in names}
    needed = lists[names[0]]
    asset = plain_name(manifest.name)  # of Gradle's module and of the assets
    return {
        "name": manifest.name,
        "asset": asset,
        # Of Kotlin's package, where a hyphen becomes an underscore and capitals are not distinguished.
        "namespace": re.sub(r"\W|^(?=\d)", "_", plain_name(manifest.name, r"[^a-z0-9-]+"), flags=re.ASCII),
        "version": __version__,
        "width": str(manifest.width),
        "engine": names[0],
        "engines": ", ".join(names),
        "library": " or ".join(f"`{ANDROID_LIBRARIES[name]}:{_version(manifest, name)}`" for name in names),
        "versions": ", ".join(f'"{name}" to "{_version(manifest, name)}"' for name in names),
        "files": "\n    ".join(f'"{n}" to listOf({", ".join(map(json.dumps, files))}),' for n, files in lists.items()),
        "needed": ", ".join(f"`{file}`" for file in needed),
        "bytes": f"{sum((stage / file).stat().st_size for file in needed[1:]):,}",
        "sizes": app_sizes(stage, parts, names[0]),
        **{name: _version(manifest, name) for name in names},
    }


def require_module(target: str, tokenizer: TokenizerPart, runtimes: Sequence[str]) -> None:
    """Fail before minutes of work where the target has a module and it cannot be written for these runtimes."""
    module = TARGETS[target].module
    reason = None
    if module is not None and module.own_tokenizer and tokenizer.native_file is None:
        reason = tokenizer.no_native()
    elif module is not None and not set(module.runtimes) & set(runtimes):
        titles = " or ".join(RUNTIMES[name].title for name in module.runtimes)
        reason = f'the module runs {titles} programs and this bundle would contain none; pass `runtime="{EVERY}"`'
    if reason:
        raise InputError(f"no {target} module: {reason} (`module=False` writes the rest of the bundle)")


class GoldenEncoder(SentenceEncoder):
    """A bundle's model for its golden texts alone: their vectors, as its program gave them at export."""

    full: np.ndarray
    texts: list[str]

    def __init__(self, folder: Path, manifest: Manifest, runtime: str) -> None:
        super().__init__(manifest.name, open_tokenizer(folder, manifest), manifest.max_length, defaults_of(manifest))
        golden = read_golden(folder)
        self.full = golden["vectors"][runtime]
        self.texts = [text.removeprefix(self.defaults.prompt()) for text in golden["texts"]]
        self._row = {tuple(ids): row for row, ids in enumerate(golden["ids"])}
        self._spread = manifest.cosines

    @property
    def full_width(self) -> int:
        """Width of the stored vectors."""
        return int(self.full.shape[1])

    def cosines(self) -> tuple[float, float] | None:
        """Those of the manifest, as the device has them."""
        return None if self._spread is None else (self._spread.mean, self._spread.deviation)

    def _vectors(self, rows: list[list[int]], *_: Any) -> np.ndarray:
        return np.asarray(self.full[[self._row[tuple(row)] for row in rows]])


def search_answers(folder: Path, manifest: Manifest, runtime: str) -> str:
    """What a search over golden texts finds here, which the module's test compares with the device's own answers.

    Lines of "document, id, text" and "mode, query, id:score ...", with tabs between.
    """
    model = GoldenEncoder(folder, manifest, runtime)
    spans = passages(model.texts, *model.token_counter())
    complete_texts = [
        text for text, text_spans in zip(model.texts, spans, strict=True) if text_spans == [(0, len(text))]
    ]
    texts = [text for text in dict.fromkeys(complete_texts) if text.isprintable() and len(text.split()) > 2]
    unread = Reader(model.tokenizer, model.max_length).unread(texts)
    texts = [text for text, unread_text in zip(texts, unread, strict=True) if not unread_text]
    queries, texts = texts[::6], [text for row, text in enumerate(texts) if row % 6]
    lines = [f"document\t{number}\t{text}" for number, text in enumerate(texts, 1)]
    index = index_of(texts, model)
    for query in queries:
        for mode in ("words", "vectors", "both"):
            hits = index.search(query, mode=mode).hits
            lines.append(f"{mode}\t{query}\t" + " ".join(f"{hit.id}:{hit.score}" for hit in hits))
    return "\n".join(lines) + "\n"


def _left_out(_: str, names: list[str]) -> set[str]:
    """What Python and operating systems leave in a template's folder of a checkout."""
    template_files = {path.name for path in without_system_files(map(Path, names))}
    return {name for name in names if name not in template_files or name == "__pycache__" or name.endswith(".pyc")}


def _write_template(template: str, out: Path, values: dict[str, str]) -> None:
    shutil.copytree(HERE / template, out, dirs_exist_ok=True, ignore=_left_out)
    for path in sorted(p for p in out.rglob("*") if p.is_file() and p.name in FILLED):
        path.write_text(render(path.read_text(encoding="utf-8"), values), encoding="utf-8", newline="\n")


def package_folder(out: Path, target: str) -> Path | None:
    """Where the module of a bundle `out` is, for targets whose apps take the bundle's folder as it is."""
    module = TARGETS[target].module
    return out.with_name(f"{out.name}-package") if module is not None and module.apart else None


def write_native_module(
    stage: Path, manifest: Manifest, options: ExportSettings, *, folder: str = "", package: Path | None = None,
    model: Path | None = None,
) -> str | None:  # fmt: skip
    """Write `stage`/android or /web before the bundle's files are listed, or the folder `package` next to the bundle
    `folder`; nothing for targets without a module. `model` is the model's own folder.

    Returns the folder that was written, as seen from the bundle.
    """
    options.check()
    module = TARGETS[options.target].module
    if module is None:
        return None
    out = package or stage / module.template
    require_module(options.target, manifest.tokenizer, manifest.runtimes)
    if module.core is None:
        WRITERS[module.template](stage, manifest, options, model)
        return module.template
    names = tuple(name for name in module.runtimes if name in manifest.runtimes)  # in the module's order
    values = _values(stage, manifest, names) | {"folder": folder or manifest.name}
    _write_template(module.template, out, values)
    for name in RUNTIMES.names():
        if name not in names:
            shutil.rmtree(out / "src" / name, ignore_errors=True)
    shutil.copytree(CORE, out / module.core)
    statements = SEARCH_SQL.read_text(encoding="utf-8")  # as C++, for builds without CMake
    write_text(out / module.core / "src/index/search_sql.h", f'R"sql({statements})sql"\n')
    write_text(out / module.answers, search_answers(stage, manifest, names[0]))
    return f"../{folder}-package" if package else module.template
