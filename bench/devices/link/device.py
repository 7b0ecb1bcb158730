"""`link[:NAME]`: the browser of any phone that opens a link, which a server on this machine answers."""

from __future__ import annotations

import functools
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.devices.base import BenchSettings, Device, Incomplete
from msdc.bench.devices.browser.answer import read_answer
from msdc.bench.devices.browser.measurement import RUNTIME, Measurement
from msdc.bench.devices.browser.server import json_bytes
from msdc.bench.devices.link.address import listening_address, self_signed, show
from msdc.bench.devices.link.answer import LinkAnswer, browser_of, device_of, plain, state_of
from msdc.bench.devices.link.server import LinkServer
from msdc.bench.measure import vectors_agree
from msdc.bench.result import DeviceRun
from msdc.errors import InputError, MsdcError
from msdc.progress import say

PAGE = Path(__file__).resolve().parent / "page"
SILENCE_S = 60.0  # a page speaks every few seconds; phones stop pages that are not in front
KIND = "browser"
PACKED = (".html", ".css", ".js", ".mjs", ".json", ".wasm")


class LinkDevice(Device):
    """Phones that open the link; `NAME` is what their owners are offered as the device's name."""

    kind = "link"
    silence_s = SILENCE_S

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`.

        Raises:
            Incomplete: fewer phones answered than expected; the others' runs are kept.
        """
        host, port = listening_address(settings.address)
        measurement = Measurement.of(bundle, settings, self.spec)
        files = self._files(measurement)
        tls, fingerprint = self_signed(host) if settings.tls else (None, None)
        runs: list[DeviceRun] = []

        def accept(raw: dict[str, Any], name: str) -> tuple[DeviceRun, dict[str, Any]]:
            answer = read_answer(raw, settings.lengths, settings.runs, LinkAnswer)
            run = _run(measurement, answer, [run.device.name for run in runs])
            runs.append(run)
            return run, _shown(run)

        try:
            server = LinkServer(
                files,
                host,
                port,
                tls,
                expect=settings.expect,
                max_answer=measurement.max_answer,
                silence_s=self.silence_s,
                accept=accept,
                tell=say,
                packed=_packed(files),
            )
        except OSError as error:
            where = f"{host}:{port}" if port else host
            raise InputError(f"--address {where}: cannot listen there ({error.strerror or error})") from error
        try:
            with server:
                self.show(server.address, server.port, settings, fingerprint)
                failures = server.wait(settings.timeout_s)
        except KeyboardInterrupt:
            if not runs:
                raise
            failures = [f"interrupted after {len(runs)} of {settings.expect} devices"]
        if not failures:
            return runs
        if runs:
            raise Incomplete("; ".join(failures), runs)
        raise MsdcError(f"{RUNTIME} by link: {'; '.join(failures)}")

    def show(self, link: str, port: int, settings: BenchSettings, fingerprint: str | None) -> None:
        """Show the link to the user."""
        show(link, port, settings.expect, settings.timeout_s, fingerprint)

    def _files(self, measurement: Measurement) -> dict[str, Path | bytes]:
        page = {name: PAGE / name for name in ("index.html", "link.css", "link.js")}
        files = measurement.files(page)
        packed = _packed(files)
        download = sum(len(content) for content in packed.values()) + sum(
            len(source) if isinstance(source, bytes) else source.stat().st_size
            for name, source in files.items()
            if name not in packed
        )
        about = {
            "model": measurement.manifest.name,
            "bytes": download,
            "sentences": len(measurement.texts) + len(measurement.golden["texts"]),
            "name": plain(self.argument or ""),
        }
        return {**files, "about.json": json_bytes(about)}


@functools.lru_cache(maxsize=32)
def _gzip_file(path: Path, changed_ns: int) -> bytes:
    # `changed_ns` makes another entry of a file that was written again.
    return gzip.compress(path.read_bytes(), compresslevel=6, mtime=0)


def _packed(files: Mapping[str, Path | bytes]) -> dict[str, bytes]:
    """Files that get much smaller: phones may be on a slow network. Weights hardly do."""
    found = {}
    for name, source in files.items():
        if Path(name).suffix not in PACKED:
            continue
        if isinstance(source, bytes):
            found[name] = gzip.compress(source, mtime=0)
        else:
            found[name] = _gzip_file(source, source.stat().st_mtime_ns)
    return found


def _unique(name: str, others: Sequence[str]) -> str:
    """`name`, numbered where another phone has it: results are kept in files by name."""
    number = 2
    found = name
    while found in others:
        found, number = f"{name} ({number})", number + 1
    return found


def _run(measurement: Measurement, answer: LinkAnswer, others: Sequence[str]) -> DeviceRun:
    device = device_of(answer, KIND)
    return measurement.run(
        answer,
        device.model_copy(update={"name": _unique(device.name, others)}),
        browser_of(answer)[0],
        before=state_of(answer.battery_before),
        after=state_of(answer.battery_after),
        notes=("measured on a phone or computer through its link; what it says about itself is not verified",),
    )


def _shown(run: DeviceRun) -> dict[str, Any]:
    """What the phone shows of its result."""
    assert run.parity is not None
    golden = run.parity
    return {
        "name": run.device.name,
        "latency": [[timing.length, float(np.median(timing.samples))] for timing in run.latency],
        "load_ms": run.load,
        "agrees": vectors_agree(golden) and golden.ids_equal,
        "texts": golden.texts,
        "scores": [[score.name, score.spearman] for score in run.accuracy if score.spearman is not None],
    }
