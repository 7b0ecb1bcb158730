"""The bundle of a shipped model, made once and kept in the user's cache, for commands that are given none."""

from __future__ import annotations

from pathlib import Path

from msdc import __version__
from msdc.encoders.folder import shipped_names
from msdc.export.manifest import MANIFEST_FILE
from msdc.extras import installed
from msdc.files import sha256_files, user_cache
from msdc.progress import say


def shipped_bundle(name: str = "msdc-mini") -> Path:
    """The bundle of a shipped model for Linux, from the cache or exported now.

    Raises:
        InputError: it cannot be exported.
    """
    from msdc.encoders.folder import locate_model
    from msdc.export.export import ExportRequest, export_model

    model = locate_model(name)
    # Another version of the package may export otherwise.
    mark = sha256_files([path for path in model.iterdir() if path.is_file()])[:16]
    # Without ExecuTorch the bundle holds the ONNX program alone.
    runtime = None if installed("executorch") else "onnx"
    folder = user_cache() / "bundles" / "-".join(filter(None, (__version__, mark, runtime))) / name
    if not (folder / MANIFEST_FILE).is_file():
        say(f"no bundle given: exporting {name} to {folder} (once)")
        export_model(ExportRequest(model=name, target="linux", runtime=runtime, out=folder, force=True))
    return folder


def bundle_or_shipped(given: Path | None) -> Path:
    """The bundle folder that a user named; that of the shipped model for none, or for its name."""
    if given is None:
        return shipped_bundle()
    return shipped_bundle(str(given)) if str(given) in shipped_names() else given
