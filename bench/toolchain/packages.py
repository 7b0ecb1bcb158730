"""Packages of other machines, and the user's cache of downloads and builds.

A cached folder is complete or absent, and safe for parallel processes. It holds the sha256 of its files, which is
compared at every use: what is in it will be executed. Debian packages are fetched and verified by apt through
mmdebstrap, and never installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msdc.bench.system_programs import find, require_programs, run_tool
from msdc.errors import MsdcError
from msdc.files import locked, read_json, sha256_file, staged_folder, user_cache, write_json
from msdc.processes import is_root
from msdc.progress import warn

STAMP, CONTENTS = "recipe.json", "contents.json"
SUITE = "trixie"
MIRROR = "http://deb.debian.org/debian"


def recipe_key(recipe: dict[str, Any]) -> str:
    """Twelve hex digits of a recipe's JSON."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]


def contents(folder: Path) -> dict[str, str]:
    """Relative path -> sha256 of each file, or `-> TARGET` of a link; without the list itself."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            files[name] = f"-> {os.readlink(path)}"
        elif path.is_file() and name != CONTENTS:
            files[name] = sha256_file(path)
    return files


def _intact(folder: Path) -> bool:
    """Whether a cached folder has the files that it was made with."""
    try:
        return bool(read_json(folder / CONTENTS) == contents(folder))
    except (MsdcError, OSError):
        return False


def cached_folder(kind: str, recipe: dict[str, Any], make: Callable[[Path], None], *, force: bool = False) -> Path:
    """The folder that `make` fills for `recipe`: found in the cache, or made now and kept.

    A second process with the same recipe waits for the first. A failed `make` leaves nothing. A folder whose files do
    not have the hashes that they were made with is rebuilt.
    """
    target = user_cache() / kind / recipe_key(recipe)
    if not force and _intact(target):
        return target
    with locked(target.with_suffix(".lock")):
        if force or not _intact(target):
            if target.is_dir() and not force:
                warn(f"{target}: its files have changed; rebuilt")
            with staged_folder(target, force=True) as stage:
                make(stage)
                (stage / STAMP).write_text(json.dumps(recipe, indent=2, sort_keys=True) + "\n", encoding="utf-8")
                write_json(stage / CONTENTS, contents(stage))
    return target


def extract(
    include: Sequence[str], target: Path, *, arch: str, download: str = "", download_to: Path | None = None
) -> None:
    """Unpack the packages `include` with their dependencies into `target`, and `download` alone into `download_to`.

    `@name` as download means the only dependency of a virtual package. apt checks every package against the
    release's signature; nothing of a package is executed.
    """
    program, unpack = require_programs("mmdebstrap", "dpkg-deb")
    mirror = os.environ.get("MSDC_DEBIAN_MIRROR") or MIRROR
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="msdc-debian-") as temporary:
        root = Path(temporary) / "root"
        command = [
            program, "--variant=extract", f"--architectures={arch}", "--format=directory", "--quiet",
            "--aptopt=APT::Install-Recommends \"false\"",
        ]  # fmt: skip
        if not is_root():
            # Owners do not matter: the guest's only user is root, and only plain data is read from the tree.
            command.append("--mode=unshare" if find("newuidmap") else "--mode=fakeroot")
        if include:
            command.append(f"--include={','.join(include)}")
        if download:
            name = shlex.quote(download.removeprefix("@"))
            if download.startswith("@"):
                name = f"$(apt-cache depends {name} | sed -n 's/.*Depends: //p' | head -n 1)"
            command.append(
                '--extract-hook=export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"; mkdir -p "$1/debs" && cd "$1/debs" && '
                f"apt-get download -o APT::Sandbox::User=root {name} >/dev/null"
            )
        run_tool([*command, SUITE, str(root), mirror], f"Debian packages from {mirror}")
        if download:
            (package,) = (root / "debs").glob("*.deb")
            run_tool([unpack, "-x", str(package), str(download_to)], f"unpack {package.name}")
            shutil.rmtree(root / "debs")
        for path in sorted(root.iterdir()):
            run_tool(["cp", "-a", str(path), str(target)], "copy packages")
