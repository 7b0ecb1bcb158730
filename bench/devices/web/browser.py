"""`browser[:NAME]`: the ONNX program in a browser of this machine, in a worker of a page in a fresh profile.

An installed browser is started without a window; its end is noticed, the memory of its page is read.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from msdc.bench.devices.base import Device
from msdc.bench.devices.host import host_info, with_cores
from msdc.bench.devices.state import Watched
from msdc.bench.devices.web.measurement import MIB, RUNTIME, Measurement
from msdc.bench.devices.web.server import SILENCE_S, AnswerServer
from msdc.bench.options import BenchSettings
from msdc.bench.result import DeviceRun
from msdc.bench.system_programs import find
from msdc.errors import InputError, MsdcError
from msdc.files import write_text
from msdc.processes import is_root, kill_tree, run_program
from msdc.progress import say

PAGE = {"index.html": "page.html", "page.js": "page.js"}
START_S = 180.0  # until a browser shows its first page, on a busy machine
STOP_S = 10.0


@dataclass(frozen=True)
class Engine:
    """One browser: names of its program (or patterns of paths), the Debian package, its options, what comes before the
    profile's folder after them (None: it takes no folder), a word in the command line of processes that show pages.

    `settings`: files of the profile -> files here; `release` is the part of a version that a device is named by.
    `display`: it has no mode without a window and runs on a virtual display (Xvfb).
    """

    name: str
    title: str
    programs: tuple[str, ...]
    package: str
    options: tuple[str, ...]
    profile: str | None
    renderer: str
    settings: Mapping[str, str] = field(default_factory=dict)
    display: bool = False
    release: str = r"\d+"

    def program(self) -> str:
        """Path of the program; `MsdcError` names the package where it, or the display that it needs, is missing."""
        if self.display and find("Xvfb") is None:
            raise MsdcError(f"{self.title} needs a virtual display: apt-get install xvfb")
        for name in self.programs:
            path = find(name) if "/" not in name else next(iter(sorted(glob.glob(name))), None)
            if path is not None:
                return path
        raise MsdcError(f"{self.title} is not installed: apt-get install {self.package}")

    def command(self, profile: Path, *addresses: str) -> list[str]:
        """The command line that opens `addresses` with the profile in `profile`."""
        # As root, Chromium refuses to start with its sandbox.
        sandbox = ("--no-sandbox",) if self.name == "chromium" and is_root() else ()
        folder = [] if self.profile is None else [f"{self.profile}{profile}"]
        return [self.program(), *self.options, *folder, *sandbox, *addresses]

    def version(self) -> str | None:
        """The version that the program prints, None where it prints none."""
        with shown(self) as environment:
            command = [self.program(), "--version"]
            done = run_program(command, timeout_s=60, env={**os.environ, **environment})
        number = re.search(r"\d+(?:\.\d+)+", done.output if done is not None else "")
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
    "firefox": Engine(
        "firefox",
        "Firefox",
        ("firefox-esr", "firefox"),
        "firefox-esr",
        ("--headless", "--new-instance", "--profile"),
        "",
        "-isForBrowser",
        {"user.js": "firefox.js"},
    ),
    "webkit": Engine(
        "webkit",
        "WebKitGTK",
        ("/usr/lib/*/webkit2gtk-4.1/MiniBrowser", "/usr/libexec/webkit2gtk-4.1/MiniBrowser"),
        "libwebkit2gtk-4.1-0 xvfb",
        ("--private",),
        None,
        "WebKitWebProcess",
        display=True,
        release=r"\d+\.\d+",
    ),
}  # fmt: skip


def engine_of(name: str | None) -> Engine:
    """The engine called `name`; None: Chromium."""
    if name is not None and name not in ENGINES:
        raise InputError(f"unknown browser {name!r}; known: {', '.join(ENGINES)}")
    return ENGINES[name or "chromium"]


def renderer_pss_mib(pid: int, marker: str) -> float | None:
    """PSS of the largest renderer below process `pid`, None where the system does not report it."""
    sizes = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error, AttributeError):
                if any(marker in word for word in child.cmdline()):
                    sizes.append(child.memory_full_info().pss / MIB)
    return round(max(sizes), 3) if sizes else None


@contextlib.contextmanager
def shown(engine: Engine) -> Iterator[dict[str, str]]:
    """Variables for a browser that has no mode without a window: a virtual display; ends with the block."""
    if not engine.display:
        yield {}
        return
    engine.program()
    reading, writing = os.pipe()
    command = [str(find("Xvfb")), "-displayfd", str(writing), "-screen", "0", "1280x800x24", "-nolisten", "tcp"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[writing],
        start_new_session=True,
    ) as server:  # fmt: skip
        os.close(writing)
        try:
            with open(reading, "rb", buffering=0) as answer:
                ready = select.select([answer], [], [], START_S)[0]
                number = answer.readline().strip().decode("ascii", "replace") if ready else ""
            if not number.isdigit():
                raise MsdcError(f"Xvfb, the display of {engine.title}, does not start")
            # Without the user's own session: neither its bus nor its Wayland display.
            yield {"DISPLAY": f":{number}", "GDK_BACKEND": "x11", "WAYLAND_DISPLAY": "", "NO_AT_BRIDGE": "1"}
        finally:
            server.kill()


@contextlib.contextmanager
def opened(engine: Engine, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """The browser with `address` open; it and all its children end with the block, its profile is removed."""
    with (
        tempfile.TemporaryDirectory(prefix="msdc-browser-", ignore_cleanup_errors=True) as folder,
        shown(engine) as environment,
    ):
        command = engine.command(Path(folder), address)
        for name, content in engine.settings.items():
            write_text(Path(folder) / name, (Path(__file__).parent / content).read_text(encoding="utf-8"))
        if engine.display:
            # It knows no profile folder: what it keeps goes where these point.
            environment |= {name: folder for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
        with open(Path(folder) / "output.txt", "wb") as output:
            browser = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True,
                env={**os.environ, **environment},
            )  # fmt: skip
            try:
                yield browser
            finally:
                # With its group, and children that left the group.
                kill_tree(browser, group=True)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    browser.wait(STOP_S)


def wait_for_answer(
    engine: Engine,
    browser: subprocess.Popen[bytes],
    server: AnswerServer,
    timeout_s: float,
    silence_s: float = SILENCE_S,
) -> float | None:
    """Wait until the page has answered; returns the renderer's last known PSS in MiB."""
    end = time.monotonic() + timeout_s
    server.page.heard = time.monotonic()
    pss_mib: float | None = None
    while not server.settled.wait(1.0):
        if browser.poll() is not None and not server.settled.is_set():
            raise MsdcError(f"{engine.title} ended with code {browser.returncode} before the page answered")
        page, now = server.page, time.monotonic()
        if now > end:
            raise MsdcError(f"no result after {timeout_s:g} s; stopped")
        # A browser's start may take longer than its page's beat.
        if now - page.heard > (silence_s if page.phase else max(silence_s, START_S)):
            raise MsdcError("the page fell silent: its tab has crashed, or the machine is too busy")
        if page.phase == "warm":
            pss_mib = renderer_pss_mib(browser.pid, engine.renderer) or pss_mib
    if server.page.state == "failed":
        raise MsdcError(server.page.line)
    return pss_mib


class BrowserDevice(Device):
    """A browser of this machine."""

    kind = "browser"

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`."""
        engine = engine_of(self.argument)
        settings = with_cores(settings)
        measurement = Measurement(bundle, settings, self.spec)
        if settings.progress:
            say(f"bench {measurement.manifest.name} in {engine.title}")
        try:
            return [self._measure(engine, measurement)]
        except MsdcError as error:
            error.args = (f"{RUNTIME} in {engine.title}: {error}",)
            raise

    def _measure(self, engine: Engine, measurement: Measurement) -> DeviceRun:
        version, files = engine.version(), measurement.files(PAGE)
        with (
            Watched() as watched,
            AnswerServer(files, lambda raw: (measurement.read(raw), {}), measurement.max_answer) as server,
            opened(engine, server.address) as browser,
        ):
            pss_mib = wait_for_answer(engine, browser, server, measurement.settings.timeout_s)
        host = host_info()
        number = re.match(engine.release, version or "")
        name = f"{host.name}, {engine.title}" + (f" {number.group()}" if number else "")
        return measurement.run(
            server.answer,
            host.model_copy(update={"name": name, "kind": self.kind}),
            engine.name,
            version,
            pss_mib=pss_mib,
            states=watched.states,
        )
