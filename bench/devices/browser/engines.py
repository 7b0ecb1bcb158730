"""Installed browsers: find one, start it without a window in a fresh profile, notice its end, read its memory."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from msdc.bench.devices.browser.server import PageServer
from msdc.bench.system_programs import find
from msdc.errors import InputError, MsdcError

SILENCE_S = 60.0  # a page that says nothing for so long is gone; it speaks every second
START_S = 180.0  # until a browser shows its first page, on a busy machine
STOP_S = 10.0
MIB = 2**20


@dataclass(frozen=True)
class Engine:
    """One browser: names of its program, the Debian package, its options (the profile's folder is added)."""

    name: str
    title: str
    programs: tuple[str, ...]
    package: str
    options: tuple[str, ...]
    profile: str
    renderer: str

    def program(self) -> str:
        """Path of the program.

        Raises:
            MsdcError: it is not installed; names the package.
        """
        for name in self.programs:
            found = find(name)
            if found is not None:
                return found
        raise MsdcError(f"{self.title} is not installed: apt-get install {self.package}")

    def version(self) -> str | None:
        """What the program says about its version, None where it says nothing."""
        done = subprocess.run([self.program(), "--version"], capture_output=True, text=True, timeout=60, check=False)
        number = re.search(r"\d+(?:\.\d+)+", done.stdout)
        return number.group() if number else None


ENGINES = {
    "chromium": Engine(
        "chromium",
        "Chromium",
        ("chromium", "chromium-browser", "google-chrome"),
        "chromium",
        (
            "--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync", "--mute-audio",
            "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
            "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
            "--disable-backgrounding-occluded-windows", "--disable-dev-shm-usage",
        ),
        "--user-data-dir=",
        "--type=renderer",
    ),
}  # fmt: skip


def engine_of(name: str | None) -> Engine:
    """The engine called `name`; None: Chromium.

    Raises:
        InputError: unknown; lists the known ones.
    """
    if name is not None and name not in ENGINES:
        raise InputError(f"unknown browser {name!r}; known: {', '.join(ENGINES)}")
    return ENGINES[name or next(iter(ENGINES))]


def renderer_pss_mib(pid: int, marker: str) -> float | None:
    """PSS of the largest renderer below process `pid`, None where the system does not tell."""
    sizes = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error, AttributeError):
                if any(marker in word for word in child.cmdline()):
                    sizes.append(child.memory_full_info().pss / MIB)
    return round(max(sizes), 3) if sizes else None


@contextlib.contextmanager
def opened(engine: Engine, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """The browser with `address` open; it and all its children end with the block, its profile is removed."""
    program = engine.program()
    with tempfile.TemporaryDirectory(prefix="msdc-browser-", ignore_cleanup_errors=True) as folder:
        # As root, Chromium refuses to start with its sandbox.
        sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
        command = [program, *engine.options, *sandbox, f"{engine.profile}{folder}", address]
        with open(Path(folder) / "output.txt", "wb") as output:
            browser = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True
            )
            try:
                yield browser
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(browser.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    browser.wait(STOP_S)


def wait_for_answer(
    engine: Engine, browser: subprocess.Popen[bytes], server: PageServer, timeout_s: float, silence_s: float = SILENCE_S
) -> float | None:
    """Wait for the page's answer; returns the renderer's last known PSS in MiB.

    Raises:
        MsdcError: the browser ended, the page fell silent, or the time is over.
    """
    end = time.monotonic() + timeout_s
    server.heard = time.monotonic()
    pss_mib: float | None = None
    while not server.answered.wait(1.0):
        if browser.poll() is not None and not server.answered.is_set():
            raise MsdcError(f"{engine.title} ended with code {browser.returncode} before the page answered")
        now = time.monotonic()
        if now > end:
            raise MsdcError(f"no result after {timeout_s:g} s; stopped")
        # A browser's start may take longer than its page's beat.
        if now - server.heard > (silence_s if server.phase else max(silence_s, START_S)):
            raise MsdcError("the page fell silent: its tab has crashed, or the machine is too busy")
        if server.phase == "warm":
            pss_mib = renderer_pss_mib(browser.pid, engine.renderer) or pss_mib
    return pss_mib
