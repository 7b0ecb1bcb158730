"""Packages of other machines: Debian's, fetched and verified by apt through mmdebstrap, and never installed."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msdc.bench.system_programs import find, require_programs, run_tool
from msdc.processes import is_root

SUITE = "trixie"
MIRROR = "http://deb.debian.org/debian"


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
