"""What every device does with a bundle before it is touched itself."""

from __future__ import annotations

from pathlib import Path

from bench.devices.base import BenchSettings, check_lengths
from bench.tasks import Tasks, collect
from export.manifest import Manifest, check_files, read_manifest


def open_bundle(bundle: Path, settings: BenchSettings) -> tuple[Manifest, Tasks]:
    """The checked manifest and the tasks of a run.

    Raises:
        InputError: the bundle is damaged, a length is past its longest input, or a task's data is absent or bad.
    """
    manifest = read_manifest(bundle)
    check_files(bundle, manifest)
    check_lengths(manifest.max_length, settings, bundle)
    return manifest, collect(settings)
