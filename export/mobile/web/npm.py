"""Pinned releases of npm packages, as far as they are needed: fetched with npm, kept in the user's cache."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msdc.errors import MsdcError
from msdc.files import sha256_file, staged_folder, user_cache
from msdc.progress import say

TIMEOUT_S = 600.0


@dataclass(frozen=True)
class PackageFile:
    """A file of a release: its sha256, its bytes, and bytes as servers compress it."""

    sha256: str
    bytes: int
    compressed: int


@dataclass(frozen=True)
class Release:
    """One release of a package; `files` are those of its `dist` folder that are needed."""

    package: str
    version: str
    files: Mapping[str, PackageFile]

    def _intact(self, folder: Path) -> bool:
        return all(
            (folder / name).is_file() and sha256_file(folder / name) == file.sha256 for name, file in self.files.items()
        )

    def _fetch(self, stage: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="msdc-npm-") as temporary:
            command = ["npm", "pack", "--silent", f"{self.package}@{self.version}"]
            try:
                done = subprocess.run(
                    command, cwd=temporary, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
                )
            except subprocess.TimeoutExpired as error:
                raise MsdcError(f"npm did not deliver {self.package} {self.version} in {TIMEOUT_S:g} s") from error
            archives = list(Path(temporary).glob("*.tgz"))
            if done.returncode != 0 or not archives:
                lines = done.stderr.strip().splitlines() or ["no message"]
                raise MsdcError(f"npm cannot fetch {self.package} {self.version}: {lines[-1][:200]}")
            with tarfile.open(archives[0]) as packed:
                for name in self.files:
                    member = packed.extractfile(f"package/dist/{name}")
                    if member is None:
                        raise MsdcError(f"{self.package} {self.version}: no {name} in the package")
                    (stage / name).write_bytes(member.read())

    def folder(self) -> Path:
        """A folder that holds `files`, whose hashes are compared at every use.

        Raises:
            MsdcError: npm is absent or cannot fetch the package, or the package holds other files than the pinned ones.
        """
        target = user_cache() / self.package / self.version
        if self._intact(target):
            return target
        if shutil.which("npm") is None:
            raise MsdcError(f"npm, which fetches {self.package} {self.version}, is not installed (apt-get install npm)")
        say(f"fetch {self.package} {self.version}")
        with staged_folder(target, force=True) as stage:
            self._fetch(stage)
            if not self._intact(stage):
                raise MsdcError(
                    f"{self.package} {self.version}: the package's files are not those that this release of msdc pins"
                )
        return target
