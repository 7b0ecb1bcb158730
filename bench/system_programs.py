"""Programs of the system: find and run them, and name the Debian package of a missing one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msdc.errors import MsdcError

# program -> Debian package
PACKAGES = {
    "adb": "adb",
    "qemu-system-aarch64": "qemu-system-arm",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "dpkg-deb": "dpkg",
    "g++": "g++",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
}


def missing(programs: Sequence[str]) -> list[str]:
    """Those of `programs` that are not installed."""
    return [name for name in programs if find(name) is None]


def find(program: str) -> str | None:
    """Path of a program, also in folders outside an unprivileged PATH; None where it is not installed."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


def require(*programs: str) -> list[str]:
    """Paths of `programs`.

    Raises:
        MsdcError: one is missing; names the packages to install.
    """
    absent = missing(programs)
    if absent:
        packages = " ".join(dict.fromkeys(PACKAGES.get(name, name) for name in absent))
        raise MsdcError(f"{', '.join(absent)} not found: apt-get install {packages}")
    return [str(find(name)) for name in programs]


def run_tool(
    command: Sequence[str], what: str, *, timeout_s: float = 600, cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Standard output of a program that must succeed.

    Raises:
        MsdcError: it failed or ran past `timeout_s`; the message holds its own error line.
    """
    try:
        done = subprocess.run(
            list(command), capture_output=True, timeout=timeout_s, check=False, cwd=cwd, env=env,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise MsdcError(f"{what}: {Path(command[0]).name} still ran after {timeout_s:g} s") from error
    if done.returncode != 0:
        raise MsdcError(f"{what}: {last_words(done.stderr) or f'{command[0]} ended with code {done.returncode}'}")
    return done.stdout.decode("utf-8", errors="replace")


def last_words(raw: bytes | str, limit: int = 300) -> str:
    """The most informative line of a program's output: the last one with "error" in it, else the last one."""
    text = raw.decode("utf-8", errors="replace") if isinstance(raw, bytes) else raw
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()] or lines
    return telling[-1][:limit] if telling else ""
