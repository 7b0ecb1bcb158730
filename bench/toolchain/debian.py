"""Debian packages for another machine, fetched and verified by apt through mmdebstrap, and never installed."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msdc.bench.system_programs import find, require, run_tool
from msdc.errors import MsdcError
from msdc.processes import is_root

SUITE = "trixie"
MIRROR = "http://deb.debian.org/debian"


def mirror() -> str:
    """The Debian mirror: `$MSDC_DEBIAN_MIRROR`, or Debian's own."""
    return os.environ.get("MSDC_DEBIAN_MIRROR") or MIRROR


def extract(include: Sequence[str], download: Sequence[str], target: Path, *, arch: str, suite: str = SUITE) -> None:
    """Unpack the packages `include` with their dependencies into `target`; store the .deb files of `download` in debs/.

    apt checks every package against the release's signature; nothing of a package is executed.

    Raises:
        MsdcError: mmdebstrap is missing, or the mirror cannot be reached.
    """
    (program, _) = require("mmdebstrap", "dpkg-deb")
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
            # The only dependency of a virtual kernel package is the real one; @name stands for that.
            names = " ".join(
                f"$(apt-cache depends {shlex.quote(name[1:])} | sed -n 's/.*Depends: //p' | head -n 1)"
                if name.startswith("@") else shlex.quote(name)
                for name in download
            )  # fmt: skip
            command.append(
                '--extract-hook=export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"; mkdir -p "$1/debs" && cd "$1/debs" && '
                f"apt-get download -o APT::Sandbox::User=root {names} >/dev/null"
            )
        run_tool([*command, suite, str(root), mirror()], f"Debian packages from {mirror()}")
        for path in sorted(root.iterdir()):
            run_tool(["cp", "-a", str(path), str(target)], "copy packages")


def unpack(deb: Path, target: Path) -> None:
    """Unpack one .deb."""
    (program,) = require("dpkg-deb")
    run_tool([program, "-x", str(deb), str(target)], f"unpack {deb.name}")


def only_deb(folder: Path) -> Path:
    """The one .deb in a folder of `extract`.

    Raises:
        MsdcError: there is none.
    """
    found = sorted((folder / "debs").glob("*.deb"))
    if not found:
        raise MsdcError(f"{folder}: no package was downloaded")
    return found[0]
