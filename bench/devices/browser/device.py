"""`browser[:NAME]`: the ONNX program in a browser of this machine, in a worker of a page in a fresh profile."""

from __future__ import annotations

import re
from pathlib import Path

from msdc.bench.devices.base import BenchSettings, Device
from msdc.bench.devices.browser.answer import PageAnswer, read_answer
from msdc.bench.devices.browser.engines import Engine, engine_of, opened, wait_for_answer
from msdc.bench.devices.browser.measurement import PAGE, RUNTIME, Browser, Measurement
from msdc.bench.devices.browser.server import PageServer
from msdc.bench.devices.this_machine import check_cores, host_info, host_state
from msdc.bench.result import DeviceRun
from msdc.errors import InputError, MsdcError
from msdc.progress import say


class BrowserDevice(Device):
    """A browser of this machine."""

    kind = "browser"

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`."""
        engine = engine_of(self.argument)
        check_cores(settings)
        measurement = Measurement.of(bundle, settings, self.spec)
        if settings.progress:
            say(f"bench {measurement.manifest.name} in {engine.title}")
        try:
            return [self._measure(engine, measurement)]
        except InputError:
            raise
        except MsdcError as error:
            raise MsdcError(f"{RUNTIME} in {engine.title}: {error}") from error

    def _measure(self, engine: Engine, measurement: Measurement) -> DeviceRun:
        settings, version = measurement.settings, engine.version()
        files = measurement.files({"index.html": PAGE / "index.html", "page.js": PAGE / "page.js"})
        before = host_state()
        with (
            PageServer(files, measurement.max_answer) as server,
            opened(engine, server.address) as browser,
        ):
            pss_mib = wait_for_answer(engine, browser, server, settings.timeout_s)
            answer = read_answer(server.result(), settings.lengths, settings.runs, PageAnswer)
        host = host_info()
        number = re.match(engine.release, version or "")
        name = f"{host.name}, {engine.title}" + (f" {number.group()}" if number else "")
        return measurement.run(
            answer,
            host.model_copy(update={"name": name, "kind": self.kind}),
            Browser(engine.name, version, pss_mib),
            before=before,
            after=host_state(),
        )
