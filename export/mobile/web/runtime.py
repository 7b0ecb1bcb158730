"""The pinned release of onnxruntime-web, as far as a page needs it."""

from __future__ import annotations

from pathlib import Path

from msdc.export.mobile.web.npm import PackageFile, Release

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
SCRIPT, WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
FILES = {
    SCRIPT: PackageFile("11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90", 73_054, 24_617),
    WASM: PackageFile("3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2", 14_239_897, 3_661_284),
}
RELEASE = Release(PACKAGE, VERSION, FILES)


def runtime_folder() -> Path:
    """The folder that holds `FILES`; see `Release.folder`."""
    return RELEASE.folder()
