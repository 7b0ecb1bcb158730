"""Errors must be one line; hashes and seals made right again, as whoever can write a folder can make them."""

from pathlib import Path

import pytest

from msdc.errors import MsdcError
from msdc.export.manifest import MANIFEST_FILE, list_files, read_manifest, write_manifest


def one_line(attempt, kind: type[MsdcError] = MsdcError) -> str:
    with pytest.raises(kind) as caught:
        attempt()
    text = str(caught.value)
    assert text, attempt
    assert "\n" not in text, text
    assert len(text) < 1500, text
    return text


def reseal(folder: Path, base: Path | None = None, **changes) -> None:
    """Hash and seal a bundle anew with its manifest, or that of the bundle `base`, changed; a dict changes a part."""
    manifest = read_manifest(base or folder)
    parts = {name: getattr(manifest, name).model_copy(update=value) if isinstance(value, dict) else value
             for name, value in changes.items()}  # fmt: skip
    (folder / MANIFEST_FILE).unlink()
    write_manifest(folder, manifest.model_copy(update={"files": list_files(folder), **parts}))


def spoil(folder: Path, **changes) -> None:
    """Make all weights of an ONNX bundle NaN; hashes and seal are right."""
    weights = folder / "model.onnx.data"
    weights.write_bytes(b"\xff" * weights.stat().st_size)
    reseal(folder, **changes)
