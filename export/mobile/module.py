"""The module for apps in a bundle: Kotlin for Android and Swift for iOS over one C++ core, JavaScript for browsers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from msdc.errors import InputError
from msdc.export.manifest import GOLDEN_FILE, MANIFEST_FILE, Manifest, TokenizerPart
from msdc.export.mobile.sizes import app_sizes
from msdc.export.mobile.web.npm import runtime_folder
from msdc.export.mobile.web.write import write_web_module
from msdc.export.runtimes import EVERY, RUNTIMES, TARGETS
from msdc.files import PACKAGE

HERE = Path(__file__).resolve().parent
CORE = PACKAGE / "export" / "native"
# Only these files hold placeholders; in source code double braces mean something else.
FILLED = ("build.gradle.kts", "Package.swift", "README.md")
# Runtime -> its library for Android apps on Maven.
ANDROID_LIBRARIES = {
    "executorch": "org.pytorch:executorch-android",
    "onnx": "com.microsoft.onnxruntime:onnxruntime-android",
}


def _version(manifest: Manifest, runtime: str) -> str:
    """The release that wrote the program; an app's runtime should be the same."""
    return manifest.versions[RUNTIMES[runtime].runs_with[0]].split("+")[0]


def _values(stage: Path, manifest: Manifest, names: tuple[str, ...]) -> dict[str, str]:
    def listed(runtime: str) -> str:
        tokenizer = manifest.tokenizer.native_file or manifest.tokenizer.file
        files = [MANIFEST_FILE, GOLDEN_FILE, tokenizer, *manifest.program_files(runtime)]
        return f'"{runtime}" to listOf({", ".join(json.dumps(name) for name in files)}),'

    return {
        "name": manifest.name,
        "width": str(manifest.width),
        "engine": names[0],
        "engines": ", ".join(names),
        "library": " or ".join(f"`{ANDROID_LIBRARIES[name]}:{_version(manifest, name)}`" for name in names),
        "versions": ", ".join(f'"{name}" to "{_version(manifest, name)}"' for name in names),
        "files": "\n    ".join(listed(name) for name in names),
        "sizes": app_sizes(stage, manifest, names[0]),
        **{name: _version(manifest, name) for name in names},
    }


def require_module(target: str, tokenizer: TokenizerPart, runtimes: Sequence[str]) -> None:
    """Fail before minutes of work where the target has a module and it cannot be written for these runtimes."""
    module = TARGETS[target].module
    reason = None
    if module is not None and tokenizer.native_file is None:
        reason = tokenizer.no_native()
    elif module is not None and not set(module.runtimes) & set(runtimes):
        titles = " or ".join(RUNTIMES[name].title for name in module.runtimes)
        reason = f"the module runs {titles} programs and this bundle would hold none; pass --runtime {EVERY}"
    if reason:
        raise InputError(f"no {target} module: {reason} (--no-module writes the rest of the bundle)")


def _write_template(template: str, out: Path, values: dict[str, str]) -> None:
    shutil.copytree(HERE / template, out, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for path in sorted(p for p in out.rglob("*") if p.is_file() and p.name in FILLED):
        text = path.read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        path.write_text(text, encoding="utf-8", newline="\n")


def check_module_options(target: str, module: bool, sample: bool, with_runtime: bool, for_js: bool = False) -> None:
    """Fail before minutes of work where the target has no sample app, or no use for what a web page needs."""
    record = TARGETS[target].module
    if sample and (record is None or record.sample is None):
        known = ", ".join(record.name for record in TARGETS if record.module and record.module.sample)
        raise InputError(f"target {target} has no sample app; targets that have one: {known}")
    if (with_runtime or for_js) and (record is None or record.core is not None or not module):
        what = "--with-runtime copies onnxruntime-web" if with_runtime else "--transformers-js writes files for pages"
        raise InputError(f"{what}, which {f'{target} does not run' if module else 'nothing uses with --no-module'}")
    if with_runtime:
        runtime_folder()


def write_native_module(
    stage: Path, target: str, manifest: Manifest, *, sample: bool = False, with_runtime: bool = False,
    for_js: Path | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """Write `stage`/android, /ios or /web, before the bundle's files are listed; nothing for targets without a module.

    `sample` adds the target's sample app, `with_runtime` the runtime of a page; `for_js` is the model's folder, where
    transformers.js shall read the bundle too. Returns the names of the folders that were written.
    """
    check_module_options(target, True, sample, False)
    module = TARGETS[target].module
    if module is None:
        return ()
    out = stage / module.template
    require_module(target, manifest.tokenizer, manifest.runtimes)
    if module.core is None:
        write_web_module(stage, manifest, with_runtime=with_runtime, for_js=for_js)
        return (module.template,)
    names = tuple(name for name in module.runtimes if name in manifest.runtimes)  # in the module's order
    values = _values(stage, manifest, names)
    _write_template(module.template, out, values)
    for name in RUNTIMES.names():
        if name not in names:
            shutil.rmtree(out / "src" / name, ignore_errors=True)
    shutil.copytree(CORE, out / module.core)
    if not sample or module.sample is None:
        return (module.template,)
    _write_template(module.sample, stage / module.sample, values)
    return (module.template, module.sample)
