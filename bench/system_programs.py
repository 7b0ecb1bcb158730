"""Programs of the system: find them, run them isolated and bounded, and name the Debian package of a missing one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from msdc.errors import MsdcError, printable
from msdc.processes import run_program

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


def missing_programs(programs: Sequence[str]) -> list[str]:
    """Those of `programs` that are not installed."""
    return [name for name in programs if find(name) is None]


def find(program: str) -> str | None:
    """Path of a program, also in folders outside an unprivileged PATH; None where it is not installed."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    # An empty or relative entry of PATH would run a program of the working directory.
    return path if path is not None and os.path.isabs(path) else None


def require_programs(*programs: str) -> list[str]:
    """Paths of `programs`; `MsdcError` names the packages of missing ones."""
    absent = missing_programs(programs)
    if absent:
        packages = " ".join(dict.fromkeys(PACKAGES.get(name, name) for name in absent))
        raise MsdcError(f"{', '.join(absent)} not found: apt-get install {packages}")
    return [str(find(name)) for name in programs]


def run_tool(
    command: Sequence[str], what: str, *, timeout_s: float = 600, cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Standard output of a program that must succeed. Paths in `command` are absolute unless `cwd` is given.

    Raises:
        MsdcError: it failed, ran past `timeout_s`, or printed without end; the message holds its own error line.
    """
    done = run_program(command, timeout_s=timeout_s, cwd=cwd, env=env)
    if done is None:
        raise MsdcError(f"{what}: {Path(command[0]).name} still ran after {timeout_s:g} s")
    if done.code != 0:
        raise MsdcError(f"{what}: {last_words(done.errors) or f'{command[0]} ended with code {done.code}'}")
    return done.output


def last_words(raw: bytes | str, limit: int = 300) -> str:
    """The most informative line of a program's output: the last one with "error" in it, else the last one."""
    text = raw.decode("utf-8", errors="replace") if isinstance(raw, bytes) else raw
    stripped = (re.sub("\ufffd+", "\ufffd", printable(line.strip())) for line in text.splitlines())
    lines = [line for line in stripped if line.strip("\ufffd ")]
    telling = [line for line in lines if "error" in line.lower()] or lines
    return telling[-1][:limit] if telling else ""
