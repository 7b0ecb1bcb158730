"""Pinned releases of npm packages, as far as they are needed: fetched with npm, kept in the user's cache.

Every file is compared with a hash in this source, at every use.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msdc.errors import MsdcError
from msdc.files import sha256_file, staged_folder, user_cache
from msdc.processes import run_program
from msdc.progress import say

TIMEOUT_S = 600.0


class PackageFile(NamedTuple):
    """A file of a release's `dist` folder: its sha256, its bytes, and bytes as servers compress it."""

    sha256: str
    bytes: int
    compressed: int


# onnxruntime-web, as far as a page needs it
PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
SCRIPT, WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
FILES = {
    SCRIPT: PackageFile("11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90", 73_054, 24_617),
    WASM: PackageFile("3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2", 14_239_897, 3_661_284),
}


def runtime_folder(
    package: str = PACKAGE, version: str = VERSION, files: Mapping[str, PackageFile] = FILES, inside: str = "dist"
) -> Path:
    """A folder that holds `files` of a release, which its folder `inside` has."""

    def intact(folder: Path) -> bool:
        return all((folder / name).is_file() and sha256_file(folder / name) == f.sha256 for name, f in files.items())

    target, release = user_cache() / package / version, f"{package} {version}"
    if intact(target):
        return target
    if (npm := shutil.which("npm")) is None:
        raise MsdcError(f"npm, which fetches {release}, is not installed (apt-get install npm)")
    say(f"fetch {release}")
    with staged_folder(target, force=True) as stage, tempfile.TemporaryDirectory(prefix="msdc-npm-") as temporary:
        done = run_program([npm, "pack", "--silent", f"{package}@{version}"], timeout_s=TIMEOUT_S, cwd=Path(temporary))
        archive = next(Path(temporary).glob("*.tgz"), None)
        if archive is None:
            lines = done.errors.strip().splitlines() if done else [f"no answer in {TIMEOUT_S:g} s"]
            raise MsdcError(f"npm cannot fetch {release}: {(lines or ['no message'])[-1][:200]}")
        with tarfile.open(archive) as packed:
            for name in {f"package/{inside}/{name}" for name in files} & set(packed.getnames()):
                (stage / Path(name).name).write_bytes(packed.extractfile(name).read())  # type: ignore[union-attr]
        if not intact(stage):
            raise MsdcError(f"{release}: the package's files are not those that this release of msdc pins")
    return target
