"""The pinned release of onnxruntime-web, as far as a page needs it: fetched with npm, kept in the user's cache."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from msdc.errors import MsdcError
from msdc.files import sha256_file, staged_folder, user_cache
from msdc.progress import say

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
SCRIPT, WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class RuntimeFile:
    """A file of the release: its sha256, its bytes, and bytes as servers compress it."""

    sha256: str
    bytes: int
    compressed: int


FILES = {
    SCRIPT: RuntimeFile("11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90", 73_054, 24_617),
    WASM: RuntimeFile("3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2", 14_239_897, 3_661_284),
}


def _intact(folder: Path) -> bool:
    return all((folder / name).is_file() and sha256_file(folder / name) == file.sha256 for name, file in FILES.items())


def _fetch(stage: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="msdc-npm-") as temporary:
        command = ["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"]
        try:
            done = subprocess.run(
                command, cwd=temporary, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise MsdcError(f"npm did not deliver {PACKAGE} {VERSION} in {TIMEOUT_S:g} s") from error
        archives = list(Path(temporary).glob("*.tgz"))
        if done.returncode != 0 or not archives:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise MsdcError(f"npm cannot fetch {PACKAGE} {VERSION}: {lines[-1][:200]}")
        with tarfile.open(archives[0]) as packed:
            for name in FILES:
                member = packed.extractfile(f"package/dist/{name}")
                if member is None:
                    raise MsdcError(f"{PACKAGE} {VERSION}: no {name} in the package")
                (stage / name).write_bytes(member.read())


def runtime_folder() -> Path:
    """A folder that holds `FILES`, whose hashes are compared at every use.

    Raises:
        MsdcError: npm is absent or cannot fetch the package, or the package holds other files than the pinned ones.
    """
    target = user_cache() / PACKAGE / VERSION
    if _intact(target):
        return target
    if shutil.which("npm") is None:
        raise MsdcError(f"npm, which fetches {PACKAGE} {VERSION}, is not installed (apt-get install npm)")
    say(f"fetch {PACKAGE} {VERSION}")
    with staged_folder(target, force=True) as stage:
        _fetch(stage)
        if not _intact(stage):
            raise MsdcError(f"{PACKAGE} {VERSION}: the package's files are not those that this release of msdc pins")
    return target
