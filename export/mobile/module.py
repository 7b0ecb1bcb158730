"""The native module of a bundle: a Kotlin module for Android, a Swift package for iOS, over one C++ core."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from msdc.export.manifest import GOLDEN_FILE, MANIFEST_FILE, Manifest
from msdc.export.runtimes import EVERY, RUNTIMES
from msdc.export.targets import TARGETS
from msdc.files import PACKAGE

HERE = Path(__file__).resolve().parent
CORE = PACKAGE / "export" / "native"
# Only these files hold placeholders; in source code double braces mean something else.
FILLED = ("build.gradle.kts", "Package.swift", "README.md")


def _values(manifest: Manifest, runtime: str) -> dict[str, str]:
    files = [MANIFEST_FILE, GOLDEN_FILE, manifest.tokenizer.file, *manifest.program_files(runtime)]
    return {
        "name": manifest.name,
        "width": str(manifest.width),
        # The release that wrote the program; an app's runtime should be the same.
        runtime: manifest.versions[RUNTIMES[runtime].runs_with[0]].split("+")[0],
        "files": ", ".join(json.dumps(name) for name in files),
    }


def why_not(manifest: Manifest, runtime: str) -> str | None:
    """The reason why the native core cannot run a bundle, None if it can."""
    if manifest.tokenizer.kind != "sentencepiece":
        return (
            f"The native core reads SentencePiece tokenizers; this model's is a {manifest.tokenizer.kind}. The program "
            "runs on the device with ids computed by the app. For text in and vector out, give the model a "
            "SentencePiece vocabulary (`msdc distill` with an `assistant.vocabulary`) and export that."
        )
    if runtime not in manifest.runtimes:
        title = RUNTIMES[runtime].title
        return f"The module runs {title} programs and the bundle holds none: export with `--runtime {EVERY}`."
    return None


def write_native_module(stage: Path, target: str, manifest: Manifest) -> None:
    """Write `stage`/android or `stage`/ios; nothing for the other targets.

    Called before the bundle's files are listed, so that the module's are hashed with them. For a bundle that the
    core cannot run, a README with the reason is written instead.
    """
    module = TARGETS[target].module
    if module is None:
        return
    out = stage / module.template
    reason = why_not(manifest, module.runtime)
    if reason is not None:
        out.mkdir()
        text = f"# No {module.template} module for {manifest.name}\n\n{reason}\n"
        (out / "README.md").write_text(text, encoding="utf-8")
        return
    shutil.copytree(HERE / module.template, out, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    shutil.copytree(CORE, out / module.core)
    values = _values(manifest, module.runtime)
    for path in sorted(p for p in out.rglob("*") if p.is_file() and p.name in FILLED):
        text = path.read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace(f"{{{{{name}}}}}", value)
        path.write_text(text, encoding="utf-8")
