"""Downloads: whole or resumed, with the ordinary clients of package registries."""

from __future__ import annotations

import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from msdc.errors import InputError
from msdc.files import atomic_path, disk_errors
from msdc.progress import say

BLOCK = 1 << 20
TIMEOUT = 60.0


def download(url: str, target: Path) -> Path:
    """`url` as the file `target`; an interrupted download goes on where it stopped, if the server can.

    Raises:
        InputError: the server does not have it or does not answer.
    """
    if target.is_file():
        return target
    part = target.with_name(f".{target.name}.part")
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        have = part.stat().st_size if part.is_file() else 0
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        say(f"fetching {url}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                # A server that knows no ranges sends the whole file.
                with open(part, "ab" if have and answer.status == 206 else "wb") as out:
                    while block := answer.read(BLOCK):
                        out.write(block)
                whole = answer.headers.get("Content-Length")
                begun = have if answer.status == 206 else 0
                if whole is not None and part.stat().st_size != begun + int(whole):
                    raise InputError(f"{url}: the connection ended early; run again to go on")
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing after what is there
                part.unlink(missing_ok=True)
            raise InputError(f"{url}: cannot be fetched ({error})") from error
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            raise InputError(f"{url}: cannot be fetched ({error})") from error
        with atomic_path(target) as temporary:
            shutil.move(part, temporary)
    return target


def _run(command: list[str], folder: Path, what: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)

    def files() -> list[Path]:
        return sorted(path for path in folder.iterdir() if path.is_file())

    if kept := files():
        return kept[0]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=1800, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{what}: cannot be fetched ({error})") from error
    if done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().split("\n")[-1]
        raise InputError(f"{what}: cannot be fetched ({said[:160]})")
    if len(new := files()) != 1:
        raise InputError(f"{what}: {len(new)} files were downloaded, expected one")
    return new[0]


def pypi_file(name: str, version: str, cache: Path) -> Path:
    """The wheel of a release, by pip.

    Raises:
        InputError: it cannot be downloaded.
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-python-version-warning",
    ]
    command += ["--ignore-requires-python", "--dest", ".", f"{name}=={version}"]
    return _run(command, cache / "pypi" / f"{name}-{version}", f"PyPI package {name} {version}")


def apt_package(name: str, version: str, cache: Path) -> Path:
    """A Debian package of that version, by apt-get, from the sources that the system knows.

    Raises:
        InputError: this system has no apt-get, or its sources lack that version.
    """
    what = f"Debian package {name} {version}"
    if shutil.which("apt-get") is None:
        raise InputError(f"{what}: apt-get is not installed; download the package into a folder for --sources")
    safe = f"{name}_{version}".replace(":", "%3a")
    return _run(["apt-get", "download", f"{name}={version}"], cache / "debian" / safe, what)
